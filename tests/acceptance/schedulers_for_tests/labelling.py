"""A scheduler that labels sessions which read the web, and one that lets no labelled session send mail."""

from toolgate_schedulers import Continue, Deny, ToolSelecting, scheduler


@scheduler(name="provenance", tools=["fetch"], phases=["result"])
async def provenance(call: ToolSelecting):
    """What `fetch` gives comes from outside."""
    return Continue(session_labels={"source": ["untrusted"]})


class OutgoingMail:
    """Denies mail where something from outside was read, or where that is unknown."""

    name, tools, reads = "outgoing-mail", ("send_mail",), ("session_labels",)

    async def decide(self, call: ToolSelecting):
        """Look at the labels of the session."""
        if call.session_labels is None:
            return Deny(reason="nobody can say what this session has read")
        if "untrusted" in call.session_labels.get("source", ()):
            return Deny(reason="this session has read a page from outside")
        return Continue()
