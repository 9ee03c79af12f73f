"""Catalog of the tools behind a proxy: the names under which they are offered, and the changed ones. Pure.

With several servers, each server's tools bear its prefix, so that no tool can pass for one of another server.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

MAX_TOOLS: Final = 10_000
"""Maximum number of tools of one server. A longer list is refused."""
MAX_TOOL_NAME: Final = 256
_MAX_OFFERS: Final = 64
_SAID: Final = ("title", "description", "inputSchema", "outputSchema", "annotations")
"""Fields by which a tool describes itself, and which people and LLMs trust."""


class KnownTool(NamedTuple):
    """A tool of a server."""

    name: str
    """Name under which the tool is offered."""
    own: str
    """Name of the tool at its server."""
    server: str
    schema: Mapping[str, Any] | None
    """Schema of the arguments; None if the server gives none."""
    output: Mapping[str, Any] | None
    """Schema of the structured result; None if the server gives none."""
    digest: str
    """Digest of the tool's description of itself (`digest_of`)."""


def is_tool_name(name: Any) -> bool:
    """Return whether a name is allowed for a tool: printable, and short enough for a question."""
    return isinstance(name, str) and 0 < len(name) <= MAX_TOOL_NAME and name.isprintable()


def read_tool(server: str, prefix: str, listed: Any) -> KnownTool | None:
    """Read a tool from a server's list; None for one that cannot be offered, such as one with an unprintable
    name."""
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
    """Return the SHA-256, in hexadecimal, of a tool's description of itself: texts, schemas, annotations."""
    said = {key: listed[key] for key in _SAID if listed.get(key) is not None}
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _mapping(value: Any) -> Mapping[str, Any] | None:
    return value if isinstance(value, Mapping) else None


class Catalog:
    """The known tools, by the name under which they are offered."""

    def __init__(self) -> None:
        self._tools: dict[str, KnownTool] = {}
        self._changed: dict[str, frozenset[str]] = {}
        self._offers: dict[str, dict[str, Mapping[str, Any]]] = {}
        """Cached results of `offers`, by called tool. Each change empties the cache."""

    def find(self, name: str) -> KnownTool | None:
        """Return the tool with this name; None if it is unknown."""
        return self._tools.get(name)

    def learn(self, tools: Iterable[KnownTool]) -> None:
        """Add these tools, or update them."""
        self._tools.update((tool.name, tool) for tool in tools)
        self._offers.clear()

    def replace(self, server: str, tools: Iterable[KnownTool]) -> None:
        """Replace all tools of a server by these."""
        self._tools = {name: tool for name, tool in self._tools.items() if tool.server != server}
        self.learn(tools)

    def count(self, server: str) -> int:
        """Return the number of known tools of a server."""
        return sum(tool.server == server for tool in self._tools.values())

    def names(self, server: str) -> list[str]:
        """Return the names under which the tools of a server are offered."""
        return [name for name, tool in self._tools.items() if tool.server == server]

    def digests(self, server: str) -> dict[str, str]:
        """Return the digests of a server's tools, by their names at the server."""
        return {tool.own: tool.digest for tool in self._tools.values() if tool.server == server}

    def mark(self, server: str, changed: Iterable[str]) -> frozenset[str]:
        """Mark tools of a server as changed, by their names there; return those that were not marked before.

        A mark stays whatever the tool says later, because the client has seen the change.
        """
        before, marked = self._changed.get(server, frozenset()), frozenset(changed)
        self._changed[server] = before | marked
        self._offers.clear()
        return marked - before

    def has_changed(self, tool: KnownTool) -> bool:
        """Return whether a tool's description has changed since it was first seen."""
        return tool.own in self._changed.get(tool.server, ())

    def offers(self, call: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the called tool and the tools that may run in its place, with the schemas of their
        arguments.

        Changed tools are left out, since no rule would learn of the change. So are tools whose structured
        results have another schema than the client expects.
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
