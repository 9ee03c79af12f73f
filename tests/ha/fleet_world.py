"""A fleet on sentinels: agents with journals, schedulers, a budget, people who answer, exporter, archiver.

All are processes of their own but for the person, who answers in this one. Faults are in `faults.py`.
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
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from journals import Journal, Journals, is_refused
from toolgate_bus.commands.decisions.archive_reader import read_archived_facts
from toolgate_bus.commands.decisions.archive_store import COMMITTED
from toolgate_bus.errors import ToolgateError
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.server.guard import die_with_parent
from toolgate_bus.state.shared import connect_shared_state
from toolgate_bus.transport.ports import rest_after_search
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.shards import write_count
from toolgate_schedulers.commands.approvals.answer import Person, answer
from toolgate_schedulers.shipped.approval.queue import ApprovalQueue
from toolgate_schedulers.shipped.approval.queue import news as read_news

HERE = Path(__file__).parent
OBEDIENT = HERE.parent / "acceptance" / "schedulers_for_tests"
NS = "default"
COST = """
tools: {search: {cost: 0.4}}
budgets: [{name: all, level: fleet, limit: 1000000}]
learn: false
"""
APPROVAL = "rules: [{tools: transfer}]"
SCHEDULERS = ("alpha", "cost", "people")
BEGIN_S = 60.0
SETTLED_S = 40.0
CALM_S = 10.0
"""Books that have not changed for so long are what they are: longer than a settler's lease."""
SHOWN_S = 10.0
"""The exporter shows what it has kept, and keeps once a second."""
REMEMBERED_S = 60.0
"""An answer that was given so long ago no failover forgets any more: its call is not looked at again."""
LOOK_S = 3.0
"""So often the person looks through all that waits, whatever there is news of."""


class Books(NamedTuple):
    """What the ledger says was spent, in micro-units, and how many decisions hold money."""

    spent: int
    open: int


class Loss(NamedTuple):
    """What was paid and is not in the books, in micro-units, and decisions that hold money for ever."""

    spent: int = 0
    open: int = 0
    told: str = ""
    """Why, where the ledger says so itself, and denies until somebody decides."""

    @property
    def is_silent(self) -> bool:
        """Whether something is lost, and nobody is told."""
        return (self.spent, self.open) != (0, 0) and not self.told


@dataclass
class Fleet:
    """One."""

    url: str
    directory: Path
    agents: int = 3
    sessions: int = 4
    shards: int = 1
    """Over so many its agents lie, one after the other."""

    def __post_init__(self) -> None:
        self._pause = self.directory / "pause"
        self._pause.touch()
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self.journals = Journals([Journal(self.directory / f"agent{n}.journal") for n in range(self.agents)])
        self.lost = Loss()
        """So far."""
        self.commands = RedisCommands(self.url, "test-fleet")
        self.ledger = RedisLedger(self.commands, NS)
        self.answered = 0
        self.settled_s: list[float] = []
        """How long the books took each time to be what was paid."""

    # ------------------------------------------------------------------ processes

    def start(self, name: str, *words: object) -> None:
        """One process; what it says goes to files."""
        with (self.directory / f"{name}.out").open("ab") as out, self._err(name).open("ab") as err:
            self._started[name] = subprocess.Popen(
                [sys.executable, *map(str, words)],
                cwd=OBEDIENT,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                preexec_fn=die_with_parent(),
            )

    def _environment(self) -> dict[str, str]:
        """Nothing of the user's: what waits for a server lies in this directory, too."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("TOOLGATE_")}
        state = {"XDG_STATE_HOME": str(self.directory), "XDG_RUNTIME_DIR": str(self.directory)}
        return {**own, **state}

    def start_all(self) -> None:
        """Everybody; agents ask once `go` is called."""
        for name, config in (("cost", COST), ("approval", APPROVAL)):
            (self.directory / f"{name}.yaml").write_text(config)
        where = ("--redis", self.url, "--namespace", NS)
        run = ("-m", "toolgate_bus", "scheduler", "run")
        replicas = ("--replicas", 2, "--json")
        self.start("alpha", *run, "obedient:alpha", *where, *replicas)
        self.start("cost", *run, "cost-aware", "--config", self.directory / "cost.yaml", *where, *replicas)
        self.start(
            "people", *run, "approval", "--config", self.directory / "approval.yaml", *where, *replicas
        )
        self.start("exporter", "-m", "toolgate_bus", "exporter", "--port", 0, "--json", *where)
        self.start("archiver", "-m", "toolgate_bus", "decisions", "archive", self.archive, *where)
        for number, journal in enumerate(self.journals.each):
            self.start(
                f"agent{number}",
                HERE / "journal_agent.py",
                self.url,
                journal.file,
                self._pause,
                self.sessions,
                *([number % self.shards] if self.shards > 1 else []),
            )

    async def begin(self) -> None:
        """Start everybody, and wait until every agent is ruled by all."""
        await write_count(self.commands, Keys(NS), self.shards)
        self.start_all()
        async with asyncio.timeout(BEGIN_S):
            while not all(len(self.replicas(name)) == 2 for name in SCHEDULERS):
                await asyncio.sleep(0.05)
        self.go()
        await self.until_all_go_on(time.monotonic(), BEGIN_S)

    async def end(self) -> None:
        """End everybody, at once."""
        for child in self._started.values():
            child.kill()
            child.wait()
        await self.commands.aclose()

    def replicas(self, name: str) -> list[int]:
        """Process ids of those of a scheduler that have said that they are ready, and live."""
        said = (self.directory / f"{name}.out").read_text().splitlines()
        lines = [json.loads(line) for line in said]
        pids = [line["pid"] for line in lines if line["event"] == "ready"]
        return [pid for pid in pids if _lives(pid)]

    def kill_scheduler(self) -> None:
        """kill -9 of one replica of any scheduler; its supervisor starts another."""
        alive = self.replicas(random.choice(SCHEDULERS))
        if alive:
            os.kill(random.choice(alive), signal.SIGKILL)

    def memory(self) -> dict[str, int]:
        """What each process that was started here has in memory, in megabytes."""
        found = {}
        for name, child in self._started.items():
            with contextlib.suppress(OSError):
                pages = int(Path(f"/proc/{child.pid}/statm").read_text().split()[1])
                found[name] = pages * os.sysconf("SC_PAGE_SIZE") >> 20
        return found

    def _err(self, name: str) -> Path:
        return self.directory / f"{name}.err"

    def errors(self) -> str:
        """The last that each has said about errors."""
        return "\n".join(
            f"{file.stem}: {text[-800:]}"
            for file in self.directory.glob("*.err")
            if (text := file.read_text())
        )

    def deaths(self) -> list[str]:
        """Who has ended without being told to."""
        return [name for name, child in self._started.items() if child.poll() is not None]

    # ------------------------------------------------------------------ what agents do

    def go(self) -> None:
        """Have the agents ask on."""
        self._pause.unlink(missing_ok=True)

    async def rest(self) -> None:
        """Have the agents ask nothing more, until no call waits; what waits longer is stuck."""
        self._pause.touch()
        await asyncio.sleep(0.05)  # longer than the rest between two calls
        while not self.journals.read().is_idle and not self.journals.stuck(time.monotonic()):
            await asyncio.sleep(0.02)

    async def until_all_go_on(self, moment: float, seconds: float) -> None:
        """Until each agent has something ruled that it asked since then."""
        while not self.journals.read().goes_on(moment):
            assert time.monotonic() - moment < seconds, f"an agent stands still:\n{self.errors()}"
            await asyncio.sleep(0.02)

    @contextlib.asynccontextmanager
    async def answer_people(self) -> AsyncIterator[None]:
        """Somebody at the desk for the length of the block."""
        stop = asyncio.Event()
        task = asyncio.create_task(self._answer(stop))
        try:
            yield
        finally:
            stop.set()
            await task

    async def _answer(self, stop: asyncio.Event) -> None:
        shared = connect_shared_state(self.url, self.commands, NS)
        desk, after, look_at = ApprovalQueue(shared.store, shared.notices), "0-0", 0.0
        asked: dict[str, float] = {}
        answered: dict[str, float] = {}
        while not stop.is_set():
            try:
                notices = await desk.news(after, 0.02 if asked else 0.2)
                after = notices[-1].id if notices else after
                now = time.monotonic()
                if now >= look_at:
                    asked.update((one.approval.id, now) for one in await desk.list_waiting())
                    look_at = time.monotonic() + max(LOOK_S, rest_after_search(time.monotonic() - now))
                said = [one for one in map(read_news, notices) if one is not None]
                asked.update((one.approval, now) for one in said if one.kind == "asked")
                for id_ in list(asked):
                    is_over = now - answered.get(id_, now) > REMEMBERED_S
                    if not is_over and await self._answer_one(desk, id_):
                        answered.setdefault(id_, now)
                        is_over = True
                    if is_over or now - asked[id_] > LOOK_S:
                        del asked[id_]
            except ToolgateError:
                after, look_at = "0-0", 0.0  # a new primary may have forgotten the newest
                await asyncio.sleep(0.05)
        await shared.aclose()

    async def _answer_one(self, desk: ApprovalQueue, id_: str) -> bool:
        """Whether it is answered; a call that is not held yet is not, nor one whose agent is gone."""
        approval = await desk.approval(id_)
        if approval is None or await desk.answer_to(id_) is not None:
            return True  # what is answered, others give
        if not await desk.is_held(approval):
            return False
        number = approval.question.tool_input["n"]
        who = Person("anna", "here")
        await answer(desk, approval, who, "deny" if is_refused(number) else "approve")
        self.answered += 1
        return True

    # ------------------------------------------------------------------ books and record

    async def books(self) -> Books:
        """As they are now."""
        balances = await self.ledger.balances()
        spent = sum(one.spent for one in balances if one.key == "all/fleet")
        return Books(spent, len(await self.ledger.open()))

    async def settled_books(self, expected: Books) -> Books:
        """As expected, or once nothing has changed for a while."""
        seen, since, deadline = None, time.monotonic(), time.monotonic() + SETTLED_S
        while time.monotonic() < deadline and (seen is None or time.monotonic() - since < CALM_S):
            with contextlib.suppress(ToolgateError):
                books = await self.books()
                if books == expected:
                    return books
                if books != seen:
                    seen, since = books, time.monotonic()
            await asyncio.sleep(0.05)
        assert seen is not None, f"the books cannot be read:\n{self.errors()}"
        return seen

    async def count_loss(self) -> Loss:
        """What the books lack, and hold for nobody, since this was asked last; for a fleet at rest.

        Where the ledger says that it was lost, somebody accepts that.
        """
        known = self.lost
        began = time.monotonic()
        books = await self.settled_books(Books(self.journals.read().paid - known.spent, known.open))
        self.lost = Loss(self.journals.paid - books.spent, books.open)
        self.settled_s.append(time.monotonic() - began)
        loss = await self.ledger.loss()
        if loss is not None:
            await self.ledger.decide("accept-loss", "anna", "a test")
        return Loss(self.lost.spent - known.spent, self.lost.open - known.open, loss.why if loss else "")

    @property
    def archive(self) -> Path:
        """Where the archiver writes."""
        return self.directory / "archive"

    def read_record(self) -> Counter[tuple[str, str]]:
        """How often each decision with its outcome, and each call that ran, stands in the archive."""
        found: Counter[tuple[str, str]] = Counter()
        for one in read_archived_facts(self.archive) if (self.archive / COMMITTED).exists() else ():
            if one["event"] == "decision":
                found[one["id"], one["outcome"]] += 1
            elif one["event"] == "tool:post":
                found[one["decision_id"], "ran"] += 1
        return found

    async def find_record_faults(self, seconds: float = SETTLED_S) -> list[str]:
        """What is missing or twice in the archive, once it has had time to take all."""
        truth = Counter(self.journals.outcomes.items())
        truth.update((decision, "ran") for decision in self.journals.ran.elements())
        deadline = time.monotonic() + seconds
        while (found := await asyncio.to_thread(self.read_record)) != truth:
            if time.monotonic() > deadline:
                return [
                    *(f"{one} is missing" for one in truth - found),
                    *(f"{one} is one too many" for one in found - truth),
                ]
            await asyncio.sleep(0.2)
        return []

    async def find_count_faults(self, seconds: float = SHOWN_S) -> list[str]:
        """By how much the exporter counts wrong, once it has had time to show what it kept."""
        deadline = time.monotonic() + seconds
        while (found := await asyncio.to_thread(self._read_count)) != self.journals.decisions:
            if time.monotonic() > deadline:
                return [f"the exporter counted {found} of {self.journals.decisions} decisions"]
            await asyncio.sleep(0.2)
        return []

    def _read_count(self) -> int:
        said = [json.loads(line) for line in (self.directory / "exporter.out").read_text().splitlines()]
        with urllib.request.urlopen(said[0]["url"], timeout=10) as got:
            page = got.read().decode()
        rows = re.findall(r"^toolgate_decisions_total(?:\{[^}]*\})? (\S+)", page, re.MULTILINE)
        return round(sum(map(float, rows)))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@contextlib.asynccontextmanager
async def fleet_on(url: str, directory: Path, **sizes: Any) -> AsyncIterator[Fleet]:
    """One that works, with somebody at the desk."""
    fleet = Fleet(url, directory, **sizes)
    try:
        async with fleet.answer_people():
            await fleet.begin()
            yield fleet
    finally:
        await fleet.end()
