"""What happened in a simulated world, written down beside the product: the truth that all is checked by.

Each decision is checked as it ends, against `simulation_rules`; money and record at the end of the world. The
trace is the same for the same seed, byte for byte.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import combinations
from typing import Any

import msgpack
from simulation_plan import MAX_HOLD, PATIENCE, PERSON_S, TOOLS, Plan
from simulation_rules import Heard, Replacement, Ruled, Said, rule
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import Decision, ToolSelecting

SLACK = 1e-6
"""Seconds of rounding."""
PHASES = ("select", "verify", "admit", "verify")
AGAIN = 3


class BrokenInvariant(Exception):  # noqa: N818 - it says what was found
    """Something that must hold in every world does not."""


@dataclass(slots=True)
class RoundLog:
    """One question as it was asked."""

    began: float
    asked: dict[str, None] = field(default_factory=dict)
    alive: frozenset[str] = frozenset()
    """Who was on the roster as this agent knew it."""
    unreached: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class DecisionLog:
    """One decision as it was seen from outside."""

    agent: str
    rounds: dict[int, RoundLog] = field(default_factory=dict)
    said: list[tuple[float, str, packing.Item, Mapping[str, Any]]] = field(default_factory=list)
    person: tuple[float, str] | None = None


class Journal:
    """The truth about one world."""

    def __init__(self, plan: Plan, now: Any) -> None:
        self.plan, self._now = plan, now
        self._plans = {one.name: one for one in plan.schedulers}
        self._required = [one.name for one in plan.schedulers if one.required]
        self._shadows = {one.name for one in plan.schedulers if one.shadow}
        self.lines: list[str] = []
        self.broken: str | None = None
        """The first thing that does not hold."""
        self.open: dict[bytes, DecisionLog] = {}
        self.decided: dict[str, tuple[str, Decision]] = {}
        self.ran: dict[str, tuple[str, str, int | None]] = {}
        """By decision: agent, tool, and what it told of its cost."""
        self.killed: set[str] = set()
        """Agents, by orchestrator."""
        self.disturbed: list[tuple[float, float]] = []
        """When everything stood still."""
        self.down: dict[str, list[tuple[float, float]]] = {}
        """When which agent had no bus."""
        self.reserved: dict[str, tuple[str, int, float]] = {}
        """By decision: the owner, what the ledger said it holds for it, and when it was last asked."""
        self.spoken: dict[tuple[str, str, str], set[str]] = {}
        """What authors said, by scheduler, decision and phase."""
        self.strict = False
        """Whether no more can be spent than there is: every call that runs was reserved for."""

    @property
    def digest(self) -> str:
        """Of the whole trace."""
        return hashlib.blake2b("".join(self.lines).encode(), digest_size=16).hexdigest()

    def note(self, text: str) -> None:
        """One line of the trace."""
        self.lines.append(f"{self._now() - 1000:10.6f}  {text}")

    def fail(self, what: str) -> None:
        """Say what is broken, and end this world, though the product may survive what is raised."""
        self.note(f"BROKEN: {what}")
        self.broken = self.broken or what
        raise BrokenInvariant(what)

    # ------------------------------------------------------------------ what is seen of a decision

    def asks(
        self, agent: str, alive: frozenset[str], names: Sequence[str], id_: bytes, item: bytes, event: str
    ) -> None:
        """A question, or a withdrawal, is handed to an agent's bus."""
        if event != "tool:selecting":
            return
        phase = msgpack.unpackb(item)[2]
        log = self.open.get(id_)
        if log is None:
            log = self.open[id_] = DecisionLog(agent)
        asked = log.rounds.get(phase)
        if asked is None:
            asked = log.rounds[phase] = RoundLog(self._now(), alive=alive)
            self.note(f"{agent} asks about {id_.hex()[:8]} ({PHASES[phase]})")
        asked.asked.update(dict.fromkeys(names))

    def refuses(self, scheduler: str, ids: Sequence[bytes]) -> None:
        """A question could not be written."""
        for id_ in ids:
            if (log := self.open.get(id_)) is not None and log.rounds:
                log.rounds[max(log.rounds)].unreached.setdefault(scheduler, self._now())

    def hears(self, agent: str, scheduler: str, frame: bytes, *, forged: bool) -> None:
        """A frame of verdicts reaches an agent's gate."""
        for item in packing.items(frame):
            if not isinstance(item, packing.Item):
                continue
            self.note(f"{agent} hears {scheduler} on {item.id.hex()[:8]}{' (forged)' if forged else ''}")
            if forged:
                continue
            body = _read_body(item.body)
            self._check_spoken(scheduler, item, body["action"])
            if (log := self.open.get(item.id)) is not None:
                log.said.append((self._now(), scheduler, item, body))

    def says(self, scheduler: str, call: ToolSelecting, verdict: Any) -> None:
        """An author's code gave a verdict."""
        if verdict is not None:
            self.spoken.setdefault((scheduler, call.id, call.phase), set()).add(verdict.action)

    def _check_spoken(self, scheduler: str, item: packing.Item, action: str) -> None:
        """What lets a call run was said by an author; that it failed, or could not be kept, by the worker."""
        if action == "continue" and PHASES[item.phase] == "admit":
            return  # no scheduler here takes part in it: a worker says so itself
        said = self.spoken.get((scheduler, item.id.hex(), PHASES[item.phase]), ())
        if action not in said and action not in ("failed", "deny"):
            self.fail(f"{scheduler} is heard to say {action} on {item.id.hex()[:8]}, which it never said")

    def asks_person(self, id_: str, answer: str) -> None:
        """A person is asked, and will answer so."""
        log = self.open.get(bytes.fromhex(id_))
        if log is None:
            self.fail(f"a person is asked about {id_[:8]}, which nobody was asked about")
        else:
            log.person = (self._now(), answer)

    # ------------------------------------------------------------------ the end of a decision

    def decides(self, agent: str, orchestrator: str, began: float, decision: Decision) -> None:
        """A decision ended: everything that must hold of it does."""
        now = self._now()
        self.note(f"{agent} {decision.id[:8]}: {decision.outcome} ({decision.why}) {decision.tool_name}")
        if decision.id in self.decided:
            self.fail(f"decision {decision.id[:8]} ended twice")
        self.decided[decision.id] = (orchestrator, decision)
        log = self.open.pop(bytes.fromhex(decision.id), None)
        if decision.why == "gate_failed":
            self.fail(f"the gate failed on {decision.id[:8]}")
        if log is None:
            self._check_unasked(agent, began, decision)
        else:
            self._check(log, began, now, decision)

    def _check_unasked(self, agent: str, began: float, decision: Decision) -> None:
        required = self._required
        if decision.allowed and (required or (self.plan.denies_without_bus and not decision.passed_over)):
            self.fail(f"{decision.id[:8]} may run though {required} were not asked")
        away = (*self.down.get(agent, ()), *self.disturbed)  # it may have come back while all stood still
        if not decision.allowed and not any(first <= self._now() and began <= last for first, last in away):
            self.fail(f"{decision.id[:8]} was denied ({decision.why}) though the bus was there")

    def _check(self, log: DecisionLog, began: float, now: float, decision: Decision) -> None:
        loose = any(first <= now and began <= last for first, last in self.disturbed)
        select = log.rounds.get(0)
        if select is None:
            self.fail(f"{decision.id[:8]} was verified before it was asked about")
            return
        verify, admit = log.rounds.get(1), log.rounds.get(PHASES.index("admit"))
        # A required scheduler that nobody has heard yet is asked in every phase, so in the last one, too.
        end = admit.began if admit else now
        ends = verify.began if verify else log.person[0] if log.person else end
        ruled = self._rule(log, 0, PATIENCE, ends, decision)
        # A bus that goes away between two rounds is waited for.
        away = self.down.get(log.agent, ())
        loose = loose or any(first <= ends and ruled.over <= last for first, last in away)
        self._check_time(ruled, select, ends, decision, loose=loose)
        asks, winner, last = list(ruled.asks), ruled.winner, None
        if ruled.action == "modify" and verify is not None:
            spent = verify.began - began
            patience = PATIENCE if ruled.held else max(PATIENCE - spent, PATIENCE / 2)
            again = log.rounds.get(AGAIN)
            over = again.began if again else log.person[0] if log.person else end
            if winner is not None and winner.scheduler in verify.asked and not loose:
                self.fail(f"{winner.scheduler} was asked about its own replacement of {decision.id[:8]}")
            assert winner is not None
            asked = Replacement(
                winner.body["tool"], winner.body["arguments"], winner, decision.original_input
            )
            last = self._rule(log, 1, patience, over, decision, asked)
            self._check_time(last, verify, over, decision, loose=loose)
            asks += last.asks
            if again is not None and not loose and last.action != "modify":
                self.fail(f"{decision.id[:8]} was verified again though nobody changed it")
            if last.action == "modify" and again is not None:
                patience = (
                    PATIENCE
                    if ruled.held or last.held
                    else max(PATIENCE - (again.began - began), PATIENCE / 2)
                )
                asked, over = asked.changed(last.changes), log.person[0] if log.person else end
                last = self._rule(log, AGAIN, patience, over, decision, asked)
                self._check_time(last, again, over, decision, loose=loose)
                asks += last.asks
            elif last.action == "modify" and not loose:
                self.fail(f"nobody was asked about {decision.id[:8]} as others had changed it")
            if decision.allowed and not loose and decision.tool_input != asked.arguments:
                self.fail(f"{decision.id[:8]} would run otherwise than all had agreed to")
        elif verify is not None and not loose:
            self.fail(f"{decision.id[:8]} was verified though nothing is replaced")
        elif (
            ruled.action == "modify"
            and self.plan.verify
            and set(select.asked) - {winner and winner.scheduler, *decision.passed_over}
            and not loose
            and decision.why != "bus_down"
        ):
            self.fail(f"the replacement in {decision.id[:8]} was not verified")
        denied = ruled.action == "deny" or (last is not None and last.action == "deny")
        expected = "deny" if denied else ruled.action
        if not denied and asks:
            if log.person is None and not loose and not self._is_objected(log, now):
                self.fail(f"nobody was asked about {decision.id[:8]}, as a scheduler had wanted")
            if log.person is not None and log.person[1] != "allow":
                expected = "deny"
        if expected != "deny" and decision.outcome == "deny" and self._is_objected(log, now):
            return
        if self._is_objected(log, now - SLACK):
            expected = "deny"
        self._compare(log, decision, expected, winner, loose=loose)

    def _is_objected(self, log: DecisionLog, until: float) -> bool:
        """Whether anybody who was asked denied, in its round or after it."""
        return any(
            at < until
            and body["action"] == "deny"
            and scheduler not in self._shadows
            and scheduler in asked.asked
            for at, scheduler, item, body in log.said
            if (asked := log.rounds.get(item.phase)) is not None
        )

    def _compare(
        self, log: DecisionLog, decision: Decision, expected: str, winner: Said | None, *, loose: bool
    ) -> None:
        if loose:
            self._check_safe(log, decision)
            return
        if decision.outcome == "deny" and expected != "deny" and self._excused(log, decision):
            return
        if decision.outcome != expected:
            self.fail(
                f"{decision.id[:8]} came out as {decision.outcome} ({decision.why}), and not as {expected}"
            )
        if expected == "modify" and winner is not None and decision.tool_name != winner.body["tool"]:
            self.fail(f"{decision.tool_name} would run in {decision.id[:8]}, and not {winner.body['tool']}")
        if expected == "continue" and decision.tool_name != decision.original_tool:
            self.fail(f"another tool than was asked about would run in {decision.id[:8]}")

    def _excused(self, log: DecisionLog, decision: Decision) -> bool:
        """Whether a required scheduler was known to be away: then nobody waits for it again."""
        if decision.why != "silent" or decision.scheduler is None:
            return False
        return any(decision.scheduler not in one.alive for one in log.rounds.values())

    def _check_safe(self, log: DecisionLog, decision: Decision) -> None:
        """What holds even where everything stood still: no denial is passed over, nobody required missed."""
        if not decision.allowed:
            return
        now = self._now()
        if self._is_objected(log, now - SLACK):
            self.fail(f"somebody denied {decision.id[:8]}, and it may run")
        given = {
            scheduler
            for _, scheduler, _, body in log.said
            if body["action"] in ("continue", "modify", "ask_user")
        }
        for name in self._required:
            if name not in given:
                self.fail(f"{name} is required, said nothing on {decision.id[:8]}, and it may run")

    def _rule(
        self,
        log: DecisionLog,
        phase: int,
        patience: float,
        ends: float,
        decision: Decision,
        about: Replacement | None = None,
    ) -> Ruled:
        """What must come of a round; of two, it is not told in which somebody was passed over."""
        names = sorted(set(decision.passed_over))
        fewest = 0 if 1 in log.rounds or decision.outcome == "modify" else len(names)
        for count in range(len(names), fewest - 1, -1):
            for passed in combinations(names, count):
                told = decision._replace(passed_over=passed)
                ruled = rule(self._heard(log, phase, patience, ends, told, about))
                if abs(ends - ruled.over) <= SLACK:
                    return ruled
        return rule(self._heard(log, phase, patience, ends, decision, about))

    def _heard(
        self,
        log: DecisionLog,
        phase: int,
        patience: float,
        ends: float,
        decision: Decision,
        about: Replacement | None,
    ) -> Heard:
        plan, shadows, asked = self._plans, self._shadows, log.rounds[phase]
        if over := [name for name in decision.passed_over if name in plan and plan[name].required]:
            self.fail(f"{over} are required, and were passed over in {decision.id[:8]}")
        passed = set(decision.passed_over)
        awaited = {
            name: plan[name].required if name in plan else False
            for name in asked.asked
            if name not in shadows and name not in passed
        }
        if phase != 1 and (missing := [name for name in self._required if name not in asked.asked]):
            self.fail(f"{missing} are required, and were not asked about {decision.id[:8]}")
        said = []
        for at, scheduler, item, body in log.said:
            if item.phase != phase or scheduler in shadows or scheduler not in asked.asked or at > ends:
                continue
            one = self._said(phase, at, scheduler, body, item.body, plan[scheduler].priority)
            if about is not None:
                one = about.counted(one, required=plan[scheduler].required, last=phase == AGAIN)
            said.append(one)
        return Heard(asked.began, patience, MAX_HOLD, awaited, said, asked.unreached)

    def _said(
        self, phase: int, at: float, scheduler: str, body: Mapping[str, Any], raw: bytes, announced: int
    ) -> Said:
        priority = body.get("priority")
        priority = announced if priority is None else priority
        if scheduler == "router" and self.plan.cap is not None:
            priority = min(priority, self.plan.cap)
        wrong = phase == 0 and body["action"] == "modify" and body["tool"] not in TOOLS
        return Said(at, scheduler, body, _digest(raw), priority, wrong)

    def _check_time(
        self, ruled: Ruled, asked: RoundLog, ends: float, decision: Decision, *, loose: bool
    ) -> None:
        """A round ends when the rules say so: neither before nor after."""
        if loose or (ends < ruled.over and self._excused_round(asked, decision)):
            return
        if abs(ends - ruled.over) > SLACK:
            kind = "too early" if ends < ruled.over else "too late"
            self.fail(
                f"the round on {decision.id[:8]} ended {kind}: after {ends - asked.began:.6f} s and not "
                f"{ruled.over - asked.began:.6f} s ({decision.why})"
            )

    def _excused_round(self, asked: RoundLog, decision: Decision) -> bool:
        return decision.why == "silent" and any(name not in asked.alive for name in self._required)

    # ------------------------------------------------------------------ what runs

    def runs(self, agent: str, decision: Decision, cost: int | None) -> None:
        """A tool is run."""
        self.note(f"{agent} runs {decision.tool_name} for {decision.id[:8]}")
        if not decision.allowed:
            self.fail(f"{decision.id[:8]} was {decision.outcome}, and runs")
        if decision.id in self.ran:
            self.fail(f"{decision.id[:8]} runs twice")
        self.ran[decision.id] = (agent, decision.tool_name, cost)

    def bound(self) -> float:
        """Seconds after which any decision is over."""
        standing = sum(last - first for first, last in self.disturbed)
        return 2 * (PATIENCE + 2 * MAX_HOLD) + PERSON_S + 2 + standing


@lru_cache(1024)
def _read_body(raw: bytes) -> Mapping[str, Any]:
    """Many verdicts are the same bytes."""
    body: Mapping[str, Any] = packing.unpack(raw)
    return body


@lru_cache(1024)
def _digest(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest()
