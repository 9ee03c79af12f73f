"""Results that come in pieces and are ruled on: gathered first, as nobody may see a piece before that."""

import types
from collections.abc import Awaitable, Generator
from contextvars import Context
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from toolgate_orchestrator.guard.results import EndReport, raise_alone

if TYPE_CHECKING:
    from toolgate_orchestrator.decision.results.given_result import GivenResult
    from toolgate_orchestrator.guard.ruling import Ruling


_TEXTS: Final = (str, bytes, bytearray, memoryview)


class GatheredPieces:
    """Pieces of a stream that are ruled on as one result.

    Neighbouring texts and bytes make one, as their reader joins them. If there is nothing else, it is the
    result, otherwise a part of a list. After a ruling that changed it, each such text is one piece, in bytes
    if it was. Beyond the bound nothing more is read, as nobody may see it.
    """

    def __init__(self, limit: int) -> None:
        self.pieces: list[Any] = []
        self._left = limit
        self._joined: list[Any] = []
        self._is_apart = False
        """True if the body returned what does not go on with its last text."""

    def add(self, piece: Any) -> bool:
        """Add a piece. Return whether more may be read."""
        if isinstance(piece, bytearray | memoryview):  # its owner may fill it anew for the next piece
            piece = bytearray(piece) if isinstance(piece, bytearray) else memoryview(bytes(piece))
        self.pieces.append(piece)
        self._left -= max(1, _measure(piece, self._left))
        return self._left >= 0

    def as_result(self, returned: Any = None) -> Any:
        """Return the one result that is ruled on; a value that the body returned is its last piece."""
        before = next((one for one in reversed(self.pieces) if one is not None), None)
        goes_on = isinstance(returned, _TEXTS) and isinstance(before, _TEXTS)
        self._is_apart = returned is not None and not goes_on
        found = _join([*self.pieces, returned] if goes_on else self.pieces)
        self._joined = [*found, *_join([returned])] if self._is_apart else found
        is_text = len(self._joined) == 1 and isinstance(self._joined[0], str | bytes)
        return self._joined[0] if is_text else self._joined

    @property
    def last(self) -> Any:
        """Last piece; None if there is none."""
        return self.pieces[-1] if self.pieces else None

    def show(self, given: "GivenResult", returned: Any = None) -> tuple[list[Any], Any]:
        """Return the pieces as they may be seen, and the value that the body returned."""
        if not given.changed:
            return self.pieces, returned
        shown = list(given.value) if type(given.value) is list else [given.value]
        forms = self._joined
        is_whole = len(shown) == len(forms)
        if not is_whole:  # it was withheld or replaced
            forms = [next(iter(forms), None)] * len(shown)
        shown = [
            one.encode() if type(form) is bytes and type(one) is str else one
            for one, form in zip(shown, forms, strict=True)
        ]
        return shown, shown.pop() if self._is_apart and is_whole else None


def _join(pieces: list[Any]) -> list[Any]:
    """Return pieces with neighbouring texts as one; bytes if any of them is. None among texts is left out."""
    found = list[Any]()
    for are_texts, group in groupby(pieces, lambda one: one is None or isinstance(one, _TEXTS)):
        run = list(group)
        texts = [one for one in run if one is not None]
        if not are_texts or not texts:
            found += run
        elif all(isinstance(one, str) for one in texts):
            found.append("".join(texts))
        else:
            found.append(b"".join(map(_bytes_of, texts)))
    return found


def _measure(piece: Any, limit: int) -> int:
    """Return the bytes of a piece; of one that takes more than `limit`, perhaps another number above it."""
    if not isinstance(piece, str):
        if isinstance(piece, _TEXTS):
            return len(piece)
        from toolgate_orchestrator.decision.results.outgoing_result import measure  # late: rarely needed

        return measure(piece, limit)
    return len(piece) if len(piece) > limit or piece.isascii() else len(_bytes_of(piece))


def _bytes_of(text: Any) -> bytes:
    return str.encode(text, errors="replace") if isinstance(text, str) else memoryview(text).tobytes()


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
    except BaseException as error:  # noqa: BLE001 - raised below, as it may be seen
        ended = ruling.fail(error)
    else:
        ruling.report(gathered.last if returned is None else returned, is_ruled_on=True)
        given = EndReport(ruling, gathered.as_result(returned)).given_now()
        pieces, returned = gathered.show(given, returned)
        for piece in pieces:
            yield piece
        return returned
    return raise_alone(ended.show_now())


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
    except BaseException as error:  # noqa: BLE001 - raised below, as it may be seen
        ended = ruling.fail(error)
    else:
        ruling.report(gathered.last, is_ruled_on=True)
        return gathered.show(await EndReport(ruling, gathered.as_result()).given())[0]
    return raise_alone(await ended)


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
