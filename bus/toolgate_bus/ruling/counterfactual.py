"""Computes what a decision would have been if other verdicts had counted. Pure.

The rules are those of `merge`, in this order: denials; the replacement and its verdicts in `verify`, asked
again if other schedulers changed it there; a person; the verdicts in `admit` on the call that was about to
run. An outcome that verdicts did not decide stands: a denial by silence, by expiry or by a bus that was away
stays one, and a person who was asked about a call gives the same answer about the same call. A replacement
that the other schedulers were never asked about is marked as not `verified`, since nobody knows their answer.
The gate counts shadows with it, the record lists them, `replay --against` compares with it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from toolgate_bus.protocol.events import AskUser, Modify, Outcome, Phase, ReceivedVerdict, Why
from toolgate_bus.protocol.json_values import same_json
from toolgate_bus.ruling.delegation import reroute
from toolgate_bus.ruling.merge import MergeResult, counts, merge

Change = Literal["veto", "reroute", "ask", "hold", "allow"]
"""Change by other verdicts: the call is denied, runs as another call, waits for a person, is held by a
scheduler that gave no final answer, or runs although it was denied."""
CHANGES: Final[tuple[Change, ...]] = ("veto", "reroute", "ask", "hold", "allow")

_BY_PERSON: Final = frozenset(("refused", "expired", "no_approver"))
_ENDS: Final[Mapping[str, Change]] = {"deny": "veto", "ask": "ask", "hold": "hold", "run": "allow"}


@dataclass(slots=True)
class ChangeCounts:
    """Number of decisions that other verdicts leave the same, or change, by the kind of change."""

    same: int = 0
    veto: int = 0
    reroute: int = 0
    ask: int = 0
    hold: int = 0
    allow: int = 0

    def count(self, change: Change | None) -> None:
        """Count one decision; None is one that stays the same."""
        kind = change or "same"
        setattr(self, kind, getattr(self, kind) + 1)


class ProposedCall(NamedTuple):
    """A call that might run."""

    tool: str
    arguments: Any
    agent: str | None = None
    """Agent to which the call delegates."""

    def same(self, other: "ProposedCall") -> bool:
        """Return whether it is the same call, with the same arguments as JSON."""
        return (self.tool, self.agent) == (other.tool, other.agent) and same_json(
            self.arguments, other.arguments
        )

    def lay_over(self, changes: Sequence["ProposedCall"]) -> "ProposedCall":
        """Return this call with all these changes, the highest priority first.

        A change is a whole call: the arguments in which it differs from this call are changed, others are
        left. If several change an argument, the highest priority counts.
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
        """Return the names of arguments that differ from those in `before`, or are in only one of the two."""
        own, others = self.arguments, before.arguments
        return [
            name
            for name in {**own, **others}
            if name not in own or name not in others or not same_json(own[name], others[name])
        ]


class Effect(NamedTuple):
    """Outcome for a call."""

    kind: Literal["run", "deny", "ask", "hold"]
    call: ProposedCall
    """Call that runs, or that a person or scheduler is asked about; the LLM's own call if denied."""
    scheduler: str | None = None
    """Scheduler whose verdict decided."""
    reason: str | None = None
    verified: bool = True
    """False for a replacement that the other schedulers would still have been asked about."""


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """Parts of a decision that are needed to compute other outcomes."""

    original: ProposedCall
    final: ProposedCall
    """Call that was to run; meaningless if denied."""
    outcome: Outcome
    why: Why
    verdicts: tuple[ReceivedVerdict, ...] = ()
    """All verdicts, late ones and shadows included. The arguments of a modify are comparable with those of
    `original`."""
    silent: tuple[str, ...] = ()
    scheduler: str | None = None
    reason: str | None = None

    @property
    def runs(self) -> bool:
        """True if a call was let through."""
        return self.outcome in ("continue", "modify")


def actual(ruled: DecisionRecord) -> Effect:
    """Return the real outcome for the call."""
    if ruled.runs:
        return Effect("run", ruled.final, ruled.scheduler, ruled.reason)
    return Effect("deny", ruled.original, ruled.scheduler, ruled.reason)


def with_shadow(ruled: DecisionRecord, name: str) -> Effect:
    """Return the outcome if this shadow's verdicts had counted like an optional scheduler's."""
    own = [heard._replace(shadow=False) for heard in ruled.verdicts if heard.scheduler == name]
    return replay_decision(ruled, [heard for heard in own if not heard.late], without=(name,))


def replay_decision(
    ruled: DecisionRecord,
    added: Sequence[ReceivedVerdict],
    *,
    without: Collection[str] = (),
    verified: ProposedCall | None = None,
) -> Effect:
    """Return the outcome with the verdicts in `added`, and without those of the schedulers in `without`.

    `verified` is the call that the added verdicts of the verify phase are about, if it is not the one that
    the decision had verified. Changes that added verdicts ask for are laid over it; no scheduler was asked
    about the result.
    """
    # A verdict counts that was only late because of a denial that now falls away.
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
    author = None if merged.winner is None else merged.winner.scheduler  # not asked about its own call
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
    if not changed.same(as_changed):  # in the later rounds these were asked about another call
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
    """Return the reason of a verdict, or its question to a person."""
    verdict = heard.verdict
    return verdict.reason or (verdict.prompt if isinstance(verdict, AskUser) else None)


def apply_modify(original: ProposedCall, winner: ReceivedVerdict | None) -> ProposedCall:
    """Return the call that a modify makes of a call; without a modify, the call itself."""
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
    """Return the change for the call; None if nothing changed but the reasons."""
    if after.kind != before.kind:
        return _ENDS[after.kind]
    return "reroute" if after.kind == "run" and not after.call.same(before.call) else None


def _of(
    verdicts: Iterable[ReceivedVerdict], phase: Phase, *, again: bool = False
) -> Iterable[ReceivedVerdict]:
    """Return the verdicts of one round."""
    return (heard for heard in verdicts if heard.phase == phase and heard.again is again)


def _apply_changes(call: ProposedCall, merged: MergeResult) -> ProposedCall:
    """Return the call that a round of `verify` makes of a call. A change to another tool is overruled."""
    wanted = [apply_modify(call, heard) for heard in merged.modifies]
    changes = [one for one in wanted if one.tool == call.tool]
    return call.lay_over(changes) if changes else call


def _apply_winner(
    call: ProposedCall,
    winner: ReceivedVerdict | None,
    parts: Iterable[tuple[Sequence[ReceivedVerdict], bool]],
) -> Effect:
    """Return the call that would run, `verified` if all schedulers but its author were asked about it."""
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
    """Return the effect with its wait: for a scheduler that holds, else for a person who has not answered."""
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
    """Return whether a person was asked, or looked for, and the outcome follows from that."""
    asked = {
        heard.scheduler for heard in ruled.verdicts if counts(heard) and heard.verdict.action == "ask_user"
    }
    by_person = ruled.why in _BY_PERSON and ruled.scheduler in asked
    return bool(asked) and (ruled.runs or by_person or _is_past_person(ruled))


def _is_past_person(ruled: DecisionRecord) -> bool:
    """Return whether it came to the last round: a person who had to be asked had answered by then."""
    return any(heard.phase == "admit" and counts(heard) for heard in ruled.verdicts)


def _open_hold(verdicts: Iterable[ReceivedVerdict]) -> ReceivedVerdict | None:
    """Return the first hold of a scheduler that gave no final answer in that phase."""
    open_: dict[tuple[str, str], ReceivedVerdict] = {}
    answered: set[tuple[str, str]] = set()
    for heard in verdicts:
        key = heard.scheduler, heard.phase
        if heard.verdict.action == "hold":
            open_.setdefault(key, heard)
        elif heard.verdict.action != "failed":
            answered.add(key)
    return next((heard for key, heard in open_.items() if key not in answered), None)
