"""What the acceptance tests use: scheduler processes, a rogue on the wire, the server's own statistics.

`crew` are three processes that all tests of the session share; they answer as each call tells them
(`schedulers_for_tests/obedient.py`). Tests that kill, restart or count start their own by `schedulers`.
"""

import asyncio
import contextlib
import json
import os
import secrets
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis.asyncio as redis
from notify_world import LoopbackReceiver, Notifiers
from nursery import NURSERY, Process
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.heartbeats import encode_member
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster

SCHEDULERS = Path(__file__).parent / "schedulers_for_tests"
READY_SECONDS = 50.0


class Line(NamedTuple):
    """One line of the schedulers' log."""

    what: str
    scheduler: str
    pid: int
    decision: str
    phase: str
    tool: str


@dataclass(frozen=True)
class Schedulers:
    """Starts `toolgate scheduler run` processes on one bus; they log to one file."""

    url: str
    namespace: str
    directory: Path
    started: list[Process]

    def run(self, spec: str, *options: object) -> Process:
        """Start one; `ready` waits for it."""
        where = ("--redis", self.url, "--namespace", self.namespace, "--json")
        words = ["scheduler", "run", spec, *map(str, options), *where]
        number = len(self.started)
        with (
            self._file(number, "out").open("wb") as out,
            self._file(number, "err").open("wb") as err,
            Path(os.devnull).open("rb") as nothing,
        ):
            env = os.environ | {"TOOLGATE_TEST_LOG": str(self.log)}
            files = (nothing.fileno(), out.fileno(), err.fileno())
            child = NURSERY.start(words, env, SCHEDULERS, files)
        self.started.append(child)
        return child

    def pids(self, child: Process) -> list[int]:
        """The process ids of its replicas that have said that they are ready."""
        said = self._file(self.started.index(child), "out").read_text().splitlines()
        lines = [json.loads(line) for line in said]
        return [line["pid"] for line in lines if line["event"] == "ready"]

    def said(self, child: Process) -> str:
        """What it wrote to stderr."""
        return self._file(self.started.index(child), "err").read_text()

    async def ready(self, child: Process, replicas: int = 1) -> list[int]:
        """Wait for its ready lines; gives the replicas' pids."""
        deadline = time.monotonic() + READY_SECONDS
        while len(pids := self.pids(child)) < replicas:
            if child.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"not ready: {self.said(child)}")
            await asyncio.sleep(0.01)
        return pids

    async def start(self, spec: str, *options: object, replicas: int = 1) -> list[int]:
        """`run` and `ready`."""
        if replicas > 1:
            options = (*options, "--replicas", replicas)
        return await self.ready(self.run(spec, *options), replicas)

    @property
    def log(self) -> Path:
        """Where they note what they are asked."""
        return self.directory / "log"

    def lines(self, what: str, **only: Any) -> list[Line]:
        """The notes of one kind, of those where the given fields have the given values."""
        text = self.log.read_text() if self.log.exists() else ""
        rows = [line.split(" ") for line in text.splitlines()]
        lines = [Line(row[0], row[1], int(row[2]), *row[3:]) for row in rows]
        return [
            one for one in lines if one.what == what and all(getattr(one, k) == v for k, v in only.items())
        ]

    def end(self) -> None:
        """Kill them all, as some were told never to answer; a supervisor takes its replicas along."""
        for child in self.started:
            if child.poll() is None:
                child.kill()
        for child in self.started:
            child.wait()

    def _file(self, number: int, kind: str) -> Path:
        return self.directory / f"{number}.{kind}"


@contextlib.contextmanager
def _schedulers(url: str, namespace: str) -> Iterator[Schedulers]:
    with tempfile.TemporaryDirectory(prefix="tg-") as directory:
        made = Schedulers(url, namespace, Path(directory), [])
        try:
            yield made
        finally:
            made.end()


@pytest.fixture
def schedulers(server_url: str, namespace: str) -> Iterator[Schedulers]:
    """`await schedulers.start("obedient:alpha", "--priority", 3)`: processes in the test's namespace."""
    with _schedulers(server_url, namespace) as made:
        yield made


@pytest.fixture
def schedulers_on() -> Iterator[Callable[..., Schedulers]]:
    """`schedulers_on(url, namespace="default")`: the same on another server."""
    with contextlib.ExitStack() as stack:
        yield lambda url, namespace="default": stack.enter_context(_schedulers(url, namespace))


@pytest.fixture(scope="session")
def crew(server_url: str) -> Iterator[Schedulers]:
    """alpha (priority 10), beta (20) and gamma (30) and the shadow `watcher`: a process each."""
    # The attacks have a crew of their own, on the same server.
    with _schedulers(server_url, f"crew-{secrets.token_hex(3)}") as made:
        for name in ("alpha", "beta", "gamma", "watcher"):
            made.run(f"obedient:{name}", "--concurrency", 5000)  # some are told to hang
        deadline = time.monotonic() + READY_SECONDS
        while not all(made.pids(child) for child in made.started):
            if time.monotonic() > deadline or any(child.poll() is not None for child in made.started):
                pytest.fail("\n".join(map(made.said, made.started)))
            time.sleep(0.01)
        yield made


class Counted:
    """How much counters grew since this was made."""

    def __init__(self) -> None:
        self._before = self._all()

    def __call__(self, name: str, **labels: str) -> float:
        """Growth of one sample, `toolgate_…_total`."""
        key = (name, tuple(sorted(labels.items())))
        return metrics.value(name, **labels) - self._before.get(key, 0.0)

    @staticmethod
    def _all() -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        return {
            (sample.name, tuple(sorted(one for one in sample.labels.items() if one[0] != "namespace"))): (
                sample.value
            )
            for metric in metrics.REGISTRY.collect()
            for sample in metric.samples
        }


@pytest.fixture
def counted() -> Counted:
    """`counted("toolgate_failed_open_total", scheduler="a", reason="silent")`: growth in this test."""
    return Counted()


class Rogue:
    """A scheduler that writes whatever it likes, by a plain client; it announces itself as anyone may."""

    def __init__(self, client: redis.Redis, roster: Roster, keys: Keys, name: str) -> None:
        self.client, self.keys, self.name = client, keys, name
        self._roster = roster

    async def announce(self, replica: str = "rogue-1", **fields: Any) -> None:
        """One heartbeat."""
        member = Member(name=self.name, replica=replica, **fields)
        for command in self._roster.beat(f"s:{self.name}:{replica}", encode_member(member)):
            await self.client.execute_command(*command)

    async def wake(self) -> None:
        """Have the orchestrators look at the roster, as one who joins does."""
        await self._roster.wake_orchestrators()

    async def keep_announcing(self, stop: asyncio.Event, **fields: Any) -> None:
        """Heartbeats until told to stop: a plain client's command had better not be cancelled."""
        while not stop.is_set():
            await self.announce(**fields)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), 0.4)

    async def leave(self) -> None:
        """Off the roster, and no trace of its questions."""
        await self._roster.leave(f"s:{self.name}:rogue-1")
        await self.client.delete(self.keys.inbox(self.name))

    async def question(self, after: bytes = b"0-0") -> tuple[bytes, str, packing.Item]:
        """The next question in its inbox: entry, orchestrator, item."""
        found = await self.client.xread({self.keys.inbox(self.name): after}, count=1, block=5000)
        assert found, "no question came"
        entry, fields = found[0][1][0]
        (item,) = packing.items(fields[b"frame"])
        assert isinstance(item, packing.Item)
        return entry, fields[b"orch"].decode(), item

    async def write(self, orchestrator: str, frame: bytes, name: str | None = None) -> None:
        """Put bytes into a verdict stream, its own unless told otherwise."""
        fields = {"event": "verdict", "frame": frame}
        await self.client.xadd(self.keys.verdicts(orchestrator, name or self.name), fields)


@pytest.fixture
async def rogue(server_url: str) -> AsyncIterator[Callable[..., Awaitable[Rogue]]]:
    """`await rogue("name", namespace, priority=…, tools=…)`: announced, and kept alive meanwhile."""
    async with contextlib.AsyncExitStack() as stack:

        async def make(name: str, namespace: str, **fields: Any) -> Rogue:
            client = redis.from_url(server_url, socket_timeout=None)
            stack.push_async_callback(client.aclose)
            commands = RedisCommands(server_url, "test-roster")
            stack.push_async_callback(commands.aclose)
            one = Rogue(client, Roster(commands, namespace), Keys(namespace), name)
            await one.announce(**fields)
            stop = asyncio.Event()
            beating = asyncio.create_task(one.keep_announcing(stop, **fields))
            stack.push_async_callback(one.leave)
            stack.push_async_callback(asyncio.wait, [beating])
            stack.callback(stop.set)
            return one

        yield make


class Statistics:
    """What a server says of itself, by a connection that counts as nobody's."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    async def calls(self) -> Counter[str]:
        """How often each command ran since the server started; our own INFO left out."""
        stats = await self._client.info("commandstats")
        calls = Counter({key.removeprefix("cmdstat_"): value["calls"] for key, value in stats.items()})
        del calls["info"]
        return calls

    async def keys(self, pattern: str) -> list[bytes]:
        """The keys that match a glob."""
        return await self._client.keys(pattern)

    async def flush(self) -> None:
        """FLUSHALL."""
        await self._client.flushall()

    async def connections(self) -> int:
        """Connections of clients, this one left out."""
        return len(await self._client.client_list()) - 1


@pytest.fixture
async def statistics() -> AsyncIterator[Callable[[str], Statistics]]:
    """`statistics(url)`: commands run and connections open on a server."""
    async with contextlib.AsyncExitStack() as stack:

        def make(url: str) -> Statistics:
            client = redis.from_url(url, single_connection_client=True)
            stack.push_async_callback(client.aclose)
            return Statistics(client)

        yield make


@pytest.fixture(scope="session")
def schedulers_with_alpha(server_url: str) -> Iterator[Schedulers]:
    """A bus on which only alpha is alive, for tests that bring others."""
    with _schedulers(server_url, "lone-alpha") as made:
        child = made.run("obedient:alpha", "--concurrency", 5000)
        deadline = time.monotonic() + READY_SECONDS
        while not made.pids(child):
            if time.monotonic() > deadline or child.poll() is not None:
                pytest.fail(made.said(child))
            time.sleep(0.01)
        yield made


@pytest.fixture
def receiver() -> Iterator[LoopbackReceiver]:
    """A webhook on loopback."""
    made = LoopbackReceiver()
    yield made
    made.stop()


@pytest.fixture
def notifiers_on(receiver: LoopbackReceiver, tmp_path: Path) -> Iterator[Callable[..., Notifiers]]:
    """`notifiers_on(url)`: starts `toolgate notify` on a server; its processes end with the test."""
    made: list[Notifiers] = []

    def make(url: str, namespace: str = "default") -> Notifiers:
        made.append(Notifiers(url, namespace, tmp_path, receiver))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.fixture
def notifiers(notifiers_on: Callable[..., Notifiers], server_url: str, namespace: str) -> Notifiers:
    """The same, on the server that all tests share."""
    return notifiers_on(server_url, namespace)
