"""`toolgate report` over a month's turn in a time zone: the clock of every process is moved (libfaketime).

The server, the scheduler, the archiver, the agents and the report are processes that read one clock; nothing
of ours knows that it was moved. The server is the wheel's: those with jemalloc do not start so.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from toolgate_bus.commands.decisions.archive_reader import read_archived_facts
from toolgate_bus.errors import ConfigError
from toolgate_bus.ledger.money.journal import journal_key
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.server.embedded import server_process
from toolgate_bus.transport.redis.client.connection import RedisCommands

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(180)]

AGENT = Path(__file__).parents[1] / "agents_for_tests" / "month_spender.py"
CONFIG = {
    "tools": {"search": {"cost": 0.4}, "crawl": {"cost": 0.15}, "notes": {"cost": 0}},
    "llm": {"prices": {"here/small": {"input": 3, "output": 15}}},
    "budgets": [
        {
            "name": "teams",
            "level": "label:team",
            "limit": 500,
            "window": "month",
            "time_zone": "Europe/Berlin",
        }
    ],
    "learn": False,
}
LIBRARY = "faketime/libfaketime.so.1"
TEAMS = ("red", "blue")


class MovedClock:
    """The clock that every process started from here on reads; their monotonic clocks stay true."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        library = next(
            (one for root in ("/usr/lib", "/usr/lib64") for one in Path(root).glob(f"*/{LIBRARY}")), None
        )
        if library is None:
            why = "libfaketime is not here (Debian: apt-get install faketime)"
            pytest.fail(why) if os.environ.get("TOOLGATE_TOOLS") == "required" else pytest.skip(why)
        self._file = directory / "moved"
        self.move("2027-03-20T10:00:00+00:00")
        patch.setenv("LD_PRELOAD", str(library))
        patch.setenv("FAKETIME_TIMESTAMP_FILE", str(self._file))
        patch.setenv("FAKETIME_NO_CACHE", "1")
        patch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")

    def move(self, to: str) -> None:
        """It is this time now, in every process at once."""
        offset = int(datetime.fromisoformat(to).timestamp() - time.time())
        new = self._file.with_suffix(".new")
        new.write_text(f"{offset:+d}\n")
        new.replace(self._file)


class Spender:
    """One agent, and what it says that it has spent."""

    def __init__(self, url: str, namespace: str, team: str) -> None:
        self.team = team
        self.child = subprocess.Popen(
            [sys.executable, str(AGENT), url, namespace, team],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    async def does(self, line: str) -> int:
        """Have it do something; micro-units."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(line + "\n")
        told = await asyncio.wait_for(asyncio.to_thread(self.child.stdout.readline), 60)
        return int(json.loads(told)["spent"])

    def end(self) -> None:
        """End it, as a kill does."""
        self.child.kill()
        self.child.communicate()


class Fleet:
    """Everything on one server, and what was spent in which month, by team."""

    def __init__(
        self, url: str, clock: MovedClock, directory: Path, process: Callable[..., Any], wait: Any
    ) -> None:
        self.url, self.clock, self.directory, self.process, self.wait = url, clock, directory, process, wait
        self.commands = RedisCommands(url, "test-month")
        self.agents = [Spender(url, "months", team) for team in TEAMS]
        self.march, self.april = Counter[str](), Counter[str]()

    def toolgate(self, *words: object) -> Any:
        where = ("--redis", self.url, "--namespace", "months")
        return self.process("python", "-m", "toolgate_bus", *words, *where)

    async def all_do(self, line: str, month: Counter[str]) -> None:
        spent = await asyncio.gather(*(one.does(line) for one in self.agents))
        month.update({one.team: each for one, each in zip(self.agents, spent, strict=True)})

    async def is_settled_and_archived(self) -> bool:
        """Whether nothing is held, and the archive has what the accounts have."""
        ledger = RedisLedger(self.commands, "months")
        if await ledger.open():
            return False
        spent = sum(one.spent for one in await ledger.balances())
        with contextlib.suppress(ConfigError):
            archived = (
                one for one in read_archived_facts(self.directory / "archive") if one["event"] == "ledger"
            )
            return spent == sum(one["amount"] for one in archived)
        return False

    def archived_decisions(self, team: str) -> int:
        """How many the archive has of a team."""
        with contextlib.suppress(ConfigError):
            facts = read_archived_facts(self.directory / "archive")
            return sum(one["event"] == "decision" and one.get("labels") == {"team": team} for one in facts)
        return 0

    async def rest(self) -> None:
        await self.wait(self.is_settled_and_archived, timeout=40)

    async def report(self, month: str, *words: object) -> tuple[Counter[str], int]:
        """Spent in a month of Berlin: by team, and in all."""
        options = ("--month", month, "--time-zone", "Europe/Berlin", "--by", "team", "--json")
        running = self.toolgate("report", *options, *words)
        assert await asyncio.to_thread(running.wait, 60) == 0, running.stdout + running.stderr
        lines = [json.loads(line) for line in running.stdout.splitlines()]
        assert lines[-1]["total"]["outside"] == 0
        assert any("agree with its journal to the unit" in words for words in lines[-1]["sources"])
        spent = {one["by"]["label:team"]: one["spent"] for one in lines[:-1]}
        return +Counter(spent), lines[-1]["total"]["spent"]


@pytest.fixture
async def fleet(
    tmp_path: Path,
    short_directory: Path,
    monkeypatch: pytest.MonkeyPatch,
    process: Callable[..., Any],
    wait_until: Callable[..., Awaitable[Any]],
) -> AsyncIterator[Fleet]:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "")
        server = server_process(short_directory)
    clock = MovedClock(tmp_path, monkeypatch)
    server.start()
    made = Fleet(server.url, clock, tmp_path, process, wait_until)
    try:
        yield made
    finally:
        for one in made.agents:
            one.end()
        await made.commands.aclose()
        server.kill()


async def test_over_a_months_turn_report_ledger_and_archive_say_the_same_to_the_unit(
    fleet: Fleet, wait_until: Callable[..., Awaitable[Any]]
) -> None:
    file = fleet.directory / "cost.yaml"
    file.write_text(yaml.safe_dump(CONFIG))
    scheduler = fleet.toolgate("scheduler", "run", "cost-aware", "--config", file, "--json")
    fleet.toolgate("decisions", "archive", fleet.directory / "archive")
    await wait_until(lambda: '"ready"' in scheduler.stdout, timeout=30)

    await fleet.all_do("pay 20", fleet.march)
    gone = Spender(fleet.url, "months", "green")
    await gone.does("open 2")
    await wait_until(lambda: fleet.archived_decisions("green") == 2)
    gone.end()
    fleet.march["green"] = 2 * 400_000  # nobody told what they cost: paid as they were estimated
    await fleet.rest()

    fleet.clock.move("2027-03-31T23:58:00+02:00")  # summer time began meanwhile
    await fleet.all_do("open 3", fleet.march)
    fleet.clock.move("2027-04-01T00:01:00+02:00")  # in UTC it is March still
    await fleet.all_do("close", fleet.march)  # in the month in which it was reserved
    await fleet.all_do("pay 20", fleet.april)
    await fleet.rest()
    fleet.clock.move("2027-04-02T12:00:00+02:00")
    await fleet.all_do("pay 5", fleet.april)
    await fleet.rest()

    found: dict[int, Counter[str]] = {}
    for one in await RedisLedger(fleet.commands, "months").balances():
        found.setdefault(one.window, Counter())[one.key.rpartition("/")[2]] = one.spent
    assert [+spent for _, spent in sorted(found.items())] == [+fleet.march, +fleet.april]
    months = {"2027-03": +fleet.march, "2027-04": +fleet.april}
    for month, spent in months.items():  # the server knows the sums; who it was only for an hour
        assert (await fleet.report(month))[1] == spent.total()
    await fleet.commands.execute("XTRIM", journal_key("months", "budget"), "MAXLEN", 0)
    for month, spent in months.items():
        told = await fleet.report(month, "--archive", fleet.directory / "archive")
        assert told == (spent, spent.total())
