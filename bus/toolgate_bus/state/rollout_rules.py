"""The rules of a rollout: which sessions get the new revision, and when the rollout is undone.

The share is the same in every replica, over restarts, and as the share grows: a hash of the rollout's id and
the root session decides, so that a whole tree of agents has one revision. A condition is one comparison:

    veto_rate > 2x        twice the old revision's share of denied calls, in the same time
    error_rate > 1%       the new revision raised an error, or gave no verdict
    disagreement >= 5%    as a shadow it ruled otherwise

Join several with `or`. `2x` is relative to the old revision, which counts as at least one such call.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from toolgate_bus.errors import ConfigError

MAX_CONDITION: Final = 120
MIN_SAMPLE: Final = 20
_TEST: Final = re.compile(
    r"\s*(veto_rate|error_rate|disagreement)\s*(>=|>)\s*(\d{1,6}(?:\.\d{1,6})?)\s*(x|%)?\s*"
)


class TrialCounts(NamedTuple):
    """Counts of one stage of a rollout; `was_…` are those of the old revision."""

    asked: int = 0
    vetoes: int = 0
    errors: int = 0
    was_asked: int = 0
    was_vetoes: int = 0
    was_errors: int = 0
    compared: int = 0
    disagreed: int = 0

    @classmethod
    def read(cls, told: Mapping[str, str]) -> "TrialCounts":
        """Read the counts from the fields of a hash. A malformed count is read as 0."""
        return cls(*(int(told[name]) if _is_count(told.get(name, "")) else 0 for name in cls._fields))


class RateTest(NamedTuple):
    """One comparison of a condition."""

    measure: str
    strict: bool
    limit: float
    relative: bool

    def is_met(self, counts: TrialCounts) -> float | None:
        """Return the measured rate if it goes beyond the limit; else None."""
        if self.measure == "disagreement":
            count, of, was, was_of = counts.disagreed, counts.compared, 0, 0
        elif self.measure == "veto_rate":
            count, of, was, was_of = counts.vetoes, counts.asked, counts.was_vetoes, counts.was_asked
        else:
            count, of, was, was_of = counts.errors, counts.asked, counts.was_errors, counts.was_asked
        if not of or (self.relative and not was_of):
            return None
        rate = count / of
        limit = self.limit * max(was, 1) / was_of if self.relative else self.limit
        return rate if (rate > limit if self.strict else rate >= limit) else None


def parse_condition(text: str) -> tuple[RateTest, ...]:
    """Return the comparisons of a condition; none if it is empty. Raises ConfigError."""
    if not text.strip():
        return ()
    if len(text) > MAX_CONDITION:
        raise ConfigError(f"--undo-if: at most {MAX_CONDITION} characters")
    return tuple(_test(part) for part in re.split(r"\bor\b", text))


def _test(part: str) -> RateTest:
    found = _TEST.fullmatch(part)
    if found is None:
        raise ConfigError(
            f"--undo-if: {part.strip()!r}: write veto_rate, error_rate or disagreement, > or >=, and a limit "
            "such as 2x (of the old revision), 5% or 0.05"
        )
    measure, sign, number, unit = found.groups()
    if measure == "disagreement" and unit == "x":
        raise ConfigError("--undo-if: disagreement cannot be compared with the old revision; write 5%")
    limit = float(number) / 100 if unit == "%" else float(number)
    if unit != "x" and limit > 1:
        raise ConfigError(f"--undo-if: {part.strip()!r}: a rate is at most 100%; a factor is {number}x")
    return RateTest(measure, sign == ">", limit, unit == "x")


def judge(condition: str, counts: TrialCounts, min_sample: int) -> str | None:
    """Return the reason to undo the rollout, in words; None if there is none."""
    if max(counts.asked, counts.compared) < min_sample:
        return None
    for one in parse_condition(condition):
        if (rate := one.is_met(counts)) is not None:
            was = counts.was_vetoes if one.measure == "veto_rate" else counts.was_errors
            beside = f", the old one {was / counts.was_asked:.1%}" if one.relative else ""
            sample = counts.compared if one.measure == "disagreement" else counts.asked
            return f"{one.measure} {rate:.1%}{beside}, of {sample} calls"
    return None


def in_share(rollout: str, session: str, share: int) -> bool:
    """Return whether a (root) session is in the share, in percent."""
    hashed = hashlib.sha256(f"{rollout}\0{session}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(hashed[:8], "big") * 100 < share << 64


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 16
