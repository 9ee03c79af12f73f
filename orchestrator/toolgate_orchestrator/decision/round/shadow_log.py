"""The verdicts of shadows, and whether they would have changed a decision. No call depends on them."""

from collections.abc import Mapping

from toolgate_bus.protocol.events import Decision, Modify, ReceivedVerdict
from toolgate_bus.ruling.counterfactual import DecisionRecord, ProposedCall, actual, change, with_shadow

from toolgate_orchestrator.decision.config import SchedulerLimits
from toolgate_orchestrator.decision.question.redact import BadPlaceholder, RedactedArguments, restore
from toolgate_orchestrator.decision.question.validation import final_arguments


class ShadowLog:
    """The verdicts of one call's shadows, whenever they come, and which would have changed the outcome.

    Each shadow is compared once its verdict and the decision are there, and again if it sends more. It is
    named once per call. Arguments are compared unredacted.
    """

    __slots__ = ("_agent", "_decision", "_late", "_named", "_outgoing", "_replaced")

    def __init__(self) -> None:
        self._decision: Decision | None = None
        self._late: tuple[ReceivedVerdict, ...] = ()
        self._named: tuple[str, ...] = ()

    def record_decision(
        self,
        decision: Decision,
        agent: str | None,
        outgoing: RedactedArguments | None,
        replaced: RedactedArguments | None = None,
    ) -> None:
        """Record the decision, the agent to which the LLM's call delegates, and its arguments as sent.

        `replaced` are the arguments of the replacement.
        """
        self._decision, self._agent = decision, agent
        self._outgoing, self._replaced = outgoing, replaced

    def add_late(self, late: ReceivedVerdict) -> None:
        """Record a shadow's verdict that came after its round."""
        self._late = (*self._late, late)

    def take_disagreeing(self, limits: Mapping[str, SchedulerLimits]) -> tuple[str, ...]:
        """Return the shadows now known to have changed the outcome, had they counted; each only once."""
        decision = self._decision
        if decision is None or not (self._late or any(heard.shadow for heard in decision.verdicts)):
            return ()
        verdicts = (*decision.verdicts, *self._late)
        shadows = {heard.scheduler for heard in verdicts if heard.shadow}.difference(self._named)
        if not shadows:
            return ()
        ruled = DecisionRecord(
            ProposedCall(decision.original_tool, decision.original_input, self._agent),
            ProposedCall(decision.tool_name, decision.tool_input, decision.agent_target),
            decision.outcome,
            decision.why,
            tuple(self._whole(heard, decision, limits) for heard in verdicts),
            decision.silent,
            decision.scheduler,
            decision.reason,
        )
        found = [name for name in sorted(shadows) if change(actual(ruled), with_shadow(ruled, name))]
        self._named = (*self._named, *found)
        return tuple(found)

    def _whole(
        self, heard: ReceivedVerdict, decision: Decision, limits: Mapping[str, SchedulerLimits]
    ) -> ReceivedVerdict:
        """Return a modify with the arguments it would run with."""
        if not isinstance(heard.verdict, Modify) or heard.problem:
            return heard
        if heard.phase == "verify":
            return _with_originals(heard, heard.verdict, self._replaced)
        arguments = final_arguments(
            heard.verdict,
            decision.original_tool,
            decision.original_input,
            self._outgoing.placeholders if self._outgoing else {},
            limits.get(heard.scheduler),
            self._outgoing.plain if self._outgoing else None,
        )
        return heard._replace(verdict=heard.verdict.model_copy(update={"arguments": arguments}))


def _with_originals(
    heard: ReceivedVerdict, modify: Modify, outgoing: RedactedArguments | None
) -> ReceivedVerdict:
    """Return a change of a replacement with the arguments it would run with; invalid if they are unknown."""
    if outgoing is None or modify.arguments is None:
        return heard
    try:
        arguments = restore(modify.arguments, outgoing.placeholders, allowed=True)
    except BadPlaceholder:
        return heard._replace(problem="placeholder")
    return heard._replace(verdict=modify.model_copy(update={"arguments": arguments}))
