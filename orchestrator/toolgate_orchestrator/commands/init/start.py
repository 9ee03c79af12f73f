"""Files to start from, and what to do with them next."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class NextStep(NamedTuple):
    """Commands to run, below the words that say what for."""

    words: str
    commands: tuple[str, ...]
    """Commands of `toolgate`, without that word."""


class Start(NamedTuple):
    """Files to write, and the steps after that."""

    files: Mapping[str, str]
    """Texts by path in the folder."""
    steps: tuple[NextStep, ...]
    notes: tuple[str, ...] = ()
    """Sentences for people: what was read, and what was left out."""
    private: frozenset[str] = frozenset()
    """Files that others must not read: they may hold secrets."""
    code: str = ""
    """Lines for the user's own program."""


OBSERVE: Final = NextStep(
    "Read every rule in rules.yaml. Hold the rules to their cases, and start the policy. It only observes:",
    ("policy test rules.yaml cases.yaml", "scheduler run policy --config rules.yaml"),
)
ENFORCE: Final = NextStep(
    "See what it would have denied. Then switch the rules on; `policy observe` takes it back:",
    ("report", "policy enforce --config rules.yaml"),
)
