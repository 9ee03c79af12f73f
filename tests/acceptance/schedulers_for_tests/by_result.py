"""A scheduler of results: a word in a result says what becomes of it.

Keys (`key-…`) are hidden, `withhold-me` withholds, `replace-me` gives another result, `hold-me` waits for a
second and then releases it, and `label-me` labels the session.
"""

import asyncio
import json
import re

from toolgate_schedulers import Continue, Deny, Hold, Mask, MaskedPart, Replace, scheduler

KEY = re.compile(r"key-[a-z0-9]+")
REASON, OTHER = "that leaves nobody's house", "something else"


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


def judge(call):
    """The verdict on a result."""
    words = json.dumps(call.result)
    if "withhold-me" in words:
        return Deny(reason=REASON)
    if "replace-me" in words:
        return Replace(result=OTHER, reason="it is shorter")
    parts = [
        MaskedPart(path, found.start(), found.end(), "a key")
        for path, text in texts(call.result)
        for found in KEY.finditer(text)
    ]
    return Mask(parts=tuple(parts), reason="keys are kept") if parts else Continue()


@scheduler(name="by_result", phases=["result"])
async def by_result(call):
    """By the first of its words; else the result is released."""
    if "hold-me" in json.dumps(call.result):
        yield Hold(seconds=20)
        await asyncio.sleep(1.0)
    yield judge(call)


@scheduler(name="by_words", tools=["turn:input"])
async def by_words(call):
    """The user's words: those with `forbidden` in them do not begin a turn."""
    forbidden = "forbidden" in call.tool_input["text"]
    return Deny(reason="that word is not said here") if forbidden else Continue()
