"""What of the configurations in force does not go with the tools of living agents, for the page.

Both were written by others. A configuration is read by the model of a shipped scheduler alone: nothing is
imported that a record names. Long ones are left to the command. Reading and comparing are done in a thread,
once for each text and set of tools.
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
from toolgate_bus.transport.redis.agents import Fleet

from toolgate_schedulers.commands.rule_check import compare
from toolgate_schedulers.shipped.rule_listing import CONFIGS

MAX_TEXT: Final = 64 * 1024
"""Bytes of a configuration that is compared here."""
MAX_SHOWN: Final = 20
MAX_KEPT: Final = 64
WORDS: Final = 300


class DoubtReader:
    """The doubts about what is in force; one task reads at a time."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._living = LivingTools()
        self._found: dict[str, Mapping[str, Any]] = {}
        """By digest: what came of the comparison with the tools that were alive last."""

    async def look(self) -> None:
        """See which tools there are now; where that is not shown, there are none."""
        try:
            living = await self._fleet.tools()
        except TransportError:
            living = LivingTools()
        if living != self._living or len(self._found) > MAX_KEPT:
            self._living = living
            self._found.clear()

    async def read(self, name: str, record: ConfigRecord, store: ConfigStore) -> Mapping[str, Any]:
        """The doubts about a scheduler's configuration; raises TransportError."""
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
