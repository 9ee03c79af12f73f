"""Read a file that a person writes, in YAML or JSON: its value, and the line of each part.

Files are read by the core schema of YAML 1.2: `NO`, `off`, `12:30`, `1_000` and dates are texts, as in JSON.
Reading is bounded (bytes, depth, values with aliases counted in full). Parts that readers of YAML understand
differently are refused by their line: keys given twice, the merge key `<<`, tags, line ends that only some
know, another version of YAML. `check` finds whether a file says the right things.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from toolgate_bus.config import odd_number
from toolgate_bus.errors import ConfigError

MAX_BYTES: Final = 1 << 20
MAX_VALUES: Final = 50_000
MAX_DEPTH: Final = 64
MAX_DIGITS: Final = 1024
"""Maximum length of a number, in characters."""
_NO_MERGE: Final = (
    "the merge key `<<` is not supported, because YAML readers disagree on its meaning: write its keys out "
    "here (an alias for a whole value, `key: *name`, is supported)"
)

Place = tuple[Any, ...]
"""Keys and list indices, from the whole down."""


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """Value of a text, with its places. An empty text is an empty mapping."""

    name: str
    """Name of the file, which begins every error message."""
    root: yaml.Node | None
    value: Any
    has_odd: bool = False
    """True if a number in it is not written as JSON writes it."""

    def mapping(self) -> dict[str, Any]:
        """Return the value, which must be a mapping; else raise ConfigError."""
        if not isinstance(self.value, dict):
            raise ConfigError(f"{self.name}: must be a mapping (key: value), not {type(self.value).__name__}")
        return self.value

    def where(self, place: Place) -> str:
        """Return file and line of a place, or of the nearest one that is there."""
        line = self.line_of(place)
        return f"{self.name}:{line}" if line else self.name

    def line_of(self, place: Place) -> int:
        """Return the line of a place, or of the nearest one that is there; 0 if there is none."""
        return self._walk(place)[1]

    def nearest(self, places: Sequence[Place]) -> Place:
        """Return the place, out of several, that is there, or that leads furthest."""
        return max(places, key=lambda place: self._walk(place)[0])

    def mark_odd(self, value: Any, places: Sequence[Place]) -> Any:
        """Return a value out of these places with its odd numbers marked (`odd_number`)."""
        for place in places if self.has_odd else ():
            steps, _, node = self._walk(place)
            if steps == len(place) and node is not None:
                value = _mark(node, value)
        return value

    def _walk(self, place: Place) -> tuple[int, int, yaml.Node | None]:
        """Return the number of steps of a place that are there, and the line and node to which they lead."""
        node, line, steps = self.root, 0, 0
        for step in place:
            found = next((pair for pair in _pairs(node) if pair[0] == str(step)), None)
            if found is not None:
                _, line, node = found
                steps += 1
        return steps, line, node

    def __str__(self) -> str:
        return self.name


def read_document(path: Path) -> Document:
    """Return the document in a file. Raise ConfigError that names the file."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return parse_document(raw, str(path))


def parse_document(raw: bytes, name: str, *, secret: bool = False, as_amplifier: bool = False) -> Document:
    """Return the document in a text. `name` begins every error message; none quotes a secret text.

    In a secret text every value is text. With `as_amplifier` it is read as Amplifier itself reads it, by
    YAML 1.1. Raise ConfigError.
    """
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{name}: longer than {MAX_BYTES // 1024} KiB, which is the limit")
    loader = None
    try:
        text = raw.decode("utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig")
        loader = (_AmplifierLoader if as_amplifier else _Loader)(_prepare(text, name), name, secret)
        root = loader.get_single_node()
        if not as_amplifier and loader.yaml_version not in (None, (1, 2)):
            raise ConfigError(f"{name}: its line %YAML names a version other than 1.2: remove that line")
        if root is None:
            return Document(name, None, {})
        _examine(root, name, secret)
        return Document(name, root, loader.construct_document(root), loader.has_odd)
    except RecursionError:
        raise ConfigError(f"{name}: nested more than {MAX_DEPTH} levels deep") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        at = f"{name}:{mark.line + 1}" if mark else name
        said = getattr(error, "problem", None) or str(error).splitlines()[0]
        column = f" (column {mark.column + 1})" if mark else ""
        raise ConfigError(f"{at}: is not YAML{'' if secret else f': {said}'}{column}") from None


def _prepare(text: str, name: str) -> str:
    """Return the text as PyYAML reads it correctly. Raise ConfigError for line ends that YAML 1.2 lacks."""
    if name.endswith(".json"):
        return text.translate(_JSON_ALONE)
    if (found := _LINE_ENDS.search(text)) is not None:
        line = text.count("\n", 0, found.start()) + 1
        raise ConfigError(
            f"{name}:{line}: contains the character U+{ord(found[0]):04X}, which some readers take for a "
            f'line end: write it as "\\u{ord(found[0]):04x}", in double quotes'
        )
    return text


_LINE_ENDS: Final = re.compile("[\x85\u2028\u2029]")
_JSON_ALONE: Final = {0x09: " "} | {
    code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029, 0xFEFF, 0xFFFE, 0xFFFF)
}
"""Replacements for JSON files only: there, tabs stand outside of texts, and the other characters inside."""


class _Loader(yaml.SafeLoader):
    """Loader by the core schema of YAML 1.2. It notes whether a number is odd."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - the base class's own way of saying it
    yaml_constructors = {}  # noqa: RUF012 - as above

    def __init__(self, text: str, file: str, secret: bool) -> None:
        super().__init__(text)
        self.file, self.secret = file, secret
        self.has_odd = False

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Refuse tags, and join characters that JSON writes in two halves."""
        event = self.peek_event()  # type: ignore[no-untyped-call]  # not in the stubs
        line = event.start_mark.line + 1
        if getattr(event, "tag", None) not in (None, _TEXT):
            raise ConfigError(
                f"{self.file}:{line}: a tag (`!…`) is not supported: remove it, and put a text in quotes"
            )
        node = super().compose_node(parent, index)
        if isinstance(node, yaml.ScalarNode) and _HALVES.search(node.value) is not None:
            try:
                node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16")
            except UnicodeDecodeError:
                raise ConfigError(f"{self.file}:{line}: a text holds half a character") from None
        return node

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> Any:
        """Return the tag of a value. In a secret text every value is text."""
        if self.secret and kind is yaml.ScalarNode:
            return _TEXT
        return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]  # not in the stubs

    def construct_number(self, node: yaml.Node) -> float:
        """Return the number, and note if it is odd."""
        value = _read_number(node)
        self.has_odd = self.has_odd or odd_number.is_odd(node.value, value)
        return value


def _read_number(node: yaml.Node) -> float:
    text = str(node.value).lower()
    if len(text) <= MAX_DIGITS:
        if node.tag == _INT:
            return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
        value = float(text.replace(".inf", "inf").replace(".nan", "nan"))
        if not math.isinf(value) or text.endswith("inf"):
            return value
    raise yaml.constructor.ConstructorError(None, None, "a number is too large", node.start_mark)


_HALVES: Final = re.compile("[\ud800-\udfff]")
_TEXT, _NULL, _BOOL, _INT, _FLOAT, _LIST, _MAP = (
    f"tag:yaml.org,2002:{kind}" for kind in ("str", "null", "bool", "int", "float", "seq", "map")
)
_CORE_SCHEMA: Final = (
    (_NULL, r"(|~|null|Null|NULL)\Z", ["", *"~nN"], yaml.SafeLoader.yaml_constructors[_NULL]),
    (_BOOL, r"(true|True|TRUE|false|False|FALSE)\Z", [*"tTfF"], yaml.SafeLoader.yaml_constructors[_BOOL]),
    (_INT, r"([-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z", [*"-+0123456789"], _Loader.construct_number),
    (
        _FLOAT,
        r"([-+]?((\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|\.(inf|Inf|INF))|\.(nan|NaN|NAN))\Z",
        [*"-+.0123456789"],
        _Loader.construct_number,
    ),
)
for _tag, _pattern, _first, _construct in _CORE_SCHEMA:
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), _first)
    _Loader.add_constructor(_tag, _construct)
for _tag in (_TEXT, _LIST, _MAP):
    _Loader.add_constructor(_tag, yaml.SafeLoader.yaml_constructors[_tag])


class _AmplifierLoader(_Loader):
    """Loader that reads as Amplifier does, but leaves dates as text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as above
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    yaml_constructors = yaml.SafeLoader.yaml_constructors


def _examine(root: yaml.Node, name: str, secret: bool) -> None:
    """Refuse keys given twice, the merge key, and texts that are small to write but large to read.

    An alias counts as all that it stands for.
    """
    sizes: dict[int, int] = {}

    def size(node: yaml.Node, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise ConfigError(
                f"{name}: nested more than {MAX_DEPTH} levels deep, or an alias contains itself"
            )
        if id(node) not in sizes:
            children = list(_children(node, name, secret))
            sizes[id(node)] = 1 + sum(size(child, depth + 1) for child in children)
        return sizes[id(node)]

    if size(root, 0) > MAX_VALUES:
        raise ConfigError(f"{name}: more than {MAX_VALUES} values (aliases are counted in full)")


def _children(node: yaml.Node, name: str, secret: bool) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                at = f"{name}:{key.start_mark.line + 1}"
                if key.value == "<<" and key.style is None:
                    raise ConfigError(f"{at}: {_NO_MERGE}")
                what = "a name" if secret else f"the key {key.value!r}"
                if key.tag in (_NULL, _BOOL, _FLOAT) or (key.tag == _INT and _is_odd(key)):
                    raise ConfigError(f"{at}: {what} is not a text: write it in quotes")
                if key.value in seen:
                    raise ConfigError(f"{at}: {what} is given twice")
                seen.add(key.value)
            yield key
            yield value


def _pairs(node: yaml.Node | None) -> Iterator[tuple[str, int, yaml.Node]]:
    """Give step, line and value of each part of a node."""
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield str(index), item.start_mark.line + 1, item
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield key.value, key.start_mark.line + 1, value


def _is_odd(node: yaml.Node) -> bool:
    return node.tag in (_INT, _FLOAT) and odd_number.is_odd(node.value, _read_number(node))


def _mark(node: yaml.Node, value: Any) -> Any:
    """Return the value of a node with its odd numbers marked. Parts that are not from this node stay."""
    if isinstance(node, yaml.MappingNode) and isinstance(value, dict):
        inner = {step: item for step, _, item in _pairs(node)}
        return {
            key: _mark(inner[str(key)], item) if str(key) in inner else item for key, item in value.items()
        }
    if isinstance(node, yaml.SequenceNode) and isinstance(value, list):
        return [*map(_mark, node.value, value), *value[len(node.value) :]]
    if type(value) in (int, float) and _is_odd(node) and repr(value) == repr(_read_number(node)):
        return odd_number.mark(node.value, value)
    return value
