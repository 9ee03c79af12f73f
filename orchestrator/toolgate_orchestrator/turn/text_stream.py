"""The text of a turn as an asynchronous generator, while the turn runs beside it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import anyio

from toolgate_orchestrator.turn.content_blocks import OnText

__all__ = ["pieces_of"]

_AHEAD = 64
"""Pieces that may wait for a slow reader; then the turn waits with it."""


async def pieces_of(run: Callable[[OnText], Awaitable[str]]) -> AsyncGenerator[str, None]:
    """Each piece of text as it is produced, then the answer if it was not said piece by piece.

    `run` runs the turn and gives its answer. It is cancelled if the generator is closed.
    """
    tell, told = anyio.create_memory_object_stream[str](_AHEAD)

    async def turn() -> str:
        async with tell:
            return await run(tell.send)

    task = asyncio.ensure_future(turn())
    said = ""
    try:
        async with told:
            async for piece in told:
                said += piece
                yield piece
        answer = await task
        if not _plain(said).endswith(_plain(answer)):
            yield answer
    finally:
        if not task.done():
            task.cancel("nobody reads the answer any more")
            await asyncio.wait({task})


def _plain(text: str) -> str:
    """Without line breaks: an answer joins its text blocks by them."""
    return text.replace("\n", "")
