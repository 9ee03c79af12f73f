"""Hooks for tests that repeat what they hear: one refuses a call so, one raises so."""

from amplifier_core import HookResult

__amplifier_module_type__ = "hook"


async def refuses(_event: str, data: dict) -> HookResult:
    """Refuse calls of `hook_denies`."""
    if data.get("tool_name") == "hook_denies":
        return HookResult(action="deny", reason=f"not with {data['tool_input']}")
    return HookResult()


async def raises(_event: str, data: dict) -> HookResult:
    """Break on calls of `hook_raises`."""
    if data.get("tool_name") == "hook_raises":
        raise RuntimeError(f"what is {data['tool_input']}")
    return HookResult()


async def mount(coordinator, config=None) -> None:
    """Register both."""
    coordinator.hooks.register("tool:selecting", refuses, name="refuses")
    coordinator.hooks.register("tool:pre", raises, name="raises")
