"""What is installed is looked up once: `importlib.metadata` reads a file of every distribution each time.

The kernel asks it for each module of each session. What stands in a folder that was on the path at the
beginning stays as it is while tests run; a folder that a test adds is looked into each time.
"""

import importlib.metadata
import sys
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, PathDistribution
from typing import Any

_BEFORE = frozenset(sys.path) - {"", "."}


def entry_points(**wanted: Any) -> EntryPoints:
    """As `importlib.metadata.entry_points`: of two distributions of one name the first on the path counts."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for folder in sys.path:
        for name, points in _remembered(folder) if folder in _BEFORE else _look_into(folder):
            found.setdefault(name, points)
    return EntryPoints(point for points in found.values() for point in points).select(**wanted)


def _look_into(folder: str) -> tuple[tuple[str, tuple[EntryPoint, ...]], ...]:
    there = importlib.metadata.distributions(path=[folder])
    return tuple(
        (one._normalized_name, tuple(one.entry_points)) for one in there if isinstance(one, PathDistribution)
    )


_remembered = cache(_look_into)


def look_once() -> None:
    """From now on, whoever imports `entry_points`, or calls it by its module, is given this one."""
    importlib.metadata.entry_points = entry_points
    entry_points()
