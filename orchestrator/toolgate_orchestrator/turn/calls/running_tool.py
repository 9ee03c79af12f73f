"""What a host sees of a tool while it runs: its name among those that run, and whose call it is.

Tools that delegate, and screens that show them, look up their own call in the coordinator's
`_tool_dispatch_contexts`, by the task that runs them; the token of the session names what runs, a delegation
by the agent that works. Both are Amplifier's; a coordinator that has neither is left alone.
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
    """Inside, the host sees that this task runs this call."""
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
    """The coordinator's own; one that nobody sees where it has none and takes none."""
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
