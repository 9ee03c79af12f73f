"""A scheduler for tests of coding agents: a word in a call's arguments says what it answers."""

import asyncio
import json
import re

from toolgate_schedulers import AskUser, Continue, Deny, Mask, MaskedPart, Modify, Replace, scheduler

REASON = "that word is not said here"
PROMPT = "May it say that word?"
KEPT, OTHER = "that is kept in the house", "another result"
KEY = re.compile("key-[0-9]+")


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


def texts(value, path=""):
    """Each text of a result, with its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from texts(one, f"{path}/{name.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from texts(one, f"{path}/{at}")


@scheduler(phases=["result"])
async def by_result(call):
    """By the first word of a result: keys are hidden, others are withheld or replaced."""
    text = json.dumps(call.result)
    if "kept-word" in text:
        return Deny(reason=KEPT)
    if "other-word" in text:
        return Replace(result=OTHER)
    parts = [
        MaskedPart(path, found.start(), found.end(), "a key")
        for path, words in texts(call.result)
        for found in KEY.finditer(words)
    ]
    return Mask(parts=tuple(parts)) if parts else Continue()


@scheduler(tools=["turn:input"])
async def by_prompt(call):
    """The user's words: those with `unsaid` in them begin no turn."""
    return Deny(reason=REASON) if "unsaid" in call.tool_input["text"] else Continue()
