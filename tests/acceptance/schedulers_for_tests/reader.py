"""Schedulers that rule on what a call gave, and on the texts of a turn, by the words in it.

A result with `classified` in it is withheld, keys (`key-` and eight digits) are masked, `old news` are
replaced, `ask me` asks a person. The texts of a turn: `forbidden` is denied, `rude` becomes `kind`.
"""

import re

from toolgate_schedulers import (
    AskUser,
    Continue,
    Deny,
    Mask,
    MaskedPart,
    Modify,
    Replace,
    ToolSelecting,
    scheduler,
)

KEY = re.compile(r"key-\d{8}")


def texts(value, path=""):
    """Each text of a result, and its path."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from texts(one, f"{path}/{name}")
    elif isinstance(value, list):
        for number, one in enumerate(value):
            yield from texts(one, f"{path}/{number}")


@scheduler(name="reader", phases=["result"])
def reader(call: ToolSelecting):
    """Rule on a result."""
    found = list(texts(call.result))
    whole = " ".join(text for _, text in found)
    if "classified" in whole:
        return Deny(reason="it is classified")
    if "ask me" in whole:
        return AskUser(prompt="May it be seen?")
    if "old news" in whole:
        return Replace(result="fresh news", reason="old")
    parts = [MaskedPart(path, *key.span(), "key") for path, text in found for key in KEY.finditer(text)]
    return Mask(parts=parts, reason="keys stay here") if parts else Continue()


@scheduler(name="listener", tools=["turn:*"])
def listener(call: ToolSelecting):
    """Rule on a text of a turn."""
    text = call.tool_input["text"]
    if "forbidden" in text:
        return Deny(reason="that is not talked about")
    if "rude" in text:
        return Modify(tool=call.tool_name, arguments={"text": text.replace("rude", "kind")})
    return Continue()
