"""Holds in the shared store: kept before they are acknowledged, answered by any replica (DESIGN §5).

A stored hold has the verdict stream it belongs to, the question and its digest, so that a replica
that never saw the question can send (and sign) the final answer. `take` gives it to one only.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from toolgate_bus import codec
from toolgate_bus.errors import CodecError
from toolgate_bus.events import Failed, Hold, Verdict
from toolgate_bus.ports import Store

from toolgate_schedulers.api import HeldQuestion

__all__ = ["Asked", "StoredHolds"]

SLACK_SECONDS: Final = 5.0
"""A hold is kept a little longer than it lasts: the orchestrator alone says when it is over."""


class Asked(NamedTuple):
    """Where a question came from: all that an answer needs."""

    orchestrator: str
    item: codec.Item


class StoredHolds:
    """The holds of one scheduler; `send` writes a verdict on a question."""

    def __init__(self, store: Store, scheduler: str, send: Callable[[Asked, Verdict | Failed], None]) -> None:
        self._store, self._prefix, self._send = store, f"hold:{scheduler}:", send

    async def keep(self, asked: Asked, hold: Hold) -> None:
        """Store a hold; only then may its question be acknowledged."""
        value = codec.pack([asked.orchestrator, *asked.item[:3]])
        await self._store.put(self._key(asked.item.id, asked.item.phase), value, hold.seconds + SLACK_SECONDS)

    async def take(self, asked: Asked) -> bool:
        """Whether the hold was still there; it is not any longer."""
        return await self._store.take(self._key(asked.item.id, asked.item.phase)) is not None

    async def open(self) -> list[HeldQuestion]:
        """Those that wait right now, the soonest to run out first."""
        held = []
        for key in await self._store.keys(self._prefix):
            asked = _asked(await self._store.get(key))
            left = await self._store.seconds_left(key)
            if asked is None or left is None:
                continue
            try:
                question = codec.question(asked.item)
            except CodecError:
                continue
            held.append(HeldQuestion(question.id, question, max(0.0, left - SLACK_SECONDS)))
        return sorted(held, key=lambda one: (one.seconds_left, one.decision_id))

    async def answer(self, decision_id: str, verdict: Verdict) -> bool:
        """Send the final answer; False if the hold is gone: answered, withdrawn or run out."""
        try:
            id_ = bytes.fromhex(decision_id)
        except ValueError:
            return False
        for phase in (1, 0):
            asked = _asked(await self._store.take(self._key(id_, phase)))
            if asked is not None:
                self._send(asked, verdict)
                return True
        return False

    def _key(self, id_: bytes, phase: int) -> str:
        return f"{self._prefix}{id_.hex()}:{phase}"


def _asked(raw: bytes | None) -> Asked | None:
    try:
        stored: Any = codec.unpack(raw, codec.MAX_QUESTION + 1024) if raw is not None else None
    except CodecError:
        return None
    if not isinstance(stored, list) or len(stored) != 4:
        return None
    orchestrator, id_, phase, body = stored
    return Asked(orchestrator, codec.Item(id_, phase, body, None))
