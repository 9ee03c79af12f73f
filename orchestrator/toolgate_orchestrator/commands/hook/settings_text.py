"""Text of a client's settings, in JSON or TOML, with or without Toolgate's hooks. Pure.

The file belongs to its user: everything but Toolgate's hooks stays as it is, byte for byte. `tomlkit` changes
TOML. `json` would write the whole file anew, so it only finds the places of values, and JSON is changed at
those places. Each change is read again. It is refused if it did more than it should, or lost a comment.
"""

import copy
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from operator import delitem
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.json_values import UnreadableJson, read_json

from toolgate_orchestrator.commands.hook.entries import CLIENTS, find_handlers

Keys = tuple[str | int, ...]
"""Names and indices that lead to a value."""
_QUOTED: Final = r'"[^"\\]*(?:\\.[^"\\]*)*"'
_DECODER: Final = json.JSONDecoder()


class SettingsText:
    """Settings of one client. A change makes new settings."""

    comment: re.Pattern[str]
    """Pattern of a comment (its group 1) and of quoted texts, which may look like a comment."""

    def __init__(self, text: str, client: str) -> None:
        """Parse the text. Raise ConfigError if that is not possible."""
        self.text, self.client = text, client
        self.value = self._read()
        """Value of the text; None if the text is empty JSON."""

    @property
    def comments(self) -> list[str]:
        """Comments in the text."""
        return [found[1] for found in self.comment.finditer(self.text) if found[1]]

    @property
    def has_hooks(self) -> bool:
        """True if the settings have hooks of Toolgate."""
        return next(find_handlers(self.value, self.client), None) is not None

    def with_hooks(self, entries: Mapping[str, Any]) -> "SettingsText":
        """Return the settings with an entry for each event. Raise ConfigError if it cannot be added."""
        now = self
        if self.value is None:
            now = type(self)(json.dumps(dict(CLIENTS[self.client].root), indent=2) + "\n", self.client)
        for event, entry in entries.items():
            now = now._with_entry(event, entry)
        return now

    def _with_entry(self, event: str, entry: Any) -> "SettingsText":
        if not isinstance(self.value, dict):
            raise ConfigError("it is not a JSON object")
        hooks = self.value.get("hooks", {})
        if not isinstance(hooks, dict):
            raise ConfigError("its `hooks` is not an object")
        listed = hooks.get(event, [])
        if not isinstance(listed, list):
            raise ConfigError(f"its `hooks.{event}` is not a list")
        wanted = copy.deepcopy(self.value)
        wanted.setdefault("hooks", {}).setdefault(event, []).append(entry)
        if "hooks" not in self.value:
            text = self._insert(("hooks",), {event: [entry]})
        elif event not in hooks:
            text = self._insert(("hooks", event), [entry])
        else:
            text = self._insert(("hooks", event, len(listed)), entry)
        return self._check(text, wanted)

    def without_hooks(self, before: "SettingsText | None") -> "SettingsText":
        """Return the settings without Toolgate's hooks. Raise ConfigError if they cannot be removed.

        Lists and objects that become empty go too, unless they are in the settings `before` the install.
        """
        now = self
        while (found := next(find_handlers(now.value, now.client), None)) is not None:
            event, at, within = found
            keys: Keys = ("hooks", event, at) if within is None else ("hooks", event, at, "hooks", within)
            while (
                len(keys) in (2, 3)
                and len(_value_at(now.value, keys[:-1])) == 1
                and (before is None or _value_at(before.value, keys[:-1]) is None)
            ):
                keys = keys[:-1]
            wanted = copy.deepcopy(now.value)
            del _value_at(wanted, keys[:-1])[keys[-1]]
            now = now._check(now._remove(keys, before), wanted)
        return now

    def _check(self, text: str, wanted: Any) -> "SettingsText":
        """Return the changed settings. Raise ConfigError if they are not as wanted, or lost a comment."""
        try:
            changed = type(self)(text, self.client)
        except ConfigError:
            raise _refuse() from None
        if changed.value != wanted or changed.comments != self.comments:
            raise _refuse()
        return changed

    def _read(self) -> Any:
        raise NotImplementedError

    def _insert(self, keys: Keys, value: Any) -> str:
        """Return the text with one more value, at the end of a list or object."""
        raise NotImplementedError

    def _remove(self, keys: Keys, before: "SettingsText | None") -> str:
        """Return the text without a value."""
        raise NotImplementedError


class TomlSettings(SettingsText):
    """Settings in TOML."""

    comment = re.compile(
        rf'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|{_QUOTED}|\'[^\'\n]*\'|(#[^\r\n]*)', re.DOTALL
    )
    _tail = re.compile(r"(?:^[ \t]*(?:#.*)?\r?\n)*(?:^[ \t]*#.*)?\Z", re.MULTILINE)

    def _read(self) -> Any:
        try:
            return tomllib.loads(self.text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise ConfigError(f"it is not TOML: {error}") from None

    def _insert(self, keys: Keys, value: Any) -> str:
        def add(holder: Any, key: Any) -> None:
            if isinstance(holder, list):
                holder.append(value)
            else:
                holder[key] = value
            added = holder[key]
            # tomlkit puts a blank line before a new table, and would not remove that line again.
            (added[0] if isinstance(added, list) else added).trivia.indent = ""

        text, newline = self.text, "\r\n" if "\r\n" in self.text else "\n"
        text += newline if text and not text.endswith("\n") else ""
        added = _edit_toml(text, keys, add)
        if self.text.count("\r\n") == self.text.count("\n") > 0:
            added = re.sub(r"(?<!\r)\n", "\r\n", added)
        if TomlSettings(added, self.client)._remove(keys, None) != text:
            raise _refuse()
        return added

    def _remove(self, keys: Keys, before: SettingsText | None) -> str:
        text, left = self.text, _edit_toml(self.text, keys, delitem)
        # For tomlkit, blank lines and comments behind a table are part of it. Here they stay.
        pairs = enumerate(zip(text, left, strict=False))
        same = next((at for at, (one, other) in pairs if one != other), len(left))
        begin = text.rfind("\n", 0, same) + 1
        tail = self._tail.search(text[begin : begin + len(text) - len(left)])
        return left[:begin] + (tail.group() if tail else "") + left[begin:]


def _edit_toml(text: str, keys: Keys, change: Callable[[Any, Any], object]) -> str:
    """Return the text after a change of the list or table that holds the value at `keys`."""
    import tomlkit
    from tomlkit.container import OutOfOrderTableProxy
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        if tomlkit.dumps(document) == text:
            holder = _value_at(document, keys[:-1])
            if isinstance(holder, OutOfOrderTableProxy) and keys[-1] not in holder:
                holder = next(table for key, table in document.body if key is not None and key.key == keys[0])
            change(holder, keys[-1])
            return tomlkit.dumps(document)
    except (TOMLKitError, LookupError, TypeError, ValueError, AttributeError):
        pass  # some forms of TOML are beyond tomlkit
    raise _refuse()


class JsonChild(NamedTuple):
    """Value in a list or object: its name or index, and the places of name, value and end in the text."""

    key: str | int
    begin: int
    start: int
    end: int


class JsonSettings(SettingsText):
    """Settings in JSON. A client that allows comments also allows a comma behind the last value."""

    comment = re.compile(rf"{_QUOTED}|(//[^\r\n]*|/\*.*?\*/)", re.DOTALL)
    _comma = re.compile(rf"({_QUOTED})|,(?=[ \t\r\n]*[\]}}])", re.DOTALL)
    _indented = re.compile(r"^([ \t]+)\S", re.MULTILINE)
    _token = re.compile(r"[^ \t\r\n]|\Z")

    def _read(self) -> Any:
        # The same text, with blanks in place of all that `json` does not read. Places stay the same.
        plain = re.sub("^\ufeff", " ", self.text)
        if CLIENTS[self.client].comments:
            plain = self.comment.sub(lambda it: re.sub(r"[^\r\n]", " ", it[0]) if it[1] else it[0], plain)
            plain = self._comma.sub(lambda it: it[1] or " ", plain)
        self._plain = plain
        if not self.text.strip():
            return None
        try:
            return read_json(plain)
        except UnreadableJson as error:
            found = error.__context__
            if isinstance(found, json.JSONDecodeError):
                raise ConfigError(f"line {found.lineno}, column {found.colno}: {found.msg}") from None
            raise ConfigError(str(error)) from None

    def _insert(self, keys: Keys, value: Any) -> str:
        text, newline = self.text, "\r\n" if "\r\n" in self.text else "\n"
        start, children, close = self._find(keys[:-1])
        found = self._indented.search(text)
        unit = "  " if found is None else "\t" if found[1][0] == "\t" else found[1][:8]
        line = self._line_until(start)
        outer = newline + line[: len(line) - len(line.lstrip())]
        inner = outer + unit
        if children and not self._line_until(children[-1].begin).strip():
            inner = newline + self._line_until(children[-1].begin)
        written = json.dumps(value, indent=unit, ensure_ascii=text.isascii() and "\\u" in text)
        if isinstance(keys[-1], str):
            written = f"{json.dumps(keys[-1])}: {written}"
        written = inner + written.replace("\n", inner)
        if children:
            end = children[-1].end
            return f"{text[:end]},{written}{text[end:]}"
        tail = "" if "\n" in text[start:close] else outer
        return f"{text[: start + 1]}{written}{tail}{text[start + 1 :]}"

    def _remove(self, keys: Keys, before: SettingsText | None) -> str:
        text = self.text
        start, children, close = self._find(keys[:-1])
        at = next(at for at, child in enumerate(children) if child.key == keys[-1])
        gone = children[at]
        if len(children) == 1:
            inner = text[start + 1 : gone.begin].rstrip() + text[gone.end : close]
            if "/" not in inner:  # no comment
                inner = before._inner_at(keys[:-1]) if isinstance(before, JsonSettings) else ""
            return text[: start + 1] + inner + text[close:]
        if at == 0:
            return text[: gone.begin] + text[children[1].begin :]
        comma = self._plain.index(",", children[at - 1].end)
        between = text[comma + 1 : gone.begin]
        return text[:comma] + (between if between.strip() else "") + text[gone.end :]

    def _inner_at(self, keys: Keys) -> str:
        """Return the white space in a list or object that is empty; an empty text if there is none."""
        if _value_at(self.value, keys) not in ({}, []):
            return ""
        start, _, close = self._find(keys)
        return self.text[start + 1 : close]

    def _find(self, keys: Keys) -> tuple[int, list[JsonChild], int]:
        """Return the children of a list or object, between the places of its brackets."""
        start = self._plain.index("{")
        children, close = self._scan(start)
        for key in keys:
            start = next(child.start for child in children if child.key == key)
            children, close = self._scan(start)
        return start, children, close

    def _scan(self, start: int) -> tuple[list[JsonChild], int]:
        plain, children = self._plain, list[JsonChild]()
        at = self._skip(start + 1)
        while plain[at] not in "}]":
            begin, key = at, len(children)
            if plain[start] == "{":
                key, at = _DECODER.raw_decode(plain, at)
                at = self._skip(self._skip(at) + 1)  # a colon, between blanks
            _, end = _DECODER.raw_decode(plain, at)
            children.append(JsonChild(key, begin, at, end))
            at = self._skip(end)
            if plain[at] == ",":
                at = self._skip(at + 1)
        return children, at

    def _skip(self, at: int) -> int:
        """Return the place behind white space."""
        return found.start() if (found := self._token.search(self._plain, at)) else at

    def _line_until(self, at: int) -> str:
        """Return a place's line, up to the place."""
        return self.text[self.text.rfind("\n", 0, at) + 1 : at]


def _value_at(value: Any, keys: Keys) -> Any:
    """Return a value in lists and objects; None if there is none."""
    for key in keys:
        try:
            value = value[key]
        except (LookupError, TypeError):
            return None
    return value


def _refuse() -> ConfigError:
    return ConfigError("its hooks cannot be changed without losing a comment or changing something else")
