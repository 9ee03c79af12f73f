"""A file that a person writes, in YAML or JSON: what it says, and on which line each value stands.

Reading is bounded (bytes, depth, values with aliases counted in full) and safe (no tags that make objects).
Keys given twice are refused, since YAML would drop the first without a word. So is the merge key `<<`, which
releases of PyYAML resolve to different values. Dates stay text, as in the JSON that they are compared with.
Whether a file says the right things is `check`'s affair.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from toolgate_bus.errors import ConfigError

MAX_BYTES: Final = 1 << 20
MAX_VALUES: Final = 50_000
MAX_DEPTH: Final = 64
_MERGE: Final = "tag:yaml.org,2002:merge"
_NO_MERGE: Final = (
    "the merge key `<<` is not read, since YAML readers do not agree what it means: write its keys out here "
    "(an alias that is a whole value, `key: *name`, is read)"
)

Place = tuple[Any, ...]
"""Keys and list indices, from the whole down."""


@dataclass(frozen=True, slots=True, eq=False)
class Document:
    """What a text says, and where; an empty one is an empty mapping."""

    name: str
    """The file, as it begins every complaint."""
    root: yaml.Node | None
    value: Any

    def mapping(self) -> dict[str, Any]:
        """The value where it is a mapping; raises ConfigError where it is not."""
        if not isinstance(self.value, dict):
            raise ConfigError(f"{self.name}: must be a mapping (key: value), not {type(self.value).__name__}")
        return self.value

    def where(self, place: Place) -> str:
        """File and line of a place, or of what is nearest to it."""
        _, line = self._walk(place)
        return f"{self.name}:{line}" if line else self.name

    def nearest(self, places: Sequence[Place]) -> Place:
        """The place of several that is there, or that leads furthest."""
        return max(places, key=lambda place: self._walk(place)[0])

    def _walk(self, place: Place) -> tuple[int, int]:
        """How many steps of a place are there, and the line to which they lead."""
        node, line, steps = self.root, 0, 0
        for step in place:
            found = next((pair for pair in _pairs(node) if pair[0] == str(step)), None)
            if found is not None:
                _, line, node = found
                steps += 1
        return steps, line

    def __str__(self) -> str:
        return self.name


def read_document(path: Path) -> Document:
    """The document in a file; raises ConfigError naming the file."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return parse_document(raw, str(path))


def parse_document(raw: bytes, name: str, *, secret: bool = False) -> Document:
    """The document in a text; `name` begins every complaint, and of a secret one none quotes it.

    Raises ConfigError.
    """
    if len(raw) > MAX_BYTES:
        raise ConfigError(f"{name}: longer than {MAX_BYTES // 1024} KiB: nobody wrote that by hand")
    # Tabs indent in JSON alone, and stand in none of its strings.
    loader = None
    try:
        loader = _Loader(raw.replace(b"\t", b" ") if name.endswith(".json") else raw)
        root = loader.get_single_node()
        if root is None:
            return Document(name, None, {})
        _examine(root, name, secret)
        return Document(name, root, loader.construct_document(root))
    except RecursionError:
        raise ConfigError(f"{name}: nested more than {MAX_DEPTH} deep") from None
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        at = f"{name}:{mark.line + 1}" if mark else name
        said = getattr(error, "problem", None) or str(error).splitlines()[0]
        column = f" (column {mark.column + 1})" if mark else ""
        raise ConfigError(f"{at}: is not YAML{'' if secret else f': {said}'}{column}") from None


class _Loader(yaml.SafeLoader):
    """SafeLoader that leaves dates as text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the base class's own way of saying it
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _examine(root: yaml.Node, name: str, secret: bool) -> None:
    """Refuse keys given twice, the merge key, and what is small to write but large to read.

    An alias counts as all that it stands for.
    """
    sizes: dict[int, int] = {}

    def size(node: yaml.Node, depth: int) -> int:
        if depth > MAX_DEPTH:
            raise ConfigError(f"{name}: nested more than {MAX_DEPTH} deep, or an alias that holds itself")
        if id(node) not in sizes:
            children = list(_children(node, name, secret))
            sizes[id(node)] = 1 + sum(size(child, depth + 1) for child in children)
        return sizes[id(node)]

    if size(root, 0) > MAX_VALUES:
        raise ConfigError(f"{name}: more than {MAX_VALUES} values, aliases counted in full")


def _children(node: yaml.Node, name: str, secret: bool) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif isinstance(node, yaml.MappingNode):
        seen: set[tuple[str, str]] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.tag == _MERGE:
                    raise ConfigError(f"{name}:{key.start_mark.line + 1}: {_NO_MERGE}")
                if (key.tag, key.value) in seen:
                    what = "a name" if secret else f"the key {key.value!r}"
                    raise ConfigError(f"{name}:{key.start_mark.line + 1}: {what} is given twice")
                seen.add((key.tag, key.value))
            yield key
            yield value


def _pairs(node: yaml.Node | None) -> Iterator[tuple[str, int, yaml.Node]]:
    """Step, line and value of what a node holds."""
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield str(index), item.start_mark.line + 1, item
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield key.value, key.start_mark.line + 1, value
