"""Announces the content blocks of a response as they grow: content_block:start, :delta, :end.

A block ends when the next one begins; the last one ends with the response and carries its usage and
the number of blocks, which is not known before. Text also goes to whoever listens to the turn
(`on_text`). A response that came in one piece is announced the same way, each text as one delta.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from amplifier_core.events import CONTENT_BLOCK_DELTA, CONTENT_BLOCK_END, CONTENT_BLOCK_START

from toolgate_orchestrator.turn.hook_dispatch import Emitter
from toolgate_orchestrator.turn.response import CallDone, Piece

__all__ = ["ContentBlocks", "OnText"]

OnText = Callable[[str], Awaitable[None]]
"""Takes each piece of the answer's text as it is produced."""

_EVENTS = (CONTENT_BLOCK_START, CONTENT_BLOCK_DELTA, CONTENT_BLOCK_END)


class ContentBlocks:
    """The blocks of one response on their way to the hooks."""

    def __init__(self, hooks: Emitter, provider: str, iteration: int, on_text: OnText | None = None) -> None:
        self._hooks, self._on_text = hooks, on_text
        self._told = {"provider": provider, "iteration": iteration}
        self._heard = any(hooks.heard(event) for event in _EVENTS)
        self._open: dict[str, Any] | None = None
        self._texts: list[str] = []
        self._index = 0

    async def take(self, piece: Piece) -> None:
        """Announce one piece of the response."""
        if self._on_text is not None and not isinstance(piece, CallDone) and piece.kind == "text":
            await self._on_text(piece.text)
        if not self._heard:
            return
        if isinstance(piece, CallDone):
            await self._call(piece.raw)
            return
        if self._open is None or self._open["type"] != piece.kind:
            await self._begin({"type": piece.kind})
        self._texts.append(piece.text)
        delta = {"type": piece.kind, "text": piece.text}
        await self._hooks.emit(
            CONTENT_BLOCK_DELTA, {**self._place(piece.kind), "delta": delta, "text": piece.text}
        )

    async def close(self, usage: Any = None) -> None:
        """The response is over: the last block ends."""
        await self._end(total=self._index + 1, usage=usage)

    async def _call(self, raw: Any) -> None:
        given = raw["arguments"]
        told = {"id": raw["id"], "name": raw["name"], "arguments": given, "input": given}
        await self._begin({"type": "tool_call", **told})

    async def _begin(self, block: dict[str, Any]) -> None:
        if self._open is not None:
            await self._end()
            self._index += 1
        self._open = block
        told = {key: block[key] for key in ("id", "name") if block.get(key)}
        await self._hooks.emit(
            CONTENT_BLOCK_START, {**self._place(block["type"]), "total_blocks": None, **told}
        )

    async def _end(self, total: int | None = None, usage: Any = None) -> None:
        block, self._open = self._open, None
        texts, self._texts = self._texts, []
        if block is None:
            return
        if texts:
            block |= {"text" if block["type"] == "text" else "thinking": "".join(texts)}
        told = {**self._place(block["type"]), "total_blocks": total, "block": block}
        await self._hooks.emit(CONTENT_BLOCK_END, told | ({"usage": usage} if usage else {}))

    def _place(self, kind: str) -> dict[str, Any]:
        return {**self._told, "block_type": kind, "block_index": self._index}
