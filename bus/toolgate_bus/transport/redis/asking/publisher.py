"""Writes an orchestrator's questions, its facts, and entries for its own reader, over one connection.

All that is queued in one tick of the event loop goes out in one write, several questions for one inbox as one
frame. Waiting facts go along with the next questions, or a little later by themselves. They go only once the
server has confirmed the facts before them: those that it refuses must not come to stand behind later ones.
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
from toolgate_bus.transport.redis.asking.fact_buffer import FactBuffer
from toolgate_bus.transport.redis.asking.fact_compressor import FactCompressor
from toolgate_bus.transport.redis.asking.fact_retention import FactRetention
from toolgate_bus.transport.redis.client.connection import open_link
from toolgate_bus.transport.redis.client.link import Link, ServerError, pack_command
from toolgate_bus.transport.redis.roster.roster import BEAT_SECONDS

EARLY: Final = 32
"""Number of questions for one inbox that are written before the tick ends: both sides work at once."""
MAX_INBOXES: Final = 1024
"""Maximum number of schedulers whose keys are cached."""
MAX_WAITING: Final = 10_000
"""Maximum number of waiting facts; further ones are dropped."""
MANY_WAITING: Final = 100
"""Number of waiting facts from which on each counts for itself, as `MAX_WAITING` is to bound them."""
ALONG_S: Final = 0.005
"""Seconds that facts wait for company before they go along with questions: a write of their own costs more
than they do."""
LATEST_S: Final = 0.015
"""Seconds after which facts go by themselves."""
UNSENT_BYTES: Final = 8 * 1024 * 1024
KEPT_AGAIN_S: Final = 1.0
"""Least seconds between two repeated writes of facts that a server had confirmed."""
FACTS_AGAIN_S: Final = 1.0
"""Seconds until facts that the server refused are tried again."""
ASK_AGAIN_S: Final = 2.0
"""Seconds after which a question is of no use any longer if the server did not take it, as it was not the
primary."""
DRAIN_S: Final = 3.0
"""Longest wait at the end for the server to take what is queued, in seconds, if there is a connection. The
rest is left to the next process."""
_log = get_logger("toolgate.bus")

OnRefusal = Callable[[str, Sequence[bytes], str], None]
OnUnconfirmed = Callable[[str, Sequence[bytes]], None] | None


class _QuestionFrame(NamedTuple):
    """The questions of one frame: the tag of their command."""

    scheduler: str
    event: str
    pairs: Sequence[tuple[bytes, bytes]]


class _Facts(NamedTuple):
    """The tag of commands that write facts; replies to an earlier try do not count."""

    tried: int


DRAIN: Final = object()


class Publisher:
    """The queue of an orchestrator's writes; `RedisOrchestratorBus` owns it and makes its connections."""

    def __init__(self, keys: Keys, orchestrator: str, keep: Callable[[str, Sequence[bytes]], bool]) -> None:
        """`keep` is called at the end with facts that the server did not take; it returns if it kept them."""
        self.move(keys, orchestrator)
        self._keep = keep
        self._link: Link | None = None
        self._asks: dict[tuple[Sequence[str], str], list[tuple[bytes, bytes]]] = {}
        self._again: list[tuple[float, _QuestionFrame]] = []
        self._unconfirmed: list[_QuestionFrame] = []
        """Questions that may be lost, as their connection ended before their confirmations came."""
        self._waiting: list[Callable[[], FactPayload]] = []
        self.reads_offsets = False
        """True if all readers know decisions that share a fact though others came between them."""
        """Facts to write, each as a function that makes its bytes, so that no decision waits for that."""
        self._along_at = 0.0
        """Time from which they go along with questions (`time.monotonic`)."""
        self._facts = FactBuffer()
        self.compressor, self.retention = FactCompressor(), FactRetention()
        self._facts_tag = _Facts(0)
        self._facts_refused = False
        self._is_trial = False
        """True if only the oldest frame is under way, to see whether the server takes facts."""
        self._is_overdue = False
        """True if facts should have gone by themselves, and wait for those before them."""
        self._is_last = False
        """True if nothing comes after what is queued now."""
        self._is_kept = False
        """True if the expiry of the stream of facts was set on this connection."""
        self._kept_written = float("-inf")
        self._kept_timer: asyncio.TimerHandle | None = None
        self._flushing = False
        self._fact_timer: asyncio.TimerHandle | None = None
        self._hurries = False
        self._asked: set[str] = set()

    def move(self, keys: Keys, orchestrator: str) -> None:
        """Write for another orchestrator, in the shard of these keys; call it before connecting."""
        self._keys, self._orchestrator = keys, orchestrator
        self._inbox_of = lru_cache(MAX_INBOXES)(keys.inbox)

    def listen(
        self, refused: OnRefusal, unconfirmed: OnUnconfirmed, fact_written: Callable[[], None]
    ) -> None:
        """Set the callbacks for questions that could not be written, for questions that may not have been
        written (None: for none), and for written facts; once."""
        self._refused, self._on_unconfirmed, self._fact_written = refused, unconfirmed, fact_written

    # ------------------------------------------------------------------ its connection

    @property
    def up(self) -> bool:
        """True if there is a connection."""
        return self._link is not None

    async def connect(self, url: str) -> Link:
        """Make the connection. Raises ConfigError or TransportError."""
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
        """Write, after connecting, what the old connection or server may have lost; then what waits.

        Facts that were not lost are then there twice; readers know a fact by its number. Questions that the
        server said it did not take are written again. For questions without a reply, the callback of `listen`
        decides: the caller knows whether anybody still waits for them.
        """
        now = time.monotonic()
        self._is_kept = False
        self.compressor.forget()
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
        """Write again the facts that were confirmed shortly before the loss: a failover may forget them.

        After many losses in a row, this happens a little later: the last such write may have been lost, too.
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
        """Close the connection, if there is one."""
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
        """Write what is queued, and wait up to `DRAIN_S` for the server to take it; nothing comes after."""
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
        self._make_frames()  # metrics that are counted when facts are made are counted for these, too
        left = self._facts.list_unconfirmed()
        if left and not self._keep(self._orchestrator, left):
            self._facts.give_up()

    # ------------------------------------------------------------------ what is queued

    def take_recipients(self) -> set[str]:
        """Return the schedulers that were asked since the last call."""
        asked, self._asked = self._asked, set()
        return asked

    def ask(
        self, schedulers: Sequence[str], decision: bytes, item: bytes, event: str = "tool:selecting"
    ) -> None:
        """Queue one question for several schedulers; it is written within this tick of the loop."""
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
        """Write the queued facts within this tick of the loop."""
        if not self._hurries:
            self._hurries = True
            asyncio.get_running_loop().call_soon(self._write_facts)

    def may_interlock(self) -> bool:
        """Return whether decisions may share a fact though others come between them.

        Not while many facts wait, as the server takes none: `MAX_WAITING` is then to bound each of them.
        """
        return self.reads_offsets and len(self._waiting) < MANY_WAITING

    @property
    def has_open_facts(self) -> bool:
        """True if facts wait, or are not yet confirmed."""
        return bool(self._waiting) or self._facts.is_begun

    def send(self, *commands: Sequence[Arg]) -> None:
        """Write commands whose replies do not matter, all or none; none without a connection."""
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
        if link is None:  # it was lost in this very tick: later callers see it by `up`
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
            return  # they wait until the server takes facts again: the timer is for the next try
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
        """Return the commands that write facts, with their tags.

        The first on a connection also set the stream's expiry, in the same write: a process that is killed
        right after it sets none any more.
        """
        tags = (self._facts_tag,) * len(facts)
        if self._is_kept:
            return facts, tags
        self._is_kept = True
        expiry = ("PEXPIRE", self._keys.facts(self._orchestrator), self.retention.expiry_ms)
        return [*facts, pack_command(expiry)], (*tags, None)

    def _commands_along(self, link: Link) -> list[bytes]:
        """Return commands that write facts with questions, if a frame is full or facts waited a while."""
        if len(self._waiting) < packing.MAX_ITEMS and time.monotonic() < self._along_at:
            return []
        return self._commands_of_facts(link)

    def _commands_of_facts(self, link: Link) -> list[bytes]:
        """Return the commands that write all waiting facts, to be sent next; none while they must wait."""
        if self._facts_refused:
            return []
        if (self._facts.is_begun or self._kept_timer is not None) and not self._is_last:
            return []
        self._stop_timer()
        if link.unsent > UNSENT_BYTES:
            self._fact_timer = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._write_facts)
            return []
        self._is_overdue = False
        return [self._command_of(*made) for made in self._make_frames()]

    def _make_frames(self) -> list[tuple[bytes, int]]:
        """Make frames of all waiting facts, which are unconfirmed from now on."""
        waiting, self._waiting = self._waiting, []
        return self._facts.add(waiting)

    def _command_of(self, frame: bytes, facts: int = 0) -> bytes:
        key = self._keys.facts(self._orchestrator)
        command = pack_command(("XADD", key, "*", *self.compressor.fields(frame, facts)))
        self.retention.add(len(command))
        return command

    def _write_unconfirmed(self, most: int | None = None) -> None:
        """Write the unconfirmed frames again, in order."""
        self._facts_tag = _Facts(self._facts_tag.tried + 1)
        commands = [self._command_of(frame) for frame in self._facts.list_unconfirmed()[:most]]
        if self._link is not None and commands:
            packed, tags = self._with_expiry(commands)
            self._link.write(b"".join(packed), tags)

    def _try_facts(self) -> None:
        """Write the oldest frame, to see whether the server takes facts; the others follow in order."""
        self._stop_timer()
        if self._link is None:
            return
        self._write_unconfirmed(1)
        self._is_trial = self._facts.is_begun
        if not self._is_trial:
            self._write_facts()

    def _write_rest(self) -> None:
        """Write the other frames: the server has taken the oldest."""
        self._is_trial = False
        if self._facts_refused:
            self._facts_refused = False
            _log.info("the server takes facts again")
        else:
            self._kept_written = time.monotonic()
        self._write_unconfirmed()

    def _on_facts_reply(self, reply: Any) -> None:
        if not isinstance(reply, ServerError):
            self.compressor.confirm(self._facts.confirm_oldest(), reply)
            self._fact_written()
            if self._is_trial:
                self._write_rest()
            if not self._facts.is_begun and (self._is_overdue or self._fact_timer is None):
                self._write_facts()
            return
        metrics.count(metrics.REFUSED_WRITES, "facts")
        self._is_kept = False  # perhaps there is no stream yet that could expire
        self.compressor.forget()
        self._facts_tag = _Facts(self._facts_tag.tried + 1)  # other replies under way do not count any more
        if not self._facts_refused:
            self._facts_refused = True
            _log.error(
                "the server refuses facts: they wait, and are tried again each second", error=str(reply)
            )
        if reply.code == "WRONGTYPE":  # the key is ours alone, and what it holds is no fact
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
