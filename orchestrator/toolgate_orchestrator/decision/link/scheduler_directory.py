"""The schedulers on one bus as the roster lists them, and which of their announcements count.

A scheduler that has a key is trusted only if it signs. An announcement that narrows its questions counts
only once that start has answered a question of this process: an older heartbeat may have been put back.
"""

from collections.abc import Collection, Sequence
from typing import Final

from toolgate_bus.protocol import packing
from toolgate_bus.protocol.llm import LLM_REQUEST, add_selector
from toolgate_bus.protocol.names import POINTS
from toolgate_bus.protocol.signing import OTHER_SCHEME
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Member

from toolgate_orchestrator.decision.link.scheduler_info import (
    BEFORE,
    LABELS,
    REQUEST,
    RESULT,
    SchedulerInfo,
    WireVersions,
    newest,
    readers,
    select_trusted,
    versions,
)

MAX_REMEMBERED: Final = 1024
_NAMED: Final = (LLM_REQUEST, *POINTS)
"""What is asked about only if a scheduler names it."""
MAX_PROVEN: Final = 4096
_log = get_logger("toolgate.gate")


class SchedulerDirectory:
    """The schedulers of one bus."""

    def __init__(self) -> None:
        self.announced: dict[str, SchedulerInfo] = {}
        self.members: Sequence[Member] = ()
        """Replicas, as the roster last listed them."""
        self.ever_met = False
        """True if any scheduler was ever on the roster."""
        self.version = 0
        """Number that changes whenever `announced` does, so that recipients can be cached."""
        self.ever_named: set[tuple[str, str]] = set()
        """Schedulers that ever named requests to an LLM, or a point, with its name. While away, required ones
        must rule on those."""
        self.of_results: set[str] = set()
        """Schedulers that ever asked for results. While away, required ones must rule on those."""
        self.reads_labels = False
        """True if any replica reads the labels of sessions."""
        self._spoken = WireVersions()
        self.keyed: set[str] = set()
        """Schedulers that have a key and sign their announcements."""
        self._starts: dict[str, int] = {}
        """Newest start that was seen signed, for each scheduler."""
        self._proven: set[tuple[str, str]] = set()
        """Schedulers with their starts that have answered a question of this process with a signature."""
        self._told: set[tuple[str, str]] = set()

    def trust(self, names: Collection[str]) -> bool:
        """From now on trust these schedulers' announcements only if signed. Return True if that is new."""
        if self.keyed.issuperset(names):
            return False
        self.keyed.update(names)
        return True

    def prove(self, scheduler: str, start: str) -> bool:
        """Note that a signed verdict names this start, so its announcement counts. Return True if new."""
        if (scheduler, start) in self._proven:
            return False
        if len(self._proven) >= MAX_PROVEN:
            self._proven.clear()
        self._proven.add((scheduler, start))
        return True

    def update(self, members: Sequence[Member], now: float) -> list[tuple[SchedulerInfo, int]]:
        """Take the members of the roster.

        Return all schedulers, each with the version of the wire that it was asked in before. If nothing
        changed for those who ask them, return an empty list.
        """
        self.members = members
        self.reads_labels = any(LABELS in member.reads for member in members)
        by_name = select_trusted(members)
        spoken = self._spoken.with_each(
            # An unsigned replica beside signed ones may lower the version, but not to none.
            [one for one in members if one.signed or not by_name[one.name][0].signed or _reads_any(one)],
            now,
        )
        announced = {name: self._merge_replicas(name, each, spoken[name]) for name, each in by_name.items()}
        self.ever_met = self.ever_met or bool(announced)
        if len(self.ever_named) < MAX_REMEMBERED:
            asked = ((name, each) for name, one in announced.items() for each in _NAMED if one.wants(each))
            self.ever_named.update(asked)
        if len(self.of_results) < MAX_REMEMBERED:
            self.of_results.update(name for name, one in announced.items() if RESULT in one.phases)
        if announced == self.announced:  # a heartbeat with new totals alone changes nothing for us
            return []
        before, self.announced = self.announced, announced
        self.version += 1
        for one in announced.values():
            if one.version == 0 and self._is_untold("wire", one.name):
                _log.warning(
                    "a scheduler cannot be asked: it speaks no version of the wire that this agent speaks",
                    scheduler=one.name,
                    it_speaks=versions(one.wire),
                    this_agent=versions(packing.VERSIONS),
                )
        return [(one, before[name].version if name in before else 0) for name, one in announced.items()]

    def changes_at(self) -> float | None:
        """Return the time when a replica that left, and spoke an older wire, no longer counts (by `now`)."""
        return self._spoken.look_again(self.members)

    def _merge_replicas(self, name: str, members: Sequence[Member], version: int) -> SchedulerInfo:
        """Return the announcement of these replicas, from those that count."""
        one = newest(members)
        said = {(each.priority, each.tools, each.shadow) for each in members if not each.gone}
        if len(said) > 1 and self._is_untold("disagreement", name):
            _log.warning(
                "replicas disagree on priority, tools or shadow; the newest start wins", scheduler=name
            )
        if one.signed:
            started = max(each.started for each in members)
            self._starts[name] = max(self._starts.get(name, started), started)
        elif name in self.keyed:  # unsigned: anybody may have said it, so it narrows nothing
            tools = add_selector(("*",), one.tools)
            version = version or packing.VERSION
            other = any(each.signs_otherwise for each in members)
            if other and self._is_untold("scheme", name):
                _log.error(f"a scheduler is not trusted: it is {OTHER_SCHEME}", scheduler=name)
            phases: tuple[str, ...] = ("select", "verify")
            if version > packing.VERSION:
                phases = (*BEFORE, RESULT) if RESULT in one.phases else BEFORE
            return SchedulerInfo(
                name, one.priority, tools, False, version, phases, gone=one.gone, signs_otherwise=other
            )
        return SchedulerInfo(
            name,
            one.priority,
            one.tools,
            one.shadow,
            version,
            tuple(phase for phase in one.phases if all(phase in each.phases for each in readers(members))),
            one.wire,
            version > packing.VERSION and REQUEST in one.reads,
            one.gone,
            one.signed and one.started >= self._starts[name] and (name, one.start) in self._proven,
        )

    def _is_untold(self, what: str, name: str) -> bool:
        """Return whether this has not been logged for a scheduler yet."""
        told = (what, name) in self._told
        self._told.add((what, name))
        return not told


def _reads_any(member: Member) -> bool:
    return any(version in packing.VERSIONS for version in member.wire)
