"""Adaptive limits, for real: a tool behind HTTP that answers 429 above five at a time is held near five.

Sixteen agents call it without end, through a gate, a scheduler's two replicas and a server.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx2
import pytest
from toolgate_bus.ledger.slots.counts import read_pools
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.turn.values.tool_signals import signals_of

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(90)]

AGENTS, ROOM, WORK_S = 16, 5, 0.3
POOL = "pools:\n  - {name: api, tools: %s, limit: 16, wait_s: 60%s}\n"
OPTIONS = ", adaptive: {min: 1, signals: [%s], climb_s: 0.3, pause_s: %s}"


@dataclass
class Service:
    """Work for five at a time, over HTTP; whoever comes beyond that is told 429."""

    name: str = "search"
    """Of the tool, and of its scheduler."""
    headers: str = ""
    running: int = 0
    answers: list[tuple[float, int]] = field(default_factory=list)
    """When, and the status."""
    url: str = ""

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["Service"]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with server:
            yield self

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        status = 200 if self.running < ROOM else 429
        if status == 200:
            self.running += 1
            await asyncio.sleep(WORK_S)
            self.running -= 1
        self.answers.append((time.monotonic(), status))
        words = f"HTTP/1.1 {status} .\r\ncontent-length: 0\r\nconnection: close\r\n{self.headers}\r\n"
        writer.write(words.encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    def count(self, since: int) -> tuple[int, int]:
        """Answers that were 429, and all, after so many answers."""
        late = [status for _, status in self.answers[since:]]
        return late.count(429), len(late)


async def work(gate: Gate, http: httpx2.AsyncClient, service: Service, calls: int) -> None:
    """One agent: calls, one after the other; a call that fails is told of as it failed."""
    while len(service.answers) < calls:
        decision = await gate.decide(Call(service.name, {}, [service.name]))
        assert decision.allowed, decision.reason
        fact: dict[str, Any] = {"decision_id": decision.id, "tool": service.name}
        try:
            (await http.get(service.url)).raise_for_status()
        except httpx2.HTTPError as error:
            gate.note("tool:error", {**fact, "error": type(error).__name__, **signals_of(error)})
        else:
            gate.note("tool:post", {**fact, "success": True})


Run = Callable[..., Awaitable[list[int]]]


@pytest.fixture
def run(schedulers: Any, tmp_path: Any) -> Run:
    """`run(CONFIG, service, calls)`: agents make so many calls; gives the limits in force, once settled."""

    async def run(config: str, service: Service, calls: int, settle: int = 0) -> list[int]:
        file = tmp_path / "slots.yaml"
        file.write_text(config)
        await schedulers.start("slots", "--config", file, "--name", service.name, replicas=2)
        where = {"redis": schedulers.url, "namespace": schedulers.namespace}
        commands, limits = RedisCommands(schedulers.url, "test"), []
        async with (
            Gate.open(**where, patience_ms=20_000, required=[service.name]) as gate,
            httpx2.AsyncClient() as http,
            service.serve(),
        ):
            fleet = asyncio.gather(*(work(gate, http, service, calls) for _ in range(AGENTS)))
            while not fleet.done():
                await asyncio.wait([fleet], timeout=0.05)
                pool = (await read_pools(commands, schedulers.namespace, service.name)).get("api")
                if pool is not None and len(service.answers) >= settle:
                    limits.append(pool.limit)
            await fleet
        await commands.aclose()
        return limits

    return run


async def test_a_tool_that_refuses_above_five_is_held_near_five_within_seconds(run: Run) -> None:
    without, service = Service(), Service("lookup")
    assert set(await run(POOL % (without.name, ""), without, 100)) == {16}
    errors, calls = without.count(0)
    print(f"before: {errors} errors of {calls} calls")
    assert errors > calls / 2
    limits = await run(POOL % (service.name, OPTIONS % ("429, timeout", 30)), service, 150, 60)
    errors, calls = service.count(60)
    print(f"after: {errors} errors of {calls} calls; {service.count(0)} with the first; limits {limits}")
    # An agent with a slot may be about to call, or to report: on a slow machine more than five have one.
    assert sorted(limits)[len(limits) // 2] < AGENTS / 2
    assert max(limits) < AGENTS
    assert errors < 0.2 * calls


async def test_a_retry_after_is_kept_whatever_the_status(run: Run) -> None:
    service = Service(headers="retry-after: 1\r\n")
    limits = await run(POOL % (service.name, OPTIONS % ("418", 0.8)), service, 40)
    assert 0 in limits  # nothing was given for a while
    assert max(after - before for (before, _), (after, _) in pairwise(service.answers)) >= 0.7
    assert limits[-1] <= 8
