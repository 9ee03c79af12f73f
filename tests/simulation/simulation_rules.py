"""The rules of a decision once more, as small as can be: what must come of the verdicts heard in time.

Written from the manual and not from the code: nothing of `toolgate_bus.ruling` is imported here. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STOPS = ("deny", "ask_user", "hold")
"""What counts until the end, also of one that was given up."""
NEVER = float("inf")


@dataclass(slots=True)
class Said:
    """One genuine verdict, as it came to the agent."""

    at: float
    scheduler: str
    body: Mapping[str, Any]
    mark: bytes
    """Its bytes' digest: tells two holds apart, and breaks ties."""
    priority: int = 0
    wrong: bool = False
    """A modify that cannot be."""

    @property
    def action(self) -> str:
        """What it says."""
        return str(self.body["action"])


@dataclass(slots=True)
class Heard:
    """One round: who was waited for, until when, and what was said."""

    began: float
    patience: float
    max_hold: float
    awaited: Mapping[str, bool]
    """By name, whether its silence denies."""
    said: Sequence[Said]
    unreached: Mapping[str, float] = field(default_factory=dict)
    """Whom the question did not reach, and since when that is known."""


@dataclass(slots=True)
class Ruled:
    """What must come of a round."""

    action: str
    """deny, modify or continue."""
    over: float
    """When it is over."""
    cause: str = ""
    winner: Said | None = None
    asks: tuple[Said, ...] = ()
    held: bool = False
    changes: tuple[Said, ...] = ()
    """All modifies that count, the highest priority first."""


def rule(heard: Heard) -> Ruled:
    """Let time pass and verdicts come in, as the rules say."""
    waiting = set(heard.awaited)
    ends = heard.began + heard.patience
    holds: dict[str, tuple[float, float, set[bytes]]] = {}
    gone: set[str] = set()
    """Given up: silent, unreached, or a hold that ran out."""
    expired: set[str] = set()
    failed: set[str] = set()
    disagree = False
    """Somebody required does not agree to a replacement that others changed: the others are heard out."""
    answered: set[str] = set()
    counting: list[Said] = []
    held: set[str] = set()
    events: list[tuple[float, int, Any]] = [(one.at, 1, one) for one in heard.said]
    events += [(at, 0, name) for name, at in heard.unreached.items()]
    events.sort(key=lambda event: event[:2])

    def required(name: str) -> bool:
        return heard.awaited.get(name, False)

    def done(over: float, cause: str) -> Ruled:
        return _sum_up(heard, counting, held, over, cause)

    def passes(until: float) -> Ruled | None:
        while True:
            nearest = min([ends if waiting else NEVER, *(one[1] for one in holds.values())])
            if nearest > until:
                return None
            if waiting and nearest == ends:
                gone.update(waiting)
                lost = [name for name in waiting if required(name)]
                waiting.clear()
                if lost:
                    return done(nearest, "silent")
            for name in [name for name, one in holds.items() if one[1] <= nearest]:
                del holds[name]
                gone.add(name)
                expired.add(name)
                return done(nearest, "expired")
            if disagree and not waiting:
                return done(nearest, "denied")
            if not waiting and not holds:
                return done(nearest, "silent" if any(map(required, failed)) else "")

    if not waiting:
        return done(heard.began, "")
    for at, _, what in events:
        if (over := passes(at)) is not None:
            return over
        if isinstance(what, str):
            if what in waiting:
                waiting.discard(what)
                gone.add(what)
                if required(what):
                    return done(at, "silent")
        else:
            name, action = what.scheduler, what.action
            if name in gone and action not in STOPS:
                continue
            if action == "disagree":
                disagree = True
                waiting.discard(name)
                holds.pop(name, None)
                if not waiting:
                    return done(at, "denied")
                continue
            if action == "deny":
                counting.append(what)
                return done(at, "denied")
            if name in gone and required(name):
                continue
            if action == "hold":
                held.add(name)
                if name not in answered:
                    since, until, marks = holds.get(name, (at, at, set()))
                    if what.mark not in marks:
                        marks.add(what.mark)
                        until = min(max(until, at + what.body["seconds"]), since + heard.max_hold)
                    holds[name] = (since, until, marks)
                    waiting.discard(name)
                    gone.discard(name)
            elif action == "failed" or (what.wrong and required(name)):
                if name not in answered:
                    failed.add(name)
                    answered.add(name)
                    waiting.discard(name)
                    holds.pop(name, None)
            else:
                counting.append(what)
                failed.discard(name)
                answered.add(name)
                waiting.discard(name)
                holds.pop(name, None)
        if not waiting and not holds:
            return done(at, "silent" if any(map(required, failed)) else "")
    return passes(NEVER) or done(NEVER, "")


def _sum_up(heard: Heard, counting: Sequence[Said], held: set[str], over: float, cause: str) -> Ruled:
    """What the verdicts that count come to."""
    valid = [one for one in counting if not one.wrong]
    if not cause and held - {one.scheduler for one in valid}:
        cause = "expired"
    if cause:
        return Ruled("deny", over, cause, held=bool(held))
    strictest: dict[str, Said] = {}
    order = ("ask_user", "modify", "continue")
    for one in valid:
        other = strictest.get(one.scheduler)
        if other is None or _key(one, order) < _key(other, order):
            strictest[one.scheduler] = one
    ranked = sorted(strictest.values(), key=lambda one: (-one.priority, one.scheduler, one.mark))
    changes = tuple(one for one in ranked if one.action == "modify")
    asks = tuple(one for one in ranked if one.action == "ask_user")
    if not changes:
        return Ruled("continue", over, "", None, asks, bool(held))
    return Ruled("modify", over, "", changes[0], asks, bool(held), changes)


def _key(one: Said, order: Sequence[str]) -> tuple[int, int, bytes]:
    return (order.index(one.action), -one.priority, one.mark)


@dataclass(slots=True)
class Replacement:
    """A call that stands in for the LLM's own, as it is asked about."""

    tool: str
    arguments: Mapping[str, Any]
    author: Said
    original: Mapping[str, Any]
    """The arguments of the LLM's own call."""

    def counted(self, said: Said, *, required: bool, last: bool) -> Said:
        """What somebody says of it, as it counts."""
        if said.action != "modify":
            return said
        if said.body["tool"] != self.tool:
            return self._as(said, "deny" if required else "continue")
        wanted = said.body["arguments"]
        if wanted == self.arguments:
            return self._as(said, "continue")
        if last:
            return self._as(said, "disagree" if required else "continue")
        changes, before = _differ(wanted, self.arguments), _differ(self.arguments, self.original)
        outranked = (-self.author.priority, self.author.scheduler) < (-said.priority, said.scheduler)
        return self._as(said, "continue") if not required and outranked and changes & before else said

    def changed(self, changes: Sequence[Said]) -> "Replacement":
        """The same with what others change of it; of one argument the highest priority counts."""
        arguments = dict(self.arguments)
        for one in reversed(changes):
            wanted = one.body["arguments"]
            for name in _differ(wanted, self.arguments):
                arguments.pop(name, None)
                arguments |= {name: wanted[name]} if name in wanted else {}
        return Replacement(self.tool, arguments, self.author, self.original)

    @staticmethod
    def _as(said: Said, action: str) -> Said:
        return Said(said.at, said.scheduler, {"action": action}, said.mark, said.priority)


def _differ(one: Mapping[str, Any], other: Mapping[str, Any]) -> set[str]:
    names = {*one, *other}
    return {name for name in names if one.get(name, NEVER) != other.get(name, NEVER)}
