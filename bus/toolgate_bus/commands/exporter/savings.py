"""What replacements saved, in micro-units, by the mean costs that facts told. Pure.

A replacement of one tool by another saves the difference of their mean costs as known then; while a
mean is not known yet, it waits for it. A dearer replacement saves nothing; it never takes away.
"""

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["Savings"]

MOST: Final = 1000
LARGEST: Final = 2**52


class Savings:
    """Costs told by tool, replacements that wait for one, and the sum so far."""

    __slots__ = ("costs", "total", "waiting")

    def __init__(self) -> None:
        self.costs: dict[str, tuple[int, int]] = {}
        """By tool: how many costs were told, and their sum."""
        self.waiting: dict[tuple[str, str], int] = {}
        """By the tools asked for and run: how many replacements."""
        self.total = 0

    def take(self, fact: Mapping[str, Any]) -> None:
        """Look at one fact: `tool:selected` may be a replacement, `tool:post` and `tool:error` tell costs."""
        tool, event = fact.get("tool"), fact.get("event")
        if not isinstance(tool, str):
            return
        if event == "tool:selected" and fact.get("source") == "scheduler":
            self._replaced(fact.get("original_tool"), tool)
        elif event in ("tool:post", "tool:error"):
            self._told(tool, fact.get("cost"))

    def _replaced(self, asked: Any, run: str) -> None:
        if not isinstance(asked, str) or asked == run:
            return
        pair = (asked, run)
        if pair in self.waiting or len(self.waiting) < MOST:
            self.waiting[pair] = self.waiting.get(pair, 0) + 1
            self._settle(pair)

    def _told(self, tool: str, cost: Any) -> None:
        if type(cost) is not int or not 0 <= cost <= LARGEST:
            return
        if tool not in self.costs and len(self.costs) >= MOST:
            return
        times, total = self.costs.get(tool, (0, 0))
        self.costs[tool] = (times + 1, total + cost)
        if times == 0:
            for pair in [pair for pair in self.waiting if tool in pair]:
                self._settle(pair)

    def _settle(self, pair: tuple[str, str]) -> None:
        asked, run = (self.costs.get(tool) for tool in pair)
        if asked is not None and run is not None:
            saved = asked[1] / asked[0] - run[1] / run[0]
            self.total += self.waiting.pop(pair) * max(0, round(saved))
