"""Calls of tools that no loop makes, as by `amplifier tool invoke` or a host's own code: ruled on as well.

`execute` of each mounted tool is wrapped. A call by one of our loops was ruled on already, and passes once.
Any other call, also one that a running tool makes, is first put to the schedulers of the session's loop, and
so is its result. An error of which a part may not be seen is returned as a result that failed: an exception
would bear its whole text. If the session itself would be refused, the call is denied. Tools that are mounted
after the guard are not wrapped.
"""

import inspect
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextvars import ContextVar
from typing import Any, Final

from amplifier_core import ToolResult
from toolgate_bus.protocol.events import Decision

from toolgate_orchestrator.calls.call_session import CallSession
from toolgate_orchestrator.calls.open_call import Outcome
from toolgate_orchestrator.calls.refusal import reason_of, refuse_tool
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.question.call import Call
from toolgate_orchestrator.decision.results.given_result import CHANGED, GivenResult, withhold
from toolgate_orchestrator.turn.calls.ruled_output import (
    SentOutput,
    clean_fact,
    clean_failure,
    send_output,
    use_ruling,
)
from toolgate_orchestrator.turn.calls.tool_call import current_call
from toolgate_orchestrator.turn.calls.tool_output import ToolReport, as_tool_result, read_result
from toolgate_orchestrator.turn.session_tree import agents_of, place_of
from toolgate_orchestrator.turn.values.foreign_code import is_result, name_of, words_of
from toolgate_orchestrator.turn.values.messages import ToolCall, schema_of
from toolgate_orchestrator.turn.values.tool_signals import signals_of

NO_MAP: Final = "its arguments must be a map of names, so that rules can read them"
_WRAPPED: Final = "_toolgate_direct"
_PASSED: Final[ContextVar[ToolCall | None]] = ContextVar("toolgate_passed_call", default=None)
"""Call of a loop that runs here: its tool may make others."""

FindFault = Callable[[], Awaitable[str | None]]
"""Returns the reason that such a call must not run; None if it is to be ruled on. It raises nothing."""
FindGate = Callable[[], Gate | None]
"""Returns the gate of the session's loop; None for a loop that asks nobody."""


class _StandIn:
    """A tool whose `execute` is another one; everything else is the tool's own."""

    def __init__(self, tool: Any, execute: Callable[..., Awaitable[Any]]) -> None:
        self._tool, self.execute = tool, execute

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)


class DirectCalls:
    """Wraps the tools of one session."""

    def __init__(self, coordinator: Any, fault: FindFault, gate: FindGate) -> None:
        self._coordinator, self._fault, self._gate = coordinator, fault, gate
        self._schemas: dict[str, Any] = {}
        self._executes: dict[str, Callable[[Any], Any]] = {}

    async def wrap(self) -> None:
        """Wrap the tools that are mounted now."""
        coordinator = self._coordinator
        for name, tool in dict(coordinator.get("tools") or {}).items():
            self._schemas[name] = schema_of(tool)
            if (execute := self._make_execute(name, tool)) is None:
                continue
            try:
                tool.execute = execute
            except (AttributeError, TypeError):  # it takes no attributes: another object replaces it
                await coordinator.mount("tools", _StandIn(tool, execute), name=name)

    def _make_execute(self, name: str, tool: Any) -> Callable[..., Awaitable[Any]] | None:
        """Return the function that replaces its `execute`; None if it has none, or is wrapped already."""
        own = getattr(tool, "execute", None)
        if own is None or hasattr(own, _WRAPPED):
            return None

        async def execute(arguments: Any, *more: Any, **named: Any) -> Any:
            call = current_call()
            if call is None or call is _PASSED.get() or call.name != name or call.arguments is not arguments:
                return await self._rule(name, arguments)
            token = _PASSED.set(call)
            try:
                return await _finish(own(arguments, *more, **named))
            finally:
                _PASSED.reset(token)

        setattr(execute, _WRAPPED, True)
        self._executes[name] = own
        return execute

    async def _rule(self, name: str, arguments: Any) -> Any:
        if (why := await self._fault()) is not None:
            return _refuse(why)
        gate = self._gate()
        if gate is None:
            return await self._execute(name, arguments)
        if not isinstance(arguments, Mapping):
            return await self._execute(name, arguments) if not gate.ruled else _refuse(NO_MAP)
        place, agents = place_of(self._coordinator), agents_of(getattr(self._coordinator, "config", None))
        call_id = f"direct-{uuid.uuid4().hex}"
        call, session = (
            Call(name, arguments, self._schemas, place, call_id, available_agents=agents),
            CallSession(gate),
        )
        decision = await session.rule(call)
        if decision is not None and not decision.allowed:
            return _refuse(reason_of(decision))
        ruled = _DirectCall(gate, session, call, decision)
        if decision is None:
            return await ruled.run(self._execute(name, dict(arguments)))
        return await ruled.run(self._execute(decision.tool_name, decision.tool_input))

    async def _execute(self, name: str, arguments: Any) -> Any:
        return await _finish(self._executes[name](arguments))


class _DirectCall:
    """One call that was let through, until its result is given."""

    def __init__(self, gate: Gate, session: CallSession, call: Call, decision: Decision | None) -> None:
        self._gate, self._session, self._call, self._decision = gate, session, call, decision
        self._opened = None if decision is None else session.open(call, decision)
        self._tool = call.tool if decision is None else decision.tool_name

    async def run(self, running: Coroutine[Any, Any, Any]) -> Any:
        """Run the tool, and return its result as it may be seen."""
        started = time.monotonic()
        told: dict[str, Any] = {}
        outcome: Outcome = "fail"
        spent: float | None = None
        failed: BaseException | None = None
        try:
            try:
                result = await running
            except BaseException as error:
                spent, kind, said = time.monotonic() - started, name_of(error), signals_of(error)
                if not is_result(error) or not self._gate.rules_on_result(self._tool):
                    told = {"error": kind, **said}
                    raise
                told, failed = {"error": kind}, error
            if failed is not None:  # outside of the handler: a cancellation bears no raw error
                given = await self._give(f"{kind}: {words_of(failed)}", success=False)
                told = clean_fact(given, {**told, **said})
                if not given.changed:
                    raise failed
                return _fail(clean_failure(given, kind)[1])
            spent, outcome, said = time.monotonic() - started, "succeed", _describe(result)
            if not self._gate.rules_on_result(self._tool):
                told = said
                return result
            told = {name: said[name] for name in ("success", "cost") if name in said}
            result, told = await self._rule_on(result, said)
            return result
        finally:
            if self._opened is not None:
                self._session.close(self._opened, outcome, told, spent)

    async def _rule_on(self, result: Any, told: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the result as it may be seen, and the fields of its fact."""
        try:
            report, sent = _read(result)
        except Exception as error:  # noqa: BLE001 - a foreign result, that nobody can rule on
            return _fail(f"the result of {self._tool} cannot be read: {name_of(error)}"), told
        given = await self._give(sent.value, success=report.success)
        if not given.changed and not _is_still(sent, result):
            given = withhold("gate_failed", CHANGED)
        told = clean_fact(given, told)
        if not given.changed:
            return result, told
        if given.outcome == "withheld":
            return _fail(str(given.value)), told
        seen = use_ruling(given, sent, report)
        return ToolResult.model_validate(seen.shown), told

    async def _give(self, result: Any, *, success: bool) -> GivenResult:
        return await self._session.give(self._call, self._decision, result, success=success)


def _read(result: Any) -> tuple[ToolReport, SentOutput]:
    read = as_tool_result(result)
    report = read_result(read)
    return report, send_output(read, report)


def _is_still(sent: SentOutput, result: Any) -> bool:
    """Return whether a result is still as it was when it was sent, in a copy."""
    try:
        return bool(_read(result)[1].value == sent.value)
    except Exception:  # noqa: BLE001 - a foreign result, that cannot be read any more
        return False


def _describe(result: Any) -> dict[str, Any]:
    try:
        told = read_result(as_tool_result(result))
    except Exception:  # noqa: BLE001 - a foreign result; its reservation is charged then
        return {"success": getattr(result, "success", True) is not False}
    return {"success": told.success, **({} if told.cost is None else {"cost": told.cost}), **told.signals}


def _refuse(why: str) -> ToolResult:
    return _fail(refuse_tool(why))


def _fail(message: str) -> ToolResult:
    return ToolResult(success=False, error={"message": message})


async def _finish(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
