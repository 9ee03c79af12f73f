"""Hooks for tests: one refuses a call and one raises, both repeating what they hear; one stops calls."""

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


async def stops(_event: str, data: dict) -> HookResult:
    """Refuse what is about to run, and is named so."""
    if data.get("tool_input", {}).get("name") == "hook-stops":
        return HookResult(action="deny", reason="not now")
    return HookResult()


async def mount(coordinator, config=None) -> None:
    """Register them."""
    coordinator.hooks.register("tool:pre", stops, name="stops")
    coordinator.hooks.register("tool:selecting", refuses, name="refuses")
    coordinator.hooks.register("tool:pre", raises, name="raises")
