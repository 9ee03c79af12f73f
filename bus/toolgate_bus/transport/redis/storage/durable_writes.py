"""Writes that count only once enough replicas have them: one WAIT behind all writes of a batch.

Writes that come while others are under way are written together afterwards, over one connection. WAIT covers
what its own connection wrote, so a mark is written last, even after a repetition that changes nothing. Each
write must be repeatable. Nothing is undone here: the caller that learns of too few replicas does that.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import OutcomeUnknown, Refusal, TooFewReplicas, TransportError
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.ports import Arg, Commands, Durability
from toolgate_bus.transport.redis.client.refusals import refusal_of
from toolgate_bus.transport.redis.client.scripts import ATTEMPTS, is_not_loaded

MAX_TOGETHER: Final = 256
MARK_MS: Final = 60_000
_NOT_ALLOWED: Final = ("permission", "NOPERM", "unknown command", "not allowed", "not supported")

Words = Sequence[Arg]


class DurableReply(NamedTuple):
    """Reply to a write, and the reason why it does not count, if it does not."""

    reply: Any
    short: TransportError | None


class _Write(NamedTuple):
    command: Words
    script: str
    done: asyncio.Future[tuple[Any, Any]]


class DurableWriter:
    """Writes of one event loop, all for the same replicas."""

    def __init__(
        self,
        commands: Commands,
        durability: Durability,
        what: str,
        mark: str,
        unknown: Callable[[], None] | None = None,
    ) -> None:
        """`what` names the writes in the metric: `ledger` or `approvals`; `mark` is a key in the same slot.

        `unknown` is called each time that writes may have been done without a reply.
        """
        self._commands, self._durability, self._what = commands, durability, what
        self._unknown = unknown
        self._end: tuple[Words, Words] = (
            ("SET", mark, "", "PX", MARK_MS),
            ("WAIT", durability.replicas, durability.timeout_ms),
        )
        self._waiting: list[_Write] = []
        self._task: asyncio.Task[None] | None = None

    async def run(self, command: Words, script: str = "") -> DurableReply:
        """Write; `script` is the text of a script that may have to be loaded first.

        Raises TransportError if it was not written: TooFewReplicas if the server takes no writes for want of
        replicas.
        """
        done: asyncio.Future[tuple[Any, Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Write(command, script, done))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_all())
        reply, ended = await done
        if isinstance(reply, TransportError):
            raise reply
        if isinstance(reply, Exception):
            refused = refusal_of(command, reply)
            if isinstance(refused, TooFewReplicas):
                metrics.count(metrics.SHORT_WRITES, self._what)
            raise refused
        short = self._find_short(*ended)
        if short is not None:
            metrics.count(metrics.SHORT_WRITES, self._what)
        return DurableReply(reply, short)

    async def check(self) -> None:
        """Wait for replicas as after a write. Raises TooFewReplicas, Refusal or another TransportError."""
        short = self._find_short(*(await self._commands.pipeline(self._end)))
        if short is not None:
            raise short

    def _find_short(self, marked: Any, waited: Any) -> TransportError | None:
        if isinstance(marked, Exception):
            return refusal_of(self._end[0], marked)
        return explain_wait(waited, self._durability)

    async def _write_all(self) -> None:
        while self._waiting:
            taken, self._waiting = self._waiting[:MAX_TOGETHER], self._waiting[MAX_TOGETHER:]
            batch = [one for one in taken if not one.done.done()]  # nobody waits for the others any longer
            try:
                found = await self._write(batch) if batch else []
            except Exception as error:  # noqa: BLE001 - every waiting caller gets the error
                found = [(error, None)] * len(batch)
            for one, said in zip(batch, found, strict=True):
                if not one.done.done():
                    one.done.set_result(said)

    async def _write(self, batch: Sequence[_Write]) -> list[tuple[Any, Any]]:
        """Return each write's reply, and the server's replies to mark and WAIT."""
        for attempt in range(ATTEMPTS):
            try:
                *replies, marked, waited = await self._commands.pipeline(
                    [*(one.command for one in batch), *self._end]
                )
            except OutcomeUnknown:
                if self._unknown is not None:
                    self._unknown()
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            said = zip(batch, replies, strict=True)
            missing = {one.script for one, reply in said if one.script and is_not_loaded(reply)}
            if not missing:
                return [(reply, (marked, waited)) for reply in replies]
            for text in missing:
                await self._commands.execute("SCRIPT", "LOAD", text)
        raise TransportError("the script does not stay loaded")


def explain_wait(waited: Any, durability: Durability) -> TooFewReplicas | Refusal | None:
    """Return why a write does not count, by the reply to its WAIT; None if it counts."""
    if isinstance(waited, int) and waited >= durability.replicas:
        return None
    if isinstance(waited, Exception) and any(sign in str(waited) for sign in _NOT_ALLOWED):
        return Refusal(
            f"durability: the server does not let this user wait for replicas ({waited}): allow it the "
            "command WAIT (+wait, see deploy/redis/roles), or take durability out of the configuration"
        )
    have, wanted = waited if isinstance(waited, int) else 0, durability.replicas
    return TooFewReplicas(f"{have} of {wanted} replicas had it within {durability.timeout_ms} ms")
