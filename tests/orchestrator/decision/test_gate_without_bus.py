"""The gate where there is no bus, or one that is away: `on_bus_down`, required schedulers, own hooks."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from steps import without_waiting
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.events import Deny
from toolgate_bus.telemetry import metrics
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.pure

TOOLS = ["bash", "search", "write"]
MANY = 100_000
"""Calls that take far longer than a gate goes on without a rest, on any machine."""
NOWHERE = "unix:///nonexistent/toolgate.sock"


@asynccontextmanager
async def on_no_bus(**config):
    async with Gate.open(**{"redis": NOWHERE, "patience_ms": 50} | config) as gate:
        yield gate


def growth(name, **labels):
    """A function that says how much a counter grew since now."""
    before = metrics.value(name, **labels)
    return lambda: metrics.value(name, **labels) - before


async def test_without_a_bus_the_hooks_of_this_process_still_rule():
    async def local(call):
        return [Deny(reason="no")]

    gate = Gate(parse({}), None)
    assert (await gate.decide(Call("search", {}, TOOLS), local=local)).outcome == "deny"
    assert (await gate.decide(Call("search", {}, TOOLS))).why == "unasked"


@pytest.mark.parametrize(
    ("config", "outcome"),
    [
        ({}, "continue"),
        ({"on_bus_down": "deny"}, "deny"),
        ({"required": ["cost"]}, "deny"),
        ({"required": ["cost"], "on_bus_down": "continue"}, "continue"),
    ],
)
async def test_with_the_bus_away_the_config_says_what_happens(config, outcome):
    """`on_bus_down` defaults to deny where a scheduler is required, else to continue."""
    async with on_no_bus(**config) as gate:
        decision = await gate.decide(Call("search", {}, TOOLS))
    assert decision.outcome == outcome
    if outcome == "deny":
        assert decision.why == "bus_down"


async def test_a_bus_that_is_away_is_waited_for_once_not_with_every_call():
    async with on_no_bus(patience_ms=100) as gate:
        await gate.decide(Call("search", {}, TOOLS))
        for _ in range(10):
            await without_waiting(gate.decide(Call("search", {}, TOOLS)))


@pytest.mark.parametrize("config", [{}, {"required": ["cost"]}, {"on_bus_down": "deny"}])
async def test_who_asks_again_and_again_leaves_the_loop_to_what_connects(config):
    turns = 0

    async def turn():
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with on_no_bus(**config) as gate:
        await gate.decide(Call("search", {}, TOOLS))  # it waits for the bus, once
        others = asyncio.create_task(turn())
        await asyncio.sleep(0)
        for _ in range(MANY):
            await gate.decide(Call("search", {}, TOOLS))
            if turns >= 10:
                break
        others.cancel()
    assert turns >= 10


async def test_failing_open_without_a_bus_is_counted():
    counted = growth("toolgate_failed_open_total", scheduler="cost", reason="bus_down")
    async with on_no_bus(required=["cost"], on_bus_down="continue") as gate:
        await gate.decide(Call("search", {}, TOOLS))
    assert counted() == 1


async def test_required_without_any_address_denies():
    gate = Gate(parse({"required": ["cost"]}), None)
    decision = await gate.decide(Call("search", {}, TOOLS))
    assert (decision.outcome, decision.why) == ("deny", "bus_down")


async def test_required_but_open_when_down_without_any_address_continues():
    """An explicit `on_bus_down: continue` holds without an address, too."""
    gate = Gate(parse({"required": ["cost"], "on_bus_down": "continue"}), None)
    assert (await gate.decide(Call("search", {}, TOOLS))).outcome == "continue"


async def test_a_wrong_field_is_refused_by_its_name():
    with pytest.raises(ConfigError, match="patience_ms"):
        async with Gate.open(redis=NOWHERE, patience_ms=0):
            pass
    with pytest.raises(ConfigError, match="colour"):
        async with Gate.open(redis=NOWHERE, colour="red"):
            pass
