"""What a decision would have come to, had other verdicts counted. Pure.

The rules are those of `merge`: deny, then the replacement and what was said of it in `verify`, and again
where others changed it there, then a person, then what was said in `admit` of the call that was about to run.
What verdicts did not decide stands: a denial by silence, by expiry or by a bus that was away stays one, and
a person who was asked about a call gives the same answer about the same call. What nobody can know is said:
a replacement that the others were never asked about is not `verified`. The gate counts shadows by it, the
record lists them, `replay --against` compares by it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from toolgate_bus.protocol.delegation import reroute
from toolgate_bus.protocol.events import AskUser, Modify, Outcome, Phase, ReceivedVerdict, Why
from toolgate_bus.protocol.json_values import same_json
from toolgate_bus.ruling.merge import MergeResult, counts, merge

Change = Literal["veto", "reroute", "ask", "hold", "allow"]
"""What other verdicts change: the call is denied, runs as another, waits for a person, is held by a
scheduler that gave no final answer, or runs where it was denied."""
CHANGES: Final[tuple[Change, ...]] = ("veto", "reroute", "ask", "hold", "allow")

_BY_PERSON: Final = frozenset(("refused", "expired", "no_approver"))
_ENDS: Final[Mapping[str, Change]] = {"deny": "veto", "ask": "ask", "hold": "hold", "run": "allow"}


@dataclass(slots=True)
class ChangeCounts:
    """How many decisions other verdicts leave as they are, or change, by the change."""

    same: int = 0
    veto: int = 0
    reroute: int = 0
    ask: int = 0
    hold: int = 0
    allow: int = 0

    def count(self, change: Change | None) -> None:
        """Count one decision; None is one that stays as it is."""
        kind = change or "same"
        setattr(self, kind, getattr(self, kind) + 1)


class ProposedCall(NamedTuple):
    """A call that might run."""

    tool: str
    arguments: Any
    agent: str | None = None
    """To whom it delegates."""

    def same(self, other: "ProposedCall") -> bool:
        """Whether it is the same call, with the same arguments as JSON."""
        return (self.tool, self.agent) == (other.tool, other.agent) and same_json(
            self.arguments, other.arguments
        )

    def lay_over(self, changes: Sequence["ProposedCall"]) -> "ProposedCall":
        """Return this call with each change that somebody wants of it, the highest priority first.

        A change is what the call is to be instead: the arguments that it sets otherwise are changed, others
        are left. Of an argument that several change, the highest priority counts.
        """
        if len(changes) == 1:
            return changes[0]._replace(tool=self.tool)
        arguments, agent = dict(self.arguments), self.agent
        for one in reversed(changes):
            for name in one.find_changed(self):
                if name in one.arguments:
                    arguments[name] = one.arguments[name]
                else:
                    arguments.pop(name, None)
            if one.agent != self.agent:
                agent = one.agent
        return ProposedCall(self.tool, arguments, agent)

    def find_changed(self, before: "ProposedCall") -> list[str]:
        """Return the arguments that are others than in `before`, or in one of the two alone."""
        own, others = self.arguments, before.arguments
        return [
            name
            for name in {**own, **others}
            if name not in own or name not in others or not same_json(own[name], others[name])
        ]


class Effect(NamedTuple):
    """What becomes of a call."""

    kind: Literal["run", "deny", "ask", "hold"]
    call: ProposedCall
    """What runs, or what somebody is asked about; the LLM's own choice where it is denied."""
    scheduler: str | None = None
    """Whose verdict made it so."""
    reason: str | None = None
    verified: bool = True
    """False for a replacement that the others would still have been asked about."""


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A decision, as far as it takes to say what else might have come of it."""

    original: ProposedCall
    final: ProposedCall
    """What was to run; meaningless where it was denied."""
    outcome: Outcome
    why: Why
    verdicts: tuple[ReceivedVerdict, ...] = ()
    """All that was heard, late ones and shadows included; the arguments of a modify are comparable
    with those of `original`."""
    silent: tuple[str, ...] = ()
    scheduler: str | None = None
    reason: str | None = None

    @property
    def runs(self) -> bool:
        """Whether a call was let through."""
        return self.outcome in ("continue", "modify")


def actual(ruled: DecisionRecord) -> Effect:
    """What did become of the call."""
    if ruled.runs:
        return Effect("run", ruled.final, ruled.scheduler, ruled.reason)
    return Effect("deny", ruled.original, ruled.scheduler, ruled.reason)


def with_shadow(ruled: DecisionRecord, name: str) -> Effect:
    """What would have become of it, had this shadow's verdicts counted like those of an optional one."""
    own = [heard._replace(shadow=False) for heard in ruled.verdicts if heard.scheduler == name]
    return replay_decision(ruled, [heard for heard in own if not heard.late], without=(name,))


def replay_decision(
    ruled: DecisionRecord,
    added: Sequence[ReceivedVerdict],
    *,
    without: Collection[str] = (),
    verified: ProposedCall | None = None,
) -> Effect:
    """What would have become of it with these verdicts, and without those of some.

    `verified` is the call that the added verdicts of the verify phase are about, if it is not the one
    that the decision had verified. Changes that added verdicts want of it are laid over it, and nobody was
    asked about that.
    """
    # What was only late because of a denial that now falls away counts.
    freed = ruled.why == "denied" and ruled.scheduler in without
    stay = [
        heard._replace(late=False) if freed and heard.late and heard.scheduler not in ruled.silent else heard
        for heard in ruled.verdicts
        if heard.scheduler not in without
    ]
    merged = merge(_of((*stay, *added), "select"))
    if merged.winner is not None and merged.action == "deny":
        return Effect("deny", ruled.original, merged.winner.scheduler, merged.winner.verdict.reason)
    lifted = ruled.outcome != "deny" or ruled.why == "denied" or ruled.scheduler in without
    if ruled.outcome == "cancelled" or not (lifted or _has_person_answer(ruled)):
        return actual(ruled)  # a denial that no verdict gave and none can lift
    then = apply_modify(ruled.original, merge(_of(ruled.verdicts, "select")).winner)
    call = apply_modify(ruled.original, merged.winner)
    author = None if merged.winner is None else merged.winner.scheduler  # it is not asked about its own
    parts = ((stay, call.same(then)), (added, call.same(verified or then)))
    told, told_by_added = (
        [
            one
            for one in part
            if one.phase == "select"
            or (asked and (one.scheduler != author or one.again or one.phase == "admit"))
        ]
        for part, asked in parts
    )
    second = merge(_of((*told, *told_by_added), "verify"))
    if second.action == "deny" and second.winner is not None:
        return Effect("deny", ruled.original, second.winner.scheduler, second.winner.verdict.reason)
    as_changed = _apply_changes(then, merge(_of(ruled.verdicts, "verify")))
    as_added = as_changed
    if verified is not None:
        as_added = _apply_changes(verified, merge(_of(added, "verify")))
    changed = _apply_changes(call, second)
    if not changed.same(as_changed):  # these were asked about another call in the rounds that follow
        told = [one for one in told if not (one.again or one.phase == "admit")]
    if not changed.same(as_added):
        told_by_added = [one for one in told_by_added if not (one.again or one.phase == "admit")]
    third = merge(_of((*told, *told_by_added), "verify", again=True))
    if third.action == "deny" and third.winner is not None:
        return Effect("deny", ruled.original, third.winner.scheduler, third.winner.verdict.reason)
    same = call.same(then) and changed.same(as_changed)
    effect = _apply_winner(ruled.final if same and ruled.runs else changed, merged.winner, parts)
    unheard = any(counts(one) for one in stay) or not changed.same(as_added)
    if unheard and not changed.same(call) and not changed.same(as_changed):
        effect = effect._replace(verified=False)
    asks = (*merged.asks, *second.asks, *third.asks)
    effect = _apply_waits(ruled, effect, asks, told_by_added, same_call=same)
    last = merge(_of((*told, *told_by_added), "admit")).winner
    if effect.kind != "run" or last is None:
        return effect
    return Effect("deny", ruled.original, last.scheduler, last.verdict.reason)


def words_of(heard: ReceivedVerdict) -> str | None:
    """Why somebody said what they said: the reason, or what a person is asked."""
    verdict = heard.verdict
    return verdict.reason or (verdict.prompt if isinstance(verdict, AskUser) else None)


def apply_modify(original: ProposedCall, winner: ReceivedVerdict | None) -> ProposedCall:
    """What a modify makes of a call; without one it is the LLM's own choice."""
    if winner is None or not isinstance(winner.verdict, Modify):
        return original
    modify = winner.verdict
    arguments = original.arguments if modify.arguments is None else modify.arguments
    if not isinstance(arguments, dict) or not isinstance(original.arguments, dict):
        return ProposedCall(modify.tool, arguments, modify.agent_target or original.agent)
    return ProposedCall(
        modify.tool, *reroute(original.arguments, original.agent, arguments, modify.agent_target)
    )


def change(before: Effect, after: Effect) -> Change | None:
    """What is different for the call, or None: nothing, whatever the reasons."""
    if after.kind != before.kind:
        return _ENDS[after.kind]
    return "reroute" if after.kind == "run" and not after.call.same(before.call) else None


def _of(
    verdicts: Iterable[ReceivedVerdict], phase: Phase, *, again: bool = False
) -> Iterable[ReceivedVerdict]:
    """The verdicts of one round."""
    return (heard for heard in verdicts if heard.phase == phase and heard.again is again)


def _apply_changes(call: ProposedCall, merged: MergeResult) -> ProposedCall:
    """What a round of `verify` makes of a call; a change to another tool is overruled."""
    wanted = [apply_modify(call, heard) for heard in merged.modifies]
    changes = [one for one in wanted if one.tool == call.tool]
    return call.lay_over(changes) if changes else call


def _apply_winner(
    call: ProposedCall,
    winner: ReceivedVerdict | None,
    parts: Iterable[tuple[Sequence[ReceivedVerdict], bool]],
) -> Effect:
    """The call that would run; whether everybody but its author was asked about it."""
    if winner is None:
        return Effect("run", call)
    unasked = {
        heard.scheduler for verdicts, asked in parts if not asked for heard in verdicts if counts(heard)
    }
    verified = not unasked - {winner.scheduler}
    return Effect("run", call, winner.scheduler, winner.verdict.reason, verified)


def _apply_waits(
    ruled: DecisionRecord,
    effect: Effect,
    asks: Sequence[ReceivedVerdict],
    told_by_added: Sequence[ReceivedVerdict],
    *,
    same_call: bool,
) -> Effect:
    """Who would still have been waited for: a scheduler that holds, then a person, unless one has spoken."""
    answered = bool(asks) and same_call and _has_person_answer(ruled)
    agreed = ruled.runs or _is_past_person(ruled)
    if answered and not agreed:
        return actual(ruled)
    if holding := _open_hold(told_by_added):
        return effect._replace(kind="hold", scheduler=holding.scheduler, reason=holding.verdict.reason)
    if answered:
        return actual(ruled) if ruled.runs else effect
    if asks:
        return effect._replace(kind="ask", scheduler=asks[0].scheduler, reason=words_of(asks[0]))
    return effect


def _has_person_answer(ruled: DecisionRecord) -> bool:
    """Whether a person was asked, or looked for, and what they said is the outcome."""
    asked = {
        heard.scheduler for heard in ruled.verdicts if counts(heard) and heard.verdict.action == "ask_user"
    }
    by_person = ruled.why in _BY_PERSON and ruled.scheduler in asked
    return bool(asked) and (ruled.runs or by_person or _is_past_person(ruled))


def _is_past_person(ruled: DecisionRecord) -> bool:
    """Whether it came to the last round: who was asked for a person's word had it."""
    return any(heard.phase == "admit" and counts(heard) for heard in ruled.verdicts)


def _open_hold(verdicts: Iterable[ReceivedVerdict]) -> ReceivedVerdict | None:
    """The hold of somebody who gave no final answer in that phase."""
    open_: dict[tuple[str, str], ReceivedVerdict] = {}
    answered: set[tuple[str, str]] = set()
    for heard in verdicts:
        key = heard.scheduler, heard.phase
        if heard.verdict.action == "hold":
            open_.setdefault(key, heard)
        elif heard.verdict.action != "failed":
            answered.add(key)
    return next((heard for key, heard in open_.items() if key not in answered), None)
