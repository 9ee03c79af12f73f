"""Sets of code points with the meaning of Python's regular expressions: `\\w`, classes, regard of case. Pure.

A set is a tuple of ranges `(first, last)`, sorted and apart. `partition` splits all code points into the
groups that a number of sets tell apart: no pattern over these sets can distinguish two members of a group.
`\\w`, `\\s` and `\\d` are computed with methods of `str`, so that both have one Unicode.
"""

import bisect
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Final

Ranges = tuple[tuple[int, int], ...]

LAST: Final = 0x10FFFF
EVERY: Final[Ranges] = ((0, LAST),)
_LETTERS_END: Final = 0x40000
"""First code point after all letters, digits and blanks; behind it are marks, private use and nothing."""
_FEW: Final = 512

_sre: Any = importlib.import_module("_sre")
_casefix: Any = importlib.import_module("re._casefix")


def union(sets: Iterable[Ranges]) -> Ranges:
    """Return all members of these sets."""
    joined: list[tuple[int, int]] = []
    for first, last in sorted(one for ranges in sets for one in ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def minus(ranges: Ranges) -> Ranges:
    """Return all code points that are not in the set."""
    left, start = [], 0
    for first, last in ranges:
        if start < first:
            left.append((start, first - 1))
        start = last + 1
    return (*left, (start, LAST)) if start <= LAST else tuple(left)


def members(ranges: Ranges) -> Iterator[int]:
    """Yield each code point of the set."""
    return (point for first, last in ranges for point in range(first, last + 1))


def contains(ranges: Ranges, point: int) -> bool:
    """Return whether a code point is in the set."""
    at = bisect.bisect_right(ranges, (point, LAST)) - 1
    return at >= 0 and ranges[at][0] <= point <= ranges[at][1]


@cache
def words(*, ascii_only: bool = False) -> Ranges:
    r"""Return the set that `\w` means."""
    return _where(lambda char: char.isalnum() or char == "_", ascii_only)


@cache
def digits(*, ascii_only: bool = False) -> Ranges:
    r"""Return the set that `\d` means."""
    return _where(str.isdecimal, ascii_only)


@cache
def spaces(*, ascii_only: bool = False) -> Ranges:
    r"""Return the set that `\s` means."""
    if ascii_only:  # fewer than `str.isspace` counts in ASCII
        return union(((ord(char), ord(char)),) for char in " \t\n\r\f\v")
    return _where(str.isspace, ascii_only)


def caseless(chosen: Ranges, categories: Sequence[Ranges], *, ascii_only: bool = False) -> Ranges:
    """Return the set that a class of characters, ranges and categories means without regard to case."""
    lower: Callable[[int], int] = _sre.ascii_tolower if ascii_only else _sre.unicode_tolower
    fixes: Mapping[int, Sequence[int]] = {} if ascii_only else _casefix._EXTRA_CASES
    raised = _map_capitals(ascii_only)
    # The small letters of the chosen ones, and letters that count as the same.
    if sum(last - first + 1 for first, last in chosen) <= _FEW:
        lows = {lower(point) for point in members(chosen)}
    else:
        lows = {low for low, uppers in raised.items() if any(contains(chosen, upper) for upper in uppers)}
        lows |= {low for low in fixes if contains(chosen, low)}
    also = {same for low in lows for same in fixes.get(low, ())}
    small = union([chosen, *(((low, low),) for low in lows | also)])
    wanted = union([small, *categories])
    capitals: list[tuple[int, int]] = []
    if sum(last - first + 1 for first, last in wanted) <= _FEW:
        kept = [(point, point) for point in members(wanted) if lower(point) == point]
        capitals = [(upper, upper) for point in members(wanted) for upper in raised.get(point, ())]
        return union([tuple(kept), tuple(capitals)])
    every = [upper for uppers in raised.values() for upper in uppers]
    out = union(((upper, upper),) for upper in every)
    capitals = [(upper, upper) for low, uppers in raised.items() if contains(wanted, low) for upper in uppers]
    return union([minus(union([minus(wanted), out])), tuple(sorted(capitals))])


def partition(sets: Sequence[Ranges]) -> dict[frozenset[int], Ranges]:
    """Return all code points, grouped by the numbers of the sets that they are in."""
    steps: dict[int, list[int]] = {0: [], LAST + 1: []}
    for number, ranges in enumerate(sets):
        for first, last in ranges:
            steps.setdefault(first, []).append(number)
            steps.setdefault(last + 1, []).append(number)
    groups: dict[frozenset[int], list[tuple[int, int]]] = {}
    inside: set[int] = set()
    for start, end in pairwise(sorted(steps)):
        inside.symmetric_difference_update(steps[start])
        groups.setdefault(frozenset(inside), []).append((start, end - 1))
    return {key: union([tuple(ranges)]) for key, ranges in groups.items()}


def _where(is_one: Callable[[str], bool], ascii_only: bool) -> Ranges:
    end = 128 if ascii_only else _LETTERS_END
    return union(((point, point),) for point in range(end) if is_one(chr(point)))


@cache
def _map_capitals(ascii_only: bool) -> dict[int, list[int]]:
    """Return each small letter with its capitals."""
    lower, found = _sre.ascii_tolower if ascii_only else _sre.unicode_tolower, dict[int, list[int]]()
    for point in range(128 if ascii_only else _LETTERS_END):
        if (low := lower(point)) != point:
            found.setdefault(low, []).append(point)
    return found
