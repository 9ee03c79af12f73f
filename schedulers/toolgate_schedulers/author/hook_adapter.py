"""Run Amplifier hooks as schedulers: `async def hook(event, data) -> HookResult`, unchanged.

The hook gets a copy of the call as the loop's `tool:selecting` payload, in every spelling in use
(`tool`/`tool_name`, `arguments`/`tool_input`). Its result is read in every spelling as well, and values
that the hook does not change stay as they are. As in the kernel, None means continue, and only `modify`
replaces. An injection has no way back over the bus, so `inject_context` counts as continue.

`HookResult` keeps a `priority=`, which the kernel's own class silently drops. A modify carries it in
`data["priority"]`, where loops find it, in process as well. With amplifier-core installed `HookResult` is a
subclass of the kernel's class, otherwise a model with the same fields. It is made at its first use, so a
scheduler image without amplifier-core, or without hooks, does not pay for it.
"""

import copy
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import BaseModel, Field, PrivateAttr, ValidationError
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Modify, ToolSelecting, Verdict

from toolgate_schedulers.author.scheduler import Scheduler, in_thread

EVENT = "tool:selecting"


def from_hook(
    hook: Callable[..., Any],
    *,
    name: str | None = None,
    priority: int = 0,
    tools: str | Iterable[str] = ("*",),
    shadow: bool = False,
) -> Scheduler:
    """Return a scheduler that asks an Amplifier hook. The name defaults to the hook's own."""
    own = name if name is not None else str(getattr(hook, "__name__", type(hook).__name__))
    run: Callable[..., Awaitable[Any]] = hook
    if not (inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(type(hook).__call__)):
        run = in_thread(hook)

    async def decide(call: ToolSelecting) -> Verdict:
        result = await run(EVENT, hook_data(call))
        try:
            return verdict_of(result, call, own)
        except ValidationError:
            if getattr(result, "action", None) in ("continue", "inject_context"):
                raise
            return Deny(reason=f"{own} objected to {call.tool_name}, and its answer cannot be read")

    globs = cast("tuple[str, ...]", tools)
    return Scheduler(name=own, priority=priority, tools=globs, shadow=shadow, decide=decide)


def hook_data(call: ToolSelecting) -> dict[str, Any]:
    """Return the `tool:selecting` payload for a call: a copy, which the hook may change."""
    return {
        "tool_name": call.tool_name,
        "tool": call.tool_name,
        "tool_input": copy.deepcopy(call.tool_input),
        "arguments": copy.deepcopy(call.tool_input),
        "available_tools": list(call.available_tools),
        "available_agents": None if call.available_agents is None else list(call.available_agents),
        "agent_target": call.agent_target,
        "tool_call_id": call.tool_call_id,
        "session_id": call.session,
        "root_session_id": call.root_session,
        "parent_id": call.parent,
        "lineage": list(call.lineage),
        "agent": call.agent,
        "labels": dict(call.labels),
        "iteration": call.iteration,
        "parallel_group_id": call.parallel_group_id,
        "decision_id": call.id,
        "phase": call.phase,
        "truncated": call.truncated,
    }


def verdict_of(result: Any, call: ToolSelecting, name: str) -> Verdict:
    """Return the verdict for a hook's result, or for any object with the same attributes.

    Raise TypeError for other values, and pydantic's ValidationError for impossible ones.
    """
    action = "continue" if result is None else getattr(result, "action", None)
    if action in ("continue", "inject_context"):
        return Continue(reason=_text(result, "reason"), priority=_priority(result))
    if action == "deny":
        reason = _text(result, "reason") or f"{name} denied {call.tool_name}"
        return Deny(reason=reason, priority=_priority(result))
    if action == "modify":
        return _modify(result, call)
    if action == "ask_user":
        prompt = _text(result, "approval_prompt") or _text(result, "reason") or f"May {call.tool_name} run?"
        optional: dict[str, Any] = {}
        options = getattr(result, "approval_options", None)
        if isinstance(options, list | tuple) and options:
            optional["options"] = tuple(options)
        timeout = getattr(result, "approval_timeout", None)
        if isinstance(timeout, int | float):
            optional["timeout_s"] = timeout
        if getattr(result, "approval_default", None) == "allow":
            optional["default"] = "allow"
        return AskUser(prompt=prompt, reason=_text(result, "reason"), priority=_priority(result), **optional)
    raise TypeError(f"hook {name} gave {type(result).__name__} with action {action!r}: not a HookResult")


def _modify(result: Any, call: ToolSelecting) -> Verdict:
    data = _data(result)
    tool = _find_change(data, ("tool", "tool_name"), call.tool_name)
    arguments = _find_change(data, ("arguments", "tool_input"), call.tool_input)
    agent = _find_change(data, ("agent_target",), call.agent_target)
    reason, priority = _text(result, "reason"), _priority(result)
    if tool is None and arguments is None and agent is None:
        return Continue(reason=reason, priority=priority)
    return Modify(
        tool=call.tool_name if tool is None else tool,
        arguments=arguments,
        agent_target=agent,
        reason=reason,
        priority=priority,
    )


def _find_change(data: Mapping[str, Any], spellings: Iterable[str], sent: Any) -> Any:
    """Return the first changed value among these spellings; None if there is none.

    A hook that returns all its data, changed under one spelling, means that one.
    """
    return next((data[key] for key in spellings if data.get(key) is not None and data[key] != sent), None)


# Results may be mocks, which have every attribute: read only values of the right type.


def _data(result: Any) -> Mapping[str, Any]:
    data = getattr(result, "data", None)
    return data if isinstance(data, Mapping) else {}


def _text(result: Any, field: str) -> str | None:
    value = getattr(result, field, None)
    return value if isinstance(value, str) and value else None


def _priority(result: Any) -> int | None:
    for value in (_data(result).get("priority"), getattr(result, "priority", None)):
        if type(value) is int:
            return value
    return None


class _SameFields(BaseModel):
    """Fields of amplifier-core's HookResult, for when it is not installed."""

    action: Literal["continue", "deny", "modify", "inject_context", "ask_user"] = "continue"
    data: dict[str, Any] | None = None
    reason: str | None = None
    context_injection: str | None = None
    context_injection_role: Literal["system", "user", "assistant"] = "system"
    ephemeral: bool = False
    approval_prompt: str | None = None
    approval_options: list[str] | None = None
    approval_timeout: float = 300.0
    approval_default: Literal["allow", "deny"] = "deny"
    suppress_output: bool = False
    user_message: str | None = None
    user_message_level: Literal["info", "warning", "error"] = "info"
    user_message_source: str | None = None
    append_to_last_tool_result: bool = False
    context_injections: list[Any] = Field(default_factory=list)


@cache
def hook_result(base: type[BaseModel]) -> type[BaseModel]:
    """Make `HookResult` from a base with the kernel's fields."""

    class KernelHookResult(base):  # type: ignore[misc,valid-type]  # the base is known at run time only
        """Result of a hook: the kernel's HookResult, with a `priority` that is kept."""

        _priority: int | None = PrivateAttr(default=None)

        def __init__(self, *, priority: int | None = None, **fields: Any) -> None:
            # Only in the data of a modify: otherwise the kernel would take the priority for the data.
            if priority is not None and fields.get("action") == "modify" and fields.get("data") is not None:
                fields["data"] = {**fields["data"], "priority": priority}
            super().__init__(**fields)
            self._priority = priority

        @property
        def priority(self) -> int | None:
            """Priority given, if any."""
            return self._priority

    KernelHookResult.__name__ = KernelHookResult.__qualname__ = "HookResult"
    return KernelHookResult


if TYPE_CHECKING:

    class HookResult(_SameFields):
        """Result of a hook: the kernel's HookResult, with a `priority` that is kept."""

        priority: int | None = None


def __getattr__(name: str) -> Any:
    if name != "HookResult":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from amplifier_core import HookResult as KernelResult
    except ImportError:
        return hook_result(_SameFields)
    return hook_result(KernelResult)
