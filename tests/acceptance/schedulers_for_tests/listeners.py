"""They say in their reasons what they were told of the user's request; one does not ask for it."""

from toolgate_schedulers import Continue, Deny, ToolSelecting


class Reader:
    """Asks for it."""

    name = "reader"
    reads = ("request",)

    async def decide(self, call: ToolSelecting) -> Continue:
        """Tell it."""
        return Continue(reason=f"{call.phase}: {call.request}")


class Other:
    """Does not."""

    name = "other"

    async def decide(self, call: ToolSelecting) -> Continue:
        """Tell it."""
        return Continue(reason=f"{call.phase}: {call.request}{call.model_extra or ''}")


class Echo:
    """Denies, and says what the user asked for."""

    name = "echo"
    reads = ("request",)

    async def decide(self, call: ToolSelecting) -> Deny:
        """Say it."""
        return Deny(reason=f"asked for: {call.request or 'nothing'}")
