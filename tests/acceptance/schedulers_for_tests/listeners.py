"""Two that say in their reasons what they were told of the user's request: one asks for it, one does not."""

from toolgate_schedulers import Continue, ToolSelecting


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
