"""Why calls would run unasked on a bus: who is there, who must be, and what becomes of calls meanwhile."""

from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.transport.memory import MemoryHub
from toolgate_orchestrator.gate.client import GateClient
from toolgate_orchestrator.gate.config import parse
from toolgate_orchestrator.gate.gate import Gate
from toolgate_schedulers import Continue, Scheduler, Worker

pytestmark = pytest.mark.pure

NOWHERE = "unix:///nonexistent/toolgate.sock"


async def agree(call):
    return Continue()


@pytest.fixture
async def stack():
    async with AsyncExitStack() as stack:
        yield stack


async def vacancy(stack, *alive, as_shadow=False, **config):
    """What a gate says of a bus on which these schedulers live."""
    hub = MemoryHub()
    for name in alive:
        bus = hub.scheduler()
        shared = replace(make_shared_state(), store=hub.store)
        await Worker(Scheduler(name=name, decide=agree, shadow=as_shadow), bus, shared=shared).start()
        stack.push_async_callback(bus.aclose)
    client = GateClient(hub.orchestrator())
    await client.start()
    stack.push_async_callback(client.bus.aclose)
    return await Gate(parse(config), client).explain_vacancy()


async def test_a_bus_on_which_somebody_rules_is_not_vacant(stack):
    assert await vacancy(stack, "policy") is None


async def test_a_bus_on_which_nobody_lives_is_vacant_unless_somebody_must_be_there(stack):
    assert "nobody rules on this bus" in await vacancy(stack)
    assert await vacancy(stack, required=["policy"]) is None


@pytest.mark.parametrize(("as_shadow", "config"), [(True, {}), (False, {"shadow": ["policy"]})])
async def test_who_only_watches_does_not_count(stack, as_shadow, config):
    assert "nobody rules" in await vacancy(stack, "policy", as_shadow=as_shadow, **config)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "is away, and calls run without it"),
        ({"required": ["policy"]}, None),
        ({"on_bus_down": "deny"}, None),
        ({"required": ["policy"], "on_bus_down": "continue"}, "is away, and calls run without it"),
    ],
)
async def test_with_the_bus_away_it_depends_on_what_becomes_of_calls(config, words):
    async with Gate.open(redis=NOWHERE, patience_ms=50, **config) as gate:
        said = await gate.explain_vacancy()
    assert said is None if words is None else words in said


async def test_where_no_bus_is_named_nobody_can_be_asked():
    assert "no bus is named" in await Gate(parse({}), None).explain_vacancy()
    assert await Gate(parse({"required": ["policy"]}), None).explain_vacancy() is None
