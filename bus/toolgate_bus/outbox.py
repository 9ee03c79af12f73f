"""What an orchestrator writes over one connection: its questions, its facts, a word to its own reader.

All that is queued in one tick of the event loop goes out in one write, several questions for one inbox
as one frame. Facts that wait go along with the next questions, or a little later by themselves.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

import anyio

from toolgate_bus import codec, metrics
from toolgate_bus.facts_out import LATEST_S, FactsOut
from toolgate_bus.keys import Keys
from toolgate_bus.ports import Made
from toolgate_bus.redis_link import Arg, Link, ServerError, open_link, pack_command
from toolgate_bus.roster import BEAT_SECONDS

__all__ = ["Outbox"]

EARLY: Final = 32
"""So many questions for one inbox do not wait for the end of the tick: both sides can work at once."""
UNSENT_BYTES: Final = 8 * 1024 * 1024

Refused = Callable[[str, Sequence[bytes], str], None]
Waiting = tuple[str, tuple[bytes, ...]] | None
"""What a reply is waited for with: a question's scheduler and ids, one of the two below, or nothing."""
FACTS: Final[Waiting] = ("facts", ())
DRAIN: Final[Waiting] = ("drain", ())


class Outbox:
    """Owned by `RedisOrchestratorBus`, which makes its connection, and makes it again."""

    def __init__(self, keys: Keys, orchestrator: str) -> None:
        self._keys, self._orchestrator = keys, orchestrator
        self._link: Link | None = None
        self._replies: deque[Waiting] = deque()
        self._asks: dict[tuple[str, str], list[tuple[bytes, bytes]]] = {}
        self._facts = FactsOut()
        self._flushing = False
        self._fact_timer: asyncio.TimerHandle | None = None
        self._asked: set[str] = set()

    def listen(self, refused: Refused, fact_written: Callable[[], None]) -> None:
        """Say who is told of questions that could not be written, and of facts that were; once."""
        self._refused, self._fact_written = refused, fact_written

    # ------------------------------------------------------------------ its connection

    @property
    def up(self) -> bool:
        """Whether there is a connection."""
        return self._link is not None

    async def connect(self, url: str) -> Link:
        """Make the connection; raises ConfigError or TransportError."""
        link = await open_link(url, f"toolgate-orch-{self._orchestrator}-write", self._written)
        self._replies.clear()
        self._link = link
        return link

    def catch_up(self) -> None:
        """After connecting: what may have been lost with the old connection, in its order; then what waits.

        What was not lost is there twice then; readers know a fact by its number.
        """
        if self._link is not None:
            for frame in self._facts.unconfirmed():
                self._link.write(self._command_of(frame))
        self._write_facts()

    def drop(self) -> None:
        """Be without a connection; one that is still there is closed."""
        if self._link is not None:
            self._link.drop()
            self._link = None

    def drop_if_hung(self) -> None:
        """Close a connection on which nothing moves any more."""
        if self._link is not None:
            self._link.drop_if_hung()

    async def drain(self) -> None:
        """Write what is queued, and wait at most a second for the server to take it; nothing comes after."""
        self._flush()
        self._write_facts()
        self._stop_timer()
        if self._link is not None:
            self._drained = asyncio.Event()
            self._replies.append(DRAIN)
            self._link.write(pack_command(("PING",)))
            with anyio.move_on_after(1.0):
                await self._drained.wait()
        self._facts.frames()  # those that could not be written are counted nevertheless

    # ------------------------------------------------------------------ what is queued

    def asked(self) -> set[str]:
        """The schedulers that were asked since this was last called."""
        asked, self._asked = self._asked, set()
        return asked

    def ask(self, scheduler: str, decision: bytes, item: bytes, event: str) -> None:
        """Queue one question; it is written within this tick of the loop."""
        waiting = self._asks.setdefault((scheduler, event), [])
        waiting.append((decision, item))
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)
        elif len(waiting) == EARLY:
            self._write_asks()

    def fact(self, make: Callable[[], Made]) -> None:
        """Queue a fact, or several."""
        if self._facts.add(make) and self._fact_timer is None:
            self._fact_timer = asyncio.get_running_loop().call_later(LATEST_S, self._write_facts)

    def send(self, *command: Arg) -> None:
        """Write one command whose reply does not matter; nothing without a connection."""
        if self._link is not None:
            self._replies.append(None)
            self._link.write(pack_command(command))

    # ------------------------------------------------------------------ writing

    def _flush(self) -> None:
        self._flushing = False
        self._write_asks()

    def _write_asks(self) -> None:
        asks, self._asks = self._asks, {}
        if not asks:
            return
        link = self._link
        if link is None:
            for (scheduler, _), waiting in asks.items():
                self._refused(scheduler, [decision for decision, _ in waiting], "bus_down")
            return
        packed: list[bytes] = []
        for (scheduler, event), waiting in asks.items():
            self._asked.add(scheduler)
            inbox = self._keys.inbox(scheduler)
            ids = iter([decision for decision, _ in waiting])
            for part in codec.frames([item for _, item in waiting]):
                head = ("XADD", inbox, "*", "event", event, "orch", self._orchestrator)
                packed.append(pack_command((*head, "frame", codec.frame(part))))
                self._replies.append((scheduler, tuple(islice(ids, len(part)))))
        if self._facts.due:
            packed += self._commands_of_facts(link)
        link.write(b"".join(packed), len(packed))

    def _write_facts(self) -> None:
        self._stop_timer()
        if self._link is not None and self._facts.waiting:  # else they wait for the connection
            for command in self._commands_of_facts(self._link):
                self._link.write(command)

    def _commands_of_facts(self, link: Link) -> list[bytes]:
        """The commands that write all facts that wait, to be sent next; none while too much is unsent."""
        self._stop_timer()
        if link.unsent > UNSENT_BYTES:
            self._fact_timer = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._write_facts)
            return []
        return [self._command_of(frame) for frame in self._facts.frames()]

    def _command_of(self, frame: bytes) -> bytes:
        key = self._keys.facts(self._orchestrator)
        self._replies.append(FACTS)
        return pack_command(("XADD", key, "*", "event", "facts", "frame", frame))

    def _stop_timer(self) -> None:
        if self._fact_timer is not None:
            self._fact_timer.cancel()
            self._fact_timer = None

    def _written(self, reply: Any) -> None:
        waiting = self._replies.popleft()
        if waiting is FACTS:
            self._facts.confirmed()
            if isinstance(reply, ServerError):
                metrics.count(metrics.FACTS_DROPPED)
            else:
                self._fact_written()
        elif waiting is DRAIN:
            self._drained.set()
        elif waiting is not None and isinstance(reply, ServerError):
            self._refused(waiting[0], waiting[1], str(reply))
