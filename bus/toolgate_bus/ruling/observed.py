"""Words in a verdict's reason that say what a rule would have done that only observes. Pure.

    tests first would have denied; rule 2 would have asked a person

A scheduler writes them when it lets a call go on. The record keeps them, and `toolgate report` reads them.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

ObservedAction = Literal["deny", "ask", "hold", "mask"]
MAX_READ: Final = 64
"""Maximum number of parts of one reason that are read."""
_WORDS: Final[Mapping[ObservedAction, str]] = {
    "deny": " would have denied",
    "ask": " would have asked a person",
    "hold": " would have made it wait",
    "mask": " would have masked",
}
_BETWEEN: Final = "; "


class Observation(NamedTuple):
    """Action that a rule would have taken."""

    rule: str
    action: ObservedAction


def add_observations(reason: str | None, observed: Iterable[Observation]) -> str:
    """Return a reason with the observations behind it."""
    told = [f"{rule}{_WORDS[action]}" for rule, action in observed]
    return _BETWEEN.join([reason, *told] if reason else told)


def read_observations(reason: str) -> list[Observation]:
    """Return the observations in a reason."""
    return [
        Observation(part.removesuffix(words), action)
        for part in reason.split(_BETWEEN, MAX_READ)
        for action, words in _WORDS.items()
        if part.endswith(words)
    ]
