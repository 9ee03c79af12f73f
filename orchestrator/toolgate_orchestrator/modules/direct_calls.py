"""Calls of tools that no loop makes, as of `amplifier tool invoke` or a host's own code: ruled on as well.

`execute` of each mounted tool is wrapped. What one of our loops calls was ruled on and passes; any other call
is put to the schedulers of the session's loop first, and denied where the session itself would be refused.
Tools that are mounted after the guard are not wrapped.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from amplifier_core import ToolResult

from toolgate_orchestrator.gate.config import ToolgateConfig
from toolgate_orchestrator.guard.call import Call
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.turn.messages import schema_of
from toolgate_orchestrator.turn.tool_call import current_call

_WRAPPED: Final = "_toolgate_direct"

FindFault = Callable[[], Awaitable[str | None]]
"""Why such a call must not run; None where it is to be ruled on, and raises nothing."""
FindConfig = Callable[[], ToolgateConfig | None]
"""How the loop's calls are ruled on; None for a loop that asks nobody."""


class _StandIn:
    """A tool whose `execute` is another; everything else is the tool's own."""

    def __init__(self, tool: Any, execute: Callable[..., Awaitable[Any]]) -> None:
        self._tool, self.execute = tool, execute

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)


class DirectCalls:
    """Wraps the tools of one session."""

    def __init__(self, session: str, fault: FindFault, config: FindConfig) -> None:
        self._session, self._fault, self._config = session, fault, config
        self._schemas: dict[str, Any] = {}
        self._executes: dict[str, Callable[[Any], Any]] = {}
        self._guard: Guard | None = None

    async def wrap(self, coordinator: Any) -> None:
        """Wrap the tools that are mounted now."""
        for name, tool in dict(coordinator.get("tools") or {}).items():
            self._schemas[name] = schema_of(tool)
            if (execute := self._gate(name, tool)) is None:
                continue
            try:
                tool.execute = execute
            except (AttributeError, TypeError):  # it takes no attributes: another stands in its place
                await coordinator.mount("tools", _StandIn(tool, execute), name=name)

    def _gate(self, name: str, tool: Any) -> Callable[..., Awaitable[Any]] | None:
        """What is to be called instead of its `execute`; None if it has none, or is wrapped already."""
        own = getattr(tool, "execute", None)
        if own is None or hasattr(own, _WRAPPED):
            return None

        async def execute(arguments: Any, *more: Any, **named: Any) -> Any:
            if current_call() is not None:
                return await _finish(own(arguments, *more, **named))
            return await self._rule(name, arguments)

        setattr(execute, _WRAPPED, True)
        self._executes[name] = own
        return execute

    async def _rule(self, name: str, arguments: Any) -> Any:
        if (why := await self._fault()) is not None:
            return _refuse(f"The tool call was denied: {why}")
        config = self._config()
        if config is None or not isinstance(arguments, Mapping):
            return await self._execute(name, arguments)
        if self._guard is None:
            self._guard = Guard(config)
            await self._guard.__aenter__()  # rules in this loop; `aclose` ends it
        call = Call(name, dict(arguments), self._schemas, self._guard.at(self._session))
        return await self._guard.run(call, self._execute, denied=lambda ruling: _refuse(ruling.refusal))

    async def _execute(self, name: str, arguments: Any) -> Any:
        return await _finish(self._executes[name](arguments))

    async def aclose(self) -> None:
        """Write what was reported."""
        guard, self._guard = self._guard, None
        if guard is not None:
            await guard.aclose()


def _refuse(words: str) -> ToolResult:
    return ToolResult(success=False, error={"message": words})


async def _finish(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
