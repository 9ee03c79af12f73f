"""Which key decides where in a cluster a command goes, and what goes there together. It connects to nothing.

Commands without a key go where the command before them went, since some are about it (WAIT); those that ask
the server for its time go to the streams, whose entries are numbered by that clock.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from toolgate_bus.protocol.keys import streams_near
from toolgate_bus.transport.redis.client.command_keys import Words, key_of, text_of
from toolgate_bus.transport.redis.client.driver import key_slot

_WHOLE_TAG: Final = re.compile(r"[^*?\[\]\\{}]*\{[^*?\[\]\\{}]+\}")
"""The begin of a pattern that fits keys of one slot only."""

_WILD: Final = re.compile(r"[*?\[\\]")


class Part(NamedTuple):
    """What of a pipeline goes to the owner of one slot."""

    slot: int
    units: list[list[int]]
    """A command with a key, by its number, and those without that follow it."""


def slot_of(key: str) -> int:
    """The slot of a key."""
    return int(key_slot(key.encode()))


def slot_of_pattern(pattern: str) -> int | None:
    """The slot in which all keys lie that fit; None where they may lie in several."""
    return slot_of(pattern) if _WHOLE_TAG.match(pattern) else None


def pattern_of(command: Words) -> str:
    """What the keys must fit that a SCAN asks for."""
    words = [text_of(word) for word in command]
    return words[words.index("MATCH") + 1] if "MATCH" in words else "*"


def absent_key(pattern: str) -> str:
    """A key that fits, and that nobody has: where its slot moves, its node says so when it is read."""
    return f"{_WILD.split(pattern)[0]}~"


def near_of(commands: Sequence[Words]) -> int | None:
    """The slot of the first streams of which there is a key, else of those of its namespace."""
    found = None
    for key in map(key_of, commands):
        if key is not None and (near := streams_near(key)) is not None:
            if key.startswith(near):
                return slot_of(near)
            found = found or near
    return None if found is None else slot_of(found)


def split(commands: Sequence[Words], near: int) -> list[Part]:
    """What goes where; `near` is where that goes which has no key, and no command before it."""
    parts: dict[int, Part] = {}
    last: list[int] | None = None
    for number, command in enumerate(commands):
        key = key_of(command)
        timed = text_of(command[0]).upper() == "TIME"
        if key is None and not timed and last is not None:
            last.append(number)
            continue
        slot = near if key is None else slot_of(key)
        unit = [number]
        parts.setdefault(slot, Part(slot, [])).units.append(unit)
        last = last if timed else unit
    return list(parts.values())
