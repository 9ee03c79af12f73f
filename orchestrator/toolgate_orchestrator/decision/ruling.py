"""From closed rounds to a decision: the call that would run, the scheduler that decided, the LLM's reason."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from toolgate_bus.protocol.events import (
    OVERRULED,
    AskUser,
    Decision,
    Deny,
    Modify,
    Outcome,
    ReceivedVerdict,
    ToolQuestion,
    Why,
)
from toolgate_bus.protocol.names import MAX_REASON
from toolgate_bus.ruling.counterfactual import ProposedCall
from toolgate_bus.ruling.delegation import reroute, target_of
from toolgate_bus.ruling.merge import counts
from toolgate_bus.ruling.round import RoundResult

from toolgate_orchestrator.decision.config import ToolgateConfig
from toolgate_orchestrator.decision.question.validation import final_arguments
from toolgate_orchestrator.decision.round.consent import explain_disagreement
from toolgate_orchestrator.decision.round.decision_state import DecisionState


@dataclass(frozen=True, slots=True)
class RulingResult:
    """The ruling on a call so far."""

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
    """Token that the person's answer must bring, if the ruling waits for one."""
    prompt: AskUser | None = None
    seconds: float = 0.0
    """Seconds in which the answer may be given."""

    def replacement(self, question: ToolQuestion, ttl_ms: int, *, again: bool = False) -> ToolQuestion:
        """Return the question about the call that would run instead, which nobody has judged."""
        return question._replace(
            phase="verify",
            tool_name=self.tool_name or question.tool_name,
            tool_input=question.tool_input if self.tool_input is None else self.tool_input,
            agent_target=question.agent_target if self.winner is None else self.agent_target,
            ttl_ms=ttl_ms,
            again=again,
        )

    def admission(self, question: ToolQuestion, ttl_ms: int) -> ToolQuestion:
        """Return the question about the call that is about to run."""
        if self.winner is not None:
            question = self.replacement(question, ttl_ms)
        return question._replace(phase="admit", ttl_ms=ttl_ms)

    def with_verification(
        self, call: DecisionState, second: RoundResult, config: ToolgateConfig
    ) -> "RulingResult":
        """Return the ruling after a verify round: a denial there vetoes the replacement."""
        denied = denial(call, second, config)
        if denied is not None:
            return denied
        if not second.merged.asks and not second.was_held:
            return self
        return replace(self, asks=(*self.asks, *second.merged.asks), held=self.held or second.was_held)

    def with_changes(self, final: ProposedCall, modifies: Sequence[ReceivedVerdict]) -> "RulingResult":
        """Return the ruling with the replacement as others changed it; the LLM is told each one's reason."""
        reasons = (self.reason, *(one.verdict.reason for one in modifies))
        told = "; ".join(dict.fromkeys(filter(None, reasons)))[:MAX_REASON]
        return replace(self, tool_input=final.arguments, agent_target=final.agent, reason=told or None)

    def with_refusal(
        self, answer: Literal["allow", "refuse", "expired", "no_approver"], asker: str
    ) -> "RulingResult":
        """Return the denial for a person who refused, did not answer in time, or is not there."""
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
        """Return the decision, with all verdicts."""
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
    """Return the denial that came after its round, or None."""
    heard = call.objection
    if heard is None or not isinstance(heard.verdict, Deny):
        return None
    return RulingResult("deny", "denied", reason=heard.verdict.reason, scheduler=heard.scheduler)


def deny_unasked(
    call: DecisionState, required: Mapping[str, bool], winner: ReceivedVerdict | None
) -> RulingResult | None:
    """Return the denial of a deferred call to which a scheduler required here has not agreed; else None.

    Another process may have asked about the call, and may have required others. For a replacement (`winner`)
    only the verdicts on it count, not those on the LLM's own call.
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
    """Return the verdicts on the call as it will run; its author counts as agreed if none changed it."""
    if winner is None:
        return heard
    second = [one for one in heard if one.phase == "verify" and not one.again]
    if any(counts(one) and isinstance(one.verdict, Modify) for one in second):
        return [one for one in heard if one.again]
    return [*second, winner]


def _is_overruled(verdicts: Iterable[ReceivedVerdict], name: str) -> bool:
    return any(heard.scheduler == name and heard.problem == OVERRULED for heard in verdicts)


def denial(call: DecisionState, closed: RoundResult, config: ToolgateConfig) -> RulingResult | None:
    """Return the denial in a closed round, if there is one: by a verdict, by silence, or by expiry."""
    merged = closed.merged
    if merged.action == "deny" and merged.winner is not None and isinstance(merged.winner.verdict, Deny):
        reason = explain_disagreement(merged.denies) if len(merged.denies) > 1 else None
        reason = reason or merged.winner.verdict.reason
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
    """Return the result of the select round: a denial, a replacement, or the LLM's own choice."""
    if closed.agreed:
        return AGREED
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
    if (arguments := call.find_final(modify)) is None:
        limits = config.schedulers.get(winner.scheduler)
        arguments = final_arguments(
            modify, asked.tool_name, asked.tool_input, call.placeholders, limits, call.plain
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
