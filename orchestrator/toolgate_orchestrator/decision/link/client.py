"""One bus client for each event loop, address and namespace, shared by all gates of the process.

It hands verdicts to the open questions, and keeps the silences of each scheduler. Elsewhere are the live
schedulers and their tools (`scheduler_directory`), the client's lifetime (`shared_clients`), a question and
its end (`open_round`), and the decision (`gate`).
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.agents import LiveAgent, Stop
from toolgate_bus.protocol.names import OPERATOR
from toolgate_bus.protocol.pauses import Pause, StandingPauses, StandingStops
from toolgate_bus.ruling.breaker import Breaker
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.unanimous import FactRun
from toolgate_bus.transport.ports import HoldPlace, Member, OrchestratorBus

from toolgate_orchestrator.decision.deferral.claims import StandingClaims
from toolgate_orchestrator.decision.faults import note_fault
from toolgate_orchestrator.decision.link.live_session import LiveSession
from toolgate_orchestrator.decision.link.local_tables import LocalTables
from toolgate_orchestrator.decision.link.pauses import Pauses, explain_stop, name_operator
from toolgate_orchestrator.decision.link.recipients import Absence, Failures
from toolgate_orchestrator.decision.link.scheduler_directory import SchedulerDirectory
from toolgate_orchestrator.decision.link.session_labels import SessionLabels
from toolgate_orchestrator.decision.question.tool_catalog import ToolCatalog
from toolgate_orchestrator.decision.round.decision_state import DecisionState
from toolgate_orchestrator.decision.round.open_round import OpenRound
from toolgate_orchestrator.decision.round.open_rounds import OpenRounds
from toolgate_orchestrator.decision.round.overload import Overload

FLUSH_S = 0.002
"""Seconds between two looks whether the bus has all facts."""
_log = get_logger("toolgate.gate")


class OpenDeferral(Protocol):
    """A decision that waits for a person, in the process that asked."""

    def stop(self) -> None:
        """Stop keeping it."""

    def hand_over(self, call: DecisionState) -> None:
        """Let this call resume the decision."""


class GateClient:
    """The state that several gates share; the listener of one OrchestratorBus."""

    def __init__(self, bus: OrchestratorBus, where: str = "the bus") -> None:
        """Make a client; `where` names the bus in words."""
        self.bus, self.where = bus, where
        self.ask, self.fact, self.may_interlock = bus.ask, bus.fact, bus.may_interlock
        self.breaker = Breaker()
        self.directory = SchedulerDirectory()
        self.tables = LocalTables(bus)
        """Tables by which schedulers need not be asked."""
        self.loop = asyncio.get_running_loop()
        self.table = OpenRounds(self.loop)
        self._back: asyncio.Event = asyncio.Event()
        self._down_since = time.monotonic()
        self.absence = Absence(where)
        self.failures = Failures()
        self.overload = Overload()
        self._looking: asyncio.TimerHandle | None = None
        self.up = False
        """True if the bus can be used right now."""
        self.outages = 0
        """Number of times the bus went away. The breaker does not count a question that saw it change."""
        self.facts = 0
        """Number of this orchestrator's last fact. The record shows gaps by it."""
        self.run: FactRun | None = None
        """Facts that follow each other and are not made yet; the next one may join them."""
        self.users = 0
        self.present: dict[str, LiveSession] = {}
        """Live sessions that are ruled on through this bus, by id."""
        self.catalog = ToolCatalog()
        """Tools of all sessions that are ruled on through this bus."""
        self.pauses = Pauses(self.present)
        self.labels = SessionLabels(bus.labels, self.pauses.ancestry)
        """Labels that verdicts gave to sessions."""
        self.deferred: dict[str, OpenDeferral] = {}
        """Decisions that wait for a person, by id."""
        self.kept = StandingClaims(bus.store)
        """Stored deferred decisions of all processes, and the claims of this one."""
        self.starting: asyncio.Future[None] | None = None
        bus.listen(self)

    async def start(self) -> None:
        """Connect. A server that cannot be reached is not an error."""
        await self.bus.start()

    def close(self) -> None:
        """Forget every question. The bus is closed already."""
        if self._looking is not None:
            self._looking.cancel()
        self.table.close()
        self.tables.close()
        self.labels.close()
        self.pauses.close()
        self.kept.close()
        for watch in list(self.deferred.values()):
            watch.stop()

    # ------------------------------------------------------------------ what the bus calls

    def on_verdicts(self, frames: Sequence[tuple[str, bytes]]) -> None:
        """Hand each verdict in these frames to its question, and end the questions that are over."""
        now = time.monotonic()
        opened = self.table.open
        ending: list[OpenRound] = []
        for scheduler, raw in frames:
            try:
                found = packing.items(raw)
            except CodecError as error:
                metrics.count(metrics.BAD_MESSAGES, scheduler, error.reason)
                continue
            for one in found:
                if isinstance(one, CodecError):
                    metrics.count(metrics.BAD_MESSAGES, scheduler, one.reason)
                    continue
                question = opened.get(one[:2])
                try:
                    if question is None or scheduler not in question.asked:
                        self._hand_back(scheduler, one, now, question)
                        continue
                    if not self.breaker.calm:
                        self.breaker.record_answer(scheduler)
                    if self.absence.given_up:
                        self.absence.mark_alive((scheduler,))
                    if question.take(scheduler, one, now):
                        ending.append(question)
                except Exception as error:  # noqa: BLE001 - our fault must not cost the others their verdicts
                    note_fault("verdict", error, scheduler)
                    if question is not None and scheduler in question.asked:
                        question.deny(scheduler, now)  # its verdict is unknown
                        ending.append(question)
        for question in ending:
            question.end_if_over()

    def on_refusal(self, scheduler: str, ids: Sequence[bytes], error: str) -> None:
        """Note that the bus did not take these questions."""
        if error != "bus_down":
            _log.error("the server refused a question", scheduler=scheduler, error=error)
        for id_ in ids:
            for phase in range(len(packing.PHASES)):
                question = self.table.open.get((id_, phase))
                if question is not None:
                    question.on_refusal(scheduler)

    def on_unconfirmed(self, scheduler: str, ids: Sequence[bytes]) -> None:
        """Ask the open ones again, under their own ids: the bus may not have taken these questions."""
        for id_ in ids:
            for phase in range(len(packing.PHASES)):
                question = self.table.open.get((id_, phase))
                if question is not None:
                    question.ask_again(scheduler, self._find_version(question, scheduler))

    def on_roster_change(self, members: Sequence[Member]) -> None:
        """Take the members of the roster that are alive."""
        directory = self.directory
        changed = directory.update(members, time.monotonic())
        self.tables.follow(members, directory.announced, directory.keyed)
        self.labels.follow(has_readers=directory.reads_labels)
        self.absence.mark_alive(name for name, one in directory.announced.items() if not one.gone)
        for one, before in changed:
            if 0 < one.version < before:  # nobody may have read the open questions
                for question in list(self.table.open.values()):
                    question.ask_again(one.name, one.version)
        self._look_again()

    def _look_again(self) -> None:
        """Look at the roster again once a replica that left, and spoke an older wire, no longer counts."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if (at := self.directory.changes_at()) is not None:
            left = max(0.0, at - time.monotonic())
            self._looking = self.loop.call_later(left, self.on_roster_change, self.directory.members)

    def on_connection(self, up: bool) -> None:
        """Note that the bus came back or went away."""
        self.up = up
        if up:
            self.absence.anew()
            self._back.set()
            self.kept.restore()
            self.labels.on_connection()
        else:
            self.outages += 1
            self._down_since = time.monotonic()
            self._back.clear()

    def agents(self) -> list[LiveAgent]:
        """Return the live sessions, oldest first."""
        return [one.tell() for one in self.present.values()]

    def tools(self) -> bytes:
        """Return the encoded set of their tools."""
        return self.catalog.encode()

    def on_stop_order(self, order: Stop) -> list[str]:
        """End the turns that an order covers. Return the sessions that had one. The order does not stand."""
        stops = StandingStops([Pause("", order.sessions, order.roots, order.everyone, stop=True)])
        above = self.pauses.ancestry.list_above
        meant = [
            one
            for one in self.present.values()
            if stops.find_stop(one.session, one.root, above(one.session, one.parent)) is not None
        ]
        busy = [one.session for one in meant if one.busy]
        if any(one.busy and not one.is_stopping for one in meant):
            when = "at once" if order.now else "once the running tools have finished"
            _log.warning(f"{name_operator(order.by)} ends {len(busy)} running turns here, {when}")
        for one in meant:
            one.stop(now=order.now, by=order.by)
        return busy

    def on_pauses(self, found: StandingPauses) -> list[str]:
        """Adopt these pauses; deny open calls that a stop covers. Return the sessions whose turns it ends."""
        known = self.pauses.stops.ids
        ended = self.pauses.adopt(found)
        if self.pauses.stops.ids - known:
            now = time.monotonic()
            for question in self.table.list_undecided():
                if (stop := self.pauses.find_stop_of(question.question)) is not None:
                    question.deny_by(OPERATOR, explain_stop(stop), now)
        return ended

    def on_labels_changed(self, sessions: Sequence[str], done: Callable[[], None]) -> None:
        """Look at the labels of these sessions: an operator took some away."""
        self.labels.look_again(sessions, done)

    def holds(self) -> list[HoldPlace]:
        """Return the holds that calls of this process wait for."""
        return [hold for question in self.table.open.values() for hold in question.list_holds()]

    def on_lost_holds(self, lost: Sequence[HoldPlace]) -> None:
        """Ask again, under their own ids, the questions of holds that the server has forgotten."""
        _log.warning("holds are gone from the server: their questions are asked again", holds=len(lost))
        for name, decision, phase in lost:
            question = self.table.open.get((decision, phase))
            if question is not None:
                metrics.count(metrics.HOLDS_LOST, name)
                question.ask_holder_again(name, self._find_version(question, name))

    def _find_version(self, question: OpenRound, name: str) -> int:
        """Return the version of the wire in which a scheduler is asked again."""
        announced = self.directory.announced.get(name)
        spoken = question.audience.versions.get(name, 0) if announced is None else announced.version
        return spoken or packing.VERSION

    # ------------------------------------------------------------------ what gates use

    async def flush(self, timeout_s: float) -> bool:
        """Wait until the bus has all facts. Return False if it does not within `timeout_s` seconds."""
        until = time.monotonic() + timeout_s
        while self.bus.has_open_facts:
            if time.monotonic() >= until:
                return False
            self.bus.hurry_facts()
            await asyncio.sleep(FLUSH_S)
        return True

    def trust(self, keys: Mapping[str, bytes]) -> None:
        """From now on trust what these schedulers announce only if it is signed."""
        if self.directory.trust(keys):
            self.bus.trust(keys)

    def prove(self, scheduler: str, start: str) -> None:
        """Note that a signed verdict names this start: the scheduler lives, and its announcement counts."""
        if self.directory.prove(scheduler, start):
            self.on_roster_change(self.directory.members)

    async def reachable(self, patience: float) -> bool:
        """Return whether the bus can be used. Wait for it until it was away for `patience` seconds."""
        if self.up:
            return True
        left = self._down_since + patience - time.monotonic()
        if left > 0:
            try:
                await asyncio.wait_for(self._back.wait(), left)
            except TimeoutError:
                return False
        return self.up

    def _hand_back(self, scheduler: str, item: packing.Item, now: float, question: OpenRound | None) -> None:
        """Handle a verdict on a question that is not open here: it may belong to one that has ended."""
        key = item[:2]
        ended = self.table.recent(key)
        if ended is not None and scheduler in ended.asked:
            if ended.take_late(scheduler, item, now):
                self.breaker.record_answer(scheduler)
                self.absence.mark_alive((scheduler,))
        elif question is None and self.table.is_repeat(key, scheduler):
            before = self.table.goes_on(key)
            if before is None or not before.object_late(scheduler, item, now):
                metrics.count(metrics.REPEATED, scheduler)  # all had answered: this is the same verdict twice
        else:
            metrics.count(metrics.BAD_MESSAGES, scheduler, "unsolicited")
