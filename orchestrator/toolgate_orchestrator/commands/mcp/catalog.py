"""The tools of the servers behind a proxy: under which names they are offered, and what has changed. Pure.

With several servers each one's tools bear its prefix, so that none can pass for another's.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

MAX_TOOLS: Final = 10_000
"""Tools of one server; one that lists more is refused."""
MAX_TOOL_NAME: Final = 256
_MAX_OFFERS: Final = 64
_SAID: Final = ("title", "description", "inputSchema", "outputSchema", "annotations")
"""What a tool says of itself, and people and LLMs trust."""


class KnownTool(NamedTuple):
    """A tool of a server."""

    name: str
    """Under which it is offered."""
    own: str
    """Its name at its server."""
    server: str
    schema: Mapping[str, Any] | None
    """Of its arguments."""
    output: Mapping[str, Any] | None
    """Of its structured result."""
    digest: str
    """Of what it says of itself."""


def is_tool_name(name: Any) -> bool:
    """Whether a tool may be called so: it can be shown, and fits a question."""
    return isinstance(name, str) and 0 < len(name) <= MAX_TOOL_NAME and name.isprintable()


def read_tool(server: str, prefix: str, listed: Any) -> KnownTool | None:
    """A tool as a server lists it; None for one that cannot be offered: its name steers, or is none."""
    own = listed.get("name") if isinstance(listed, Mapping) else None
    if not isinstance(own, str) or not is_tool_name(own) or not is_tool_name(prefix + own):
        return None
    try:
        digest = digest_of(listed)
    except (RecursionError, ValueError):
        return None
    return KnownTool(
        prefix + own,
        own,
        server,
        _mapping(listed.get("inputSchema")),
        _mapping(listed.get("outputSchema")),
        digest,
    )


def digest_of(listed: Mapping[str, Any]) -> str:
    """SHA-256, in hexadecimal, of what a tool says of itself: description, schemas, annotations."""
    said = {key: listed[key] for key in _SAID if listed.get(key) is not None}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _mapping(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, Mapping) else None


class Catalog:
    """The tools that are known, by the name under which they are offered."""

    def __init__(self) -> None:
        self._tools: dict[str, KnownTool] = {}
        self._changed: dict[str, frozenset[str]] = {}
        self._offers: dict[str, dict[str, Mapping[str, Any]]] = {}
        """By call, what was found last; forgotten with each change."""

    def find(self, name: str) -> KnownTool | None:
        """The tool of this name."""
        return self._tools.get(name)

    def learn(self, tools: Iterable[KnownTool]) -> None:
        """Know these as well, or better."""
        self._tools.update((tool.name, tool) for tool in tools)
        self._offers.clear()

    def replace(self, server: str, tools: Iterable[KnownTool]) -> None:
        """Know these of a server, and no others."""
        self._tools = {name: tool for name, tool in self._tools.items() if tool.server != server}
        self.learn(tools)

    def count(self, server: str) -> int:
        """How many tools of a server are known."""
        return sum(tool.server == server for tool in self._tools.values())

    def digests(self, server: str) -> dict[str, str]:
        """What the tools of a server say of themselves, by their own names."""
        return {tool.own: tool.digest for tool in self._tools.values() if tool.server == server}

    def mark(self, server: str, changed: Iterable[str]) -> frozenset[str]:
        """From now on these of a server, by their own names, count as changed, whatever they say later, as
        the client has seen it; gives those that are new."""
        before, marked = self._changed.get(server, frozenset()), frozenset(changed)
        self._changed[server] = before | marked
        self._offers.clear()
        return marked - before

    def has_changed(self, tool: KnownTool) -> bool:
        """Whether a tool says something else of itself than when it was first seen."""
        return tool.own in self._changed.get(tool.server, ())

    def offers(self, call: str) -> Mapping[str, Mapping[str, Any]]:
        """The tools that may run in the place of one, with the schemas of their arguments, and it itself.

        Left out are those that have changed, about which no rule would be told, and those whose structured
        results are of another form than the client was promised.
        """
        found = self._offers.get(call)
        if found is None:
            if len(self._offers) >= _MAX_OFFERS:
                self._offers.clear()
            found = self._offers[call] = self._find_offers(call)
        return found

    def _find_offers(self, call: str) -> dict[str, Mapping[str, Any]]:
        promised = self._tools[call].output if call in self._tools else None
        return {
            name: tool.schema or {}
            for name, tool in self._tools.items()
            if name == call
            or not (self.has_changed(tool) or (promised is not None and tool.output != promised))
        }
