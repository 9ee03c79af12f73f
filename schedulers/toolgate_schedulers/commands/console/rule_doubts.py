"""Find rules of the active configurations that do not fit the tools of living agents, for the page.

Other programs wrote both. Only the models of shipped schedulers read a configuration: nothing is imported
that a record names. Long ones are left to the command. A thread reads and compares them, once for each
text and set of tools.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from toolgate_bus.config.document import Document, parse_document
from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.protocol.tool_sets import LivingTools
from toolgate_bus.state.config_record import ConfigRecord
from toolgate_bus.state.config_store import ConfigStore
from toolgate_bus.telemetry.printable import shorten
from toolgate_bus.transport.redis.storage.agent_directory import AgentDirectory

from toolgate_schedulers.commands.rule_check import compare
from toolgate_schedulers.shipped.rule_listing import CONFIGS

MAX_TEXT: Final = 64 * 1024
"""Maximum size in bytes of a configuration that is compared here."""
MAX_SHOWN: Final = 20
MAX_KEPT: Final = 64
WORDS: Final = 300


class DoubtReader:
    """Reader of the doubts about active configurations; one task reads at a time."""

    def __init__(self, fleet: AgentDirectory) -> None:
        self._fleet = fleet
        self._living = LivingTools()
        self._found: dict[str, Mapping[str, Any]] = {}
        """Results of the comparison with the last known tools, by digest."""

    async def look(self) -> None:
        """Read the present tools of living agents; none if they cannot be read."""
        try:
            living = await self._fleet.tools()
        except TransportError:
            living = LivingTools()
        if living != self._living or len(self._found) > MAX_KEPT:
            self._living = living
            self._found.clear()

    async def read(self, name: str, record: ConfigRecord, store: ConfigStore) -> Mapping[str, Any]:
        """Return the doubts about a scheduler's configuration; raise TransportError."""
        config = record.config(record.active)
        spec = (config.spec or name) if config is not None else ""
        if config is None or spec not in CONFIGS or config.size > MAX_TEXT or not self._living.processes:
            return {"doubts": [], "compared": False}
        if config.digest not in self._found:
            text = await store.text(config.digest)
            self._found[config.digest] = await asyncio.to_thread(_compare, spec, text, self._living)
        return self._found[config.digest]


def _compare(spec: str, text: bytes, living: LivingTools) -> Mapping[str, Any]:
    try:
        document: Document = parse_document(text[:MAX_TEXT], "line")
        lines = compare(spec, document, living).lines
    except ConfigError:
        return {"doubts": [], "compared": False}  # replicas refuse it, and say why
    return {"doubts": [shorten(line, WORDS) for line in lines[:MAX_SHOWN]], "compared": True}
