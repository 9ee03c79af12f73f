"""Results that come in pieces and are ruled on: gathered first, as nobody may see a piece before that."""

import types
from collections.abc import Awaitable, Generator
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any

from toolgate_orchestrator.guard.results import EndReport

if TYPE_CHECKING:
    from toolgate_orchestrator.decision.results.given_result import GivenResult
    from toolgate_orchestrator.guard.ruling import Ruling


class GatheredPieces:
    """Pieces of a stream that are ruled on as one result.

    Texts make one text. After a ruling that changed it, it is given as one piece. Other pieces make a list,
    and a list that was changed is given piece by piece. Beyond the bound nothing more is read, as nobody may
    see it.
    """

    def __init__(self, limit: int) -> None:
        self.pieces: list[Any] = []
        self._left = limit

    def add(self, piece: Any) -> bool:
        """Add a piece. Return whether more may be read."""
        self.pieces.append(piece)
        self._left -= len(piece) if isinstance(piece, str | bytes) else 2
        return self._left >= 0

    def as_result(self, returned: Any = None) -> Any:
        """Return the one result that is ruled on; a value that the body returned is its last piece."""
        found = [*self.pieces, returned] if returned is not None else self.pieces
        if found and all(type(one) is str for one in found):
            return "".join(found)
        return found

    @property
    def last(self) -> Any:
        """Last piece; None if there is none."""
        return self.pieces[-1] if self.pieces else None

    def show(self, given: "GivenResult") -> list[Any]:
        """Return the pieces as they may be seen."""
        if not given.changed:
            return self.pieces
        return list(given.value) if type(given.value) is list else [given.value]


def relay_gathered(ruling: "Ruling", body: Any, context: Context) -> Generator[Any, Any, Any]:
    """Yield the pieces of a sync stream that is ruled on."""
    gathered, returned = GatheredPieces(ruling.reports.home.result_bytes), None
    try:
        while True:
            try:
                piece = context.run(next, body)
            except StopIteration as end:
                returned = end.value
                break
            if not gathered.add(piece):
                context.run(getattr(body, "close", do_nothing))
                break
    except BaseException as error:
        shown = ruling.fail(error).show_now()
        if shown is error:
            raise
    else:
        ruling.report(gathered.last if returned is None else returned, is_ruled_on=True)
        given = EndReport(ruling, gathered.as_result(returned)).given_now()
        pieces = gathered.show(given)
        if given.changed and returned is not None:
            returned = pieces.pop() if len(pieces) > len(gathered.pieces) else None
        for piece in pieces:
            yield piece
        return returned
    raise shown


async def gather(ruling: "Ruling", body: Any, context: Context) -> list[Any]:
    """Return the pieces of an async stream as they may be seen."""
    gathered = GatheredPieces(ruling.reports.home.result_bytes)
    try:
        while True:
            try:
                piece = await run_in(context, body.__anext__())
            except StopAsyncIteration:
                break
            if not gathered.add(piece):
                if hasattr(body, "aclose"):
                    await run_in(context, body.aclose())
                break
    except BaseException as error:
        shown = await ruling.fail(error)
        if shown is error:
            raise
    else:
        ruling.report(gathered.last, is_ruled_on=True)
        return gathered.show(await EndReport(ruling, gathered.as_result()).given())
    raise shown


@types.coroutine
def run_in(context: Context, awaitable: Awaitable[Any]) -> Generator[Any, Any, Any]:
    """Await something whose steps run in this context, in the task that awaits it."""
    steps: Any = context.run(awaitable.__await__)
    step = partial(next, steps)
    while True:
        try:
            waits_for = context.run(step)
        except StopIteration as end:
            return end.value
        try:
            value = yield waits_for
        except BaseException as error:  # noqa: BLE001 - the steps receive any exception
            step = partial(steps.throw, error)
        else:
            step = partial(next, steps) if value is None else partial(steps.send, value)


def do_nothing() -> None:
    """Do nothing: there is nothing to close."""
