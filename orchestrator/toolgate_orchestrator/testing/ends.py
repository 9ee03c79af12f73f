"""Checks: what became of a call is reported, and where the gate fails nobody gains by it."""

from typing import Any

from toolgate_orchestrator.testing.harness import Scene
from toolgate_orchestrator.testing.rulings import OVER
from toolgate_orchestrator.testing.script import Actor, Use, calls
from toolgate_orchestrator.testing.stage import Stage, expect

_NOWHERE = "unix:///nonexistent/toolgate.sock"


async def settles_what_was_reserved(stage: Stage) -> None:
    """Results become facts with their costs, so that budgets settle; without a cost what was reserved is charged."""
    script = tuple(calls(Use("spend", {"label": f"n{number}"}, f"c-{number}")) for number in (1, 2, 3))
    with stage.guard() as guard:
        scene = stage.scene(Actor("lead", (*script, OVER), ("spend",)), guard)
        await stage.harness.run(scene)
        expect(len(scene.toolbox.ran), 3, "calls that ran, of 0.40 each that cost 0.05, with 1.00")
        facts = await stage.facts(scene, "tool:post")
        expect([one.get("cost") for one in facts], [50_000] * 3, "what the facts say that they cost")
        expect(all(one.get("decision_id") for one in facts), True, "each fact belongs to a decision")
    with stage.guard(cost=None) as guard:
        scene = stage.scene(Actor("lead", (*script, OVER), ("spend",)), guard)
        await stage.harness.run(scene)
        expect(len(scene.toolbox.ran), 2, "calls that ran, of 0.40 each that tell no cost, with 1.00")


async def tells_of_failures(stage: Stage) -> None:
    """A tool that fails is told as a failure; its framework does with the error what it does without a gate."""
    script = (calls(Use("fail", {"reason": "no luck"}, "c-1")), OVER)
    with stage.guard() as guard:
        gated = stage.scene(Actor("lead", script, ("fail",)), guard)
        free = stage.scene(Actor("lead", script, ("fail",)), None)
        expect(await _end(stage, gated), await _end(stage, free), "what becomes of the error")
        expect(gated.voices["lead"].told, free.voices["lead"].told, "what the model is told of the error")
        told = [one["tool_call_id"] for one in await stage.facts(gated, "tool:error")]
        expect(told, ["c-1"], "calls that are told as failures")


async def denies_where_the_gate_fails(stage: Stage) -> None:
    """Without the bus, or with a scheduler that must answer and does not, nothing runs; it does where the guard
    was told to go on."""
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
