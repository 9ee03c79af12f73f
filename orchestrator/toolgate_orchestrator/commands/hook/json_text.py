"""JSON text that is changed in place: values are inserted and removed, and every other byte stays. Pure.

A settings file belongs to its user. Order, indentation, line ends and comments (if its program allows them)
stay byte for byte. Removing what was inserted restores the earlier text, whatever changed elsewhere.
"""

import json
import re
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import ConfigError

MAX_DEPTH: Final = 100
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_REMARK: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_LITERAL: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")
_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_INDENT: Final = re.compile(r"^([ \t]+)\S", re.MULTILINE)


class JsonNode(NamedTuple):
    """A value and its place in the text, from `start` up to `end`."""

    start: int
    end: int
    value: Any
    keys: tuple[tuple[str, int], ...] = ()
    """Names of an object, each with the place where it begins."""
    children: tuple["JsonNode", ...] = ()
    """Values of an object or list."""

    def get(self, key: str) -> "JsonNode | None":
        """Return the value of a name in an object; None if there is none."""
        for (name, _), child in zip(self.keys, self.children, strict=False):
            if name == key:
                return child
        return None

    def find(self, *path: str) -> "JsonNode | None":
        """Return the value at a path of names; None if there is none."""
        node: JsonNode | None = self
        for key in path:
            node = node.get(key) if node is not None else None
        return node

    def begin_of(self, index: int) -> int:
        """Return the place where a child begins, with its name if it has one."""
        return self.keys[index][1] if self.keys else self.children[index].start


class JsonText:
    """A text that holds one JSON value."""

    def __init__(self, text: str, *, comments: bool = False) -> None:
        """Parse the text. Raise ConfigError, with line and column, if it is not JSON."""
        self.text, self._comments = text, comments
        start = self._skip(1 if text.startswith("\ufeff") else 0)
        self.root = self._value(start, 0)
        end = self._skip(self.root.end)
        if end != len(text):
            raise self._fault(end, "text follows the end of the value")

    # ------------------------------------------------------------------ read

    def _fault(self, at: int, words: str) -> ConfigError:
        line = self.text.count("\n", 0, at) + 1
        return ConfigError(f"line {line}, column {at - self.text.rfind(chr(10), 0, at)}: {words}")

    def _skip(self, at: int) -> int:
        while True:
            at = _SPACE.match(self.text, at).end()  # type: ignore[union-attr]  # it matches "", too
            remark = _REMARK.match(self.text, at) if self._comments else None
            if remark is None:
                return at
            at = remark.end()

    def _value(self, at: int, depth: int) -> JsonNode:
        first = self.text[at : at + 1]
        if depth > MAX_DEPTH:
            raise self._fault(at, f"nested more than {MAX_DEPTH} deep")
        if first in ("{", "["):
            return self._container(at, depth, "}" if first == "{" else "]")
        if first == '"':
            text, end = self._string(at)
            return JsonNode(at, end, text)
        literal = _LITERAL.match(self.text, at)
        if literal is None:
            raise self._fault(at, "a value is missing, or is not JSON")
        try:
            value = json.loads(literal.group())
        except ValueError:  # more digits than Python accepts
            raise self._fault(at, "a number has too many digits") from None
        return JsonNode(at, literal.end(), value)

    def _string(self, at: int) -> tuple[str, int]:
        found = _STRING.match(self.text, at)
        try:
            text: str = json.loads(found.group() if found is not None else "")
        except ValueError:
            raise self._fault(at, "a string does not end, or holds forbidden characters") from None
        return text, at + len(found.group() if found is not None else "")

    def _container(self, start: int, depth: int, close: str) -> JsonNode:
        keys: list[tuple[str, int]] = []
        children: list[JsonNode] = []
        at = self._skip(start + 1)
        while self.text[at : at + 1] != close:
            if close == "}":
                if self.text[at : at + 1] != '"':
                    raise self._fault(at, 'a name in "…" is missing')
                key, end = self._string(at)
                if any(key == name for name, _ in keys):
                    raise self._fault(at, f"{key[:64]!r} is there twice")
                keys.append((key, at))
                at = self._skip(end)
                if self.text[at : at + 1] != ":":
                    raise self._fault(at, "a colon is missing")
                at = self._skip(at + 1)
            child = self._value(at, depth + 1)
            children.append(child)
            at = self._skip(child.end)
            if self.text[at : at + 1] == ",":
                at = self._skip(at + 1)
                if self.text[at : at + 1] == close and not self._comments:
                    raise self._fault(at, "nothing follows a comma")
            elif self.text[at : at + 1] != close:
                raise self._fault(at, f"a comma or {close} is missing")
        values = [child.value for child in children]
        value = dict(zip((name for name, _ in keys), values, strict=True)) if close == "}" else values
        return JsonNode(start, at + 1, value, tuple(keys), tuple(children))

    # ------------------------------------------------------------------ change

    def insert(self, container: JsonNode, value: Any, key: str | None = None) -> str:
        """Return the text with a value at the end of a list, or under a name at the end of an object."""
        text, newline = self.text, "\r\n" if "\r\n" in self.text else "\n"
        found = _INDENT.search(text)
        unit = found[1] if found and found[1].strip("\t ") == "" else "  "
        unit = "\t" if unit.startswith("\t") else unit[:8]
        outer = _indent_at(text, container.start)
        if container.children:
            last = len(container.children) - 1
            begin = container.begin_of(last)
            inner = _indent_at(text, begin) if _begins_line(text, begin) else outer + unit
        else:
            inner = outer + unit
        told = json.dumps(value, indent=unit, ensure_ascii=False)
        told = (f"{json.dumps(key)}: " if key is not None else "") + told.replace("\n", newline + inner)
        if container.children:
            at = container.children[-1].end
            return f"{text[:at]},{newline}{inner}{told}{text[at:]}"
        at = container.start + 1
        rest = text[at : container.end - 1]
        tail = "" if "\n" in rest else newline + outer
        return f"{text[:at]}{newline}{inner}{told}{tail}{text[at:]}"

    def remove(self, container: JsonNode, index: int, inner: str | None = None) -> str:
        """Return the text without a child; `inner` is the former content of a container that is empty
        again."""
        text, start, end = self.text, container.begin_of(index), container.children[index].end
        if len(container.children) == 1:
            if inner is not None and not self._has_remarks(container, start, end):
                return text[: container.start + 1] + inner + text[container.end - 1 :]
            begin = len(text[:start].rstrip())
            comma = self._skip(end)
            if text[comma] == ",":
                end = comma + 1
            return text[:begin] + text[end:]
        if index:
            before = container.children[index - 1].end
            comma = text.index(",", before) if not self._comments else self._skip(before)
            if text[comma + 1 : start].strip() == "":
                return text[:comma] + text[end:]
            return text[:comma] + text[comma + 1 : start].rstrip() + text[end:]
        comma = self._skip(end)
        end = _SPACE.match(text, comma + 1).end()  # type: ignore[union-attr]  # as above
        return text[:start] + text[end:]

    def _has_remarks(self, container: JsonNode, start: int, end: int) -> bool:
        around = self.text[container.start + 1 : start] + self.text[end : container.end - 1]
        return around.replace(",", "").strip() != ""


def _begins_line(text: str, at: int) -> bool:
    return text[text.rfind("\n", 0, at) + 1 : at].strip() == ""


def _indent_at(text: str, at: int) -> str:
    """Return the white space at the beginning of the line that contains this place."""
    begin = text.rfind("\n", 0, at) + 1
    found = re.compile(r"[ \t]*").match(text, begin)
    return found.group() if found else ""
