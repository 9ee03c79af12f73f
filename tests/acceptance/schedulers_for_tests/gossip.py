"""Schedulers that tell all they see: in their logs, in their reasons, in what they raise."""

import logging

import structlog
from toolgate_schedulers import Continue, Deny, ToolSelecting, scheduler

ours = structlog.get_logger("gossip.structlog")
theirs = logging.getLogger("gossip.logging")


def tells(call: ToolSelecting):
    """Say everything."""
    ours.info("asked about", tool=call.tool_name, arguments=call.tool_input)
    theirs.warning("asked about %s: %s", call.tool_name, call.tool_input)
    if call.tool_name == "gossip_denies":
        return Deny(reason=f"nobody should {call.tool_input}")
    if call.tool_name == "gossip_raises":
        raise KeyError(str(call.tool_input))
    return Continue(reason=f"seen {call.tool_input}"[:500])


@scheduler(name="gossip", priority=5)
async def gossip(call: ToolSelecting):
    """Counts."""
    return tells(call)


@scheduler(name="onlooker", shadow=True)
async def onlooker(call: ToolSelecting):
    """Does not."""
    return tells(call)
