"""Where the primary moves, a question whose connection is lost is asked again: nobody is silent for that."""

import asyncio
from pathlib import Path

import pytest
from bad_wire import BadWire
from toolgate_bus.transport.redis.client.topology import FixedTopology
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance


@pytest.fixture
async def wire(own_server, short_directory):
    async with BadWire(short_directory, Path(own_server.socket)) as made:
        yield made


@pytest.mark.parametrize("cut", ["cut_before", "cut_after"])
async def test_a_question_is_answered_though_its_connection_is_lost(
    own_server, schedulers_on, wire, cut, monkeypatch, wait_until
):
    """Whether the server took it or not, the agent hears of one answer."""
    monkeypatch.setattr(FixedTopology, "moves", True)
    schedulers = schedulers_on(own_server.url)
    await schedulers.start("obedient:alpha")
    async with Gate.open(redis=wire.url, required=["alpha"], patience_ms=30_000) as gate:
        assert (await gate.decide(Call("bash", {}, ["bash"]))).why == "agreed"
        getattr(wire, cut)(b"tool:selecting")
        first = await gate.decide(Call("bash", {"n": 0}, ["bash"]))
        assert wire.is_cut
        await wait_until(lambda: gate.is_connected)  # meanwhile the bus is away
        second = await gate.decide(Call("bash", {"n": 1}, ["bash"]))
    for one in (first, second):
        assert (one.why, len(one.verdicts), one.silent) == ("agreed", 1, ())


async def test_a_question_is_answered_though_the_connection_was_lost_before_it_was_written(
    own_server, schedulers_on, monkeypatch
):
    """Between the question and the end of its tick."""
    monkeypatch.setattr(FixedTopology, "moves", True)
    schedulers = schedulers_on(own_server.url)
    await schedulers.start("obedient:alpha")
    async with Gate.open(redis=own_server.url, required=["alpha"], patience_ms=30_000) as gate:
        assert (await gate.decide(Call("bash", {}, ["bash"]))).why == "agreed"
        asked = asyncio.ensure_future(gate.decide(Call("bash", {"n": 0}, ["bash"])))
        asyncio.get_running_loop().call_soon(gate._client.bus._outbox.drop)
        decision = await asked
    assert (decision.why, len(decision.verdicts), decision.silent) == ("agreed", 1, ())
