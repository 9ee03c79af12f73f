"""A small load of decisions on one gate, and what became of each: failovers are judged by that."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.server.settings import check_url
from toolgate_bus.transport.redis.asking.fact_spill import FactSpill
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

DENY = {"action": "deny", "reason": "never"}
CONTINUE = {"action": "continue"}
RULERS = ("alpha", "beta")
STUCK_S = 8.0
"""More than any patience: who waits longer waits for ever."""


@dataclass(frozen=True)
class Ruled:
    """One decision."""

    number: int
    id: str
    asked: float
    ended: float
    outcome: str
    complete: bool
    """Whether everybody asked has answered."""


@dataclass
class Load:
    """Askers that ask one call after another; every second call is denied by one of the schedulers."""

    gate: Gate
    rows: list[Ruled] = field(default_factory=list)
    stuck: list[int] = field(default_factory=list)
    _number: int = 0
    _over: bool = False

    async def ask_on(self) -> None:
        """One asker."""
        while not self._over:
            self._number += 1
            await self._ask(self._number)
            await asyncio.sleep(0.005)

    async def _ask(self, number: int) -> None:
        denying = RULERS[number // 2 % 2]
        rules = {name: DENY if number % 2 and name == denying else CONTINUE for name in RULERS}
        asked = time.monotonic()
        try:
            async with asyncio.timeout(STUCK_S):
                decision = await self.gate.decide(Call("bash", {"n": number, "rules": rules}, ["bash"]))
        except TimeoutError:
            self.stuck.append(number)
            return
        heard = decision.outcome == "continue" or decision.why == "denied"
        complete = heard and not decision.silent
        row = Ruled(number, decision.id, asked, time.monotonic(), decision.outcome, complete)
        self.rows.append(row)

    @property
    def wrong(self) -> list[Ruled]:
        """Calls that would run although a scheduler denies them."""
        return [row for row in self.rows if row.number % 2 and row.outcome != "deny"]

    def ruled_since(self, moment: float) -> list[Ruled]:
        """Decisions asked since then on which all have answered."""
        return [row for row in self.rows if row.asked >= moment and row.complete]

    def outage(self, moment: float) -> float:
        """The longest time since then in which nothing was ruled, in seconds."""
        ended = sorted([moment, *(row.ended for row in self.rows if row.ended > moment and row.complete)])
        return max((b - a for a, b in pairwise(ended)), default=0.0)

    async def goes_on(self, moment: float, seconds: float) -> None:
        """Until something asked after that moment is ruled; fails after so many seconds."""
        while not self.ruled_since(moment):
            assert time.monotonic() - moment < seconds, f"nothing was ruled for {seconds} s: {self.rows[-5:]}"
            await asyncio.sleep(0.01)


@asynccontextmanager
async def load_on(url: str, required: Sequence[str] = RULERS, askers: int = 4) -> AsyncIterator[Load]:
    """A load that begins once both schedulers answer, and ends with the block."""
    async with Gate.open(redis=url, required=list(required), patience_ms=1000) as gate:
        load = Load(gate)
        tasks = [asyncio.create_task(load.ask_on()) for _ in range(askers)]
        try:
            await load.goes_on(time.monotonic(), 20.0)
            yield load
        finally:
            load._over = True
            await asyncio.gather(*tasks)


async def recorded(url: str) -> Counter[str]:
    """How often each decision stands in the record, as readers see it, once the next process has begun.

    It writes what a server that was slow had not taken when the process before it ended.
    """
    commands = RedisCommands(url, "test")
    try:
        await FactSpill(check_url(url), "default").write(commands, int(time.time() * 1000))
        facts = await FactsReader(commands, "default").read_all()
    finally:
        await commands.aclose()
    return Counter(fact["id"] for fact in facts if fact["event"] == "decision")


async def misrecorded(url: str, rows: Iterable[Ruled]) -> dict[str, int]:
    """How often each decision stands in the record that does not stand there once, or that nobody made."""
    found, made = await recorded(url), {row.id for row in rows}
    return {id_: found[id_] for id_ in made.union(found) if found[id_] != 1 or id_ not in made}
