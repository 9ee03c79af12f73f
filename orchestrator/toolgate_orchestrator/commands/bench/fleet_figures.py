"""What one row of the bench's fleet came to: counts that must agree, and the figures. Pure."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

RULED: Final = ("agreed", "denied", "modified")
"""How a decision comes out where everybody who was asked was heard."""


@dataclass(frozen=True, slots=True)
class Row:
    """One number of agents."""

    agents: int
    processes: int
    planned: int
    """Calls that the scripted LLMs make."""
    called: int
    """Calls in the conversations."""
    decided: int
    recorded: int
    """Decisions that stand in the record."""
    answered: int
    """Calls with exactly one result in their conversation."""
    whys: dict[str, int]
    """How many decisions came out by which of the words of `Decision.why`."""
    wall_s: float
    latencies_s: Sequence[float]
    """Of each decision, from the question to the decision."""
    alike_s: Sequence[float]
    """What agents with the same work took."""
    grown_bytes: Sequence[int | None]
    """By how much each process of the agents grew."""
    cpu_s: dict[str, float | None]
    """CPU of the agents, of the schedulers, of the server."""

    @property
    def loss(self) -> int:
        """Calls that were not decided on, recorded, or answered once; the most of the three."""
        return max(self.planned - min(self.called, self.decided, self.recorded, self.answered), 0)

    @property
    def unheard(self) -> int:
        """Decisions that came out without somebody who was asked."""
        return sum(count for why, count in self.whys.items() if why not in RULED)

    @property
    def good(self) -> bool:
        """Whether every call was ruled on by all, and none was lost or counted twice."""
        counts = {self.planned, self.called, self.decided, self.recorded, self.answered}
        return len(counts) == 1 and not self.unheard

    def figures(self) -> dict[str, Any]:
        """Everything, for scripts; microseconds, bytes."""
        ordered, count = sorted(self.latencies_s) or [0.0], max(1, self.decided)
        cpu = {name: None if s is None else round(s / count * 1e6) for name, s in self.cpu_s.items()}
        known = [spent for spent in cpu.values() if spent is not None]
        taken, grown = self.alike_s, [each for each in self.grown_bytes if each is not None]
        return {
            "agents": self.agents,
            "processes": self.processes,
            "calls": {
                "planned": self.planned,
                "called": self.called,
                "decided": self.decided,
                "recorded": self.recorded,
                "answered": self.answered,
                "lost": self.loss,
                "unheard": self.unheard,
            },
            "outcomes": self.whys,
            "ok": self.good,
            "wall_s": round(self.wall_s, 3),
            "per_second": round(self.decided / self.wall_s),
            "median_ms": round(statistics.median(ordered) * 1000, 2),
            "p99_ms": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] * 1000, 2),
            "slowest_to_median": round(max(taken) / statistics.median(taken), 2) if taken else 1.0,
            "jain": round(jain(taken), 3),
            "bytes_per_agent": round(sum(grown) / self.agents)
            if len(grown) == len(self.grown_bytes)
            else None,
            "cpu_us": {**cpu, "all": sum(known) if len(known) == len(cpu) else None},
        }


def jain(values: Sequence[float]) -> float:
    """Jain's index of fairness: 1 where all are alike, 1/n where one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0
