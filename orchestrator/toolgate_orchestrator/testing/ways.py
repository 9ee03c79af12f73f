"""Check that rulings hold in every way to run an agent, and that the adapter changes nothing else."""

import asyncio

from toolgate_orchestrator.testing.harness import Conversation, Scene
from toolgate_orchestrator.testing.rulings import OVER
from toolgate_orchestrator.testing.script import INPUT_TOKENS, OUTPUT_TOKENS, Actor, Speech, Use, calls
from toolgate_orchestrator.testing.stage import Stage, expect, expect_in
from toolgate_orchestrator.testing.world import SECRETS

_PLAIN = (
    calls(Use("search", {"query": "tea"}, "c-1"), Use("delete", {"path": "old.txt"}, "c-2")),
    calls(Use("search", {"query": "coffee"}, "c-3")),
    OVER,
)
_ONE_BY_ONE = tuple(calls(one) for speech in _PLAIN for one in speech.calls)
_TOOLS = ("search", "cheap_search", "delete")


async def streams(stage: Stage) -> None:
    """Check that a stream follows the rulings, and ends; if all is allowed, it is that without adapter."""
    with stage.guard() as guard:
        scene = stage.scene(Actor("lead", _rule_script(stage), _TOOLS), guard)
        _check_ruled(stage, scene, await stage.harness.stream(scene))
        lead = Actor("lead", _ONE_BY_ONE, _TOOLS)
        ungated = await stage.harness.stream(stage.scene(lead, None))
        gated = await stage.harness.stream(stage.scene(lead, guard))
        expect(len(gated.events) > 1, True, "the stream has events")
        expect(gated.events, ungated.events, "the stream beside that without the adapter")


async def changes_nothing_else(stage: Stage) -> None:
    """Check that history, final state and results are those without the adapter, if all is allowed."""
    free = stage.scene(Actor("lead", _PLAIN, _TOOLS), None)
    ungated = await stage.harness.run(free)
    with stage.guard() as guard:
        scene = stage.scene(Actor("lead", _PLAIN, _TOOLS), guard)
        gated = await stage.harness.run(scene)
        expect(len(gated.history) > 3, True, "the harness tells the history")
        expect(gated.history, ungated.history, "history and final state")
        expect(gated.answer, ungated.answer, "the last words")
        expect(scene.voices["lead"].told, free.voices["lead"].told, "what the model is told")
        expect(sorted(map(str, scene.toolbox.ran)), sorted(map(str, free.toolbox.ran)), "what ran")
        facts = await stage.facts(scene, "tool:post", at_least=3)
        expect(sorted(one["tool_call_id"] for one in facts), ["c-1", "c-2", "c-3"], "calls in the record")


async def runs_without_a_loop(stage: Stage) -> None:
    """Check that rulings hold in the framework's blocking form as in its async one."""
    with stage.guard() as guard:
        scene = stage.scene(Actor("lead", _rule_script(stage), _TOOLS), guard)
        _check_ruled(stage, scene, await asyncio.to_thread(stage.harness.run_sync, scene))


async def ends_when_cancelled(stage: Stage) -> None:
    """Check that cancelling a run ends the running tool, and that its end is reported."""
    script = (calls(Use("wait", {"label": "x"}, "c-1")), OVER)
    with stage.guard() as guard:
        scene = stage.scene(Actor("lead", script, ("wait",)), guard)
        running = asyncio.create_task(stage.harness.run(scene))
        await asyncio.to_thread(scene.toolbox.began.wait, 20)
        running.cancel()
        await asyncio.wait({running}, timeout=20)
        expect(running.cancelled(), True, "the run is cancelled")
        expect(scene.toolbox.cancelled.wait(10), True, "the tool is cancelled")
        told = [one["tool_call_id"] for one in await stage.facts(scene, "tool:error")]
        expect(told, ["c-1"], "calls of which an end was reported")


async def tells_usage(stage: Stage) -> None:
    """Check that each answered request to the model is reported, with the tokens that it used."""
    with stage.guard() as guard:
        scene = stage.scene(Actor("lead", _PLAIN, _TOOLS), guard)
        await stage.harness.run(scene)
        facts = await stage.facts(scene, "usage", at_least=3)
        used = [(one["input_tokens"], one["output_tokens"]) for one in facts]
        expect(used, [(INPUT_TOKENS, OUTPUT_TOKENS)] * 3, "tokens of each request")


def _rule_script(stage: Stage) -> tuple[Speech, ...]:
    searches = Use("search", {"query": stage.swap[0]}, "c-2")
    return calls(Use("delete", {"path": "secret.txt"}, "c-1"), searches), OVER


def _check_ruled(stage: Stage, scene: Scene, seen: Conversation) -> None:
    lead, (_, runs, said) = scene.voices["lead"], stage.swap
    expect([(one.tool, *one.arguments.values()) for one in scene.toolbox.ran], [runs], "what ran")
    expect_in(SECRETS, lead.answer("c-1").text, "what the model is told of its denied call")
    expect_in(said, lead.answer("c-2").text, "what the model is told of the other")
    expect(seen.answer, "Done.", "the last words")
