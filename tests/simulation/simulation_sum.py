"""What many simulated worlds add up to: in one run, and over runs in a small JSON file."""

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from simulation_world import WorldResult


@dataclass(slots=True)
class WorldSum:
    """Worlds that were run."""

    worlds: int = 0
    decisions: int = 0
    seconds: float = 0.0
    """Of all runs."""
    next_seed: int = 0
    """After the last that was run."""
    faults: Counter[str] = field(default_factory=Counter)
    broken: list[tuple[int, str]] = field(default_factory=list)
    """Seed, and what broke."""

    def take(self, found: WorldResult) -> None:
        """Add one world."""
        self.worlds += 1
        self.decisions += found.decisions
        self.next_seed = max(self.next_seed, found.plan.seed + 1)
        self.faults.update(fault.kind for fault in found.plan.faults)
        if found.broken is not None:
            self.broken.append((found.plan.seed, found.broken))

    def add(self, other: "WorldSum") -> None:
        """Add many."""
        self.worlds += other.worlds
        self.decisions += other.decisions
        self.seconds += other.seconds
        self.next_seed = max(self.next_seed, other.next_seed)
        self.faults.update(other.faults)
        self.broken = sorted([*self.broken, *other.broken])

    def as_json(self) -> dict[str, Any]:
        """All of it, with the rate."""
        rate = round(self.decisions / self.seconds) if self.seconds else 0
        told = {**asdict(self), "seconds": round(self.seconds, 1), "decisions_a_second": rate}
        return {
            **told,
            "faults": dict(self.faults.most_common()),
            "broken": [{"seed": seed, "what": what} for seed, what in self.broken],
        }


def read_sum(place: Path) -> WorldSum:
    """What earlier runs added up to; nothing where there were none. Raises ValueError for another file."""
    if not place.exists():
        return WorldSum()
    told = json.loads(place.read_text())
    if not isinstance(told, Mapping) or "next_seed" not in told:
        raise ValueError(f"{place} is no sum of simulated worlds")
    return WorldSum(
        int(told["worlds"]),
        int(told["decisions"]),
        float(told["seconds"]),
        int(told["next_seed"]),
        Counter(told["faults"]),
        [(one["seed"], one["what"]) for one in told["broken"]],
    )


def write_sum(place: Path, told: WorldSum) -> None:
    """Keep it for the next run."""
    beside = place.with_name(f"{place.name}.{os.getpid()}")
    beside.write_text(json.dumps(told.as_json(), indent=1) + "\n")
    beside.replace(place)
