"""What the journals of agents say: the truth against which record and books are held.

Pure but for reading the files, each from where it was read before.
"""

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

STUCK_S = 60.0
"""Longer than any fault here, an answer's patience and a person together: who waits longer waits for ever."""


def is_refused(number: int) -> bool:
    """Whether a person refuses this transfer."""
    return number % 3 == 0


@dataclass
class Journal:
    """What one agent wrote."""

    file: Path
    open: dict[int, tuple[str, float]] = field(default_factory=dict)
    """Calls that are not ruled yet: kind, and when they were asked."""
    outcomes: dict[str, str] = field(default_factory=dict)
    """By decision."""
    complete: list[tuple[float, float]] = field(default_factory=list)
    """When those were asked and ruled that everybody has answered, since `forget_times`."""
    waits: list[float] = field(default_factory=list)
    ran: Counter[str] = field(default_factory=Counter)
    paid: int = 0
    wrong: list[str] = field(default_factory=list)
    _at: int = 0
    _kinds: dict[int, str] = field(default_factory=dict)

    def read(self) -> None:
        """Take what was added since."""
        if not self.file.exists():
            return
        with self.file.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.splitlines():
            what, *words = json.loads(line)
            getattr(self, f"_take_{what}")(*words)

    def _take_ask(self, number: int, kind: str, moment: float) -> None:
        self.open[number] = (kind, moment)

    def _take_ruled(self, number: int, decision: str, outcome: str, complete: Any, moment: float) -> None:
        kind, asked = self.open.pop(number)
        if decision in self.outcomes:
            self.wrong.append(f"{decision} was ruled twice")
        self.outcomes[decision] = outcome
        self.waits.append(moment - asked)
        if complete:
            self.complete.append((asked, moment))
        if kind == "forbidden" and outcome != "deny":
            self.wrong.append(f"{decision} is forbidden and was ruled {outcome}")

    def _take_ran(self, decision: str, number: int, kind: str, cost: int) -> None:
        self.ran[decision] += 1
        self.paid += cost
        if kind == "forbidden" or (kind == "transfer" and is_refused(number)):
            self.wrong.append(f"{decision} ran, a {kind} that nobody allowed")

    def outage(self, moment: float) -> float | None:
        """The longest time from then on in which nothing was ruled, in seconds; None: nothing since."""
        ended = sorted(ruled for _, ruled in self.complete if ruled > moment)
        return max(b - a for a, b in pairwise([moment, *ended])) if ended else None

    def goes_on(self, moment: float) -> bool:
        """Whether something that was asked since then is ruled."""
        return any(asked > moment for asked, _ in self.complete[-200:])

    def forget_times(self) -> None:
        """Keep no moments of before."""
        self.complete.clear()
        self.waits.clear()


@dataclass
class Journals:
    """Those of all agents."""

    each: list[Journal]
    most_waited: float = 0.0

    def read(self) -> "Journals":
        """Take what was added since; itself."""
        for one in self.each:
            one.read()
            self.most_waited = max([self.most_waited, *one.waits[-10_000:]])
        return self

    @property
    def outcomes(self) -> dict[str, str]:
        """Of all decisions."""
        return {id_: outcome for one in self.each for id_, outcome in one.outcomes.items()}

    @property
    def decisions(self) -> int:
        """How many."""
        return sum(len(one.outcomes) for one in self.each)

    @property
    def paid(self) -> int:
        """By all, in micro-units."""
        return sum(one.paid for one in self.each)

    @property
    def wrong(self) -> list[str]:
        """Whatever was ruled or ran as it must not."""
        return [what for one in self.each for what in one.wrong]

    @property
    def ran(self) -> Counter[str]:
        """How often the call of each decision ran."""
        return sum((one.ran for one in self.each), Counter[str]())

    @property
    def twice(self) -> list[str]:
        """Decisions whose call ran more than once."""
        return [decision for one in self.each for decision, times in one.ran.items() if times > 1]

    def stuck(self, now: float) -> list[str]:
        """Calls that wait for too long."""
        return [
            f"{one.file.name}: call {number}, a {kind}, waits for {now - asked:.0f} s"
            for one in self.each
            for number, (kind, asked) in one.open.items()
            if now - asked > STUCK_S
        ]

    @property
    def is_idle(self) -> bool:
        """Whether no call waits."""
        return not any(one.open for one in self.each)

    def outage(self, moment: float) -> float | None:
        """The longest of any agent since then, in seconds; None: one has not gone on."""
        found = [one.outage(moment) for one in self.each]
        return max(one for one in found if one is not None) if None not in found else None

    def goes_on(self, moment: float) -> bool:
        """Whether every agent has something ruled that it asked since then."""
        return all(one.goes_on(moment) for one in self.each)

    def forget_times(self) -> None:
        """Keep no moments of before."""
        for one in self.each:
            one.forget_times()
