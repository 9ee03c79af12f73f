"""A fleet on sentinels for as long as wanted, under faults of every kind: `make soak-ha`.

python tests/soak_ha.py --seconds 1800          TOOLGATE_SOAK_S=1800 by default

Agents keep journals; what was ruled, ran and was paid is held against them: calls that nobody allowed, calls
that ran twice, calls that wait for ever, books and record. Ends with 1 where any of that is wrong, 130 if it
was interrupted. What a failover forgot of the books is none of that where the ledger says so itself.
Sentinels that take a primary for dead on a busy machine fail over unasked: that is counted as one more fault.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "ha"))
import faults
from fleet_world import Fleet, Loss, fleet_on
from journals import STUCK_S
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from sentinel_world import SentinelWorld, sentinel_world

AGENTS, SESSIONS = 4, 8
FAILOVERS_SHARE = 0.5
"""Of the faults while all servers are whole."""
ON_S = 30.0
"""Longer than any agent may be ruled nothing."""
CALM_S = 1.0
"""Between two faults, once all agents go on: they are to come to more than what fails them."""
AUDIT_S = 60.0
"""So often all agents rest, and the books are looked at."""
UNASKED = "unasked"
"""A failover that the sentinels began, beside those that are asked for here."""
FORGETFUL = {"switch", "split", "stall", UNASKED}
"""What may forget what no replica had taken."""
ASKED = frozenset(one.__name__ for one in faults.FAILOVERS)


class Soak:
    """One run."""

    def __init__(
        self, fleet: Fleet, world: SentinelWorld, progress: Progress, seconds: float, audit_s: float
    ) -> None:
        self.fleet, self.world = fleet, world
        self._progress, self._seconds, self._audit_s = progress, seconds, audit_s
        self._bar = progress.add_task("", total=seconds)
        self.faults: Counter[str] = Counter()
        self.outages: dict[str, list[float]] = {}
        self.violations: list[str] = []
        self._since: list[str] = []
        """What failed since the books were looked at."""
        self._mending: asyncio.Task[None] | None = None
        self._failovers = world.count_failovers()
        """Those that are accounted for."""
        self.quarantines = 0

    async def run(self, kinds: list[str]) -> None:
        """Fault after fault until the time is over; the books are looked at now and then, and at the end."""
        began = audited = time.monotonic()
        while (now := time.monotonic()) - began < self._seconds:
            await self._fail(self._choose(kinds))
            await asyncio.sleep(CALM_S)
            if now - audited > self._audit_s:
                await self._audit()
                audited = time.monotonic()
            self._progress.update(self._bar, completed=now - began, description=self._describe())
        await self._audit()

    def _describe(self) -> str:
        decisions = self.fleet.journals.decisions
        return f"{decisions} decisions, {self.faults.total()} faults, {len(self.violations)} bad"

    def _choose(self, kinds: list[str]) -> str:
        failovers = [kind for kind in kinds if kind in ASKED]
        lesser = [one for one in kinds if one not in failovers]
        if lesser and self._mending is not None and not self._mending.done():
            return random.choice(lesser)
        some = failovers if failovers and (not lesser or random.random() < FAILOVERS_SHARE) else lesser
        return random.choice(some)

    async def _be_whole(self) -> None:
        if self._mending is not None:
            await self._mending

    async def _fail(self, kind: str) -> None:
        """One fault, until all agents go on; after a failover lesser ones come while the servers heal."""
        is_failover = kind in ASKED
        if is_failover:
            await self._be_whole()
        self.fleet.journals.forget_times()
        moment = time.monotonic()
        if kind == "kill_scheduler":
            self.fleet.kill_scheduler()
        else:
            await asyncio.to_thread(getattr(faults, kind), self.world)
        self.faults[kind] += 1
        self._since.append(kind)
        try:
            await self.fleet.until_all_go_on(time.monotonic(), ON_S)
        except AssertionError as error:
            self.violations.append(f"after {kind}: {error}")
        outage = self.fleet.journals.outage(moment)
        self.outages.setdefault(kind, []).append(outage if outage is not None else ON_S)
        if is_failover:
            self._mending = asyncio.create_task(asyncio.to_thread(self.world.mend))

    async def _audit(self) -> None:
        """Look at the books, once the servers are whole: what a failover forgot is told seconds later."""
        await self._be_whole()
        await self.fleet.rest()
        self._note_unasked()
        journals = self.fleet.journals.read()
        self.violations += journals.stuck(time.monotonic())
        loss = await self.fleet.count_loss()
        self.quarantines += bool(loss.told)
        if loss.is_silent or (loss != Loss() and not FORGETFUL.intersection(self._since)):
            self.violations.append(f"{loss} after {' '.join(self._since)}")
        self._since.clear()
        self.fleet.go()

    def _note_unasked(self) -> None:
        """Add to what failed the failovers since the last look that nobody here has asked for."""
        failovers = self.world.count_failovers()
        unasked = failovers - self._failovers - sum(kind in ASKED for kind in self._since)
        self._failovers = failovers
        self.faults[UNASKED] += max(0, unasked)
        self._since += [UNASKED] * unasked

    async def report(self) -> dict[str, object]:
        """What there is to tell, once all rest."""
        fleet = self.fleet
        await fleet.rest()
        if fleet.journals.most_waited > STUCK_S:
            self.violations.append(f"a call waited for {fleet.journals.most_waited:.0f} s")
        self.violations += fleet.journals.wrong + [f"{one} ran twice" for one in fleet.journals.twice]
        self.violations += [f"record: {one}" for one in await fleet.find_record_faults(120.0)]
        self.violations += [f"{name} ended: {fleet.errors()}" for name in fleet.deaths()]
        self.violations += await fleet.find_count_faults()
        return {
            "decisions": fleet.journals.decisions,
            "faults": dict(self.faults),
            "outage_s": {kind: _spread(found) for kind, found in sorted(self.outages.items())},
            "paid": fleet.journals.paid,
            "books_lack": {"spent": fleet.lost.spent, "open": fleet.lost.open},
            "settled_s": _spread(fleet.settled_s),
            "quarantines": self.quarantines,
            "people_asked": fleet.answered,
            "waited_s": round(fleet.journals.most_waited, 1),
            "keys": await fleet.commands.execute("DBSIZE"),
            "rss_mb": fleet.memory(),
            "violations": len(self.violations),
        }


def _spread(found: list[float]) -> str:
    ordered = sorted(found)
    return f"median {ordered[len(ordered) // 2]:.2f}, max {ordered[-1]:.2f}"


async def soak(given: argparse.Namespace, directory: Path) -> int:
    """Storm for so long; the exit code."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with sentinel_world("of-servers") as world, Progress(*columns) as progress:
        async with fleet_on(world.login_url, directory, agents=AGENTS, sessions=SESSIONS) as fleet:
            one = Soak(fleet, world, progress, given.seconds, given.audit)
            began, before = time.monotonic(), fleet.memory()
            await one.run(given.kinds)
            took = time.monotonic() - began
            told = await one.report()
    rate = {
        "seconds": round(took),
        "decisions_per_s": round(fleet.journals.decisions / took),
        "rss_mb_before": before,
    }
    for name, value in {**rate, **told}.items():
        print(f"{name:16} {value}")
    print("\n".join(one.violations[:10]))
    return 1 if one.violations else 0


def main() -> int:
    """Ends with 1 if anything was wrong."""
    every = [one.__name__ for one in (*faults.FAILOVERS, *faults.LESSER)] + ["kill_scheduler"]
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--seconds", type=float, default=float(os.environ.get("TOOLGATE_SOAK_S", "1800")))
    options.add_argument(
        "--kinds", nargs="+", choices=every, default=every, metavar="KIND", help=", ".join(every)
    )
    options.add_argument(
        "--audit", type=float, default=AUDIT_S, help="seconds between two looks at the books"
    )
    options.add_argument("--seed", type=int, default=int(time.time()))
    given = options.parse_args()
    random.seed(given.seed)
    print(f"seed {given.seed}, {given.seconds:.0f} s")
    with tempfile.TemporaryDirectory(prefix="tg-soak-") as directory:
        try:
            return asyncio.run(soak(given, Path(directory)))
        except KeyboardInterrupt:
            return 130


if __name__ == "__main__":
    sys.exit(main())
