"""Counts calls that ran although a rule or a shadow would have denied them, or asked a person about them.

A rule that observes says so in the reason of its scheduler's verdict. A shadow says so by its own verdict, if
that would have changed the decision. A decision counts once for each rule, whichever phase it was in. The
same counter can count what one scheduler really denied, and asked a person about.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

from toolgate_bus.errors import CodecError
from toolgate_bus.facts.join import DecisionJoiner
from toolgate_bus.facts.shadow_report import disagreements, shadows_of
from toolgate_bus.ruling.observed import read_observations
from toolgate_bus.telemetry.printable import describe_call, shorten

Fact = Mapping[str, Any]
Would = Literal["deny", "ask"]

MAX_LINES: Final = 1000
"""Maximum number of different lines; calls of further ones are counted together."""
MAX_WAITING: Final = 10_000
"""Number of decisions in memory: verdicts of shadows may come after their decisions."""
MAX_TEXT: Final = 256
"""Maximum length of a name, and of the arguments of an example, in characters."""
_ACTIONS: Final[Mapping[str, Would]] = {"deny": "deny", "ask_user": "ask"}
_CHANGES: Final[Mapping[str, Would]] = {"veto": "deny", "ask": "ask"}


class ObservedKind(NamedTuple):
    """Calls of one kind: those of one line."""

    would: Would
    tool: str
    agent: str
    scheduler: str
    rule: str
    """Name of the rule; empty if the scheduler named none."""


@dataclass(slots=True)
class ObservedLine:
    """Number of calls of one kind, and the first of them."""

    decision: str
    """Id of its decision."""
    example: str
    """Tool and arguments."""
    count: int = 0


@dataclass(slots=True)
class ObservedCalls:
    """Counter of such calls, out of the facts of a record."""

    scheduler: str = ""
    """Scheduler that counts alone; empty for all."""
    in_force: bool = False
    """True to count what the scheduler really denied or asked about."""
    ignored: frozenset[str] = frozenset()
    """Rules that do not count."""
    denied: int = 0
    """Number of calls that would have been denied."""
    asked: int = 0
    """Number of further calls that a person would have been asked about."""
    lines: OrderedDict[ObservedKind, ObservedLine] = field(default_factory=OrderedDict)
    left_out: int = 0
    """Number of calls in lines beyond `MAX_LINES`."""
    _joiner: DecisionJoiner = field(default_factory=lambda: DecisionJoiner(MAX_WAITING + 1))

    def take(self, fact: Fact) -> None:
        """Take a fact of the record, in the order of the record."""
        self._joiner.take(fact)
        if len(self._joiner.decisions) > MAX_WAITING:
            self.count(self._joiner.decisions.popitem(last=False)[1])

    def finish(self) -> None:
        """Count the decisions of which a verdict might still have come."""
        while self._joiner.decisions:
            self.count(self._joiner.decisions.popitem(last=False)[1])

    def count(self, decision: Fact) -> None:
        """Count one decision with all its verdicts."""
        found = dict.fromkeys(one for one in self._find(decision) if one[2] not in self.ignored)
        would = {one[0] for one in found}
        self.denied += "deny" in would
        self.asked += would == {"ask"}
        tool, agent = (str(decision.get(name) or "") for name in ("tool_name", "agent"))
        for action, scheduler, rule in found:
            names = (shorten(name, MAX_TEXT) for name in (tool, agent, scheduler, rule))
            kind = ObservedKind(action, *names)
            line = self.lines.get(kind)
            if line is None and len(self.lines) >= MAX_LINES:
                self.left_out += 1
                continue
            if line is None:
                example = describe_call(tool, decision.get("tool_input"), MAX_TEXT)
                line = self.lines[kind] = ObservedLine(str(decision.get("id") or ""), example)
            line.count += 1

    def sorted_lines(self) -> list[tuple[ObservedKind, ObservedLine]]:
        """Return the lines, those with the most calls first."""
        return sorted(self.lines.items(), key=lambda one: (-one[1].count, one[0]))

    def as_json(self) -> dict[str, Any]:
        """Return the counts and lines for scripts."""
        calls = [
            {**kind._asdict(), "count": one.count, "decision": one.decision, "example": one.example}
            for kind, one in self.sorted_lines()
        ]
        return {"denied": self.denied, "asked": self.asked, "calls": calls, "left_out": self.left_out}

    # ------------------------------------------------------------------ one decision

    def _find(self, decision: Fact) -> Iterator[tuple[Would, str, str]]:
        """Yield each action, with its scheduler and rule."""
        verdicts = [one for one in decision["verdicts"] if isinstance(one, Mapping)]
        if self.in_force:
            for one in verdicts:
                action = _ACTIONS.get(str(one.get("action")))
                if action is not None and not one.get("shadow") and self._is_counted(one.get("scheduler")):
                    yield action, str(one.get("scheduler")), str(one.get("rule_name") or "")
        elif decision.get("outcome") in ("continue", "modify"):
            yield from self._find_observed(verdicts)
            yield from self._find_shadows(decision, verdicts)

    def _find_observed(self, verdicts: list[Fact]) -> Iterator[tuple[Would, str, str]]:
        for one in verdicts:
            reason = one.get("reason")
            if one.get("action") != "continue" or not isinstance(reason, str):
                continue
            for rule, action in read_observations(reason) if self._is_counted(one.get("scheduler")) else ():
                if action in ("deny", "ask"):
                    yield action, str(one.get("scheduler")), rule

    def _find_shadows(self, decision: Fact, verdicts: list[Fact]) -> Iterator[tuple[Would, str, str]]:
        if not any(map(self._is_counted, shadows_of(decision))):
            return
        try:
            changed = disagreements(decision)
        except CodecError:  # too long for the record, or malformed
            return
        for one in changed:
            action = _CHANGES.get(one.change)
            if action is not None and self._is_counted(one.scheduler):
                named = (
                    str(said["rule_name"])
                    for said in verdicts
                    if said.get("shadow") and said.get("scheduler") == one.scheduler and said.get("rule_name")
                )
                yield action, one.scheduler, next(named, "")

    def _is_counted(self, scheduler: Any) -> bool:
        return self.scheduler in ("", scheduler)
