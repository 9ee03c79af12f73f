"""Shows a running tool to the host: its name among those that run, and the call that it runs for.

Tools that delegate, and screens that show them, look up their own call in the coordinator's
`_tool_dispatch_contexts`, by the task that runs them. The session's token names the running tools, a
delegation by the agent that works. Both belong to Amplifier; a coordinator without them is left alone.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from toolgate_orchestrator.turn.values.messages import ToolCall

_CONTEXTS: Final = "_tool_dispatch_contexts"
_DELEGATE: Final = "delegate"
_MAX_NAME: Final = 200


@contextmanager
def show_running(coordinator: Any | None, call: ToolCall) -> Iterator[None]:
    """Show the host, within the block, that this task runs this call."""
    token, task = getattr(coordinator, "cancellation", None), asyncio.current_task()
    contexts = _contexts_of(coordinator)
    if token is not None:
        token.register_tool_start(call.id, _shown_name(call))
    contexts[task] = {"tool_call_id": call.id, "parallel_group_id": call.group or None}
    try:
        yield
    finally:
        contexts.pop(task, None)
        if token is not None:
            token.register_tool_complete(call.id)


def _contexts_of(coordinator: Any | None) -> dict[Any, dict[str, Any]]:
    """Return the coordinator's contexts, or a dict that nobody sees if it has none and takes none."""
    known = getattr(coordinator, _CONTEXTS, None)
    if isinstance(known, dict):
        return known
    made: dict[Any, dict[str, Any]] = {}
    if coordinator is not None:
        with suppress(AttributeError, TypeError):
            setattr(coordinator, _CONTEXTS, made)
    return made


def _shown_name(call: ToolCall) -> str:
    agent = call.arguments.get("agent") if call.name == _DELEGATE else None
    return agent[:_MAX_NAME] if isinstance(agent, str) and agent else call.name
