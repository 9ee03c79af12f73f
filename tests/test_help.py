"""Help texts of all commands: an example stays on its line at 80 columns, and nothing is taken for markup."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from toolgate_bus.commands.main import SUMMARIES, _load, own_entry_points

pytestmark = pytest.mark.pure

WIDTH = 78
"""Columns of a help text on a terminal of 80."""
OURS = {"[bold]", "[/]"}
"""Markup that our help texts use."""


def walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from walk(f"{path} {name}", one)


def texts() -> Iterator[tuple[str, str]]:
    """Every help text of commands and options, with the command that has it."""
    where = own_entry_points("toolgate.commands")
    for name in SUMMARIES:
        for path, command in walk(name, _load(name, where[name])):
            yield path, command.help or ""
            yield from ((path, getattr(param, "help", None) or "") for param in command.params)


def test_an_example_stays_on_its_line_and_keeps_its_brackets() -> None:
    wrong = []
    for path, text in texts():
        for part in text.split("\n\n"):
            if part.startswith("\b") or "\n " in part:  # its lines are not joined
                wrong += [f"{path}: {line}" for line in part.split("\n") if len(line) > WIDTH]
        wrong += [f"{path}: a literal \\b"] if "\\b" in text else []
        wrong += [f"{path}: {tag}" for tag in re.findall(r"\[[a-z#/@][^\[\]]*\]", text) if tag not in OURS]
    assert wrong == []
