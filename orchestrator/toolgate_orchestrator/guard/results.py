"""Results of a guard's calls, ruled on before anybody sees them; from any thread and any event loop.

    given = await ruling.succeed(result)            # in sync code: ruling.succeed(result).wait()
    raise await ruling.fail(error)

The end of the call is reported at once. What is awaited is the ruling: the result as it may be seen, which is
the very same object if nothing was hidden. Nobody who rules on results of the tool: nothing is asked, waited
for or copied.
"""

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn

from toolgate_bus.errors import ToolgateError
from toolgate_bus.telemetry.loggers import get_logger

from toolgate_orchestrator.calls.call_session import CallSession
from toolgate_orchestrator.guard.answer import AskHow, as_gate_asks
from toolgate_orchestrator.guard.callers import enter_tool
from toolgate_orchestrator.guard.gate_thread import BLOCKS, exchange, exchange_sync

if TYPE_CHECKING:
    from toolgate_orchestrator.decision.gate import Ask
    from toolgate_orchestrator.decision.results.given_result import GivenResult
    from toolgate_orchestrator.decision.round.decision_state import OnHold
    from toolgate_orchestrator.guard.ruling import Ruling

UNRULED: Final = (
    "a result was seen before it was ruled on, although a scheduler rules on results of this tool: write "
    "`await ruling.succeed(result)` and use what it gives, or `.wait()` in sync code; the same for "
    "ruling.fail(error)"
)
CLOSED: Final = "the guard was closed before it could be ruled on."
FAILED: Final = "the guard failed and could not rule on it."
UNWAITABLE: Final = (
    "it is read without await in the event loop that rules on it: use an async generator, or a guard without "
    "`async with`."
)
_log = get_logger("toolgate.guard")
_told: set[str] = set()


class EndReport:
    """Report of a call's end, which was made. Await it: it gives the result, or the error, as it may be seen.

    In code that is not async, `wait` gives the same, and each time after the first.
    """

    __slots__ = ("_begun", "_given", "_result", "_ruling", "_success")

    def __init__(self, ruling: "Ruling | None", result: Any, *, success: bool = True) -> None:
        """Make the report of a result or an error. If `ruling` is None, nobody rules on it."""
        self._ruling, self._result, self._success = ruling, result, success
        self._given: GivenResult | None = None
        self._begun = False

    def __await__(self) -> Generator[Any, Any, Any]:
        if self._ruling is None:
            return _at_once(self._result)
        return self._give().__await__()

    def wait(self) -> Any:
        """Return the result, or the error, as it may be seen; this thread is blocked meanwhile.

        Raises ToolgateError in the event loop that rules on it.
        """
        return self._result if self._ruling is None else self._show(self.given_sync())

    async def given(self) -> "GivenResult":
        """Return the result as it may be seen, what became of it, and what cleans copies of it."""
        self._begun = True
        if self._ruling is None:
            return _release(self._result)
        if self._given is None:  # it was not given so far, or the wait for it was cancelled
            self._given = await give(self._ruling, self._result, success=self._success)
        return self._given

    def given_sync(self) -> "GivenResult":
        """Return the same as `given`, for code that is not async. Raises ToolgateError as `wait` does."""
        self._begun = True
        if self._ruling is None:
            return _release(self._result)
        if self._given is None:
            self._given = give_sync(self._ruling, self._result, success=self._success)
        return self._given

    def given_now(self) -> "GivenResult":
        """Return the same as `given_sync`; withheld in the event loop that rules on it: nothing may wait."""
        ruling = self._ruling
        if ruling is None or self._given is not None or not ruling.reports.home.is_here:
            return self.given_sync()
        from toolgate_orchestrator.decision.results.given_result import withhold  # late: rarely needed

        self._begun, self._given = True, withhold("gate_failed", UNWAITABLE)
        return self._given

    def show_now(self) -> Any:
        """Return the same as `wait`, of what `given_now` gives."""
        return self._show(self.given_now())

    async def _give(self) -> Any:
        return self._show(await self.given())

    def _show(self, given: "GivenResult") -> Any:
        if self._success:
            return given.value
        from toolgate_orchestrator.decision.results.given_result import show_error  # late: rarely needed

        return show_error(self._result, given)

    def __del__(self) -> None:
        if getattr(self, "_begun", True) is False and self._ruling is not None and self._result is not None:
            warn_unruled(self._ruling.tool)


def warn_unruled(tool: str) -> None:
    """Log, once a process, that a result was seen before the ruling on it."""
    if not _told:
        _told.add(tool)
        _log.warning(UNRULED, tool=tool)


def _at_once(value: Any) -> Generator[Any, Any, Any]:
    return value
    yield


def _release(result: Any) -> "GivenResult":
    from toolgate_orchestrator.decision.results.given_result import GivenResult  # late: as in `Reports`

    return GivenResult(result)


# ---------------------------------------------------------------------- the ruling


async def give(
    ruling: "Ruling",
    result: Any,
    *,
    success: bool = True,
    ask: AskHow = None,
    on_hold: "OnHold | None" = None,
) -> "GivenResult":
    """Return a result as it may be seen. A cancellation withdraws the question."""
    home, how = ruling.reports.home, ask or ruling.asks_by
    request = partial(_give, ruling, result, success, on_hold)
    try:
        if home.is_here:
            asks = as_gate_asks(how)
            return await request(None if asks == "defer" else asks)
        if home.is_lost:
            raise ToolgateError(CLOSED)
        return await exchange(home, request, how, _drop, ())
    except Exception as error:  # noqa: BLE001 - a fault of ours; nobody may gain by it
        return give_on_fault(ruling, result, error)


def give_sync(ruling: "Ruling", result: Any, *, success: bool = True) -> "GivenResult":
    """Return a result as `give` does. Raises ToolgateError in the event loop that rules on it."""
    home, how = ruling.reports.home, ruling.asks_by
    if home.is_here:
        raise ToolgateError(BLOCKS)
    try:
        if home.is_lost:
            raise ToolgateError(CLOSED)
        return exchange_sync(home, partial(_give, ruling, result, success, None), how, _drop, ())
    except Exception as error:  # noqa: BLE001 - as above
        return give_on_fault(ruling, result, error)


async def _give(
    ruling: "Ruling", result: Any, success: bool, on_hold: "OnHold | None", ask: "Ask | None"
) -> "GivenResult":
    reports = ruling.reports
    gate = reports.home.gate
    if gate is None:
        raise ToolgateError(CLOSED)
    session = CallSession(gate, reports.presences.find(ruling.at.session))
    return await session.give(ruling.call, ruling.decision, result, success=success, ask=ask, on_hold=on_hold)


def give_on_fault(ruling: "Ruling", result: Any, error: Exception) -> "GivenResult":
    """Return a result that the guard could not have ruled on: withheld, unless `on_fault` is `continue`."""
    from toolgate_orchestrator.decision.faults import note_fault  # late: rarely needed
    from toolgate_orchestrator.decision.results.given_result import withhold

    if not isinstance(error, ToolgateError):
        note_fault("result", error)
    if ruling.reports.on_fault == "continue":
        return _release(result)
    return withhold("gate_failed", CLOSED if isinstance(error, ToolgateError) else FAILED)


def _drop(_: object) -> None:
    """Drop a ruling that came too late: nobody waits for the result any more."""


# ---------------------------------------------------------------------- errors


def raise_alone(error: BaseException) -> NoReturn:
    """Raise an error with the context that it has, whatever error is handled meanwhile.

    Call it, and ask about the error before, outside of the handler of a raw error. A cancellation that
    comes during the ruling would bear the raw one as its context, else.
    """
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context


async def run_tool(ruling: "Ruling", run: Callable[..., Awaitable[Any]], /, *args: Any, **kwargs: Any) -> Any:
    """Run a tool for the ruling's agent, and return its own result, which is not reported yet.

    What it raises is reported, and raised as it may be seen.
    """
    try:
        with enter_tool(ruling.at):
            return await run(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - raised below, as it may be seen
        ended = ruling.fail(error)
    raise_alone(await ended)


def run_tool_sync(ruling: "Ruling", run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Run a tool as `run_tool` does, for code that is not async."""
    try:
        with enter_tool(ruling.at):
            return run(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - raised below, as it may be seen
        ended = ruling.fail(error)
    raise_alone(ended.wait())
