"""Check that the end of every call is reported, and that a failure of the gate lets no call through."""

import asyncio
import time
from typing import Any

from toolgate_orchestrator.decision.question.call import Call
from toolgate_orchestrator.testing.harness import Scene
from toolgate_orchestrator.testing.rulings import OVER
from toolgate_orchestrator.testing.script import Actor, Use, calls
from toolgate_orchestrator.testing.stage import Stage, expect
from toolgate_orchestrator.testing.toolbox import cost_of

_NOWHERE = "unix:///nonexistent/toolgate.sock"


async def settles_what_was_reserved(stage: Stage) -> None:
    """Check that results become facts with their costs, and that budgets settle by them.

    Without a cost the reservation is charged. Two calls reserve 0.40 each of 1.00: there is money for a third
    once they have reported that they cost 0.05.
    """
    script = tuple(calls(Use("spend", {"label": f"n{number}"}, f"c-{number}")) for number in (1, 2))
    for cost, may in ((cost_of, True), (None, False)):
        with stage.guard(cost=cost) as guard:
            scene = stage.scene(Actor("lead", (*script, OVER), ("spend",)), guard)
            await stage.harness.run(scene)
            expect(len(scene.toolbox.ran), 2, "calls that ran")
            facts = await stage.facts(scene, "tool:post", at_least=2)
            expect([one.get("cost") for one in facts], [50_000 if cost else None] * 2, "costs in the facts")
            expect(all(one.get("decision_id") for one in facts), True, "each fact belongs to a decision")
            expect(
                await _may_spend(scene, 20.0 if may else 0.5), may, f"a third call of 0.40 may run, {cost=}"
            )


async def _may_spend(scene: Scene, wait_s: float) -> bool:
    """Return whether there is money within that time: budgets settle a moment after the facts are told."""
    guard, until = scene.guard, time.monotonic() + wait_s
    assert guard is not None  # noqa: S101 - for types: a scene of this check has one
    at = guard.at(scene.session, scene.lead.name)
    while True:
        with await guard.rule(Call("spend", {"label": "more"}, at=at)) as ruling:
            if ruling.allowed or time.monotonic() > until:
                return ruling.allowed
        await asyncio.sleep(0.02)


async def tells_of_failures(stage: Stage) -> None:
    """Check that a failing tool is reported as a failure, and that its framework handles the error as without
    the gate."""
    script = (calls(Use("fail", {"reason": "no luck"}, "c-1")), OVER)
    with stage.guard() as guard:
        gated = stage.scene(Actor("lead", script, ("fail",)), guard)
        free = stage.scene(Actor("lead", script, ("fail",)), None)
        expect(await _end(stage, gated), await _end(stage, free), "what becomes of the error")
        expect(gated.voices["lead"].told, free.voices["lead"].told, "what the model is told of the error")
        told = [one["tool_call_id"] for one in await stage.facts(gated, "tool:error")]
        expect(told, ["c-1"], "calls that are told as failures")


async def denies_where_the_gate_fails(stage: Stage) -> None:
    """Check that no call runs without the bus, or if a required scheduler is silent, except with
    `on_bus_down: continue`."""
    script = (calls(Use("search", {"query": "tea"}, "c-1")), OVER)
    faults: list[tuple[dict[str, Any], int]] = [
        ({"redis": _NOWHERE, "patience_ms": 300}, 0),
        ({"required": ["nobody"], "patience_ms": 300}, 0),
        ({"redis": _NOWHERE, "patience_ms": 300, "required": [], "on_bus_down": "continue"}, 1),
    ]
    for fields, runs in faults:
        with stage.guard(**fields) as guard:
            scene = stage.scene(Actor("lead", script, ("search",)), guard)
            seen = await stage.harness.run(scene)
            expect(len(scene.toolbox.ran), runs, f"calls that ran with {fields}")
            expect(len(scene.voices["lead"].told), 1, "results that the model is told")
            expect(seen.answer, "Done.", "the last words")


async def _end(stage: Stage, scene: Scene) -> str:
    try:
        return (await stage.harness.run(scene)).answer
    except Exception as error:  # noqa: BLE001 - the framework's own way with a tool that raises
        return f"{type(error).__name__}: {error}"
