"""Schedulers that say by `when` which calls concern them, and deny those."""

from toolgate_schedulers import Deny, ToolSelecting, scheduler


@scheduler(name="choosy", tools=["pay", "send"], when={"amount": {"gt": 100}})
async def large(call: ToolSelecting) -> Deny:
    """Deny what comes."""
    return Deny(reason=f"{call.tool_input['amount']} is too much")


class Mistaken:
    """Names an operator that conditions do not have."""

    name = "mistaken"
    when = {"amount": {"above": 100}}  # noqa: RUF012 - as an author writes it

    async def decide(self, call: ToolSelecting) -> Deny:
        """Deny what comes."""
        return Deny(reason="no")
