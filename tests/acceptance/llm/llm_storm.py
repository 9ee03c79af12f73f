"""A fleet that thinks on one budget while its parts are killed, and the books afterwards.

Real processes: agents (agents_for_tests/thinker.py), each with many whole sessions under all loops, and three
replicas of cost-aware; an LLM on loopback (priced_llm.py) that they ask through `provider-openai-compatible`.
Agents and replicas are killed (-9) meanwhile, and an agents' process that was killed is started again with
new sessions. All along the account is sampled. It is over when every session was denied its LLM.
"""

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nursery
import redis.asyncio as redis
import yaml
from budget_storm import Records, accounts_in
from nursery import NURSERY
from priced_llm import PRICES, PricedLlm
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.ledger.money.journal import journal_key, read_entry
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.server.guard import ServerProcess
from toolgate_bus.transport.redis.client.connection import RedisCommands

HERE = Path(__file__).parents[1]
NAMESPACE = "storm"
UNIT = 1_000_000
TOOL_MOST = 20_000
MOST_OF_A_REQUEST = 400_000
"""Micro-units: no request of this storm is reserved for with more."""
REST_S = 60.0
_ID = re.compile("[0-9a-f]{16}")


@dataclass
class Process:
    """One process of agents."""

    child: subprocess.Popen[bytes]
    name: str
    sessions: range

    @property
    def was_killed(self) -> bool:
        """Whether it was ended by a kill."""
        return self.child.returncode == -signal.SIGKILL


@dataclass
class LlmStorm:
    """One run."""

    server: ServerProcess
    directory: Path
    limit: int
    """Micro-units of the budget that all share."""
    processes: int = 2
    sessions: int = 20
    """In each process."""
    tools: bool = True
    kills: int = 2
    """Of agents' processes, and as many of replicas."""
    say: Callable[[str], None] = lambda _: None
    pause_s: float = 5.0
    """Seconds between what is said of the progress."""
    agents: list[Process] = field(default_factory=list)
    schedulers: list[nursery.Process] = field(default_factory=list)
    killed: Counter[str] = field(default_factory=Counter)
    overspent: list[str] = field(default_factory=list)
    samples: int = 0
    most: int = 0
    """The most that was spent and reserved together, ever."""
    spent: int = 0
    records: Records = field(default_factory=Records)
    _over: asyncio.Event = field(default_factory=asyncio.Event)

    async def rage(self, llm: PricedLlm, seconds: float) -> None:
        """Run it until every agent that lives was denied; AssertionError where that takes longer."""
        self._llm = llm
        self._start_scheduler()  # the agents wait for it
        for number in range(self.processes):
            self._start_agents(number * self.sessions)
        sampling = asyncio.create_task(self._sample())
        try:
            await self._until(lambda: len(self._replicas()) >= 3, REST_S)
            await self._kill_around(seconds)
            await self._until(lambda: all(one.child.poll() is not None for one in self.agents), seconds)
            await self._come_to_rest()
        finally:
            self._over.set()
            await sampling

    def end(self) -> None:
        """End every process that was started here."""
        for child in (*(one.child for one in self.agents), *self.schedulers):
            if child.poll() is None:
                child.kill()
            child.wait()

    # ------------------------------------------------------------------ processes

    def _config(self) -> dict[str, Any]:
        prices = {f"openai-compatible/{model}": price for model, price in PRICES.items()}
        return {
            "tools": {"pay": {"cost": TOOL_MOST / UNIT}},
            "budgets": [{"name": "all", "level": "fleet", "limit": self.limit / UNIT}],
            "llm": {"prices": prices},
            "learn": False,  # so that nothing costs more than was reserved
        }

    @contextlib.contextmanager
    def _files(self, name: str) -> Iterator[tuple[int, int, int]]:
        with (
            Path(os.devnull).open("rb") as nothing,
            (self.directory / f"{name}.out").open("wb") as out,
            (self.directory / f"{name}.err").open("wb") as err,
        ):
            yield nothing.fileno(), out.fileno(), err.fileno()

    def _start_scheduler(self) -> None:
        file = self.directory / "cost-aware.yaml"
        file.write_text(yaml.safe_dump(self._config()))
        words = ["scheduler", "run", "cost-aware", "--config", str(file), "--json", "--replicas", "3"]
        where = ["--redis", self.server.url, "--namespace", NAMESPACE]
        with self._files("scheduler") as files:
            self.schedulers.append(NURSERY.start([*words, *where], dict(os.environ), HERE, files))

    def _start_agents(self, first: int) -> None:
        name = f"agents{len(self.agents)}"
        words = (self.server.url, NAMESPACE, self._llm.url, self.directory / f"{name}.journal", first)
        command = [sys.executable, HERE / "agents_for_tests" / "thinker.py", *words]
        command += [self.sessions, "pay" if self.tools else "none"]
        with self._files(name) as (nothing, out, err):
            child = subprocess.Popen([*map(str, command)], stdin=nothing, stdout=out, stderr=err)
        self.agents.append(Process(child, name, range(first, first + self.sessions)))

    def _said(self, name: str) -> list[str]:
        return (self.directory / f"{name}.out").read_text().splitlines()

    def orchestrator(self, process: Process) -> str:
        """The id that it printed; none yet while it starts."""
        return next((line for line in self._said(process.name) if _ID.fullmatch(line)), "")

    def ends(self, process: Process) -> list[dict[str, Any]]:
        """What its sessions that are over said."""
        lines = [json.loads(line) for line in self._said(process.name) if line.startswith("{")]
        return [line for line in lines if "session" in line]

    def _replicas(self) -> list[int]:
        lines = [json.loads(line) for line in self._said("scheduler")]
        return [line["pid"] for line in lines if line["event"] == "ready" and _lives(line["pid"])]

    async def _until(self, holds: Callable[[], Any], seconds: float) -> None:
        deadline, told = time.monotonic() + seconds, time.monotonic()
        while not holds():
            fallen = [one.name for one in self.agents if one.child.poll() not in (None, 0, -signal.SIGKILL)]
            if time.monotonic() > deadline or fallen or self.schedulers[0].poll() is not None:
                raise AssertionError(f"it does not come about {fallen}: {self._errors()}")
            if time.monotonic() - told > self.pause_s:
                told = time.monotonic()
                self.say(self.progress())
            await asyncio.sleep(0.05)

    def progress(self) -> str:
        over = sum(len(self.ends(one)) for one in self.agents if not one.was_killed)
        return (
            f"{self.spent / UNIT:.2f} of {self.limit / UNIT:.0f} USD spent, {len(self._llm.bills)} requests, "
            f"{over} of {self.processes * self.sessions} sessions over, killed {dict(self.killed)}"
        )

    def _errors(self) -> str:
        return "\n".join(file.read_text()[-2000:] for file in sorted(self.directory.glob("*.err")))

    # ------------------------------------------------------------------ what fails

    async def _kill_around(self, seconds: float) -> None:
        """Kill as the money goes, so that something is killed however fast that is."""
        for number in range(self.kills):
            part = self.limit * (number + 0.5) / (self.kills + 0.5) * 0.8
            await self._until(lambda part=part: self.spent > part, seconds)
            if number < len(replicas := self._replicas()):
                os.kill(random.choice(replicas), signal.SIGKILL)
                self.killed["replicas"] += 1
            victim = random.choice([one for one in self.agents if one.child.poll() is None])
            victim.child.kill()
            victim.child.wait()
            self.killed["processes"] += 1
            self.killed["agents"] += len(victim.sessions) - len(self.ends(victim))
            self._start_agents(len(self.agents) * self.sessions)

    async def _come_to_rest(self) -> None:
        deadline = time.monotonic() + REST_S
        client = redis.from_url(self.server.url)
        while held := await client.zcard(Keys(NAMESPACE).store_key("budget:open")):
            assert time.monotonic() < deadline, f"{held} decisions still hold money"
            await asyncio.sleep(0.1)
        await client.aclose()

    # ------------------------------------------------------------------ the books

    async def _sample(self) -> None:
        client = redis.from_url(self.server.url)
        while not self._over.is_set():
            for key, spent, reserved in await accounts_in(client):
                if spent + reserved > self.limit or spent < 0 or reserved < 0:
                    self.overspent.append(f"{key}: {spent} + {reserved} of {self.limit}")
                self.most, self.spent = max(self.most, spent + reserved), spent
            self.samples += 1
            await self.records.look(client)
            await asyncio.sleep(0.005)
        await client.aclose()

    async def audit(self) -> Counter[str]:
        """Check the books against what the LLM told and the tools cost; AssertionError for what is wrong."""
        client = redis.from_url(self.server.url)
        records = await self.records.read(client)
        ((account, spent, reserved),) = await accounts_in(client)
        self._facts = await self._read_facts()
        entries = await client.xrange(journal_key(NAMESPACE, "budget"))
        await client.aclose()
        assert (account, reserved) == ("all/fleet", 0)
        paid: dict[str, int] = defaultdict(int)
        for entry, fields in entries:
            one = read_entry(entry, [*fields.values()], "budget")
            assert one is not None
            assert one["kind"] in ("settle", "orphan"), one
            paid[one["id"]] += one["amount"]
        assert sum(paid.values()) == spent
        found = Counter(spent=spent, requests=len(self._llm.bills), **self.killed)
        for process in self.agents:
            found += self._audit_process(process, records, paid)
        assert found["settled"] + found["orphans"] == found["requests"] + found["unsent"]
        found.update(most=self.most, samples=self.samples)
        return found

    async def _read_facts(self) -> dict[str, list[Any]]:
        """What was told of each decision, for the words of a failure."""
        found: dict[str, list[Any]] = defaultdict(list)
        commands = RedisCommands(self.server.url, "audit")
        async for fact in FactsReader(commands, NAMESPACE).read_stored():
            found[str(fact.get("decision_id") or fact.get("id"))].append(fact)
        await commands.aclose()
        return found

    def _audit_process(
        self, process: Process, records: dict[str, dict[str, str]], paid: dict[str, int]
    ) -> Counter[str]:
        """One process: what it was charged for its requests and calls is what those cost."""
        owner, ran = self.orchestrator(process), self._ran(process)
        own = {key: one for key, one in records.items() if one.get("owner") == owner}
        assert {one["state"] for one in own.values()} <= {"settled", "orphaned", "released", "denied"}
        orphans = {key for key, one in own.items() if one["state"] == "orphaned"}
        told = {key: [self._facts.get(key), own[key]] for key in orphans}
        assert process.was_killed or not orphans, f"orphans of a process that lived: {told}"
        assert all(paid[key] == int(own[key]["amount"]) for key in orphans)
        asked = {key for key, one in own.items() if one["name"].startswith("llm:request ")}
        settled = {key for key in own if own[key]["state"] == "settled"}

        told = Counter(bill.cost for bill in self.bills(process))
        charged = Counter(paid[key] for key in settled & asked)
        assert charged <= told, f"{process.name} was charged what no answer told"
        unsettled = told.total() - charged.total()
        unsent = len(orphans & asked) - unsettled
        assert 0 <= unsent <= (len(process.sessions) if process.was_killed else 0)

        for key in settled - asked:
            assert paid[key] == ran[key], f"{key}: {paid[key]} was paid, and its tool told {ran.get(key)}"
        assert set(ran) <= (settled | orphans) - asked, "a call ran and is not paid for"
        return Counter(
            settled=len(settled & asked),
            orphans=len(orphans & asked),
            unsent=unsent,
            calls=len(settled - asked),
            orphan_calls=len(orphans - asked),
            survivors=0 if process.was_killed else len(process.sessions),
        )

    def bills(self, process: Process) -> list[Any]:
        """The requests of its sessions."""
        names = {f"s-{number}" for number in process.sessions}
        return [bill for bill in self._llm.bills if bill.session in names]

    def _ran(self, process: Process) -> dict[str, int | None]:
        """What each call of its tools cost; None where it was killed before it told."""
        journal = self.directory / f"{process.name}.journal"
        lines = journal.read_bytes().split(b"\n")[:-1] if journal.exists() else []
        found: dict[str, int | None] = {}
        for line in lines:
            what, decision, _, *cost = json.loads(line)
            found[decision] = cost[0] if what == "end" else None
        return found

    def check_ends(self) -> None:
        """Each session that lived on ended at its first denial, with an answer that says why."""
        for process in self.agents:
            ends = self.ends(process)
            assert process.was_killed or len(ends) == len(process.sessions)
            last = {bill.session: bill.at for bill in self.bills(process)}
            for one in ends:
                assert "Over budget: a request to openai-compatible/" in one["answer"], one
                assert (one["status"], one["other"]) == ("incomplete", []), one
                (denied,) = one["denied"]  # asked once in vain, and no more
                assert last.get(one["session"], 0) < denied, f"{one['session']} asked after its denial"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
