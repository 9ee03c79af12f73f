"""The kit's scheduler for results: what it rules on, and its source, which runs in a process of its own.

Agents and schedulers share no code: so it is a text here.
"""

from typing import Final

CODE_WORD: Final = "swordfish-99"
KEY: Final = "key-12345678"
YESTERDAY: Final = "an old tale"
FRESH: Final = "fresh news"
CLASSIFIED: Final = "vaults stay closed"
MARK: Final = "[withheld: key]"
PAGES: Final = {
    "vault": f"the vault holds {CODE_WORD} today",
    "keys": f"the door has {KEY} today",
    "news": f"yesterday there was {YESTERDAY} to tell",
}
"""What the tool `fetch` gives of each page; `broken` before the name has it raise that."""
SOURCE: Final = f"""
import re
from toolgate_schedulers import Continue, Deny, Mask, MaskedPart, Replace, scheduler

def texts(value, path=""):
    if isinstance(value, str):
        yield path, value
    for name, one in value.items() if isinstance(value, dict) else ():
        yield from texts(one, path + "/" + name.replace("~", "~0").replace("/", "~1"))
    for number, one in enumerate(value if isinstance(value, list) else ()):
        yield from texts(one, path + "/" + str(number))

@scheduler(name="results", phases=["result"], tools=["fetch"])
def results(call):
    found = list(texts(call.result))
    whole = " ".join(text for _, text in found)
    if "{CODE_WORD}" in whole:
        return Deny(reason="{CLASSIFIED}")
    if "{YESTERDAY}" in whole:
        return Replace(result="{FRESH}")
    keys = [(path, key) for path, text in found for key in re.finditer("{KEY}", text)]
    parts = [MaskedPart(path, key.start(), key.end(), "key") for path, key in keys]
    return Mask(parts=parts) if parts else Continue()
"""
