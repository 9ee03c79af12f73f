"""Which tools a glob is about: `*`, `?`, `[…]`, with regard to case. Pure.

An LLM may write a tool's name in other characters that mean the same (`ｂａｓｈ`): it is read as it
stands, and in the form NFKC. Who restricts goes by either reading; who allows, by both.

A name that begins with `llm:` is a request to an LLM (`protocol.llm`): only globs that begin so mean it.
"""

import unicodedata
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from toolgate_bus.protocol.llm import LLM, globs_for

MAX_LENGTH: Final = 1024
"""No tool has a longer name; one that has is told apart from no other."""
SHORT: Final = 64
"""Longer names are compared anew each time: they come from an LLM, and are kept nowhere."""


def fits(globs: tuple[str, ...], name: str) -> bool | None:
    """Whether a name matches one of these; None where its two readings differ, or it is too long."""
    return _fits(globs, name) if len(name) <= SHORT else _compare(globs, name)


def _compare(globs: tuple[str, ...], name: str) -> bool | None:
    if name.isascii() and len(name) <= MAX_LENGTH:
        for glob in globs_for(name, globs):
            if glob == "*" or fnmatchcase(name, glob if glob.isascii() else plain(glob)):
                return True
        return False
    if "*" in globs and not plain(name[:MAX_LENGTH]).startswith(LLM):
        return True
    if len(name) > MAX_LENGTH:
        return None
    raw = any(fnmatchcase(name, glob) for glob in globs_for(name, globs))
    same = any(fnmatchcase(plain(name), plain(glob)) for glob in globs_for(plain(name), globs))
    return raw if raw == same else None


_fits: Final = lru_cache(maxsize=4096)(_compare)
"""The same, remembered: rules are few, and tools are called again."""


def either(globs: tuple[str, ...], name: str) -> bool:
    """Whether a name matches one of these in either reading."""
    return fits(globs, name) is not False


@lru_cache(maxsize=1024)
def plain(name: str) -> str:
    """A name in the form NFKC: other characters that mean the same are these."""
    return unicodedata.normalize("NFKC", name)
