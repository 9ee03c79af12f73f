"""One call of a tool in Strands: its arguments, its replacement and its result."""

from collections.abc import AsyncIterator
from contextvars import copy_context
from typing import Any

from strands.interrupt import InterruptException
from strands.middleware.stages import ExecuteToolContext
from strands.types._events import ToolInterruptEvent, ToolResultEvent

from toolgate_orchestrator.guard.callers import enter_tool
from toolgate_orchestrator.guard.ruling import Ruling
from toolgate_orchestrator.guard.streams import run_in


async def report(events: AsyncIterator[Any], ruling: Ruling) -> AsyncIterator[Any]:
    """Yield the tool's events and report its result. If another call ran, the result bears a notice."""
    last = None
    with enter_tool(ruling.at):
        context = copy_context()  # the tool runs in this context, the reader in its own
    try:
        while True:
            event = await run_in(context, anext(events, None))
            if event is None:
                break
            if isinstance(event, ToolInterruptEvent):  # the tool asks a person, then runs again
                ruling.release()
            elif isinstance(event, ToolResultEvent):
                last = event
                if ruling.notice:
                    event.tool_result["content"].insert(0, {"text": ruling.notice})
            yield event
    except InterruptException:
        ruling.release()
        raise
    except BaseException as error:
        ruling.fail(error)
        raise
    if last is not None and last.exception is not None:
        ruling.fail(last.exception)
    ruling.succeed(last.tool_result["content"] if last is not None else None)


def replace_call(context: ExecuteToolContext, ruling: Ruling) -> ExecuteToolContext:
    """Return the context with the call that was ruled on instead of the model's call."""
    use, tools = context.tool_use, tools_of(context.agent)
    tool = tools[ruling.tool] if ruling.tool != use["name"] else context.tool
    given = use["input"] if isinstance(use["input"], dict) else {}
    hidden = {name: value for name, value in given.items() if value is context.agent}
    use = {**use, "name": ruling.tool, "input": {**ruling.arguments, **hidden}}
    return context.replace(tool=tool, tool_use=use)


def arguments_of(context: ExecuteToolContext) -> dict[str, Any]:
    """Return the arguments without the agent itself, which a tool that a program calls gets as one of
    them."""
    given = context.tool_use["input"]
    given = given if isinstance(given, dict) else {"input": given}
    return {name: value for name, value in given.items() if value is not context.agent}


def tools_of(agent: Any) -> dict[str, Any]:
    """Return the agent's tools by name."""
    return {**agent.tool_registry.registry, **agent.tool_registry.dynamic_tools}
