"""A scheduler that cannot decide about any call, and one that lets no request to an LLM go out."""

from toolgate_schedulers import Deny, scheduler


@scheduler(name="raising")
async def raising(call):
    """Raise whatever is asked."""
    raise LookupError(f"a secret of {call.tool_name}")


@scheduler(name="miser", tools=["llm:request"])
async def miser(call):
    """Deny each request."""
    return Deny(reason="the budget is used up")
