"""`toolgate report` agrees with the ledger and with the archive to the unit, while windows turn."""

import asyncio
import contextlib
import json
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from toolgate_bus.commands.decisions.archive_reader import read_archived_facts
from toolgate_bus.errors import ConfigError
from toolgate_bus.ledger.money.journal import journal_key
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call, Caller, Gate

pytestmark = [pytest.mark.system, pytest.mark.acceptance, pytest.mark.timeout(120)]

WINDOW = 2
PRICES = {"search": 400_000, "cheap": 90_000, "crawl": 150_000, "notes": 0}
TEAMS = ("red", "blue", "green")
CONFIG = {
    "tools": {tool: {"cost": price / 1_000_000} for tool, price in PRICES.items()},
    "alternatives": [{"tools": ["search", "cheap"]}],
    "budgets": [
        {"name": "teams", "level": "label:team", "limit": None, "window": WINDOW},
        {"name": "each", "level": "session", "limit": 3},
    ],
    "learn": False,
}


@dataclass
class Fleet:
    """Real parts on one server, and what the agents of it know that they have spent."""

    url: str
    namespace: str
    directory: Path
    process: Callable[..., Any]
    commands: RedisCommands
    chance: random.Random
    spent: Counter[str] = field(default_factory=Counter)
    """By team, in micro-units."""
    loose: int = 0
    """What calls cost of which no budget knew."""
    denied: int = 0

    @property
    def bus(self) -> tuple[str, ...]:
        return ("--redis", self.url, "--namespace", self.namespace)

    def start(self, *words: object) -> Any:
        return self.process("toolgate", *words, *self.bus)

    def start_ledger(self) -> Any:
        file = self.directory / "cost.yaml"
        file.write_text(yaml.safe_dump(CONFIG))
        return self.start("scheduler", "run", "cost-aware", "--config", file, "--json")

    def start_archiver(self, *options: str) -> Any:
        return self.start("decisions", "archive", self.directory / "archive", *options)

    def ledger(self) -> RedisLedger:
        return RedisLedger(self.commands, self.namespace)

    async def report(self, *words: object, code: int = 0) -> list[dict[str, Any]]:
        running = self.start("report", "--json", *words)
        assert await asyncio.to_thread(running.wait, 60) == code, running.stderr
        return [json.loads(line) for line in running.stdout.splitlines()]

    def gate(self) -> Any:
        return Gate.open(redis=self.url, namespace=self.namespace, required=("cost-aware",), patience_ms=9000)

    async def spend(self, gate: Gate, calls: int) -> None:
        """Calls of three teams, each of which tells more, less, or no cost, or is not run after all."""
        await asyncio.gather(*(self._call(gate) for _ in range(calls)))

    async def _call(self, gate: Gate) -> None:
        team, tool = self.chance.choice(TEAMS), self.chance.choice(list(PRICES))
        session = f"{team}-{self.chance.randrange(12)}"
        await asyncio.sleep(self.chance.uniform(0, WINDOW))
        decision = await gate.decide(
            Call(tool, {}, list(PRICES), Caller(session, f"agent-{team}", labels={"team": team}))
        )
        if not decision.allowed:
            self.denied += 1
            return
        told = {"decision_id": decision.id, "tool": decision.tool_name, "session": session}
        await asyncio.sleep(self.chance.uniform(0, 0.5))
        kind, price = self.chance.random(), PRICES[decision.tool_name]
        if kind < 0.1:
            gate.note("tool:unused", told)
        elif kind < 0.2:
            gate.note("tool:error", {**told, "error": "OSError", "seconds": 0.1})
            self.spent[team] += price
        else:
            cost = self.chance.randrange(2 * price) if price else 0  # it may be an overrun
            gate.note("tool:post", {**told, "success": True, "seconds": 0.1, "cost": cost})
            self.spent[team] += cost

    async def spend_loose(self, gate: Gate, cost: int) -> None:
        """An LLM request that nobody asked about."""
        gate.note("usage", {"session": "red-1", "provider": "p", "model": "m", "cost_usd": f"{cost / 1e6:f}"})
        self.loose += cost

    async def leave_orphans(self, gate: Gate) -> None:
        """Two calls that are paid at their estimates; of the second it is told after all what it cost."""
        for cost in (None, 70_000):
            made = await gate.decide(Call("crawl", {}, list(PRICES), Caller("red-x", labels={"team": "red"})))
            assert await self.ledger().orphan(made.id)
            if cost is not None:
                gate.note(
                    "tool:post", {"decision_id": made.id, "tool": "crawl", "success": True, "cost": cost}
                )
            self.spent["red"] += PRICES["crawl"] if cost is None else cost

    async def by_team(self, *periods: range) -> Counter[str]:
        """What the ledger's accounts say, over these windows."""
        found: Counter[str] = Counter()
        for one in await self.ledger().balances():
            if one.key.startswith("teams/") and any(one.window in windows for windows in periods):
                found[one.key.rpartition("/")[2]] += one.spent
        return +found


@pytest.fixture(name="fleet", params=[1, 2])
async def _fleet(
    request: Any, server_url: str, namespace: str, tmp_path: Path, process: Callable[..., Any]
) -> AsyncIterator[Fleet]:
    commands = RedisCommands(server_url, "test-report")
    try:
        yield Fleet(server_url, namespace, tmp_path, process, commands, random.Random(request.param))
    finally:
        await commands.aclose()


def spent_of(lines: list[dict[str, Any]]) -> Counter[str]:
    return Counter({one["by"]["label:team"]: one["spent"] for one in lines if one.get("spent")})


async def test_over_the_turn_of_windows_report_ledger_and_archive_say_the_same(
    fleet: Fleet, wait_until: Callable[..., Awaitable[Any]]
) -> None:
    ledger = fleet.ledger()
    scheduler = fleet.start_ledger()
    archiver = fleet.start_archiver()
    await wait_until(lambda: '"ready"' in scheduler.stdout, timeout=30)
    begin = int(time.time()) // WINDOW
    async with fleet.gate() as gate:
        await fleet.spend(gate, 60)
        archiver.signal(signal.SIGKILL)
        await asyncio.to_thread(archiver.wait, 30)
        await fleet.spend(gate, 60)
        archiver = fleet.start_archiver()
        await fleet.spend_loose(gate, 123)
        await fleet.leave_orphans(gate)
        await wait_until(lambda: _is_settled(ledger), timeout=40)

        async def corrected() -> bool:  # what an orphan cost after all is told last
            return await fleet.by_team(range(begin, int(time.time()) // WINDOW + 1)) == +fleet.spent

        await wait_until(corrected, timeout=40)
    end = int(time.time()) // WINDOW + 1

    accounts = await fleet.by_team(range(begin, end))
    assert accounts == +fleet.spent  # the ledger and the agents agree
    await wait_until(lambda: _archived(fleet) == sum(accounts.values()) > 0, timeout=30)
    archiver.signal(signal.SIGTERM)
    assert await asyncio.to_thread(archiver.wait, 30) == 0, archiver.stderr

    whole = ("--since", _at(begin), "--until", _at(end), "--by", "team")
    live = await fleet.report(*whole)
    await fleet.commands.execute("XTRIM", journal_key(fleet.namespace, "budget"), "MAXLEN", 0)
    kept = await fleet.report(*whole, "--archive", fleet.directory / "archive")
    for lines in (live, kept):
        total = lines[-1]["total"]
        assert spent_of(lines[:-1]) == accounts
        assert (total["spent"], total["outside"]) == (sum(accounts.values()), fleet.loose)
        assert (total["denied"], total["orphans"]) == (fleet.denied, 2)
        assert total["overruns"] > 0
        assert any("agree with its journal to the unit" in words for words in lines[-1]["sources"])

    # The turn: what was reserved before it is of the time before it, as in the ledger.
    turn = (begin + end) // 2
    for first, after in ((begin, turn), (turn, end)):
        part = ("--since", _at(first), "--until", _at(after), "--by", "team")
        lines = await fleet.report(*part, "--archive", fleet.directory / "archive")
        assert spent_of(lines[:-1]) == await fleet.by_team(range(first, after))
        assert not any("the ledger says" in words for words in lines[-1]["unknown"])


async def test_what_the_ledger_has_and_its_journal_lost_is_told(
    fleet: Fleet, wait_until: Callable[..., Awaitable[Any]]
) -> None:
    scheduler = fleet.start_ledger()
    await wait_until(lambda: '"ready"' in scheduler.stdout, timeout=30)
    begin = int(time.time()) // WINDOW
    async with fleet.gate() as gate:
        await fleet.spend(gate, 10)
        await wait_until(lambda: _is_settled(fleet.ledger()), timeout=40)
    await fleet.commands.execute("XTRIM", journal_key(fleet.namespace, "budget"), "MAXLEN", 1)
    lines = await fleet.report("--since", _at(begin), "--strict", code=1)
    unknown = " ".join(lines[-1]["unknown"])
    assert "entries of the ledger's journal were trimmed before they were read" in unknown
    assert "the ledger says" in unknown


async def test_what_an_operator_sets_to_zero_is_spent_all_the_same_and_no_difference(
    fleet: Fleet, wait_until: Callable[..., Awaitable[Any]]
) -> None:
    scheduler = fleet.start_ledger()
    await wait_until(lambda: '"ready"' in scheduler.stdout, timeout=30)
    begin = int(time.time()) // WINDOW
    async with fleet.gate() as gate:
        await fleet.spend(gate, 20)
        spending = asyncio.create_task(fleet.spend(gate, 40))
        for _ in range(3):
            reset = fleet.start("budget", "reset", "teams", "--yes")
            assert await asyncio.to_thread(reset.wait, 30) == 0, reset.stderr
        await spending
        await wait_until(lambda: _is_settled(fleet.ledger()), timeout=40)
    end = int(time.time()) // WINDOW + 1
    lines = await fleet.report("--since", _at(begin), "--until", _at(end), "--by", "team")
    assert spent_of(lines[:-1]) == +fleet.spent
    zeroed = sum(fleet.spent.values()) - sum((await fleet.by_team(range(begin, end))).values())
    told = [words for words in lines[-1]["sources"] if "were set to zero" in words]
    assert sum(int(words.split()[2]) for words in told) == zeroed > 0
    assert any("agree with its journal to the unit" in words for words in lines[-1]["sources"])
    assert not any("the ledger says" in words for words in lines[-1]["unknown"])


def _at(window: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(window * WINDOW))


def _archived(fleet: Fleet) -> int:
    with contextlib.suppress(ConfigError):
        lines = list(read_archived_facts(fleet.directory / "archive"))
        return sum(one["amount"] for one in lines if one["event"] == "ledger")
    return 0


async def _is_settled(ledger: RedisLedger) -> bool:
    return not await ledger.open()
