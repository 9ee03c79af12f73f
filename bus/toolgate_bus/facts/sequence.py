"""Remembers the numbers of one writer's facts that were read: each counts once, even among forged ones. Pure.

A writer numbers its facts from 1, and may write some of them twice. Numbers that were never written (of
dropped facts) leave gaps. A forged number leaves a gap as well, and the real facts with the numbers in it
must still be read. So the read numbers are kept as ranges, not as the highest number. A jump of more than
`MAX_JUMP` is refused, until the next number follows on it.
"""

from typing import Final

from toolgate_bus.errors import CodecError

MAX_VALUE: Final = 2**53
MAX_JUMP: Final = 1_000_000
"""Maximum number of facts missing in one place: more than any outage drops that is short of minutes."""
MAX_RANGES: Final = 16
REMEMBERED: Final = 2**17
"""Number of facts before the last one that count as read when another reader's position is taken over
(`resumed`). It is more than a writer ever writes twice."""


class SeenNumbers:
    """Read numbers of one writer, as ranges; the range that grew last stands last."""

    __slots__ = ("_far", "_ranges")

    def __init__(self, resumed: int = 0) -> None:
        self._ranges = [[max(1, resumed - REMEMBERED), resumed]] if resumed > 0 else []
        self._far = 0

    @property
    def last(self) -> int:
        """Number that was taken last, or the end of the range that it filled up."""
        return self._ranges[-1][1] if self._ranges else 0

    def has_all(self, first: int, last: int) -> bool:
        """Return whether all numbers from the first to the last were read."""
        return any(start <= first and last <= end for start, end in self._ranges)

    def take(self, number: int) -> bool:
        """Return whether a number is new, and remember it. Raises CodecError (jump) if it is too far off."""
        ranges = self._ranges
        if len(ranges) == 1 and number == ranges[0][1] + 1:  # nearly always
            ranges[0][1] = number
            return True
        if any(first <= number <= last for first, last in ranges):
            return False
        highest = max((last for _, last in ranges), default=number)
        if number > highest + MAX_JUMP and number != self._far + 1:
            self._far = number
            raise CodecError("jump", f"fact {number} after {highest}")
        grown = [number, number]
        for one in [one for one in ranges if one[1] == number - 1 or one[0] == number + 1]:
            ranges.remove(one)
            grown = [min(grown[0], one[0]), max(grown[1], one[1])]
        ranges.append(grown)
        del ranges[:-MAX_RANGES]
        return True
