"""The orchestrator's side of the bus on Redis Streams.

It has three connections: one writes questions and facts (`publisher`), one reads verdicts (`verdicts`), and
one runs ordinary commands for the roster. Only tasks of this module make them, so a caller's cancellation
never reaches a command. A lost connection is made again, with back-off. All streams of an orchestrator lie in
one shard, which it draws when it starts.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import anyio

from toolgate_bus.errors import ConfigError, ToolgateError, TransportError
from toolgate_bus.protocol.agents import decode_stop
from toolgate_bus.protocol.keys import Keys, name_orchestrator
from toolgate_bus.protocol.names import COMPRESSED, OFFSETS
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.heartbeats import is_signed
from toolgate_bus.transport.ports import (
    Commands,
    FactPayload,
    OrchestratorBus,
    OrchestratorListener,
    QuestionWriter,
    override,
)
from toolgate_bus.transport.redis.asking.agent_report import AgentReport
from toolgate_bus.transport.redis.asking.fact_spill import FactSpill
from toolgate_bus.transport.redis.asking.hold_watch import HoldWatch
from toolgate_bus.transport.redis.asking.orchestrator_heart import IDLE_INBOX_MS, OrchestratorHeart
from toolgate_bus.transport.redis.asking.pause_watch import PauseWatch
from toolgate_bus.transport.redis.asking.publisher import Publisher
from toolgate_bus.transport.redis.asking.read_set import ReadSet
from toolgate_bus.transport.redis.asking.verdicts import VerdictReader
from toolgate_bus.transport.redis.client.connection import RedisCommands, watch_links
from toolgate_bus.transport.redis.client.topology import topology_of
from toolgate_bus.transport.redis.roster.namespaces import find_namespaces
from toolgate_bus.transport.redis.roster.roster import BEAT_SECONDS, Roster, RosterView
from toolgate_bus.transport.redis.roster.roster_sets import NOBODY, OLD
from toolgate_bus.transport.redis.roster.shards import draw_shard
from toolgate_bus.transport.redis.storage.session_labels import RedisLabelStore
from toolgate_bus.transport.redis.storage.store import RedisStore
from toolgate_bus.transport.redis.tasks import Backoff, keep
from toolgate_bus.transport.session_labels import decode_label_notice


class OperatorOrders:
    """Carries out orders from `ctl:ORCH`, and has their execution reported."""

    def __init__(
        self,
        listener: Callable[[], OrchestratorListener],
        report: AgentReport,
        pauses: PauseWatch,
        tell: Callable[[], None],
    ) -> None:
        """`tell` has a heartbeat report at once."""
        self._listener, self._report, self._pauses, self._tell = listener, report, pauses, tell

    def take(self, raw: bytes) -> bool:
        """Take one message. Return whether a heartbeat must report or look at something at once."""
        if self._pauses.take(raw):
            return True
        if (labels := decode_label_notice(raw)) is not None:
            self._listener().on_labels_changed(labels.sessions, partial(self._confirm, labels.order))
            return False
        if (order := decode_stop(raw)) is None:
            metrics.count(metrics.BAD_MESSAGES, "operator", "malformed")
            return False
        self._report.note_order(order.id, self._listener().on_stop_order(order))
        return True

    def _confirm(self, order: str) -> None:
        self._report.note_order(order, ())
        self._tell()

    async def look(self, commands: Commands) -> None:
        """Look at the pauses, if it is time; this heartbeat reports what follows from them."""
        for order, sessions in await self._pauses.look(commands):
            self._report.note_order(order, sessions)


_PAUSE: Final = (NOBODY, NOBODY, NOBODY)
LOOKS: Final = ("schedulers", *_PAUSE, "readers", *_PAUSE, "schedulers", *_PAUSE, OLD, *_PAUSE)
"""Sets of the roster that an orchestrator reads with its heartbeats: one every two seconds, in turn. Members
that join or leave wake it, and whom it has seen it looks up with each heartbeat."""
LEAVE_S: Final = 2.0
START_S: Final = 2.5
"""Longest wait of a start for the roster, in seconds; a server that is silent for longer counts as away."""
DRAW_S: Final = 1.5
"""Longest time to draw a shard, in seconds; if the server does not tell their number, it is the first."""
COMMAND_S: Final = 1.0
"""Longest wait of a heartbeat for its replies, in seconds: the next one is better than a late one."""
_log = get_logger("toolgate.bus")


class RedisOrchestratorBus(OrchestratorBus):
    """`OrchestratorBus` on a Redis or Valkey server."""

    def __init__(self, url: str, namespace: str, shard: int | None = None) -> None:
        """Without `shard` the orchestrator draws one when it starts."""
        self.orchestrator = name_orchestrator(secrets.token_hex(8), shard or 0)
        self._url, self._namespace = url, namespace
        metrics.use_namespace(namespace)
        self._shard, self._is_placed = shard or 0, shard is not None
        self._keys = Keys(namespace, self._shard)
        self._commands = RedisCommands(url, f"toolgate-orch-{self.orchestrator}-cmd", seconds=COMMAND_S)
        self._roster = Roster(self._commands, namespace, LOOKS)
        self._store = RedisStore(self._commands, namespace)
        self._labels = RedisLabelStore(self._commands, namespace)
        self._reader = VerdictReader(url, self._keys, self.orchestrator, self._commands)
        self._spill = FactSpill(url, namespace)
        self._outbox = Publisher(self._keys, self.orchestrator, self._spill.keep)
        self._schedulers = ReadSet()
        self._keys_of: dict[str, bytes] = {}
        self._agents = AgentReport(
            self._keys, self.orchestrator, lambda: self._listener.agents(), lambda: self._listener.tools()
        )
        self._holds = HoldWatch(self._keys, lambda: self._listener.holds())
        self._pauses = PauseWatch(self._keys, lambda found: self._listener.on_pauses(found))
        self._orders = OperatorOrders(lambda: self._listener, self._agents, self._pauses, self.tell_agents)
        self._heart = OrchestratorHeart(
            self._commands,
            self._keys,
            self.orchestrator,
            self._roster,
            self._reader,
            self._outbox,
            self._agents,
            self._schedulers.watched,
        )
        self._was_up = self._is_read = self._has_met = False
        self._problem = ""
        self._failure: ConfigError | None = None
        self._started = False
        self._told = ""
        self._host: asyncio.Task[None] | None = None

    # ------------------------------------------------------------------ the port

    @property
    @override
    def is_connected(self) -> bool:
        return self._outbox.up and self._reader.up

    @property
    @override
    def read_set(self) -> frozenset[str]:
        return self._reader.reading

    @property
    @override
    def is_read(self) -> bool:
        return self._is_read

    @property
    @override
    def problem(self) -> str:
        return "" if self.is_connected else self._problem

    @override
    def listen(self, listener: OrchestratorListener) -> None:
        self._listener = listener
        # Without failover the server took unconfirmed questions, as a rule, and none may be decided twice.
        moves = topology_of(self._url).moves
        unconfirmed = listener.on_unconfirmed if moves else None
        self._outbox.listen(listener.on_refusal, unconfirmed, self._on_fact_written)
        self._heart.listen(self._adopt)
        self._reader.listen(listener.on_verdicts, self._poll_now, self._order)

    async def start(self) -> None:
        """Connect and begin. Returns once the roster was read, or that failed once, in 2.5 s at most.

        Raises ConfigError for what waiting cannot mend: credentials, rights, keys of another type.
        """
        self._stop, self._ready, self._poll = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._host = asyncio.create_task(self._run(), name="toolgate-bus")
        with anyio.move_on_after(START_S):
            await self._ready.wait()
        if not self._ready.is_set():
            _log.warning("the bus does not answer", seconds=START_S)
        self._started = True
        if self._failure is not None:
            await self.aclose()
            raise self._failure

    @override
    async def aclose(self) -> None:
        if self._host is None:
            return
        host, self._host = self._host, None
        self._ready.set()  # a start that still waits need not wait longer
        # Orders that come from now on could not be reported any longer.
        self._reader.listen(lambda _: None, self._poll_now, lambda _: None)
        await self._outbox.drain()
        self._stop.set()
        with contextlib.suppress(ToolgateError), anyio.move_on_after(LEAVE_S):
            if self._was_up:
                await self._roster.leave(f"o:{self.orchestrator}")
                written, now = await self._commands.pipeline(
                    [
                        ("PEXPIRE", self._keys.facts(self.orchestrator), self._outbox.retention.expiry_ms),
                        ("TIME",),
                    ]
                )
                if written == 1:
                    await self._heart.keep_facts(int(now[0]) * 1000)
                await self._commands.pipeline(
                    [
                        ("DEL", self._keys.wake(self.orchestrator), self._keys.control(self.orchestrator)),
                        self._agents.farewell(),
                        *(
                            ("DEL", self._keys.verdicts(self.orchestrator, name))
                            for name in sorted(self.read_set)
                        ),
                    ]
                )
        await host
        await self._commands.aclose()

    @override
    def trust(self, keys: Mapping[str, bytes]) -> None:
        self._keys_of = {**keys, **self._keys_of}
        self._roster.keyring = Keyring(self._keys_of, self._namespace)
        present = tuple(
            replace(one, signed=is_signed(one, self._roster.keyring) and self._roster.is_recent(one))
            for one in self._schedulers.present
        )
        self._schedulers.present = present
        self._listener.on_roster_change(present)

    @override
    def watch(self, schedulers: Iterable[str]) -> None:
        known = len(self._schedulers.watched)
        self._schedulers.watch(schedulers)
        self._reread()
        if self._started and len(self._schedulers.watched) > known:
            self._poll.set()  # the heartbeat reports the required schedulers

    def tell_agents(self) -> None:
        """Report at once which sessions are alive here, by an early heartbeat."""
        self._poll.set()

    @property
    @override
    def ask(self) -> QuestionWriter:
        return self._outbox.ask

    @property
    @override
    def fact(self) -> Callable[[Callable[[], FactPayload]], None]:
        return self._outbox.fact

    @override
    def hurry_facts(self) -> None:
        self._outbox.hurry_facts()

    @property
    @override
    def has_open_facts(self) -> bool:
        return self._outbox.has_open_facts

    @property
    @override
    def may_interlock(self) -> Callable[[], bool]:
        return self._outbox.may_interlock

    @property
    @override
    def seen_at(self) -> float:
        return self._heart.seen_at

    @override
    def report_tables(self, tables: Mapping[str, str]) -> None:
        self._heart.tables = tables
        self._poll.set()  # an operator may be waiting for it

    @property
    @override
    def store(self) -> RedisStore:
        return self._store

    @property
    @override
    def labels(self) -> RedisLabelStore:
        return self._labels

    @override
    async def find_namespaces(self) -> Mapping[str, Collection[str]]:
        return await find_namespaces(self._commands, self._namespace)

    # ------------------------------------------------------------------ the host task

    async def _run(self) -> None:
        if not self._is_placed:
            with contextlib.suppress(ToolgateError), anyio.move_on_after(DRAW_S):
                self._lie_in(await draw_shard(self._commands, self._keys, self._roster))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep, self._keep_writer)
            tasks.start_soon(keep, self._reader.run, self._on_connection_change)
            tasks.start_soon(keep, self._keep_roster)
            tasks.start_soon(keep, self._keep_alive)
            await self._stop.wait()
            tasks.cancel_scope.cancel()
        self._outbox.drop()
        self._reader.drop()

    def _lie_in(self, shard: int) -> None:
        """Place all streams of this orchestrator in that shard, which its name tells from now on."""
        if shard:
            self.orchestrator = name_orchestrator(self.orchestrator, shard)
            self._shard, self._keys = shard, Keys(self._namespace, shard)
            self._outbox.move(self._keys, self.orchestrator)
            self._reader.move(self._keys, self.orchestrator)
            self._agents.move(self.orchestrator)
            self._heart.move(self._keys, self.orchestrator)

    async def _keep_writer(self) -> None:
        backoff = Backoff()
        while True:
            try:
                link = await self._outbox.connect(self._url)
            except ConfigError as error:
                self._fail(error)
                await backoff.wait_long()
                continue
            except TransportError as error:
                self._problem = str(error)
                if self._has_met:  # otherwise the caller reports it, with the consequence for calls
                    backoff.note(_log, "no connection to the bus", error)
                self._ready.set()
                await backoff.wait()
                continue
            self._has_met = True
            self._on_connection_change()
            self._outbox.catch_up()
            await link.lost
            self._outbox.drop()
            metrics.count(metrics.RECONNECTS, "write")
            self._on_connection_change()
            if link.refusal is not None:
                backoff.note(_log, "this server cannot be used now", link.refusal)
                await backoff.wait()
            else:
                backoff.reset()

    def _fail(self, error: ConfigError) -> None:
        if not self._started:
            self._failure = self._failure or error
            self._ready.set()
        elif str(error) != self._told:
            self._told = str(error)
            _log.error("the bus refuses this process", error=str(error))

    def _on_connection_change(self) -> None:
        up = self.is_connected
        if up != self._was_up:
            self._was_up = up
            self._heart.hurry()
            self._holds.hurry()
            self._pauses.hurry()
            self._roster.name_again()
            metrics.record_connection("orchestrator", up)
            self._poll.set()
            self._listener.on_connection(up)

    async def _keep_roster(self) -> None:
        while True:
            self._poll.clear()  # before the roster is read: the next beat finds members that join meanwhile
            if self._outbox.up:
                try:
                    await self._beat()
                    if self._reader.rest(is_quiet=self._heart.is_quiet):
                        self._wake_reader()
                    if self._heart.count_beat():
                        await self._reader.rewind()
                except ConfigError as error:
                    self._fail(error)
                except TransportError as error:
                    self._not_ready(error)
            metrics.join_registry()
            with anyio.move_on_after(BEAT_SECONDS):
                await self._poll.wait()

    def _not_ready(self, error: TransportError) -> None:
        """End the wait of a start: a heartbeat failed, as it does with a server that is away."""
        if not self._ready.is_set():
            _log.warning("the roster could not be read", error=str(error))
            self._ready.set()

    async def _keep_alive(self) -> None:
        near = self._keys.wake(self.orchestrator)
        await watch_links(self._url, near, lambda: (self._reader.link, self._outbox.link))

    async def _beat(self) -> None:
        try:
            await self._orders.look(self._commands)
            await self._heart.beat()
            self._note_ready()
            await self._spill.write(self._commands, self._roster.seconds * 1000)
            lost = await self._holds.look(self._commands)
            if lost and self.is_connected:
                self._listener.on_lost_holds(lost)
        except ToolgateError:
            self._heart.recover()
            raise

    def _note_ready(self) -> None:
        """End the wait of a start, as the roster was read, once verdicts can be read too."""
        if self.is_connected and self._reader.is_settled:
            self._ready.set()
        elif not self._ready.is_set() and (self._reader.refused or "").startswith("NOPERM"):
            self._fail(ConfigError(f"{self._keys.verdicts(self.orchestrator, '*')}: {self._reader.refused}"))

    def _adopt(self, view: RosterView) -> None:
        self._is_read = self._is_read or view.readers > 0
        self._outbox.compressor.is_on = view.all_read(COMPRESSED)
        self._outbox.reads_offsets = view.all_read(OFFSETS)
        present = (*view.members, *view.gone)
        if self._schedulers.adopt(present, time.monotonic()):
            self._listener.on_roster_change(present)
        self._reread()

    def _reread(self) -> None:
        if self._reader.want(self._schedulers.names):
            self._wake_reader()

    def _wake_reader(self) -> None:
        """End the blocked read: the next one reads other streams, or blocks for less long."""
        wake = self._keys.wake(self.orchestrator)
        self._outbox.send(("XADD", wake, "*", "event", "reread"), ("PEXPIRE", wake, IDLE_INBOX_MS))

    def _poll_now(self) -> None:
        self._heart.hurry()
        self._poll.set()

    def _on_fact_written(self) -> None:
        if self._heart.expect_facts():
            self._poll.set()  # reported with the next heartbeat, which is now

    def _order(self, raw: bytes) -> None:
        if self._orders.take(raw):
            self.tell_agents()  # the operator waits for that
