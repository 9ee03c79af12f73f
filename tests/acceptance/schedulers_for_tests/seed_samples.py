"""The samples of seed loop-events as they stand there; what they leave open is filled in."""

from toolgate_schedulers import HookResult

BUDGET = 10
COSTS = {"render_video": 100}


async def scheduler_hook(event: str, data: dict) -> HookResult:
    """Vetoes an expensive tool, replaces a slow one."""
    if data["tool_name"] == "expensive_operation":
        # Veto expensive tool
        return HookResult(action="deny", reason="Cost limit exceeded")

    if data["tool_name"] == "slow_tool":
        # Modify to faster alternative
        return HookResult(action="modify", data={"tool": "fast_tool", "arguments": {"quick": True}})

    # Allow tool
    return HookResult(action="continue")


def estimated_cost(tool: str) -> int:
    """What a call of a tool costs."""
    return COSTS.get(tool, 1)


async def cost_scheduler(event: str, data: dict) -> HookResult:
    """Enforces cost constraints."""
    if estimated_cost(data["tool_name"]) > BUDGET:
        return HookResult(action="deny", reason="Budget exceeded")
    return HookResult(action="continue")


async def router_scheduler(event: str, data: dict) -> HookResult:
    """Routes a search to the specialized implementation."""
    if data["tool_name"] == "web_search":
        # Route to specialized search service
        return HookResult(action="modify", data={"tool": "advanced_search", "arguments": data["tool_input"]})
    return HookResult(action="continue")


async def low(event: str, data: dict) -> HookResult:
    """Also wants another tool for the shell, but not as much."""
    if data["tool_name"] == "bash":
        return HookResult(action="modify", priority=5, data={"tool": "slow_tool", "arguments": {"by": "low"}})
    return HookResult(action="continue")


async def high(event: str, data: dict) -> HookResult:
    """Higher priority scheduler wins."""
    if data["tool_name"] == "bash":
        return HookResult(
            action="modify", priority=10, data={"tool": "fast_tool", "arguments": {"by": "high"}}
        )
    return HookResult(action="continue")
