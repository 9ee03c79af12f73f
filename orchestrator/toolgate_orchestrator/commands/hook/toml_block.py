"""Toolgate's part of a TOML file: the text between two marked lines at its end. The rest stays byte for byte.
Pure."""

import json
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from toolgate_bus.errors import ConfigError

BEGIN: Final = (
    "# >>> toolgate hook: written by `toolgate hook install`, taken out by `toolgate hook uninstall`"
)
END: Final = "# <<< toolgate hook"


def read_toml(text: str) -> dict[str, Any]:
    """Return the parsed file. Raise ConfigError, with line and column, if it is not TOML."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"it is not TOML: {error}") from None


def add_block(text: str, entries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the text with hooks at its end. Raise ConfigError if they cannot stand there."""
    before = read_toml(text)
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = [BEGIN]
    for event, group in entries.items():
        for handler in group["hooks"]:
            lines += [f"[[hooks.{event}]]", f"[[hooks.{event}.hooks]]"]
            lines += [f"{name} = {_write(value)}" for name, value in handler.items()]
    lines += [END, ""]
    gap = "" if not text or text.endswith("\n") else newline
    made = text + gap + newline.join(lines)
    try:
        after = tomllib.loads(made)
        for event, group in entries.items():
            if after["hooks"][event].pop() != group:
                raise ValueError(event)
            if not after["hooks"][event]:
                del after["hooks"][event]
    except (tomllib.TOMLDecodeError, ValueError, KeyError, TypeError, AttributeError):
        raise ConfigError(
            "hooks cannot be added to its [hooks] in this form; move them to hooks.json"
        ) from None
    if not after["hooks"] and "hooks" not in before:
        del after["hooks"]
    if after != before:
        raise ConfigError("hooks cannot be added to its [hooks] in this form; move them to hooks.json")
    return made


def remove_block(text: str) -> str:
    """Return the text without Toolgate's part. Raise ConfigError if the end of that part is missing."""
    while BEGIN in text:
        start = text.index(BEGIN)
        end = text.find(END, start)
        if end < 0:
            raise ConfigError(f"the line {END!r} is missing; remove Toolgate's part by hand")
        end += len(END)
        end = text.index("\n", end) + 1 if "\n" in text[end:] else len(text)
        text = text[:start] + text[end:]
    return text


def _write(value: Any) -> str:
    """Return a value as TOML. Texts and numbers are as in JSON, but for one character."""
    return json.dumps(value, ensure_ascii=True).replace("\x7f", "\\u007F")
