"""They rule on what tools gave, on what the LLM answered and on what the user gets."""

from typing import Any

from toolgate_schedulers import Continue, Deny, Mask, MaskedPart, ToolSelecting

KEY = "sk-live-0123456789"


def places(value: Any, path: str = "") -> list[MaskedPart]:
    """Return the places of the key in a result."""
    if isinstance(value, str):
        at = value.find(KEY)
        return [] if at < 0 else [MaskedPart(path, at, at + len(KEY), "key")]
    items: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [part for name, one in items for part in places(one, f"{path}/{name}")]


class Censor:
    """Hides the key in results and answers."""

    name = "censor"
    tools = ("*", "llm:*")
    phases = ("result",)

    async def decide(self, call: ToolSelecting) -> Mask | Continue:
        """Mask what is found."""
        found = places(call.result)
        return Mask(parts=tuple(found)) if found else Continue()


class Doorkeeper:
    """Denies words of the user and of the agent."""

    name = "doorkeeper"
    tools = ("turn:*", "session:*")

    async def decide(self, call: ToolSelecting) -> Deny | Continue:
        """Deny what has the word."""
        return Deny(reason="not that word") if "forbidden" in str(call.tool_input) else Continue()
