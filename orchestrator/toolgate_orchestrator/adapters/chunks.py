"""A tool that gives its result in pieces: it has ended when the last one is out."""

from collections.abc import AsyncIterator
from typing import Any

from toolgate_orchestrator.guard.context import enter_tool
from toolgate_orchestrator.guard.ruling import Ruling


async def report_at_end(ruling: Ruling, chunks: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """The same pieces; the ruling is told of the end, of an error, and of a reader who goes away."""
    last = None
    try:
        while True:
            with enter_tool(ruling.at):  # around each step: a reader's context is its own
                try:
                    last = await anext(chunks)
                except StopAsyncIteration:
                    break
            yield last
    except BaseException as error:
        ruling.fail(error)
        raise
    ruling.succeed(last)
