"""The offer of tools to an LLM: without those of which a local table denies every call.

The list is made anew for each request, by the tables of that moment. It decides nothing: a call of a tool
that is not offered is ruled on like any other.
"""

from collections.abc import Callable, Iterable
from typing import Final

from toolgate_bus.protocol.events import ToolQuestion
from toolgate_bus.telemetry.loggers import get_logger

from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_orchestrator.decision.link.recipients import Recipients

MAX_TOLD: Final = 4096
"""Maximum number of tools and schedulers that are logged."""
_log = get_logger("toolgate.gate")


class ToolOffer:
    """Finds the tools that one gate does not offer, and logs each once."""

    def __init__(self, client: GateClient) -> None:
        self._client = client
        self._told: set[tuple[str, str]] = set()

    def find_denied(
        self, tools: Iterable[str], asking: ToolQuestion, audience_of: Callable[[str], Recipients]
    ) -> frozenset[str]:
        """Return the tools of which a table denies every call by the caller of this question.

        `audience_of` returns those who are asked about a tool.
        """
        found = {}
        for tool in tools:
            if (scheduler := self._find_denying(tool, asking, audience_of(tool))) is not None:
                found[tool] = scheduler
        for tool, scheduler in found.items() - self._told:
            if len(self._told) < MAX_TOLD:
                self._told.add((tool, scheduler))
                _log.info(
                    "a tool is not offered to the LLM: every call of it would be denied",
                    tool=tool,
                    scheduler=scheduler,
                )
        return frozenset(found)

    def _find_denying(self, tool: str, asking: ToolQuestion, audience: Recipients) -> str | None:
        tables = self._client.tables
        unasked = audience.unasked.get(asking.phase, ()) if audience.unasked else ()
        question = asking._replace(tool_name=tool)
        for name in audience.names:
            is_counted = name in tables.in_force and name not in audience.shadows and name not in unasked
            if is_counted and tables.denies_all(name, question):
                return name
        return None
