"""`toolgate decisions archive` with real processes: killed, stopped, without a server, and counted."""

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from toolgate_bus.commands.decisions.archive_reader import read_archived_facts
from toolgate_bus.commands.decisions.archive_store import COMMITTED
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.redis.asking import fact_compressor
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_orchestrator import Call, Caller, Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.system]

TOOLS = ["search", "fetch"]


class Agent:
    """Decides and remembers what it decided; a reader of facts keeps it telling them."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.ids: list[str] = []

    async def keeps_working(self, stop: asyncio.Event) -> None:
        """A few hundred decisions a second."""
        while not stop.is_set():
            await self.works(5)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), 0.01)

    async def works(self, times: int) -> None:
        for number in range(times):
            decision = await self._gate.decide(
                Call(TOOLS[number % 2], {"n": len(self.ids)}, TOOLS, Caller("s"))
            )
            self.ids.append(decision.id)


@contextlib.asynccontextmanager
async def an_agent(url: str, namespace: str, wait_until: Any) -> AsyncIterator[Agent]:
    commands = RedisCommands(url, "test-agent")
    reader = FactsReader(commands, namespace)
    try:
        async with reader.stay_on_roster():
            await wait_until(lambda: _readers(commands, namespace))
            async with Gate.open(redis=url, namespace=namespace) as gate:
                yield Agent(gate)
    finally:
        await reader.leave()
        await commands.aclose()


async def _readers(commands: RedisCommands, namespace: str) -> int:
    return (await Roster(commands, namespace).read()).readers


async def ended(running: Any) -> int:
    """Its exit code; the agent in this process goes on meanwhile."""
    code: int = await asyncio.to_thread(running.wait, 60)
    return code


class Archive:
    """An archive's directory, and the processes that write and read it."""

    def __init__(self, directory: Path, bus: tuple[str, ...], process: Callable[..., Any]) -> None:
        self.directory, self._bus, self._process = directory, bus, process

    def start(self, *options: str) -> Any:
        return self._process("toolgate", "decisions", "archive", self.directory, *options, *self._bus)

    def checked(self) -> tuple[int, dict[str, Any]]:
        checking = self._process("toolgate", "decisions", "archive", self.directory, "--check", "--json")
        code = checking.wait(60)
        assert checking.stdout, checking.stderr
        return code, json.loads(checking.stdout)

    def facts(self) -> list[dict[str, Any]]:
        return list(read_archived_facts(self.directory)) if (self.directory / COMMITTED).exists() else []

    def ids(self) -> list[str]:
        return [fact["id"] for fact in self.facts() if fact["event"] == "decision"]


@pytest.fixture(name="archive")
def _archive(tmp_path: Path, server_url: str, namespace: str, process: Callable[..., Any]) -> Archive:
    return Archive(tmp_path / "archive", ("--redis", server_url, "--namespace", namespace), process)


async def test_killed_in_mid_run_again_and_again_it_has_every_fact_once(
    archive: Archive,
    server_url: str,
    namespace: str,
    wait_until: Callable[..., Awaitable[Any]],
) -> None:
    stop = asyncio.Event()
    async with an_agent(server_url, namespace, wait_until) as agent:
        working = asyncio.create_task(agent.keeps_working(stop))
        for _ in range(4):
            archiver = archive.start("--size", "1")
            before = len(archive.ids())
            await wait_until(lambda: len(archive.ids()) > before + 100, timeout=30)  # noqa: B023 - at once
            archiver.signal(signal.SIGKILL)
            await ended(archiver)
            assert len(archive.ids()) < len(agent.ids)
        last = archive.start()
        stop.set()
        await working
        await wait_until(lambda: len(archive.ids()) == len(agent.ids), timeout=30)
        last.signal(signal.SIGTERM)
        assert await ended(last) == 0, last.stderr
    assert archive.ids() == agent.ids
    code, found = archive.checked()
    assert (code, found["gaps"], found["damage"]) == (0, [], [])
    assert found["decisions"] == len(set(agent.ids)) > 400


async def test_it_stands_on_the_roster_so_that_facts_are_written_for_it_alone(
    archive: Archive, server_url: str, namespace: str, wait_until: Callable[..., Awaitable[Any]]
) -> None:
    archiver = archive.start()
    commands = RedisCommands(server_url, "test-archive")
    roster = Roster(commands, namespace)
    try:
        await wait_until(lambda: _readers(commands, namespace))
        assert (await roster.read()).readers_by_role()["archiver"] == 1
        async with Gate.open(redis=server_url, namespace=namespace) as gate:
            await gate.decide(Call("search", {}, TOOLS))
        await wait_until(lambda: len(archive.ids()) == 1)
        archiver.signal(signal.SIGINT)
        assert archiver.wait() == 0
        assert (await roster.read()).readers == 0
        assert "Archived 1 facts" in archiver.stderr
    finally:
        await commands.aclose()


async def test_it_waits_for_a_server_that_is_away_and_goes_on(
    tmp_path: Path,
    namespace: str,
    own_durable_server: Any,
    process: Callable[..., Any],
    wait_until: Callable[..., Awaitable[Any]],
) -> None:
    url = own_durable_server.url
    archive = Archive(tmp_path / "archive", ("--redis", url, "--namespace", namespace), process)
    async with an_agent(url, namespace, wait_until) as agent:
        archiver = archive.start()
        await agent.works(20)
        await wait_until(lambda: len(archive.ids()) == 20, timeout=30)
        own_durable_server.kill()
        await wait_until(lambda: "Waiting for the server" in archiver.stderr, timeout=30)
        await agent.works(5)  # nobody can be asked: the facts wait in the agent
        own_durable_server.start()
        await wait_until(lambda: len(archive.ids()) == 25, timeout=60)
        await wait_until(lambda: "The server is back" in archiver.stderr, timeout=30)
        archiver.signal(signal.SIGTERM)
        assert await ended(archiver) == 0
    assert archive.ids() == agent.ids
    assert archive.checked()[0] == 0


async def test_what_was_trimmed_before_it_was_read_is_told_everywhere(
    archive: Archive,
    server_url: str,
    namespace: str,
    wait_until: Callable[..., Awaitable[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commands = RedisCommands(server_url, "test-archive")
    monkeypatch.setattr(
        fact_compressor, "BASE_S", 0.0
    )  # else what is written later builds on what was trimmed

    async def written() -> int:
        """How many of the agent's facts the server has."""
        reader = FactsReader(commands, namespace)
        return sum(fact["event"] == "decision" for fact in await reader.read_all())

    try:
        async with an_agent(server_url, namespace, wait_until) as agent:
            await agent.works(3)
            await wait_until(written)
            first = archive.start("--once")
            assert await ended(first) == 0, first.stderr
            (orchestrator,) = {fact["orchestrator"] for fact in archive.facts()}
            for times in (4, 5):
                kept = await written()
                await agent.works(times)
                await wait_until(lambda: _is(written, kept + times))  # noqa: B023 - at once
                if times == 4:
                    await commands.execute("XTRIM", Keys(namespace).facts(orchestrator), "MAXLEN", 0)
            again = archive.start("--once")
            assert await ended(again) == 0, again.stderr
            assert f"Gap: 4 facts of orchestrator {orchestrator} are missing, numbers 4 to 7" in again.stderr
            code, found = await asyncio.to_thread(archive.checked)
            assert code == 1
            (gap,) = found["gaps"]
            assert (gap["from"], gap["to"], found["damage"]) == (4, 7, [])
            assert archive.ids() == [*agent.ids[:3], *agent.ids[7:]]
    finally:
        await commands.aclose()


async def _is(count: Callable[[], Awaitable[int]], expected: int) -> bool:
    return await count() == expected


async def test_a_second_archiver_for_the_same_directory_is_refused(
    archive: Archive, wait_until: Callable[..., Awaitable[Any]]
) -> None:
    first = archive.start()
    await wait_until(lambda: (archive.directory / COMMITTED).exists())
    second = archive.start()
    assert second.wait() == 2
    assert f"another archiver (process {first.pid}) writes there" in " ".join(second.stderr.split())
    assert first.alive


async def test_an_archive_is_read_in_place_of_the_server(
    archive: Archive,
    server_url: str,
    namespace: str,
    process: Callable[..., Any],
    tmp_path: Path,
    wait_until: Callable[..., Awaitable[Any]],
) -> None:
    async with an_agent(server_url, namespace, wait_until) as agent:
        await agent.works(6)

    def told(*words: object) -> str:
        running = process("toolgate", "decisions", *words)
        assert running.wait(60) == 0, running.stderr
        return str(running.stdout)

    def ids(text: str) -> list[str]:
        return [json.loads(line)["id"] for line in text.splitlines()]

    bus = ("--redis", server_url, "--namespace", namespace)
    assert archive.start("--once").wait() == 0
    for where in (("--from", archive.directory), bus):
        assert ids(told("--json", *where)) == agent.ids
        assert ids(told("--json", "--tool", "f*", "--limit", 2, "--since", "1h", *where)) == agent.ids[3::2]
        assert ids(told("export", "-", "--tool", "search", *where)) == agent.ids[::2]
        shown = told("show", agent.ids[4], *where)
        assert f"Decision {agent.ids[4]}" in shown
        assert 'wanted to call search {"n": 4}' in shown
        out = tmp_path / "out.jsonl"
        told("export", out, "--facts", *where)
        assert len(out.read_text().splitlines()) == 6
    nothing = process("toolgate", "decisions", "show", "0" * 32, "--from", archive.directory)
    assert nothing.wait() == 1
    assert process("toolgate", "decisions", "--from", tmp_path / "nowhere").wait() == 2


async def test_who_follows_with_filters_is_shown_what_fits_as_it_comes(
    server_url: str, namespace: str, process: Callable[..., Any], wait_until: Callable[..., Awaitable[Any]]
) -> None:
    bus = ("--redis", server_url, "--namespace", namespace)
    following = process("toolgate", "decisions", "--follow", "--json", "--tool", "f*", "--since", "1h", *bus)
    async with an_agent(server_url, namespace, wait_until) as agent:
        await agent.works(4)
        await wait_until(lambda: following.stdout.count("\n") == 2, timeout=30)
        assert [json.loads(line)["id"] for line in following.stdout.splitlines()] == agent.ids[1::2]
