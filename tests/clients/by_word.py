"""A scheduler for tests of coding agents: a word in a call's arguments says what it answers."""

import asyncio
import json

from toolgate_schedulers import AskUser, Continue, Deny, Modify, scheduler

REASON = "that word is not said here"
PROMPT = "May it say that word?"


@scheduler
async def by_word(call):
    """By the first of its words; else the call goes on."""
    text = json.dumps(call.tool_input)
    if "forbidden" in text:
        return Deny(reason=REASON)
    if "instead" in text:
        return Modify(tool=call.tool_name, arguments=json.loads(text.replace("instead", "replaced")))
    if "elsewhere" in text:
        return Modify(tool="another_tool", arguments={}, reason="faster")
    if "question" in text:
        return AskUser(prompt=PROMPT)
    if "forever" in text:
        await asyncio.sleep(60)
    return Continue()
