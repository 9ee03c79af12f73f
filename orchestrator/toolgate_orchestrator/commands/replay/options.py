"""What the options of `toolgate replay` mean, and which go together."""

import re
from collections.abc import Sequence
from typing import Final

from toolgate_bus.errors import ConfigError
from toolgate_bus.ruling.counterfactual import CHANGES

__all__ = ["check_together", "fail_on", "seconds_of"]

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LONGEST_S: Final = 366 * 86_400


def seconds_of(written: str) -> int:
    """A length of time such as `30m`, `24h` or `2d` in seconds; raises ConfigError."""
    found = re.fullmatch(r"(\d{1,9})([smhd])", written.strip())
    seconds = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < seconds <= _LONGEST_S:
        raise ConfigError(f"--since {written}: must be a length of time such as 90s, 30m, 24h or 7d")
    return seconds


def fail_on(written: Sequence[str]) -> frozenset[str]:
    """The changes that end the command with 1; raises ConfigError for a word that is none."""
    kinds = {word.strip() for one in written for word in one.split(",") if word.strip()}
    for kind in sorted(kinds - {*CHANGES, "any"}):
        raise ConfigError(f"--fail-on {kind}: must be {', '.join(CHANGES)} or any")
    return frozenset(kinds)


def check_together(
    *,
    file: bool,
    since: bool,
    with_: bool,
    against: bool,
    only_against: Sequence[str],
    only_since: Sequence[str],
    only_file: Sequence[str],
) -> None:
    """Raise ConfigError, with what to do, for options that do not go together.

    The last three are the options given that need --against, --since, or a file.
    """
    if only_against and not against:
        raise ConfigError(f"{only_against[0]} compares: say what with, --against NAME=config.yaml")
    if not file and not since:
        raise ConfigError("name a FILE.jsonl of recorded runs; or with --against say --since 1h: the record")
    if file and since:
        raise ConfigError("--since takes the record instead of a file: leave it out, or FILE.jsonl")
    if since and with_:
        raise ConfigError(
            "--with needs a FILE.jsonl: with --since one side is what was decided, the other --against"
        )
    if since and only_file:
        raise ConfigError(f"{only_file[0]} needs a FILE.jsonl of recorded runs; the record knows its own")
    if only_since and not since:
        raise ConfigError(f"{only_since[0]} needs --since: in a FILE.jsonl each set rules alone")
