"""Matches tools' names with globs: `*`, `?`, `[…]`, with regard to case. Pure.

An LLM may write a tool's name in other characters that mean the same (`ｂａｓｈ`). So a name is read as it
stands, and in the form NFKC. A rule that restricts counts if either reading matches; one that allows, if both
do.

A name that begins with `llm:`, `turn:` or `session:` is no tool's: only globs that begin so match it.
"""

import unicodedata
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from toolgate_bus.protocol.llm import globs_for
from toolgate_bus.protocol.names import RESERVED_PREFIXES

MAX_LENGTH: Final = 1024
"""Maximum number of characters of a tool's name; whether a longer name matches is unknown."""
SHORT: Final = 64
"""Maximum number of characters of remembered names. Longer ones come from an LLM, and are compared anew."""


def fits(globs: tuple[str, ...], name: str) -> bool | None:
    """Return whether a name matches one of the globs; None if its readings differ, or it is too long."""
    return _fits(globs, name) if len(name) <= SHORT else _compare(globs, name)


def _compare(globs: tuple[str, ...], name: str) -> bool | None:
    if name.isascii() and len(name) <= MAX_LENGTH:
        for glob in globs_for(name, globs):
            if glob == "*" or fnmatchcase(name, glob if glob.isascii() else plain(glob)):
                return True
        return False
    if "*" in globs and not plain(name[:MAX_LENGTH]).startswith(RESERVED_PREFIXES):
        return True
    if len(name) > MAX_LENGTH:
        return None
    raw = any(fnmatchcase(name, glob) for glob in globs_for(name, globs))
    same = any(fnmatchcase(plain(name), plain(glob)) for glob in globs_for(plain(name), globs))
    return raw if raw == same else None


_fits: Final = lru_cache(maxsize=4096)(_compare)
"""`_compare` with a memory: rules are few, and tools are called again."""


def either(globs: tuple[str, ...], name: str) -> bool:
    """Return whether a name matches one of the globs in either reading."""
    return fits(globs, name) is not False


@lru_cache(maxsize=1024)
def plain(name: str) -> str:
    """Return a name in the form NFKC, which replaces characters by the plain ones that mean the same."""
    return unicodedata.normalize("NFKC", name)
