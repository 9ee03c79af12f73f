"""Finds the key of a server command. It connects to nothing, and loads no client."""

from collections.abc import Sequence
from typing import Final

from toolgate_bus.transport.ports import Arg

_THIRD: Final = frozenset({"XGROUP", "XINFO", "MEMORY", "OBJECT"})
_AFTER_STREAMS: Final = frozenset({"XREAD", "XREADGROUP"})
_SCRIPTS: Final = frozenset({"EVAL", "EVALSHA"})
_KEYLESS: Final = frozenset(
    {
        *("ACL", "CLIENT", "CLUSTER", "CONFIG", "DISCARD", "EXEC", "HELLO", "INFO", "LATENCY", "MULTI"),
        *("PING", "ROLE", "SCAN", "SCRIPT", "TIME", "WAIT", "WAITAOF"),
    }
)

Words = Sequence[Arg]


def key_of(command: Words) -> str | None:
    """Return the key by which a command is routed; None if it has none."""
    name = text_of(command[0]).upper()
    if name in _KEYLESS:
        return None
    if name in _SCRIPTS:
        return text_of(command[3]) if len(command) > 3 and int(command[2]) else None
    if name in _THIRD:
        return text_of(command[2]) if len(command) > 2 else None
    if name in _AFTER_STREAMS:
        words = [text_of(word).upper() for word in command]
        names = 4 if name == "XREADGROUP" else 1  # a group or its reader may have that name as well
        return text_of(command[words.index("STREAMS", names) + 1])
    return text_of(command[1]) if len(command) > 1 else None


def is_script(command: Words) -> bool:
    """Return whether a command runs a script, which may work on more keys than it is given."""
    return text_of(command[0]).upper() in _SCRIPTS


def text_of(word: Arg) -> str:
    """Return a word of a command as text; bytes that are not UTF-8 are escaped."""
    return word.decode("utf-8", "surrogateescape") if isinstance(word, bytes) else str(word)
