"""The truth about a world with local tables: what each agent could know of the rules, and when they held.

No call runs that a table denies, once `toolgate policy status` said that it is in force everywhere. A denial
that an agent knows holds while the bus is away. A table allows only while every living replica announces it,
as far as heartbeats that still count can tell.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simulated_tables import POLICY, answer_of, table_of
from simulation_journal import SLACK, DecisionLog, Journal, RoundLog
from simulation_plan import Plan
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import Decision
from toolgate_bus.ruling.local_table import LocalAnswer, digest_of
from toolgate_bus.transport.lease import LEASE_S
from toolgate_bus.transport.ports import Member

LOCAL = " local"
SETTLED_S = 0.01
"""Seconds after which an agent that was told something has taken it in."""


@dataclass
class Knowledge:
    """What one agent could know of the rules."""

    versions: frozenset[int] = frozenset()
    """Versions whose tables the living replicas announce, as it last saw."""
    is_one: bool = False
    """Whether all of them announce the same."""
    seen_at: float = float("-inf")
    changed: float = 0.0
    """When it last learnt of something else."""
    read: dict[int, float] = field(default_factory=dict)
    """When it read which table."""
    members: Sequence[Member] = ()
    started: int = 0
    """The newest start that it ever saw."""
    proven: set[str] = field(default_factory=set)
    """Starts that a verdict has named: with keys, what the newest announces counts from then on."""

    def held(self, since: float) -> set[int]:
        """Return the versions whose denials it has known since then, without a change."""
        if self.changed > since:
            return set()
        return {one for one in self.versions if self.read.get(one, since + 1) + SETTLED_S <= since}


class TableJournal(Journal):
    """The truth about one world with local tables."""

    def __init__(self, plan: Plan, now: Any) -> None:
        super().__init__(plan, now)
        self._versions = {digest_of(table_of(plan.seed, one)): one for one in range(len(plan.changes) + 1)}
        self._known: dict[str, Knowledge] = {}
        self._announced: deque[tuple[float, frozenset[int | None]]] = deque([(0.0, frozenset())])
        """What the living replicas announced, and from when on."""
        self._in_force: tuple[int, float] | None = None
        """Version that is in force everywhere, and since when."""
        self.by_table: dict[str, int] = {"continue": 0, "deny": 0}
        self.forces = 0

    def version_of(self, digest: str) -> int | None:
        """Return the version whose table has this digest."""
        return self._versions.get(digest)

    # ------------------------------------------------------------------ what is told

    def announces(self, members: Mapping[str, Member]) -> None:
        """The living replicas announce these tables."""
        living = (one for one in members.values() if one.name == POLICY and not one.left)
        now = frozenset(self.version_of(one.table) for one in living)
        if now != self._announced[-1][1]:
            self._announced.append((self._now(), now))

    def forces_all(self, version: int | None) -> None:
        """`toolgate policy status` says which version is in force everywhere, or that none is."""
        self.note(f"in force everywhere: {'nothing' if version is None else f'v{version}'}")
        self.forces += version is not None
        self._in_force = None if version is None else (version, self._now())

    def changes(self) -> None:
        """The rules begin to change."""
        self._in_force = None

    def sees(self, agent: str, members: Sequence[Member], at: float) -> None:
        """An agent reads the roster; it asked for it at that time."""
        known = self._known.setdefault(agent, Knowledge())
        known.members, known.seen_at = [one for one in members if one.name == POLICY], at
        self._learn(known)

    def _learn(self, known: Knowledge) -> None:
        members = known.members
        if self.plan.signed and members:
            newest = max(members, key=lambda one: one.started)
            known.started = max(known.started, newest.started)
            is_proven = newest.started == known.started and newest.start in known.proven
            members = members if is_proven else ()
        digests = {one.table for one in members}
        versions = frozenset(one for one in map(self.version_of, digests) if one is not None)
        if (versions, len(digests) == 1) != (known.versions, known.is_one):
            known.versions, known.is_one, known.changed = versions, len(digests) == 1, self._now()

    def hears(self, agent: str, scheduler: str, frame: bytes, *, forged: bool) -> None:
        """See Journal."""
        super().hears(agent, scheduler, frame, forged=forged)
        if scheduler == POLICY and self.plan.signed and not forged:
            known = self._known.setdefault(agent, Knowledge())
            for item in packing.items(frame):
                if isinstance(item, packing.Item):
                    known.proven.add(str(packing.unpack(item.body).get("start")))
            self._learn(known)

    def reads(self, agent: str, key: str) -> None:
        """An agent is given a table."""
        version = self.version_of(key.rpartition(":")[2])
        if version is not None:
            self._known.setdefault(agent, Knowledge()).read.setdefault(version, self._now())

    def answers(self, agent: str, question: Any, found: tuple[LocalAnswer, str] | None) -> None:
        """An agent's table answers a question, or has it asked."""
        if found is None:
            return
        answer, revision = found
        action, known = answer.verdict.action, self._known.get(agent, Knowledge())
        words = f"{agent} answers {action} to {question.tool_name} by {revision}"
        self.note(words)
        self.by_table[action] += 1
        version = int(revision.removesuffix(LOCAL)[1:])
        if action == "deny":
            version = max(known.versions, default=version) if version not in known.versions else version
            said = {answer_of(self.plan.seed, one, *self._asked(question)) for one in known.versions}
            if "deny" not in said:
                self.fail(f"{words}, which no table says that it knows")
        else:
            if answer_of(self.plan.seed, version, *self._asked(question)) != "continue":
                self.fail(f"{words}, which that table does not say")
            if known.versions != {version} or not known.is_one:
                self.fail(f"{words}, while it knows of {sorted(known.versions)}")
            if self._now() - known.seen_at > LEASE_S + SLACK:
                self.fail(f"{words}, {self._now() - known.seen_at:.3f} s after it looked")
            self._check_unanimous(words, version)
        self._log(agent, question, action)

    @staticmethod
    def _asked(question: Any) -> tuple[str, str]:
        return question.tool_name, str(question.tool_input["n"])

    def _check_unanimous(self, words: str, version: int) -> None:
        """At some time within the lease every living replica must have announced just this."""
        since = self._now() - LEASE_S - SLACK
        while len(self._announced) > 1 and self._announced[1][0] <= since - LEASE_S:
            self._announced.popleft()
        ends = [at for at, _ in [*self._announced][1:]] + [float("inf")]
        if not any(
            said == {version} and end >= since for (_, said), end in zip(self._announced, ends, strict=True)
        ):
            self.fail(f"{words}, which not every living replica announced")

    def _log(self, agent: str, question: Any, action: str) -> None:
        id_, phase = bytes.fromhex(question.id), packing.NUMBERS[question.phase, question.again]
        log = self.open.setdefault(id_, DecisionLog(agent))
        asked = log.rounds.setdefault(phase, RoundLog(self._now()))
        asked.asked[POLICY] = None
        item = packing.Item(id_, phase, b"", None, packing.NEWEST)
        log.said.append((self._now(), POLICY, item, {"action": action}))

    # ------------------------------------------------------------------ the end of a decision

    def _check_unasked(self, agent: str, began: float, decision: Decision) -> None:
        ruled = self._required or (self.plan.denies_without_bus and not decision.passed_over)
        looked = self._known.get(agent, Knowledge()).seen_at > 0  # a program begins once it could look
        if decision.allowed and ruled and looked and not self._runs_without(agent, began):
            self.fail(f"{decision.id[:8]} may run though {self._required} were not asked")
        self._check_rules(agent, began, decision)

    def _check(self, log: DecisionLog, began: float, now: float, decision: Decision) -> None:
        if not self._runs_without(log.agent, began):
            self._check_safe(log, decision)
        self._check_rules(log.agent, began, decision)

    def _runs_without(self, agent: str, began: float) -> bool:
        """Whether the bus was away, and calls run without it."""
        away = (*self.down.get(agent, ()), *self.disturbed)
        return not self.plan.denies_without_bus and any(
            first <= self._now() and began <= last + SETTLED_S for first, last in away
        )

    def _check_rules(self, agent: str, began: float, decision: Decision) -> None:
        if not decision.allowed:
            return
        tools = [(decision.original_tool, decision.original_input)]
        if self.plan.verify:
            tools.append((decision.tool_name, decision.tool_input))
        known = self._known.get(agent, Knowledge())
        for tool, given in tools:
            number = str(given["n"])
            for version in sorted(known.held(began)):
                if answer_of(self.plan.seed, version, tool, number) == "deny":
                    self.fail(f"{decision.id[:8]} runs {tool}, which v{version} denies, as {agent} knows")
            if self._in_force is None or self._in_force[1] > began:
                continue
            version = self._in_force[0]
            if answer_of(self.plan.seed, version, tool, number) == "deny" and not self._is_excused(
                agent, began, decision, version
            ):
                self.fail(
                    f"{decision.id[:8]} runs {tool}: v{version} denies that, and is in force everywhere"
                )

    def _is_excused(self, agent: str, began: float, decision: Decision, version: int) -> bool:
        """Whether an agent could neither know the rules nor ask, and may go on without."""
        if self._runs_without(agent, began):
            return True  # it was away as the rules came, or began meanwhile
        missed = {*decision.silent, *decision.passed_over}
        return POLICY not in self._required and (POLICY in missed or decision.why == "unasked")


def describe_counts(journals: Sequence[TableJournal]) -> Mapping[str, int]:
    """Return what many worlds add up to."""
    return {
        "in force": sum(one.forces for one in journals),
        **{name: sum(one.by_table[name] for one in journals) for name in ("continue", "deny")},
    }
