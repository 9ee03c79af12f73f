"""A fleet that spends while everything fails around it, and the books afterwards.

Real processes: `orchestrators` agents (agents_for_tests/spender.py) with many sessions each, three replicas
of a cost-aware scheduler, a router that replaces calls, and a server that keeps what it has on disk. At
random an agent or a replica is killed (-9), connections are reset, questions are delivered twice, and the
server is killed and started again. All along the accounts are sampled.

Besides money, budgets count calls, seconds, and megabytes that an argument says. Calls beyond the budget of
calls wait: for its next window, for one that is given back, or until the limit is raised on the way.
"""

import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
import redis.asyncio as redis
import yaml
from toolgate_bus.ledger.money.limits import Limits
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.server.guard import ServerProcess
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.store import RedisStore

HERE = Path(__file__).parents[1]
NAMESPACE = "storm"
UNIT = 1_000_000
PRICES = {"search": 400_000, "cheap_search": 90_000, "crawl": 150_000, "notes": 0, "paced": 10_000}
LIMITS = {"burst": 20 * UNIT, "each": 3 * UNIT, "often": 2, "time": UNIT // 4, "size": 300 * UNIT}
COUNTED = {"often": ("paced",), "time": tuple(PRICES), "size": ("search", "cheap_search")}
"""Tools that budgets of other units count."""
RAISED = 4
"""Limit of the budget of calls from the middle of the storm on."""
RESERVED_US, TOOK_US = 10_000, 5000
"""Duration that is reserved for a call, and that a tool tells (agents_for_tests/spender.py)."""
CONFIG = {
    "tools": {
        tool: {"cost": price / UNIT, "latency_s": RESERVED_US / UNIT} for tool, price in PRICES.items()
    },
    "alternatives": [{"tools": ["search", "cheap_search"]}],
    "budgets": [
        {"name": "all", "level": "fleet", "limit": None},
        {"name": "burst", "level": "fleet", "limit": LIMITS["burst"] / UNIT, "window": 2},
        {"name": "each", "level": "session", "limit": LIMITS["each"] / UNIT},
        {
            "name": "often",
            "unit": "calls",
            "tools": list(COUNTED["often"]),
            "limit": LIMITS["often"],
            "window": 2,
            "at_limit": "pause",
        },
        {"name": "time", "unit": "seconds", "level": "session", "limit": LIMITS["time"] / UNIT},
        {
            "name": "size",
            "unit": "MB",
            "amount": "$.mb",
            "tools": list(COUNTED["size"]),
            "limit": LIMITS["size"] / UNIT,
            "window": 2,
        },
    ],
    "learn": False,  # so that every estimate is known here
}
ROUTES = {"routes": [{"from": "crawl", "to": "search", "when": {"deep": True}}]}
FAULTS = {"agents", "replicas", "connections", "repeated", "servers", "raised"}
"""What fails at least once, however busy the machine is."""
SETTLED_S = 60.0
_ID = re.compile("[0-9a-f]{16}")
_WRONG = """
local limits, wrong = {}, {}
for i = 2, #ARGV, 2 do limits[ARGV[i]] = tonumber(ARGV[i + 1]) end
for _, place in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  local of = redis.call('HMGET', ARGV[1] .. place, 'spent', 'reserved')
  local spent, reserved = tonumber(of[1] or '0'), tonumber(of[2] or '0')
  local limit = limits[string.match(place, '^[^/:]*')]
  if spent < 0 or reserved < 0 or (limit and spent + reserved > limit) then
    wrong[#wrong + 1] = place .. ': ' .. spent .. ' spent, ' .. reserved .. ' reserved of ' .. tostring(limit)
  end
end
return wrong
"""
"""Script that returns the accounts beyond their limits, or below zero; all of them at one moment."""

_PAGE = """
local page, found = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 1000), {}
for i, key in ipairs(page[2]) do found[i] = {key, redis.call('HGETALL', key)} end
return {page[1], cmsgpack.pack(found)}
"""
"""Script that returns a page of records. One by one they take longer to read than they are kept."""
_FOUND = """
local found = {}
for i, key in ipairs(KEYS) do found[i] = {key, redis.call('HGETALL', key)} end
return cmsgpack.pack(found)
"""
"""Script that returns the records with these keys."""


@dataclass
class Storm:
    """One run."""

    server: ServerProcess
    directory: Path
    spec: str = "cost-aware"
    orchestrators: int = 8
    sessions: int = 30
    restarts: int = 1
    admission: bool = False
    """Whether it reserves last, in `admit`."""
    agents: list[subprocess.Popen[bytes]] = field(default_factory=list)
    schedulers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    killed: Counter[str] = field(default_factory=Counter)
    overspent: list[str] = field(default_factory=list)
    samples: int = 0
    limits: dict[str, int] = field(default_factory=lambda: dict(LIMITS))
    settled_after: float = 0.0
    """Seconds from the end of the last agent until nothing held money."""
    records: "Records" = field(default_factory=lambda: Records())
    _waiting: list[str] = field(default_factory=list)
    _over: asyncio.Event = field(default_factory=asyncio.Event)

    async def rage(self, seconds: float) -> None:
        """Start everything, let it fail for so long, then let it come to rest."""
        config = CONFIG | ({"admission": True} if self.admission else {})
        self._start_scheduler(self.spec, config, "--replicas", "3")
        self._start_scheduler("router", ROUTES)
        await self._until(lambda: len(self._replicas()) >= 3 and self._ready(1) >= 1)
        looks = (self._look_at_accounts, self._look_at_calls, self.records.look)
        sampling = [asyncio.create_task(self._sample(look)) for look in looks]
        try:
            for _ in range(self.orchestrators):
                self._start_agent()
            await self._until(lambda: all(map(self._orchestrator, range(len(self.agents)))))
            await self._fail_around(seconds)
            await self._come_to_rest()
        finally:
            self._over.set()  # not cancelled: a plain client may lose a cancellation while it connects
            await asyncio.gather(*sampling)

    def end(self) -> None:
        """End every process that was started here."""
        for child in (*self.agents, *self.schedulers):
            if child.poll() is None:
                child.kill()
            child.wait()

    # ------------------------------------------------------------------ processes

    def _start(self, name: str, command: list[str], cwd: Path) -> subprocess.Popen[bytes]:
        with (
            (self.directory / f"{name}.out").open("wb") as out,
            (self.directory / f"{name}.err").open("wb") as err,
        ):
            env = os.environ
            return subprocess.Popen(
                command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    def _start_scheduler(self, spec: str, config: dict[str, Any], *options: str) -> None:
        file = self.directory / f"{spec.partition(':')[0]}.yaml"
        file.write_text(yaml.safe_dump(config))
        command = [sys.executable, "-m", "toolgate_bus", "scheduler", "run", spec, "--config", str(file)]
        command += ["--redis", self.server.url, "--namespace", NAMESPACE, "--json", *options]
        self.schedulers.append(
            self._start(f"scheduler{len(self.schedulers)}", command, HERE / "schedulers_for_tests")
        )

    def _start_agent(self) -> None:
        number = len(self.agents)
        command = [sys.executable, str(HERE / "agents_for_tests" / "spender.py"), self.server.url, NAMESPACE]
        command += [str(self.directory / f"{number}.journal"), str(self.sessions)]
        self.agents.append(self._start(f"agent{number}", command, HERE))

    def _said(self, name: str) -> list[str]:
        return (self.directory / f"{name}.out").read_text().splitlines()

    def _orchestrator(self, number: int) -> str:
        """The id that an agent printed; none yet while it starts."""
        return next((line for line in self._said(f"agent{number}") if _ID.fullmatch(line)), "")

    def _ready(self, number: int) -> int:
        return len(self._said(f"scheduler{number}"))

    def _replicas(self) -> list[int]:
        """Pids of the replicas of cost-aware that live."""
        lines = [json.loads(line) for line in self._said("scheduler0")]
        pids = [line["pid"] for line in lines if line["event"] == "ready"]
        return [pid for pid in pids if _lives(pid)]

    async def _until(self, holds: Any, seconds: float = SETTLED_S) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline or any(child.poll() is not None for child in self.schedulers):
                raise AssertionError(f"it does not come about: {self._errors()}")
            await asyncio.sleep(0.02)

    def _errors(self) -> str:
        return "\n".join(file.read_text()[-2000:] for file in sorted(self.directory.glob("*.err")))

    # ------------------------------------------------------------------ what fails

    async def _fail_around(self, seconds: float) -> None:
        kinds = [self._kill_agent, self._kill_replica, self._reset, self._repeat]
        faults = itertools.cycle(random.sample(kinds, len(kinds)))  # in any order, but each of them
        began = time.monotonic()
        while (passed := time.monotonic() - began) < seconds or not self.killed.keys() >= FAULTS:
            assert passed < seconds + SETTLED_S, f"not all faults came about: {self.killed}"
            await asyncio.sleep(random.uniform(0.1, 0.6))
            if self.killed["servers"] < self.restarts * passed / seconds - 0.5:
                self.killed["servers"] += 1
                await asyncio.to_thread(self.server.kill)
                self.server.start()
            if passed >= seconds / 2 and not self.killed["raised"]:
                self.killed["raised"] += 1
                await self._raise()
            await next(faults)()

    async def _raise(self) -> None:
        """Raise the limit at which calls wait, as `toolgate budget set` does."""
        self.limits["often"] = RAISED
        commands = RedisCommands(self.server.url, "storm")
        await Limits(RedisStore(commands, NAMESPACE), "budget").put("often", RAISED)
        await commands.aclose()

    async def _kill_agent(self) -> None:
        alive = [child for child in self.agents if child.poll() is None]
        victim = random.choice(alive)
        if self._orchestrator(self.agents.index(victim)):
            victim.kill()
            victim.wait()
            self.killed["agents"] += 1
            self._start_agent()

    async def _kill_replica(self) -> None:
        if replicas := self._replicas():
            os.kill(random.choice(replicas), signal.SIGKILL)
            self.killed["replicas"] += 1

    async def _reset(self) -> None:
        async with self._client() as client:
            await client.execute_command("CLIENT", "KILL", "TYPE", "normal")
            self.killed["connections"] += 1

    async def _repeat(self) -> None:
        """Deliver questions twice: the newest of the inbox once more."""
        async with self._client() as client:
            inbox = Keys(NAMESPACE).inbox("cost-aware")
            for _, fields in await client.xrevrange(inbox, count=20):
                await client.xadd(inbox, fields)
                self.killed["repeated"] += 1

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[redis.Redis]:
        client = redis.from_url(self.server.url)
        try:
            with contextlib.suppress(redis.RedisError):
                yield client
        finally:
            await client.aclose()

    async def _come_to_rest(self) -> None:
        for child in self.agents:
            if child.poll() is None:
                child.terminate()
        await self._until(lambda: all(child.poll() is not None for child in self.agents))
        began = moved = time.monotonic()
        before = -1
        async with self._client() as client:
            while held := await client.zcard(_key("open")):
                # Agents that ask without pause outrun the keeper: what it is late with becomes less.
                now = time.monotonic()
                if before < 0 or held < before:
                    before, moved = held, now
                assert now - moved < SETTLED_S, f"{held} decisions still hold money"
                await asyncio.sleep(0.05)
        self.settled_after = time.monotonic() - began

    # ------------------------------------------------------------------ the books

    async def _sample(self, look: Callable[[redis.Redis], Awaitable[None]]) -> None:
        """Look all the time, with a client of its own, as connections are cut."""
        while not self._over.is_set():
            async with self._client() as client:
                while not self._over.is_set():
                    await look(client)
            await asyncio.sleep(0.01)

    async def _look_at_accounts(self, client: redis.Redis) -> None:
        """Look at all accounts; the limits are those configured, whatever the ledger says."""
        limits = [word for pair in self.limits.items() for word in pair]
        wrong = await client.eval(_WRONG, 1, _key("accounts"), _key("a:"), *limits)
        self.overspent += [line.decode() for line in wrong]
        self.samples += 1
        await asyncio.sleep(0.05)  # thousands of accounts take milliseconds of the server

    async def _look_at_calls(self, client: redis.Redis) -> None:
        """Look at some calls that ran and have not ended. Pages miss some: a restart reorders keys."""
        if not self._waiting:
            ended = self.records.ended()
            self._waiting = [decision for decision in self.ran() if decision not in ended]
            await asyncio.sleep(0.5)
        batch, self._waiting = self._waiting[:500], self._waiting[500:]
        if batch:
            await self.records.find(client, batch)

    def ran(self) -> dict[str, tuple[str, int, int | None]]:
        """Every decision whose tool began to run: tool, size, and cost; None where none was told."""
        found: dict[str, tuple[str, int, int | None]] = {}
        for journal in self.directory.glob("*.journal"):
            for line in journal.read_bytes().split(b"\n")[:-1]:
                what, decision, tool, *told = json.loads(line)
                if what == "waited":
                    continue
                size, *cost = told
                found[decision] = (tool, size, cost[0] if what == "end" else None)
        return found

    async def audit(self) -> dict[str, int]:
        """Check the books against the journals; raises AssertionError for the first that is wrong."""
        assert self.samples > 0
        async with self._client() as client:
            records = await self.records.read(client)
            accounts = await accounts_in(client)
        ran, dead = self.ran(), self._dead()
        spent: dict[str, int] = defaultdict(int)
        counts: Counter[str] = Counter()
        for decision, (tool, *_) in ran.items():
            state = records.get(decision, {}).get("state")
            assert state in ("settled", "orphaned"), (
                f"{tool} of {decision} ran and is not paid for: {records.get(decision)}"
            )
        for decision, record in records.items():
            places = [record[f"k{number}"] for number in range(1, int(record.get("n", 0)) + 1)]
            state, amount = record["state"], int(record.get("amount", 0))
            assert state != "reserved", f"{decision} still holds money"
            if state == "orphaned":
                assert record["owner"] in dead, f"{decision} is an orphan, and its owner lived: {record}"
                assert amount in PRICES.values()
                cost, told = amount, None
            elif state == "settled" and places:
                assert decision in ran, f"{decision} is paid for and never ran"
                tool, size, told = ran[decision]
                assert amount == PRICES[tool], f"{decision}: {amount} was held for {tool}"
                cost = amount if told is None else told
                for place, share in shares_of(record).items():
                    name = place.partition("/")[0]
                    if name in COUNTED:
                        counts_it = tool in COUNTED[name]
                        wanted = {"often": 1, "time": RESERVED_US, "size": size * UNIT}[name]
                        assert share == wanted * counts_it, f"{decision}: {share} of {name} for {tool}"
            else:
                continue
            counts[state] += 1
            for place, share in shares_of(record).items():
                key = place.rpartition(":")[0]
                counted = TOOK_US if key.startswith("time/") and told is not None else share
                spent[key] += counted if key.partition("/")[0] in COUNTED else cost
        assert {key for key, _, reserved in accounts if reserved} == set()
        booked: dict[str, int] = defaultdict(int)
        for key, total, _ in accounts:
            booked[key] += total
        assert booked == {key: spent[key] for key in booked}
        assert {"all", "burst", "each", *COUNTED} <= {
            key.partition("/")[0] for key, sum_ in spent.items() if sum_
        }
        lines = [line for one in self.directory.glob("*.journal") for line in one.read_bytes().split(b"\n")]
        counts["waited"] = sum(line.startswith(b'["waited"') and b'"continue"' in line for line in lines)
        return {**counts, "ran": len(ran), "spent": spent["all/fleet"], **self.killed}

    def _dead(self) -> set[str]:
        """Orchestrators that were killed."""
        return {
            self._orchestrator(number)
            for number, child in enumerate(self.agents)
            if child.returncode == -signal.SIGKILL
        }


def shares_of(record: dict[str, str]) -> dict[str, int]:
    """What a decision held in each account, with its window."""
    numbers = range(1, int(record.get("n", 0)) + 1)
    amount = record.get("amount", "0")
    return {record[f"k{number}"]: int(record.get(f"m{number}", amount)) for number in numbers}


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _key(rest: str) -> str:
    return Keys(NAMESPACE).store_key(f"budget:{rest}")


async def accounts_in(client: redis.Redis) -> list[tuple[str, int, int]]:
    """Key, spent and reserved of every account, each read in one step."""
    places = sorted(await client.smembers(_key("accounts")))
    pipe = client.pipeline(transaction=False)
    for place in places:
        pipe.hmget(_key("a:") + place.decode(), "spent", "reserved")
    found = await pipe.execute() if places else []
    return [
        (place.decode().rpartition(":")[0], *(int(value or 0) for value in values))
        for place, values in zip(places, found, strict=True)
    ]


async def records_in(client: redis.Redis) -> dict[str, dict[str, str]]:
    """Every decision that the ledger knows."""
    cursor, found = await _page_of_records(client, 0)
    while cursor:
        cursor, more = await _page_of_records(client, cursor)
        found |= more
    return found


async def _page_of_records(client: redis.Redis, cursor: int) -> tuple[int, dict[str, dict[str, str]]]:
    match = _key("r:").replace("{", "[{]") + "*"
    after, packed = await client.eval(_PAGE, 0, cursor, match)
    return int(after), _records(packed)


def _records(packed: bytes) -> dict[str, dict[str, str]]:
    return {
        key.rpartition(":")[2]: dict(zip(flat[::2], flat[1::2], strict=True))
        for key, flat in msgpack.unpackb(packed)
        if flat
    }


@dataclass
class Records:
    """Every decision that the ledger ever knew: a minute after its end it keeps no amounts."""

    _seen: dict[str, dict[str, str]] = field(default_factory=dict)
    _cursor: int = 0

    async def look(self, client: redis.Redis) -> None:
        """Read a page of them. Page by page, as connections are cut all the time."""
        self._cursor, found = await _page_of_records(client, self._cursor)
        self._seen |= found
        await asyncio.sleep(0.002)

    async def find(self, client: redis.Redis, decisions: Sequence[str]) -> None:
        """Read the records of these decisions, as far as they are there."""
        packed = await client.eval(_FOUND, len(decisions), *(_key("r:") + one for one in decisions))
        self._seen |= _records(packed)

    def ended(self) -> set[str]:
        """Return the decisions that are settled; an orphan may still be."""
        return {name for name, record in self._seen.items() if record["state"] == "settled"}

    async def read(self, client: redis.Redis) -> dict[str, dict[str, str]]:
        """Read all that are there, and return all that were ever read, as they were last."""
        self._seen |= await records_in(client)
        return self._seen
