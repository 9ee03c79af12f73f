"""Compares what two sets of schedulers let the LLM see of the same result. Pure.

Results are compared where both sets let the same call run. Where they do not, the change of the call says it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

ResultChange = Literal["withhold", "mask", "replace", "release"]
"""What the second set does to a result that the first one gave otherwise."""
RESULT_CHANGES: Final[tuple[ResultChange, ...]] = ("withhold", "mask", "replace", "release")
RELEASED: Final = "released"
_CHANGES: Final[dict[str, ResultChange]] = {
    "withheld": "withhold",
    "masked": "mask",
    "replaced": "replace",
    "released": "release",
}


class ComparableResult(Protocol):
    """A result as it was given: a `GivenResult`."""

    @property
    def outcome(self) -> str:
        """What became of it."""

    @property
    def scheduler(self) -> str | None:
        """Scheduler whose verdict decided."""

    @property
    def reason(self) -> str | None:
        """Reason of that."""


@dataclass(frozen=True, slots=True)
class ComparedResult:
    """What became of one result before and after. It holds no text of it."""

    before: str
    """`released`, `masked`, `replaced` or `withheld`."""
    after: str
    change: ResultChange | None
    """Difference between the two; None if the LLM gets the same."""
    scheduler: str | None
    """Scheduler behind the change: the one that rules after, else the one that ruled before."""
    reason: str | None

    def as_json(self) -> dict[str, Any]:
        """Return the result as JSON fields."""
        told = {"before": self.before, "after": self.after, "change": self.change}
        return {**told, "scheduler": self.scheduler, "reason": self.reason}


def compare_results(
    before: ComparableResult | None, after: ComparableResult | None, *, is_same_text: bool
) -> ComparedResult:
    """Return the comparison of one result; None is one that nobody ruled on.

    `is_same_text` says whether the LLM gets the same text. The words about a withheld result do not count.
    """
    was = before.outcome if before is not None else RELEASED
    is_ = after.outcome if after is not None else RELEASED
    is_same = was == is_ and (is_same_text or was == "withheld")
    ruled = after if is_ != RELEASED else None
    by = ruled or before
    return ComparedResult(
        was,
        is_,
        None if is_same else _CHANGES[is_],
        by.scheduler if by is not None else None,
        ruled.reason if ruled is not None else None,
    )


def count_results(results: Iterable[ComparedResult | None]) -> dict[str, int]:
    """Return the number of results that were compared, stay the same, and change, by the kind of change."""
    known = [one for one in results if one is not None]
    changes = [one.change for one in known]
    return {
        "compared": len(known),
        "same": changes.count(None),
        **{change: changes.count(change) for change in RESULT_CHANGES},
    }
