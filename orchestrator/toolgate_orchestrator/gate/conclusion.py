"""After a decision: count it, keep it for audit, tell who wants to know.

Facts are made off the decision's path (the bus calls back for their bytes) and hold arguments as
they left the process: redacted.
"""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from toolgate_bus import metrics, record
from toolgate_bus.events import Decision, Heard

from toolgate_orchestrator.gate.client import Client
from toolgate_orchestrator.gate.config import SchedulerLimits
from toolgate_orchestrator.gate.redact import Redactor
from toolgate_orchestrator.gate.ruling import Call, Ruling, question_fields

__all__ = ["Conclusion"]

PLAIN_FIELDS: Final = 5
"""So many fields has a verdict without any words of its own."""


class Conclusion:
    """Concludes the decisions of one gate."""

    def __init__(
        self, client: Client | None, redactor: Redactor, limits: Mapping[str, SchedulerLimits]
    ) -> None:
        self._client, self._redactor, self._limits = client, redactor, limits
        self.subscribers: list[Callable[[Decision], None]] = []
        self.late_subscribers: list[Callable[[str, Heard], None]] = []

    @property
    def recording(self) -> bool:
        """Whether anybody is there for whom facts are kept."""
        return self._client is not None and bool(self._client.announced or self._client.bus.readers)

    def conclude(self, call: Call, ruling: Ruling) -> Decision:
        """The decision of a ruling: counted, recorded, told."""
        decision = ruling.decision(call, time.monotonic())
        metrics.count(metrics.DECISIONS, decision.outcome, *call.labels)
        metrics.observe(metrics.DECISION_SECONDS, decision.seconds)
        call.shadows.decided(decision, call.agent_target, call.outgoing)
        self._compare(call)
        if decision.verdicts or self.recording:
            self._keep(lambda seq, at: self._decision(call, decision, seq, at))
        for tell in self.subscribers:
            tell(decision)
        return decision

    def late(self, call: Call, heard: Heard) -> None:
        """A verdict that came after its decision: kept beside it."""
        told = heard._replace(late=not heard.shadow)
        if heard.shadow:  # nobody waits for a shadow: it is never late
            metrics.count(metrics.VERDICTS, heard.scheduler, heard.verdict.action, *call.labels)
            call.shadows.heard(heard)
            self._compare(call)
        fields = {"event": "verdict", "id": call.id.hex(), **self._verdict(call, told)}
        self._keep(lambda seq, at: record.other_fact(fields, seq, at))
        for tell in self.late_subscribers:
            tell(call.id.hex(), told)

    def note(self, event: str, data: Mapping[str, Any]) -> None:
        """Any other fact; its values are redacted as arguments are.

        What becomes of a decision is told in any case: somebody may have reserved for it and died.
        """
        if self.recording or data.get("decision_id"):
            fields = {**self._redactor.outgoing(data).value, "event": event}
            self._keep(lambda seq, at: record.other_fact(fields, seq, at))

    def _compare(self, call: Call) -> None:
        """Count the shadows that would have changed what came of this call."""
        for name in call.shadows.disagreeing(self._limits):
            metrics.count(metrics.SHADOW_DISAGREEMENTS, name)

    def _keep(self, make: Callable[[int, float], bytes]) -> None:
        """Queue a fact, with its place in this orchestrator's sequence."""
        client = self._client
        if client is not None:
            client.facts += 1
            client.bus.fact(partial(make, client.facts, time.time()))

    def _decision(self, call: Call, decision: Decision, seq: int, at: float) -> bytes:
        if call.outgoing is None:
            call.body, call.outgoing = self._redactor.question(
                question_fields(call, "select", 0), call.tool_input
            )
        final = None
        if decision.outcome == "modify":
            final = self._redactor.outgoing(decision.tool_input).value
        reason = decision.reason and self._redactor.text(decision.reason, call.outgoing)
        verdicts = [self._verdict(call, heard) for heard in decision.verdicts]
        return record.decision_fact(decision, call.body, verdicts, final, reason, seq, at)

    def _verdict(self, call: Call, heard: Heard) -> dict[str, Any]:
        """A verdict fit to leave: a hook of this process saw the call as it is, and may repeat of it."""
        fields = record.verdict_fields(heard)
        if len(fields) > PLAIN_FIELDS and call.outgoing is not None:
            if "arguments" in fields:
                fields["arguments"] = self._redactor.outgoing(fields["arguments"]).value
            for words in ("reason", "prompt"):
                if words in fields:
                    fields[words] = self._redactor.text(fields[words], call.outgoing)
        return fields
