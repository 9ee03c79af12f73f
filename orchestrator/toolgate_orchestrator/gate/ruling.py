"""From closed rounds to a decision: what would run, who decided, what the LLM is told."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

from toolgate_bus.protocol import packing
from toolgate_bus.protocol.delegation import reroute, target_of
from toolgate_bus.protocol.events import Decision, Deny, Modify, Outcome, Phase, ReceivedVerdict, Why
from toolgate_bus.ruling.counterfactual import DecisionRecord, ProposedCall, actual, change, with_shadow
from toolgate_bus.ruling.round import RoundResult
from toolgate_bus.telemetry.unanimous import Group

from toolgate_orchestrator.gate.caller_fields import are_texts, make_texts
from toolgate_orchestrator.gate.config import SchedulerLimits, ToolgateConfig
from toolgate_orchestrator.gate.redact import RedactedArguments
from toolgate_orchestrator.gate.validation import Tools, final_arguments


class HeldCall(NamedTuple):
    """A call that waits for somebody's answer."""

    decision: str
    """The decision's id; people may answer by its first digits."""
    tool: str
    phase: Phase
    scheduler: str
    """Who holds it."""
    reason: str | None
    seconds: float
    """So long it waits from now on at the most; then it is denied."""


OnHold = Callable[[HeldCall], None]
"""Told of each hold that is waited for, once; must not block."""


def holders(heard: Iterable[ReceivedVerdict]) -> list[str]:
    """Whose last word in a round is a hold, waited for or not: once it is over they hold in vain.

    A shadow's hold is its own affair: nobody waits for it, ever.
    """
    last = {one.scheduler: one.verdict.action for one in heard if not one.shadow}
    return [name for name, action in last.items() if action == "hold"]


class ShadowLog:
    """What the shadows of one call say, whenever they say it, and whose word would have changed the outcome.

    Each is compared once both its word and the decision are there, again when it says more, and named once
    a call. Arguments are compared as they are, with what was redacted put back.
    """

    __slots__ = ("_agent", "_decision", "_late", "_named", "_outgoing")

    def __init__(self) -> None:
        self._decision: Decision | None = None
        self._late: tuple[ReceivedVerdict, ...] = ()
        self._named: tuple[str, ...] = ()

    def record_decision(
        self, decision: Decision, agent: str | None, outgoing: RedactedArguments | None
    ) -> None:
        """What was decided; to whom the LLM's call delegates, and its arguments as they travelled."""
        self._decision, self._agent, self._outgoing = decision, agent, outgoing

    def add_late(self, late: ReceivedVerdict) -> None:
        """A shadow's verdict that came when nobody listened for this round any longer."""
        self._late = (*self._late, late)

    def take_disagreeing(self, limits: Mapping[str, SchedulerLimits]) -> tuple[str, ...]:
        """Shadows now known to have changed the outcome, had they counted; none that was named before."""
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
        """A modify with the arguments it would run with."""
        if not isinstance(heard.verdict, Modify) or heard.problem or heard.phase == "verify":
            return heard
        arguments = final_arguments(
            heard.verdict,
            decision.original_tool,
            decision.original_input,
            self._outgoing.placeholders if self._outgoing else {},
            limits.get(heard.scheduler),
        )
        return heard._replace(verdict=heard.verdict.model_copy(update={"arguments": arguments}))


@dataclass(slots=True)
class DecisionState:
    """One call on its way through the gate, and what was heard about it so far."""

    id: bytes
    tool_name: str
    tool_input: dict[str, Any]
    tools: Tools
    agents: Sequence[str] | None
    agent_target: str | None
    who: dict[str, Any]
    labels: tuple[str, str]
    """Tool and agent as metrics labels."""
    trace: dict[str, str]
    """The trace context that travels with the question."""
    started: float
    outgoing: RedactedArguments | None = None
    """The arguments as they travelled; None until the question was written."""
    before: RedactedArguments | None = None
    """Those of the call that this one replaces."""
    body: bytes = b""
    """The question of the select phase as it was written."""
    heard: list[ReceivedVerdict] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    asked: list[Sequence[str]] = field(default_factory=list)
    """Who was asked, round by round; `in-process` among them."""
    agreed: Group | None = None
    """Everyone who was asked, where all of them said continue and there is nothing to remark on."""
    failed_open: dict[str, str] = field(default_factory=dict)
    """Optional schedulers that the decision was made without, and why."""
    unasked: dict[str, str] = field(default_factory=dict)
    """Required schedulers that could not be asked, and why, in words."""
    shadows: ShadowLog = field(default_factory=ShadowLog)
    on_hold: OnHold | None = None
    """Who wants to know that somebody holds it."""

    @property
    def placeholders(self) -> Mapping[str, Any]:
        """What stands for what in the question."""
        return {} if self.outgoing is None else self.outgoing.placeholders

    def with_ruling(self, ruling: "RulingResult") -> "DecisionState":
        """The call that a ruling would have run instead; what is heard of it is kept together."""
        return replace(
            self,
            tool_name=ruling.tool_name or self.tool_name,
            tool_input=self.tool_input if ruling.tool_input is None else ruling.tool_input,
            agent_target=self.agent_target if ruling.winner is None else ruling.agent_target,
            outgoing=None,
            before=self.outgoing,
        )


@dataclass(frozen=True, slots=True)
class RulingResult:
    """What is decided so far."""

    outcome: Outcome
    why: Why
    reason: str | None = None
    scheduler: str | None = None
    winner: ReceivedVerdict | None = None
    tool_name: str | None = None
    tool_input: dict[str, Any] | None = None
    agent_target: str | None = None
    asks: tuple[ReceivedVerdict, ...] = ()
    held: bool = False
    asked_user: bool = False

    def with_verification(
        self, call: DecisionState, second: RoundResult, config: ToolgateConfig
    ) -> "RulingResult":
        """After the verify round of a call: a denial there vetoes the replacement."""
        denied = denial(call, second, config)
        if denied is not None:
            return denied
        return replace(self, asks=(*self.asks, *second.merged.asks))

    def with_refusal(
        self, answer: Literal["allow", "refuse", "expired", "no_approver"], asker: str
    ) -> "RulingResult":
        """A person did not agree: refused, expired and nobody there are told apart."""
        told: dict[str, tuple[Why, str]] = {
            "refuse": ("refused", "A person was asked about this call and refused it."),
            "expired": ("expired", "A person was asked about this call and did not answer in time."),
            "no_approver": (
                "no_approver",
                "This call needs a person's approval, and there is nobody to ask.",
            ),
        }
        why, reason = told.get(answer, told["refuse"])
        return RulingResult("deny", why, reason=reason, scheduler=asker)

    def decision(self, call: DecisionState, now: float) -> Decision:
        """The decision, with everything that was heard."""
        modified = self.outcome == "modify"
        return Decision(
            call.id.hex(),
            self.outcome,
            self.why,
            (self.tool_name or call.tool_name) if modified else call.tool_name,
            self.tool_input if modified and self.tool_input is not None else call.tool_input,
            call.tool_name,
            call.tool_input,
            self.reason,
            self.scheduler,
            self.agent_target if modified else call.agent_target,
            tuple(call.heard),
            tuple(call.silent),
            tuple(call.passed_over),
            now - call.started,
            self.asked_user,
        )


def _fit_names(names: list[Any]) -> list[str]:
    """As many as a question can hold, each as a text."""
    if len(names) > packing.MAX_ENTRIES:
        names = names[: packing.MAX_ENTRIES]
    return names if are_texts(names) else make_texts(names)


def question_fields(call: DecisionState, phase: Phase, patience: float) -> dict[str, Any]:
    """The fields of `tool:selecting` but for id and arguments (`Redactor.question` adds those).

    What many calls have in common comes first: the record keeps it once (`columnar`).
    """
    few = len(call.tools) <= packing.MAX_ENTRIES and len(call.agents or ()) <= packing.MAX_ENTRIES
    tools, agents = list(call.tools), None if call.agents is None else list(call.agents)
    return {
        "phase": phase,
        "available_tools": _fit_names(tools),
        "available_agents": None if agents is None else _fit_names(agents),
        "truncated": not few,
        "ttl_ms": int(patience * 1000) or 1,
        "trace": call.trace,
        "agent_target": call.agent_target,
        **call.who,
        "tool_name": call.tool_name,
    }


AGREED: Final = RulingResult("continue", "agreed")
UNASKED: Final = RulingResult("continue", "unasked")
GATE_FAILED: Final = RulingResult(
    "deny", "gate_failed", reason="The gate failed and could not rule on this call; it was not run."
)


def denial(call: DecisionState, closed: RoundResult, config: ToolgateConfig) -> RulingResult | None:
    """The denial in a closed round, if there is one: by a verdict, by silence, or by expiry."""
    merged = closed.merged
    if merged.action == "deny" and merged.winner is not None and isinstance(merged.winner.verdict, Deny):
        return RulingResult(
            "deny", "denied", reason=merged.winner.verdict.reason, scheduler=merged.winner.scheduler
        )
    if closed.required_silent:
        names = ", ".join(closed.required_silent)
        for name in closed.required_silent:
            if name in call.unasked:
                reason = (
                    f"The required scheduler cannot rule on this call: {call.unasked[name]}; it was not run."
                )
                return RulingResult("deny", "silent", reason=reason, scheduler=name)
        return RulingResult(
            "deny",
            "silent",
            reason=f"The required scheduler {names} gave no valid answer (waited at most "
            f"{config.patience_ms} ms); the call was not run.",
            scheduler=closed.required_silent[0],
        )
    if closed.expired:
        names = ", ".join(closed.expired)
        return RulingResult(
            "deny",
            "expired",
            reason=f"{names} held this call and gave no answer in time.",
            scheduler=closed.expired[0],
        )
    return None


def final_call(call: DecisionState, closed: RoundResult, config: ToolgateConfig) -> RulingResult:
    """What the select round comes to: a denial, a replacement, or the LLM's own choice."""
    denied = denial(call, closed, config)
    if denied is not None:
        return denied
    winner = closed.merged.winner
    if winner is None or not isinstance(winner.verdict, Modify):
        if not closed.silent and not closed.merged.asks:
            return AGREED
        why: Why = "failed_open" if closed.silent else "agreed"
        return RulingResult("continue", why, asks=closed.merged.asks, held=closed.was_held)
    modify = winner.verdict
    arguments = final_arguments(
        modify,
        call.tool_name,
        call.tool_input,
        call.placeholders,
        config.schedulers.get(winner.scheduler),
    )
    arguments, target = reroute(call.tool_input, call.agent_target, arguments, modify.agent_target)
    return RulingResult(
        "modify",
        "modified",
        reason=modify.reason,
        scheduler=winner.scheduler,
        winner=winner,
        tool_name=modify.tool,
        tool_input=arguments,
        agent_target=target or target_of(arguments, call.agents),
        asks=closed.merged.asks,
        held=closed.was_held,
    )
