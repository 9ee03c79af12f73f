"""What an orchestrator writes over one connection: its questions, its facts, a word to its own reader.

All that is queued in one tick of the event loop goes out in one write, several questions for one inbox
as one frame. Facts that wait go along with the next questions, or a little later by themselves, and only
once the server has confirmed those before them: what it refuses must not come to stand behind them.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import anyio

from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Arg, FactPayload
from toolgate_bus.transport.redis.asking.fact_buffer import FACTS_RETENTION_MS, FactBuffer
from toolgate_bus.transport.redis.client.connection import open_link
from toolgate_bus.transport.redis.client.link import Link, ServerError, pack_command
from toolgate_bus.transport.redis.roster.roster import BEAT_SECONDS

EARLY: Final = 32
"""So many questions for one inbox do not wait for the end of the tick: both sides can work at once."""
MAX_INBOXES: Final = 1024
"""Schedulers whose keys are kept at hand."""
MAX_WAITING: Final = 10_000
"""Facts; those beyond are dropped."""
ALONG_S: Final = 0.005
"""Seconds that facts wait for company, before they go along with the next questions: a write of their own
would cost more than they do."""
LATEST_S: Final = 0.015
"""Seconds after which they go by themselves."""
UNSENT_BYTES: Final = 8 * 1024 * 1024
KEPT_AGAIN_S: Final = 1.0
"""Least seconds between two times that facts are written again which a server had confirmed."""
FACTS_AGAIN_S: Final = 1.0
"""Seconds until facts that the server refused are tried again."""
ASK_AGAIN_S: Final = 2.0
"""A question that the server did not take, as it was not the one to ask, is of no use after that."""
DRAIN_S: Final = 3.0
"""Longest that the end waits for the server to take what is queued, where there is a connection. What it has
not taken by then waits for the next process."""
_log = get_logger("toolgate.bus")

OnRefusal = Callable[[str, Sequence[bytes], str], None]
OnUnconfirmed = Callable[[str, Sequence[bytes]], None] | None


class _QuestionFrame(NamedTuple):
    """The questions of one frame: what a reply to them is waited for with."""

    scheduler: str
    event: str
    pairs: Sequence[tuple[bytes, bytes]]


class _Facts(NamedTuple):
    """What a reply to facts is waited for with; those of an earlier try say nothing any more."""

    tried: int


DRAIN: Final = object()


class Outbox:
    """Owned by `RedisOrchestratorBus`, which makes its connection, and makes it again."""

    def __init__(self, keys: Keys, orchestrator: str, keep: Callable[[str, Sequence[bytes]], bool]) -> None:
        """`keep` is given, at the end, the facts that the server did not take: whether it has kept them."""
        self.move(keys, orchestrator)
        self._keep = keep
        self._link: Link | None = None
        self._asks: dict[tuple[Sequence[str], str], list[tuple[bytes, bytes]]] = {}
        self._again: list[tuple[float, _QuestionFrame]] = []
        self._unconfirmed: list[_QuestionFrame] = []
        """Questions that were lost with a connection, or their confirmations were."""
        self._waiting: list[Callable[[], FactPayload]] = []
        """Facts that are to be written, each as what makes its bytes: off every decision's path."""
        self._along_at = 0.0
        """When they go along with questions (`time.monotonic`)."""
        self._facts = FactBuffer()
        self._facts_tag = _Facts(0)
        self._facts_refused = False
        self._is_trial = False
        """Whether the oldest frame alone is under way, to see whether the server takes facts."""
        self._is_overdue = False
        """Whether facts were to be written by themselves, and wait for those before them."""
        self._is_last = False
        """Whether nothing comes after what is queued now."""
        self._is_kept = False
        """Whether this connection was told when the stream of our facts expires."""
        self._kept_written = float("-inf")
        self._kept_timer: asyncio.TimerHandle | None = None
        self._flushing = False
        self._fact_timer: asyncio.TimerHandle | None = None
        self._hurries = False
        self._asked: set[str] = set()

    def move(self, keys: Keys, orchestrator: str) -> None:
        """Be another orchestrator, in the shard of these keys; before it connects."""
        self._keys, self._orchestrator = keys, orchestrator
        self._inbox_of = lru_cache(MAX_INBOXES)(keys.inbox)

    def listen(
        self, refused: OnRefusal, unconfirmed: OnUnconfirmed, fact_written: Callable[[], None]
    ) -> None:
        """Say who is told of questions that could not be written, or may not have been (if anybody), and of
        facts that were; once."""
        self._refused, self._on_unconfirmed, self._fact_written = refused, unconfirmed, fact_written

    # ------------------------------------------------------------------ its connection

    @property
    def up(self) -> bool:
        """Whether there is a connection."""
        return self._link is not None

    async def connect(self, url: str) -> Link:
        """Make the connection; raises ConfigError or TransportError."""
        name, near = f"toolgate-orch-{self._orchestrator}-write", self._keys.facts(self._orchestrator)
        link = await open_link(url, name, self._on_reply, near=near)
        link.unanswered = _QuestionFrame
        self._link = link
        return link

    @property
    def link(self) -> Link | None:
        """The connection, to be watched."""
        return self._link

    def catch_up(self) -> None:
        """After connecting: what may have been lost with the old connection or server; then what waits.

        What was not lost is there twice then; readers know a fact by its number. Questions are written
        again where the server said that it did not take them; of those of which it said nothing, whoever
        asked may want to be told, who knows whether anybody still waits for them.
        """
        now = time.monotonic()
        self._is_kept = False
        self._facts_refused = self._is_trial = False
        self._write_kept(now)
        again, self._again = self._again, []
        for until, asked in again:
            if now < until:
                self._asks.setdefault(((asked.scheduler,), asked.event), []).extend(asked.pairs)
        unconfirmed, self._unconfirmed = self._unconfirmed, []
        if (tell := self._on_unconfirmed) is not None:
            for asked in unconfirmed:
                tell(asked.scheduler, [decision for decision, _ in asked.pairs])
        self._write_asks()

    def _write_kept(self, now: float) -> None:
        """Write again what was confirmed shortly before the connection was lost: a failover may forget it.

        After many losses in a row, a little later: the write before may have been lost with its connection.
        All other facts wait behind it.
        """
        early = self._kept_written + KEPT_AGAIN_S - now
        if early > 0:
            self._stop_timer()
            self._kept_timer = asyncio.get_running_loop().call_later(early, self._write_kept_late)
            return
        self._facts.take_back()
        self._try_facts()

    def _write_kept_late(self) -> None:
        self._kept_timer = None
        self._write_kept(time.monotonic())

    def drop(self) -> None:
        """Be without a connection; one that is still there is closed."""
        link, self._link = self._link, None
        if link is None:
            return
        link.drop()
        self._stop_kept_timer()
        owed = [tag for tag in link.owed if type(tag) is _QuestionFrame]
        if link.refusal is not None:
            until = time.monotonic() + ASK_AGAIN_S
            self._again += [(until, asked) for asked in owed]
        else:
            self._unconfirmed += owed

    async def drain(self) -> None:
        """Write what is queued, and wait for the server to take it, but not for ever; nothing comes after."""
        self._flush()
        self._is_last = True
        if self._link is not None and (self._facts_refused or self._is_trial or self._kept_timer is not None):
            self._stop_kept_timer()
            self._facts_refused = self._is_trial = False
            self._facts.take_back()
            self._write_unconfirmed()
        self._write_facts()
        self._stop_timer()
        if self._link is not None:
            self._drained = asyncio.Event()
            self._link.write(pack_command(("PING",)), (DRAIN,))
            with anyio.move_on_after(DRAIN_S):
                await self._drained.wait()
        self._make_frames()  # what is counted with those that could not be written is counted
        left = self._facts.list_unconfirmed()
        if left and not self._keep(self._orchestrator, left):
            self._facts.give_up()

    # ------------------------------------------------------------------ what is queued

    def take_recipients(self) -> set[str]:
        """The schedulers that were asked since this was last called."""
        asked, self._asked = self._asked, set()
        return asked

    def ask(
        self, schedulers: Sequence[str], decision: bytes, item: bytes, event: str = "tool:selecting"
    ) -> None:
        """Queue one question for several; it is written within this tick of the loop."""
        waiting = self._asks.setdefault((schedulers, event), [])
        waiting.append((decision, item))
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)
        elif len(waiting) == EARLY:
            self._write_asks()

    def fact(self, make: Callable[[], FactPayload]) -> None:
        """Queue a fact, or several."""
        waiting = self._waiting
        if len(waiting) >= MAX_WAITING:
            self._facts.drop(make)
            return
        if not waiting:
            self._along_at = time.monotonic() + ALONG_S
        waiting.append(make)
        if self._fact_timer is None:
            self._fact_timer = asyncio.get_running_loop().call_later(LATEST_S, self._write_facts)

    def hurry_facts(self) -> None:
        """Write within this tick of the loop what facts are queued."""
        if not self._hurries:
            self._hurries = True
            asyncio.get_running_loop().call_soon(self._write_facts)

    @property
    def has_open_facts(self) -> bool:
        """Whether facts wait, or are not yet confirmed."""
        return bool(self._waiting) or self._facts.is_begun

    def send(self, *commands: Sequence[Arg]) -> None:
        """Write commands whose replies do not matter, all or none of them; nothing without a connection."""
        if self._link is not None:
            self._link.write(b"".join(map(pack_command, commands)), (None,) * len(commands))

    # ------------------------------------------------------------------ writing

    def _flush(self) -> None:
        self._flushing = False
        self._write_asks()

    def _write_asks(self) -> None:
        asks, self._asks = self._asks, {}
        if not asks:
            return
        link = self._link
        if link is None:  # it was lost in this very tick: whoever asks later is told by `up`
            for (schedulers, event), waiting in asks.items():
                for scheduler in schedulers:
                    if self._on_unconfirmed is not None:
                        self._unconfirmed.append(_QuestionFrame(scheduler, event, waiting))
                    else:
                        self._refused(scheduler, [decision for decision, _ in waiting], "bus_down")
            return
        packed: list[bytes] = []
        tags: list[Any] = []
        for (schedulers, event), waiting in asks.items():
            self._asked.update(schedulers)
            items = [item for _, item in waiting]
            at = 0
            for part in packing.frames(items) if len(items) > 1 else (items,):
                tail = ("*", "event", event, "orch", self._orchestrator, "frame", packing.frame(part))
                pairs = waiting[at : at + len(part)]
                at += len(part)
                for scheduler in schedulers:
                    packed.append(pack_command(("XADD", self._inbox_of(scheduler), *tail)))
                    tags.append(_QuestionFrame(scheduler, event, pairs))
        if self._waiting and (facts := self._commands_along(link)):
            also, their_tags = self._with_expiry(facts)
            packed += also
            tags += their_tags
        link.write(b"".join(packed), tags)

    def _write_facts(self) -> None:
        self._hurries = False
        if self._facts_refused:
            return  # they wait until the server takes them again: the timer is that of the next try
        self._stop_timer()
        if self._link is None:
            return  # they wait for the connection
        if self._waiting:
            commands = self._commands_of_facts(self._link)
            self._is_overdue = not commands
            if commands:
                packed, tags = self._with_expiry(commands)
                self._link.write(b"".join(packed), tags)

    def _with_expiry(self, facts: list[bytes]) -> tuple[list[bytes], tuple[Any, ...]]:
        """The commands that write facts, with what each reply is waited for.

        The first of a connection say in the same write when they expire: who is killed right after it says
        nothing any more.
        """
        tags = (self._facts_tag,) * len(facts)
        if self._is_kept:
            return facts, tags
        self._is_kept = True
        expiry = ("PEXPIRE", self._keys.facts(self._orchestrator), FACTS_RETENTION_MS)
        return [*facts, pack_command(expiry)], (*tags, None)

    def _commands_along(self, link: Link) -> list[bytes]:
        """The commands that write facts with questions: of a full frame, or of facts that waited a while."""
        if len(self._waiting) < packing.MAX_ITEMS and time.monotonic() < self._along_at:
            return []
        return self._commands_of_facts(link)

    def _commands_of_facts(self, link: Link) -> list[bytes]:
        """The commands that write all facts that wait, to be sent next; none while they cannot be taken."""
        if self._facts_refused:
            return []
        if (self._facts.is_begun or self._kept_timer is not None) and not self._is_last:
            return []
        self._stop_timer()
        if link.unsent > UNSENT_BYTES:
            self._fact_timer = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._write_facts)
            return []
        self._is_overdue = False
        return [self._command_of(frame) for frame in self._make_frames()]

    def _make_frames(self) -> list[bytes]:
        """The frames of all facts that wait; from now on they are unconfirmed."""
        waiting, self._waiting = self._waiting, []
        return self._facts.add(waiting)

    def _command_of(self, frame: bytes) -> bytes:
        key = self._keys.facts(self._orchestrator)
        return pack_command(("XADD", key, "*", "event", "facts", "frame", frame))

    def _write_unconfirmed(self, most: int | None = None) -> None:
        """Write again what is not confirmed, in its order."""
        self._facts_tag = _Facts(self._facts_tag.tried + 1)
        commands = [self._command_of(frame) for frame in self._facts.list_unconfirmed()[:most]]
        if self._link is not None and commands:
            packed, tags = self._with_expiry(commands)
            self._link.write(b"".join(packed), tags)

    def _try_facts(self) -> None:
        """See with the oldest frame whether the server takes facts; then come the others, in their order."""
        self._stop_timer()
        if self._link is None:
            return
        self._write_unconfirmed(1)
        self._is_trial = self._facts.is_begun
        if not self._is_trial:
            self._write_facts()

    def _write_rest(self) -> None:
        """The server has taken the oldest frame: write the others."""
        self._is_trial = False
        if self._facts_refused:
            self._facts_refused = False
            _log.info("the server takes facts again")
        else:
            self._kept_written = time.monotonic()
        self._write_unconfirmed()

    def _on_facts_reply(self, reply: Any) -> None:
        if not isinstance(reply, ServerError):
            self._facts.confirm_oldest()
            self._fact_written()
            if self._is_trial:
                self._write_rest()
            if not self._facts.is_begun and (self._is_overdue or self._fact_timer is None):
                self._write_facts()
            return
        metrics.count(metrics.REFUSED_WRITES, "facts")
        self._is_kept = False  # perhaps there is no stream yet that could expire
        self._facts_tag = _Facts(self._facts_tag.tried + 1)  # what else is under way says nothing any more
        if not self._facts_refused:
            self._facts_refused = True
            _log.error(
                "the server refuses facts: they wait, and are tried again each second", error=str(reply)
            )
        if reply.code == "WRONGTYPE":  # a key that is ours alone, and what is there holds no fact
            self.send(("DEL", self._keys.facts(self._orchestrator)))
        self._stop_timer()
        self._fact_timer = asyncio.get_running_loop().call_later(FACTS_AGAIN_S, self._try_facts)

    def _stop_timer(self) -> None:
        if self._fact_timer is not None:
            self._fact_timer.cancel()
            self._fact_timer = None

    def _stop_kept_timer(self) -> None:
        if self._kept_timer is not None:
            self._kept_timer.cancel()
            self._kept_timer = None

    def _on_reply(self, reply: Any, tag: Any) -> None:
        if type(tag) is _QuestionFrame:
            if type(reply) is ServerError:
                self._refused(tag.scheduler, [decision for decision, _ in tag.pairs], str(reply))
        elif type(tag) is _Facts:
            if tag is self._facts_tag:
                self._on_facts_reply(reply)
        elif tag is DRAIN:
            self._drained.set()
