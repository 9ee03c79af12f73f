"""An own scheduler as a process that says by `when` which calls concern it, and a gate on a real server."""

import asyncio
from typing import Any

import pytest
from questions import decide
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance


async def answered_locally(gate: Gate, tool: str, **arguments: Any) -> Any:
    """Return the decision on a call once the agent has read the scheduler's table."""
    async with asyncio.timeout(20):
        while True:
            decision = await decide(gate, tool, arguments, [tool])
            if all(one.revision.endswith(" local") for one in decision.verdicts):
                return decision


async def test_it_is_asked_about_no_other_call(schedulers: Any) -> None:
    await schedulers.start("choosy:large")
    where = {"redis": schedulers.url, "namespace": schedulers.namespace}
    async with Gate.open(**where, required=["choosy"], patience_ms=20_000) as gate:
        assert (await answered_locally(gate, "pay", amount=5)).allowed
        for amount in (500, "much"):
            denied = await decide(gate, "pay", {"amount": amount}, ["pay"])
            assert denied.reason.endswith(f"{amount} is too much")
            assert not denied.verdicts[0].revision.endswith(" local")


async def test_a_wrong_condition_ends_the_command_and_names_its_place(schedulers: Any) -> None:
    child = schedulers.run("choosy:Mistaken")
    assert await asyncio.to_thread(child.wait, 60) == 2
    said = schedulers.said(child)
    assert "scheduler 'mistaken': when.amount.above: unknown key" in said
    assert "Traceback" not in said
