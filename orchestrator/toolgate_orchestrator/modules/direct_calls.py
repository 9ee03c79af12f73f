"""Calls of tools that no loop makes, as by `amplifier tool invoke` or a host's own code: ruled on as well.

`execute` of each mounted tool is wrapped. A call by one of our loops was ruled on already, and passes once.
Any other call, also one that a running tool makes, is first put to the schedulers of the session's loop. If
the session itself would be refused, the call is denied. Tools that are mounted after the guard are not
wrapped.
"""

import inspect
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

from amplifier_core import ToolResult

from toolgate_orchestrator.calls.call_session import CallSession
from toolgate_orchestrator.calls.refusal import reason_of, refuse_tool
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.question.call import Call
from toolgate_orchestrator.turn.calls.tool_call import current_call
from toolgate_orchestrator.turn.calls.tool_output import as_tool_result, read_result
from toolgate_orchestrator.turn.session_tree import agents_of, place_of
from toolgate_orchestrator.turn.values.foreign_code import name_of
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
        if decision is None:
            return await self._execute(name, dict(arguments))
        if not decision.allowed:
            return _refuse(reason_of(decision))
        opened = session.open(call, decision)
        try:
            result = await self._execute(decision.tool_name, decision.tool_input)
        except BaseException as error:
            session.close(opened, "fail", {"error": name_of(error), **signals_of(error)})
            raise
        session.close(opened, "succeed", _describe(result))
        return result

    async def _execute(self, name: str, arguments: Any) -> Any:
        return await _finish(self._executes[name](arguments))


def _describe(result: Any) -> dict[str, Any]:
    try:
        told = read_result(as_tool_result(result))
    except Exception:  # noqa: BLE001 - a foreign result; its reservation is charged then
        return {"success": getattr(result, "success", True) is not False}
    return {"success": told.success, **({} if told.cost is None else {"cost": told.cost}), **told.signals}


def _refuse(why: str) -> ToolResult:
    return ToolResult(success=False, error={"message": refuse_tool(why)})


async def _finish(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
