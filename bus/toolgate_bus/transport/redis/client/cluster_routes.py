"""Decides by which key a command is routed in a cluster, and which commands go together.

Commands without a key go where the command before them went, since some depend on it (WAIT). Commands that
ask the server for its time go to the node of the streams, whose entries are numbered by that clock.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from toolgate_bus.protocol.keys import streams_near
from toolgate_bus.transport.redis.client.command_keys import Words, key_of, text_of
from toolgate_bus.transport.redis.client.driver import key_slot

_WHOLE_TAG: Final = re.compile(r"[^*?\[\]\\{}]*\{[^*?\[\]\\{}]+\}")
"""Beginning of a pattern that matches keys of one slot only."""

_WILD: Final = re.compile(r"[*?\[\\]")


class Part(NamedTuple):
    """The commands of a pipeline that go to the owner of one slot."""

    slot: int
    units: list[list[int]]
    """Numbers of commands: one with a key, and those without a key that follow it."""


def slot_of(key: str) -> int:
    """Return the slot of a key."""
    return int(key_slot(key.encode()))


def slot_of_pattern(pattern: str) -> int | None:
    """Return the slot in which all matching keys lie; None if they may lie in several."""
    return slot_of(pattern) if _WHOLE_TAG.match(pattern) else None


def pattern_of(command: Words) -> str:
    """Return the pattern of the keys for which a SCAN asks."""
    words = [text_of(word) for word in command]
    return words[words.index("MATCH") + 1] if "MATCH" in words else "*"


def absent_key(pattern: str) -> str:
    """Return a matching key that does not exist: if its slot moves, reading it makes the node say so."""
    return f"{_WILD.split(pattern)[0]}~"


def near_of(commands: Sequence[Words]) -> int | None:
    """Return the slot of the first stream among the keys, else that of its namespace's streams."""
    found = None
    for key in map(key_of, commands):
        if key is not None and (near := streams_near(key)) is not None:
            if key.startswith(near):
                return slot_of(near)
            found = found or near
    return None if found is None else slot_of(found)


def split(commands: Sequence[Words], near: int) -> list[Part]:
    """Assign commands to slots; `near` is for those without a key and a command before them."""
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
