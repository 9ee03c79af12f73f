"""Requests to the LLM are routed, denied, counted and held: seen at the servers that they reach, or do not.

Schedulers are processes, agents whole sessions with two providers (`provider-openai-compatible`, by the
official SDK), each of which has a server on loopback that speaks chat completions.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

import pytest
import yaml
from amplifier_core import AmplifierSession
from approval_world import People
from openai_server import Exchange, Server, completion, finish, streamed, text, usage

pytestmark = [pytest.mark.acceptance, pytest.mark.system]

LOOPS = ("loop-basic", "loop-streaming", "loop-events", "loop-reactive")
BOUND_S = 50.0
REQUEST = "llm:request"
TO_OTHER = {"provider": {"value": "other"}, "model": {"value": "small"}}
TO_OWN = {"provider": {"value": "own"}, "model": {"value": "large"}}


async def _answer(exchange: Exchange) -> None:
    pieces = (text("fine"), finish(), usage()) if exchange.body.get("stream") else ()
    await (streamed(*pieces) if pieces else completion("fine"))(exchange)


class World(NamedTuple):
    """Two servers, and what starts a scheduler and a session on one bus."""

    own: Server
    other: Server
    start: Callable[..., Awaitable[Any]]
    plan: Callable[..., dict[str, Any]]

    @asynccontextmanager
    async def agent(self, number: int = 0, model: str = "large") -> AsyncIterator[Any]:
        """A session; the number chooses the loop."""
        async with AmplifierSession(self.plan(LOOPS[number % 4], model), session_id=f"s-{number}") as session:
            yield session

    def models(self, server: Server) -> list[str]:
        """Which models were asked for at one of the servers."""
        return [body["model"] for body in server.bodies]


@pytest.fixture
async def world(schedulers: Any, tmp_path: Any) -> AsyncIterator[World]:
    required: dict[str, Any] = {}

    async def start(spec: str, config: dict[str, Any], **options: Any) -> None:
        file = tmp_path / f"{spec}.yaml"
        file.write_text(yaml.safe_dump(config))
        required[spec] = {"tools": ["llm:*"]}
        await schedulers.start(spec, "--config", file, **options)

    async with AsyncExitStack() as stack:
        own, other = [await stack.enter_async_context(Server()) for _ in range(2)]
        own.default = other.default = _answer

        def plan(loop: str, model: str) -> dict[str, Any]:
            bus = {"redis": schedulers.url, "namespace": schedulers.namespace, "patience_ms": 20_000}
            toolgate = {**bus, "required": list(required), "schedulers": dict(required), "agent": "thinker"}
            servers = {"own": (own, model, 1), "other": (other, "small", 2)}
            providers = [
                {
                    "module": "provider-openai-compatible",
                    "instance_id": name,
                    "config": {
                        "base_url": server.url,
                        "api_key": "of-a-test",
                        "model": named,
                        "priority": priority,
                        "max_retries": 0,
                    },
                }
                for name, (server, named, priority) in servers.items()
            ]
            orchestrator = {"module": loop, "config": {"toolgate": toolgate}}
            session = {"orchestrator": orchestrator, "context": "context-simple"}
            return {"session": session, "providers": providers}

        yield World(own, other, start, plan)


async def test_a_quarter_of_the_sessions_is_sent_to_another_model_and_each_stays_where_it_is(
    world: World,
) -> None:
    targets = [
        {"to": REQUEST, "weight": 3, "arguments": TO_OWN},
        {"to": REQUEST, "weight": 1, "arguments": TO_OTHER},
    ]
    await world.start("router", {"routes": [{"from": REQUEST, "sticky": "session", "targets": targets}]})

    async def talk(number: int) -> None:
        async with world.agent(number) as session, asyncio.timeout(BOUND_S):
            for turn in range(2):
                assert await session.execute(f"session {number}, turn {turn}") == "fine"

    await asyncio.gather(*map(talk, range(64)))
    went = [
        Counter(body["messages"][0]["content"].partition(",")[0] for body in server.bodies)
        for server in (world.own, world.other)
    ]
    assert set(went[0].values()) == set(went[1].values()) == {2}, "a session was here and there"
    assert set(world.models(world.own)) == {"large"}
    assert set(world.models(world.other)) == {"small"}
    assert len(went[0]) + len(went[1]) == 64
    # 16 are expected, and within three standard deviations.
    assert 6 <= len(went[1]) <= 26


async def test_a_rule_sends_short_requests_to_another_provider_whose_text_comes_as_it_is_produced(
    world: World,
) -> None:
    short = {"from": REQUEST, "when": {"input_tokens": {"lt": 500}}, "to": REQUEST, "arguments": TO_OTHER}
    await world.start("router", {"routes": [short]})
    heard = asyncio.Event()

    async def slowly(exchange: Exchange) -> None:
        await exchange.begin()
        await exchange.send(text("from "))
        await heard.wait()  # the rest is only sent once the first piece was told
        await exchange.send(text("the other"), finish(), usage())
        await exchange.end()

    world.other.answers(slowly)
    async with world.agent(LOOPS.index("loop-streaming")) as session, asyncio.timeout(BOUND_S):
        parts, pieces = session.coordinator, []
        mounted = (parts.get("context"), parts.get("providers"), parts.get("tools"), parts.hooks)
        async for piece in parts.get("orchestrator").stream("hello", *mounted, coordinator=parts):
            pieces.append(piece)
            heard.set()
        assert pieces == ["from ", "the other"]
        assert world.own.requests == []
        assert await session.execute("a long question " * 300) == "fine"
    (body,) = world.other.bodies
    assert (body["model"], body["stream"]) == ("small", True)
    assert world.models(world.own) == ["large"]


@pytest.mark.parametrize("how", ["asked for", "routed to"])
async def test_a_denied_model_never_gets_a_request_under_any_loop(world: World, how: str) -> None:
    rule = {"tools": REQUEST, "when": {"model": "dear*"}, "action": "deny", "reason": "ask a smaller one"}
    await world.start("policy", {"rules": [rule]})
    if how == "routed to":
        dear = {"from": REQUEST, "when": {"model": "large"}, "to": REQUEST}
        await world.start("router", {"routes": [{**dear, "arguments": {"model": {"value": "dear-1"}}}]})

    async def talk(number: int) -> None:
        model = "dear-1" if how == "asked for" else "large"
        async with world.agent(number, model) as session, asyncio.timeout(BOUND_S):
            assert "ask a smaller one" in await session.execute("go")
            assert "ask a smaller one" in await session.execute("go on")
        async with world.agent(number + 4, "cheap") as session, asyncio.timeout(BOUND_S):
            assert await session.execute("go") == "fine"

    await asyncio.gather(*map(talk, range(4)))
    assert world.models(world.own) == ["cheap"] * 4
    assert world.other.requests == []


async def test_a_rate_limit_counts_requests_and_lets_no_more_through(world: World) -> None:
    limit = {"name": "thoughts", "tools": REQUEST, "per": "session", "rate": "2/hour"}
    await world.start("rate-limit", {"limits": [limit]})

    async def talk(number: int) -> list[str]:
        async with world.agent(number) as session, asyncio.timeout(BOUND_S):
            return [await session.execute("go") for _ in range(3)]

    for first, second, third in await asyncio.gather(*map(talk, range(4))):
        assert (first, second) == ("fine", "fine")
        assert "thoughts" in third
    assert len(world.own.requests) == 4 * 2


async def test_a_request_waits_until_a_person_approves_it(world: World, schedulers: Any) -> None:
    await world.start("approval", {"rules": [{"name": "thoughts", "tools": REQUEST}]})
    people = People(schedulers.url, schedulers.namespace)
    async with world.agent(1) as session, asyncio.timeout(BOUND_S):
        turn = asyncio.create_task(session.execute("go"))
        (one,) = await people.waiting()
        assert (one["tool_name"], one["tool_input"]["model"]) == (REQUEST, "large")
        assert world.own.requests == []
        done = await people("approve", one["id"])
        assert (done.code, done.err) == (0, "")
        assert await turn == "fine"
        assert world.models(world.own) == ["large"]

        turn = asyncio.create_task(session.execute("go on"))
        (one,) = await people.waiting()
        assert (await people("deny", one["id"], "--reason", "enough for today")).code == 0
        assert "enough for today" in await turn
    assert len(world.own.requests) == 1
