"""From closed rounds to a decision: what would run, who decided, what the LLM is told."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from toolgate_bus.protocol.delegation import reroute, target_of
from toolgate_bus.protocol.events import (
    OVERRULED,
    AskUser,
    Decision,
    Deny,
    Modify,
    Outcome,
    Phase,
    ReceivedVerdict,
    ToolQuestion,
    Why,
)
from toolgate_bus.protocol.names import MAX_REASON
from toolgate_bus.ruling.counterfactual import ProposedCall
from toolgate_bus.ruling.merge import counts
from toolgate_bus.ruling.round import RoundResult
from toolgate_bus.telemetry.unanimous import Group

from toolgate_orchestrator.decision.config import ToolgateConfig
from toolgate_orchestrator.decision.question.capabilities import ALL, Ability
from toolgate_orchestrator.decision.question.redact import RedactedArguments
from toolgate_orchestrator.decision.question.validation import Tools, final_arguments
from toolgate_orchestrator.decision.round.consent import explain_disagreement
from toolgate_orchestrator.decision.round.shadow_log import ShadowLog
from toolgate_orchestrator.decision.round.wait_reports import Note, WaitReporter

if TYPE_CHECKING:
    from toolgate_orchestrator.decision.round.open_round import PendingDecision


class HeldCall(NamedTuple):
    """A call that waits for somebody's answer."""

    decision: str
    """The decision's id; people may answer by its first digits."""
    tool: str
    phase: Phase
    scheduler: str
    """Who holds it; `operator` where it is paused."""
    reason: str | None
    seconds: float | None
    """So long it waits from now on at the most; then it is denied, or goes on where it was paused. None:
    until somebody resumes it."""
    paused: bool = False
    """Whether an operator has paused it: nobody is to answer."""


OnHold = Callable[[HeldCall], None]
"""Told of each hold that is waited for, once; must not block."""


def holders(heard: Iterable[ReceivedVerdict]) -> list[str]:
    """Whose last word in a round is a hold, waited for or not: once it is over they hold in vain.

    A shadow's hold is its own affair: nobody waits for it, ever.
    """
    last = {one.scheduler: one.verdict.action for one in heard if not one.shadow}
    return [name for name, action in last.items() if action == "hold"]


class DecisionState:
    """One call on its way through the gate: its question, and what was heard about it so far."""

    body: bytes = b""
    """The question as it was written; empty until it was."""
    outgoing: RedactedArguments | None = None
    """The arguments as they travelled; None where nothing was kept back."""
    replaced: RedactedArguments | None = None
    """Those of the replacement, likewise."""
    author: ReceivedVerdict | None = None
    """The modify whose replacement is verified."""
    heard: tuple[ReceivedVerdict, ...] = ()
    asked: tuple[Sequence[str], ...] = ()
    """Who was asked, round by round; `in-process` among them."""
    shadows: ShadowLog | None = None
    """What shadows say about it, where any were asked."""
    agreed: Group | None = None
    """Everyone who was asked, where all of them said continue and there is nothing to remark on."""
    silent: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()
    failed_open: Mapping[str, str] = MappingProxyType({})
    """Optional schedulers that the decision was made without, and why."""
    rounds: tuple["PendingDecision", ...] = ()
    """The questions that were put about it and have ended."""
    goes_on: bool = False
    """Whether it waits for something after a round: those are kept where a denial still finds them."""
    admitted: tuple["PendingDecision", ...] = ()
    """The questions in which something was given to it, until it is given back."""
    waited: float = 0.0
    """Seconds for which it waited to be admitted."""
    unasked: Mapping[str, str] = MappingProxyType({})
    """Required schedulers that could not be asked, and why, in words."""
    objection: ReceivedVerdict | None = None
    """The first denial that came after its round, and before the decision."""
    waits: WaitReporter | None = None
    """Tells that it waits, once it did."""
    is_over: bool = False
    """Whether it is decided: no verdict changes anything any more."""
    can: frozenset[Ability] = ALL
    """What its caller can do."""
    is_bound: bool = False
    """Whether that is not all."""
    reaches_person: bool = True
    """Whether a person can be asked, by the caller or by others."""
    is_request: bool = False
    """Whether it is a request to an LLM, and no call of a tool."""
    passes: tuple[type[BaseException], ...] = ()
    """What may be raised while a person is asked, and ends the decision."""
    interrupt: BaseException | None = None
    """What was raised so."""
    on_objection: Callable[[ReceivedVerdict], None] | None = None
    """Told of a denial that comes while it waits for a person whom nobody waits for."""
    deferred: Mapping[str, Any] = MappingProxyType({})
    """Of one that went on with a person's answer: what the record says of that."""

    def __init__(
        self,
        id: bytes,  # noqa: A002 - the wire's word
        question: ToolQuestion,
        tools: Tools,
        agents: Sequence[str] | None,
        labels: tuple[str, str],
        started: float,
        on_hold: OnHold | None = None,
    ) -> None:
        """All `tools`, perhaps with their schemas, and agents, of which the question names as many as fit.

        `labels` are tool and agent for metrics, `started` is monotonic, in seconds.

        `on_hold` is who wants to know that somebody holds the call.
        """
        self.id, self.question, self.tools, self.agents = id, question, tools, agents
        self.labels, self.started, self.on_hold = labels, started, on_hold

    @property
    def own(self) -> ProposedCall:
        """The LLM's own call."""
        asked = self.question
        return ProposedCall(asked.tool_name, asked.tool_input, asked.agent_target)

    @property
    def placeholders(self) -> Mapping[str, Any]:
        """What stands for what in the question."""
        return {} if self.outgoing is None else self.outgoing.placeholders

    @property
    def plain(self) -> Mapping[str, Any] | None:
        """Its arguments as they were ruled on, where they are no JSON."""
        return None if self.outgoing is None else self.outgoing.plain

    def plain_of(self, phase: Phase) -> Mapping[str, Any] | None:
        """Return the same of the arguments that were asked about in a phase."""
        outgoing = self.outgoing_of(phase)
        return None if outgoing is None else outgoing.plain

    def placeholders_of(self, phase: Phase) -> Mapping[str, Any]:
        """What stands for what in the question of a phase."""
        if phase == "select":
            return self.placeholders
        return {} if self.replaced is None else self.replaced.placeholders

    def outgoing_of(self, phase: Phase) -> RedactedArguments | None:
        """The arguments as they travelled in a phase."""
        return self.outgoing if phase == "select" or self.replaced is None else self.replaced

    def fail_open(self, name: str, reason: str) -> None:
        """The decision is made without an optional scheduler; the first reason stands."""
        if name not in self.failed_open:
            self.failed_open = {**self.failed_open, name: reason}

    def report_waits(self, note: Note) -> None:
        """It waits for somebody: from now on that is told, now and then."""
        if self.waits is None:
            self.waits = WaitReporter(self.question, note)

    def object_to(self, heard: ReceivedVerdict) -> bool:
        """Have a denial count that came after its round; False where all is decided."""
        if self.is_over:
            return False
        self.heard += (heard,)
        self.objection = self.objection or heard
        if self.on_objection is not None:
            self.on_objection(heard)
        return True

    def bind(
        self, can: frozenset[Ability], passes: tuple[type[BaseException], ...], *, reaches_person: bool
    ) -> None:
        """Say what its caller can do, whether anybody can be asked, and what may be raised by who asks."""
        self.can, self.is_bound, self.passes = can, can != ALL, passes
        self.reaches_person = reaches_person

    def leave_unasked(self, name: str, words: str) -> None:
        """A required scheduler cannot be asked; the first words stand."""
        if name not in self.unasked:
            self.unasked = {**self.unasked, name: words}


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
    token: str = ""
    """Of one that waits for a person: with what the answer is given."""
    prompt: AskUser | None = None
    seconds: float = 0.0
    """For how long it may be given."""

    def replacement(self, question: ToolQuestion, ttl_ms: int, *, again: bool = False) -> ToolQuestion:
        """The question about the call that would run instead, which nobody has judged."""
        return question._replace(
            phase="verify",
            tool_name=self.tool_name or question.tool_name,
            tool_input=question.tool_input if self.tool_input is None else self.tool_input,
            agent_target=question.agent_target if self.winner is None else self.agent_target,
            ttl_ms=ttl_ms,
            again=again,
        )

    def admission(self, question: ToolQuestion, ttl_ms: int) -> ToolQuestion:
        """The question about the call that is about to run."""
        if self.winner is not None:
            question = self.replacement(question, ttl_ms)
        return question._replace(phase="admit", ttl_ms=ttl_ms)

    def with_verification(
        self, call: DecisionState, second: RoundResult, config: ToolgateConfig
    ) -> "RulingResult":
        """After a verify round of a call: a denial there vetoes the replacement."""
        denied = denial(call, second, config)
        if denied is not None:
            return denied
        return replace(self, asks=(*self.asks, *second.merged.asks), held=self.held or second.was_held)

    def with_changes(self, final: ProposedCall, modifies: Sequence[ReceivedVerdict]) -> "RulingResult":
        """The replacement as others have changed it; the LLM is told why each did."""
        reasons = (self.reason, *(one.verdict.reason for one in modifies))
        told = "; ".join(dict.fromkeys(filter(None, reasons)))[:MAX_REASON]
        return replace(self, tool_input=final.arguments, agent_target=final.agent, reason=told or None)

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
        asked, modified = call.question, self.outcome == "modify"
        if self.outcome == "ask":
            modified = self.winner is not None
        return Decision(
            asked.id,
            self.outcome,
            self.why,
            (self.tool_name or asked.tool_name) if modified else asked.tool_name,
            self.tool_input if modified and self.tool_input is not None else asked.tool_input,
            asked.tool_name,
            asked.tool_input,
            self.reason,
            self.scheduler,
            self.agent_target if modified else asked.agent_target,
            call.heard,
            call.silent,
            call.passed_over,
            now - call.started,
            self.asked_user,
            call.waited,
            self.token,
            self.prompt,
        )


CHANGED: Final = RulingResult(
    "deny",
    "gate_failed",
    reason="This call was not run: its arguments were changed while it was ruled on.",
)
AGREED: Final = RulingResult("continue", "agreed")
UNASKED: Final = RulingResult("continue", "unasked")
GATE_FAILED: Final = RulingResult(
    "deny", "gate_failed", reason="The gate failed and could not rule on this call; it was not run."
)


def objection(call: DecisionState) -> RulingResult | None:
    """The denial that came after its round, if there was one."""
    heard = call.objection
    if heard is None or not isinstance(heard.verdict, Deny):
        return None
    return RulingResult("deny", "denied", reason=heard.verdict.reason, scheduler=heard.scheduler)


def deny_unasked(
    call: DecisionState, required: Mapping[str, bool], winner: ReceivedVerdict | None
) -> RulingResult | None:
    """Return the denial of a deferred call to which somebody who is required here has not agreed; else None.

    Another process may have asked about it, and have required others. Of a replacement (`winner`) what was
    said of it counts, and not what was said of the LLM's own call.
    """
    agreed = {heard.scheduler for heard in _find_last_round(call.heard, winner) if counts(heard)}
    for name, is_required in required.items():
        if is_required and (name not in agreed or _is_overruled(call.heard, name)):
            reason = f"This call was not run: {name} is required here, and has not agreed to it."
            return RulingResult("deny", "silent", reason=reason, scheduler=name)
    return None


def _find_last_round(
    heard: Sequence[ReceivedVerdict], winner: ReceivedVerdict | None
) -> Sequence[ReceivedVerdict]:
    """Return what was said of the call as it will run; its author stands for it where none changed it."""
    if winner is None:
        return heard
    second = [one for one in heard if one.phase == "verify" and not one.again]
    if any(counts(one) and isinstance(one.verdict, Modify) for one in second):
        return [one for one in heard if one.again]
    return [*second, winner]


def _is_overruled(verdicts: Iterable[ReceivedVerdict], name: str) -> bool:
    return any(heard.scheduler == name and heard.problem == OVERRULED for heard in verdicts)


def denial(call: DecisionState, closed: RoundResult, config: ToolgateConfig) -> RulingResult | None:
    """The denial in a closed round, if there is one: by a verdict, by silence, or by expiry."""
    merged = closed.merged
    if merged.action == "deny" and merged.winner is not None and isinstance(merged.winner.verdict, Deny):
        reason = explain_disagreement(merged.denies) or merged.winner.verdict.reason
        return RulingResult("deny", "denied", reason=reason, scheduler=merged.winner.scheduler)
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
    modify, asked = winner.verdict, call.question
    arguments = final_arguments(
        modify,
        asked.tool_name,
        asked.tool_input,
        call.placeholders,
        config.schedulers.get(winner.scheduler),
        call.plain,
    )
    arguments, target = reroute(asked.tool_input, asked.agent_target, arguments, modify.agent_target)
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
