"""Check that agents below an agent, and agents that take over, may do no more than the first."""

from toolgate_orchestrator.testing.rulings import OVER
from toolgate_orchestrator.testing.script import Actor, Delegation, Handover, Use, calls
from toolgate_orchestrator.testing.stage import Stage, expect, expect_in
from toolgate_orchestrator.testing.world import NOT_INSIDE, NOT_OUTSIDE

_SENDS = (
    calls(Use("send", {"to": "outside", "text": "x"}, "h-1")),
    calls(Use("send", {"to": "inside", "text": "x"}, "h-2")),
    calls(Use("search", {"query": "tea"}, "h-3")),
    OVER,
)


async def binds_agents_below(stage: Stage) -> None:
    """Check that a helper may do nothing that its lead may not, nor what it may not itself; both are one
    tree."""
    helper = Actor("helper", _SENDS, ("send", "search"))
    script = (
        calls(Use("send", {"to": "inside", "text": "lead"}, "c-1")),
        calls(Delegation("helper", id="c-2")),
        OVER,
    )
    with stage.guard() as guard:
        scene = stage.scene(Actor("lead", script, ("send",), helpers=(helper,)), guard)
        seen = await stage.harness.run(scene)
        below = scene.voices["helper"]
        expect(scene.toolbox.run("send"), [{"to": "inside", "text": "lead"}], "what was sent")
        expect_in(
            NOT_OUTSIDE, below.answer("h-1").text, "what the helper is told of what its lead may not do"
        )
        expect_in(NOT_INSIDE, below.answer("h-2").text, "what the helper is told of what it may not do")
        expect_in("search found tea", below.answer("h-3").text, "what the helper is told of its search")
        expect(len(scene.voices["lead"].told), 2, "results that the lead is told")
        expect(seen.answer, "Done.", "the last words")
        facts = {one["tool_call_id"]: one for one in await stage.facts(scene, "tool:post", at_least=3)}
        expect(sorted(facts), ["c-1", "c-2", "h-3"], "calls in the record")
        expect(facts["c-2"]["session"], scene.session, "the delegation's session")
        expect(facts["h-3"]["agent"], "helper", "whose call the helper's is")
        expect(facts["h-3"]["session"] != scene.session, True, "the helper has a session of its own")


async def binds_who_takes_over(stage: Stage) -> None:
    """Check that a successor may not do what the first agent may not, and stays in its session."""
    closer = Actor("closer", (_SENDS[0], _SENDS[2], OVER), ("send", "search"))
    script = (calls(Handover("closer", "c-1")), OVER)
    with stage.guard() as guard:
        scene = stage.scene(Actor("lead", script, ("send",), successors=(closer,)), guard)
        seen = await stage.harness.run(scene)
        after = scene.voices["closer"]
        expect(scene.toolbox.ran, [("search", {"query": "tea"})], "what ran")
        expect_in(NOT_OUTSIDE, after.answer("h-1").text, "what is told to who took over")
        expect(seen.answer, "Done.", "the last words")
        (fact,) = await stage.facts(scene, "tool:post", call="h-3")
        expect((fact["session"], fact["agent"]), (scene.session, "closer"), "session and agent of its call")
