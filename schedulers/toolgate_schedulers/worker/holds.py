"""Keep holds in the shared store: stored before they are acknowledged, answered by any replica.

A stored hold names its orchestrator and contains its question, so that a replica that never saw the question
can send (and sign) the final answer. The answer is written before the hold is deleted. A replica
that dies in between leaves a hold that is answered once more: that does no harm, and no answer is lost. A
short lease keeps two replicas from answering at once.
"""

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import anyio
from toolgate_bus.errors import CodecError, OutcomeUnknown, ToolgateError, TransportError
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import Deny, Failure, Hold, Phase, Verdict
from toolgate_bus.protocol.keys import hold_prefix
from toolgate_bus.transport.ports import Store
from toolgate_bus.transport.redis.tasks import Backoff

from toolgate_schedulers.author.scheduler import HeldQuestion

SLACK_SECONDS: Final = 5.0
"""Seconds that a hold is stored longer than it lasts: the orchestrator alone says when it is over."""
LEASE_SECONDS: Final = 2.0
"""Seconds that one replica alone may answer a hold."""
ANSWER_SECONDS: Final = 3.0
"""Seconds for which `answer` tries: longer than the lease of a replica that died."""
FORGET_SECONDS: Final = 1.0
"""Seconds for which deleting a hold is tried."""
MIN_SECONDS: Final = 0.02
"""Shortest time for one try, in seconds."""

Result = TypeVar("Result")

_LATEST_FIRST: Final = (5, 4, 2, 3, 1, 0)
"""Numbers of the phases in items, the latest in the life of a call first."""
KEEPING_SHARE: Final = 0.8
"""Share of the asker's patience in which a hold must be stored; the rest is for the way back."""


class ReplyTo(NamedTuple):
    """Address of an answer: the orchestrator that asked, and its question."""

    orchestrator: str
    item: packing.Item


Send = Callable[[ReplyTo, Verdict | Failure], Awaitable[None]]
"""Writes a verdict on a question, and returns when the bus has it. Raises TransportError."""


class StoredHolds:
    """The holds of one scheduler."""

    def __init__(self, store: Store, scheduler: str, send: Send) -> None:
        self._store, self._prefix, self._send = store, hold_prefix(scheduler), send

    async def keep(self, asked: ReplyTo, hold: Hold, until: float = 0.0) -> None:
        """Store a hold. Only after that may its question be acknowledged.

        Tries until `until` (`time.monotonic`), at least once, and then raises ToolgateError. The hold
        may be stored all the same: `forget` it.
        """
        value = packing.pack([asked.orchestrator, *asked.item[:3]])
        key, seconds = self._key(asked.item.id, asked.item.phase), hold.seconds + SLACK_SECONDS
        await _again(lambda: self._store.put(key, value, seconds), until)

    async def keep_again(self, asked: ReplyTo, held_until: float | None, until: float) -> None:
        """Store a hold anew until `held_until` (`time.monotonic`), when the gate asks again."""
        if held_until is not None and (left := held_until - time.monotonic()) > 0:
            # If this fails, the asker still sees no hold, and asks again.
            with contextlib.suppress(ToolgateError):
                await self.keep(asked, Hold(seconds=left), until)

    async def forget(self, asked: ReplyTo) -> None:
        """Delete a hold for which nobody waits. A store that is away forgets it when its time runs out."""
        await self._forget(self._key(asked.item.id, asked.item.phase))

    async def open(self, decision_id: str | None = None) -> list[HeldQuestion]:
        """Return the open holds, as `Holds.open` does."""
        if decision_id is None:
            keys = await self._store.keys(self._prefix)
        else:
            keys = [f"{self._prefix}{decision_id}:{phase}" for phase in range(len(packing.PHASES))]
        held = []
        for key, (raw, left) in zip(keys, await self._store.read_many(keys), strict=True):
            asked = self._decode(key, raw)
            if asked is None or left is None:
                continue
            try:
                question = codec.question(asked.item._replace(version=packing.NEWEST))  # the more tolerant
            except CodecError:
                continue
            left = max(0.0, left - SLACK_SECONDS)
            held.append(HeldQuestion(question.id, question, left, asked.orchestrator))
        return sorted(held, key=lambda one: (one.seconds_left, one.decision_id))

    async def is_kept(self, decision_id: str, phase: Phase, *, again: bool = False) -> bool:
        """Return whether this hold is stored right now."""
        place = f"{self._prefix}{decision_id}:{packing.NUMBERS[phase, again]}"
        return await self._store.get(place) is not None

    async def answer(
        self, decision_id: str, verdict: Verdict, phase: Phase | None = None, *, again: bool = False
    ) -> bool:
        """Send the final answer. Return False if the hold is gone: answered, withdrawn or run out.

        Raises TransportError if the answer may not have been sent: answer again.
        """
        try:
            id_ = bytes.fromhex(decision_id)
        except ValueError:
            return False
        numbers = _LATEST_FIRST if phase is None else (packing.NUMBERS[phase, again],)
        keys = [self._key(id_, number) for number in numbers]
        return await self._give(keys, verdict, time.monotonic() + ANSWER_SECONDS)

    async def finish(self, asked: ReplyTo, verdict: Verdict | Failure, until: float) -> bool:
        """Answer as `answer` does, from the replica that holds. Tries until `until` (`time.monotonic`)."""
        return await self._give(
            [self._key(asked.item.id, asked.item.phase)], verdict, until, asked.item.version
        )

    async def _give(
        self, keys: Sequence[str], verdict: Verdict | Failure, until: float, version: int = packing.VERSION
    ) -> bool:
        """Answer the first of these holds that is stored.

        A stored hold does not tell the version of its question. Other replicas answer in version 1, which
        every orchestrator reads.
        """
        mine = secrets.token_bytes(8)

        async def once() -> str | None:
            for key in keys:
                is_there = len(keys) == 1 or await self._store.get(key) is not None
                if is_there and await self._give_once(key, verdict, mine, version):
                    return key
            return None

        given = await _again(once, until)
        if given is not None:
            await self._forget(given)
        return given is not None

    async def _give_once(self, key: str, verdict: Verdict | Failure, mine: bytes, version: int) -> bool:
        lease = f"answering:{key}"
        leased, stored = await self._store.lease(key, lease, mine, LEASE_SECONDS)
        asked = self._decode(key, stored)
        if asked is None:
            if leased:  # it may be stored in a moment, and is answered then
                await self._store.delete(lease)
            return False
        if asked.item.phase not in packing.KNOWN_PHASES[version]:
            version = packing.NEWEST
        if not leased:
            raise TransportError("another replica is answering this hold: answer again in two seconds")
        await self._send(asked._replace(item=asked.item._replace(version=version)), verdict)
        return True

    async def _forget(self, key: str) -> None:
        with contextlib.suppress(ToolgateError):
            await _again(lambda: self._store.delete(key), time.monotonic() + FORGET_SECONDS)

    def _decode(self, key: str, raw: bytes | None) -> ReplyTo | None:
        """Return the hold stored under `key`; None if there is none, or it belongs to another question."""
        asked = _decode_reply_to(raw)
        is_own = asked is not None and key == self._key(asked.item.id, asked.item.phase)
        return asked if is_own else None

    def _key(self, id_: bytes, phase: int) -> str:
        return f"{self._prefix}{id_.hex()}:{phase}"


def deny_unstored(scheduler: str) -> Deny:
    """Return the denial of a call whose hold cannot be stored.

    If an optional scheduler stayed silent instead, the call would run.
    """
    return Deny(
        reason=f"{scheduler} must wait for an answer to this call, but cannot store the wait at the moment. "
        "Try again later."
    )


async def _again(act: Callable[[], Awaitable[Result]], until: float) -> Result:
    """Act until the bus has done it. After `until` (`time.monotonic`), raise its last error.

    One try takes at most half of the time that is left, so that after a command that hangs another try can
    be made over another connection. So `act` must do no harm when it is done twice.
    """
    backoff = Backoff()
    while True:
        left = until - time.monotonic()
        try:
            async with asyncio.timeout(max(left / 2, MIN_SECONDS)):
                return await act()
        except TimeoutError:
            failed: TransportError = OutcomeUnknown("the server did not answer in time")
        except TransportError as error:
            failed = error
        left = until - time.monotonic()
        if left <= 0:
            raise failed
        with anyio.move_on_after(left):
            await backoff.wait()


def _decode_reply_to(raw: bytes | None) -> ReplyTo | None:
    try:
        stored: Any = packing.unpack(raw, packing.MAX_QUESTION + 1024) if raw is not None else None
    except CodecError:
        return None
    if not isinstance(stored, list) or len(stored) != 4:
        return None
    orchestrator, id_, phase, body = stored
    if not (isinstance(orchestrator, str) and isinstance(phase, int)):
        return None
    if not (isinstance(id_, bytes) and isinstance(body, bytes)):
        return None
    return ReplyTo(orchestrator, packing.Item(id_, phase, body, None))
