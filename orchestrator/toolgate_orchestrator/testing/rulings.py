"""Check that the ruling on a call decides its outcome."""

from toolgate_orchestrator.testing.script import Actor, Use, calls, says
from toolgate_orchestrator.testing.stage import Stage, expect, expect_in
from toolgate_orchestrator.testing.world import CHEAPER, QUESTION, SECRETS

OVER = says("Done.")


async def denies_with_a_reason(stage: Stage) -> None:
    """Check that a denied call does not run, its model is told the reason, and the agent goes on."""
    script = (
        calls(Use("delete", {"path": "secret.txt"}, "c-1")),
        calls(Use("search", {"query": "tea"}, "c-2")),
        OVER,
    )
    with stage.guard() as guard:
        scene = stage.scene(Actor("lead", script, ("delete", "search")), guard)
        seen = await stage.harness.run(scene)
        lead = scene.voices["lead"]
        expect(scene.toolbox.ran, [("search", {"query": "tea"})], "what ran")
        expect_in(SECRETS, lead.answer("c-1").text, "what the model is told of its denied call")
        expect(lead.answer("c-1").tool in ("", "delete"), True, "the denied call goes by its own name")
        expect_in("search found tea", lead.answer("c-2").text, "what the model is told of the next call")
        expect(seen.answer, "Done.", "the last words")


async def runs_with_other_arguments(stage: Stage) -> None:
    """Check that a call with replaced arguments runs with those, once, and is answered as itself."""
    script = (calls(Use("search", {"query": "loud music"}, "c-1")), OVER)
    with stage.guard() as guard:
        scene = stage.scene(Actor("lead", script, ("search",)), guard)
        seen = await stage.harness.run(scene)
        told = scene.voices["lead"].answer("c-1")
        expect(scene.toolbox.ran, [("search", {"query": "quiet"})], "what ran")
        expect_in("search found quiet", told.text, "what the model is told")
        expect(seen.answer, "Done.", "the last words")


async def runs_another_tool(stage: Stage) -> None:
    """Check that another tool runs in place of the one called; the answer has the call's own id and name, and
    a notice if the guard gives one (`notice`)."""
    script = (calls(Use("search", {"query": "a paper on tea"}, "c-1")), OVER)
    with stage.guard(notice=True) as guard:
        scene = stage.scene(Actor("lead", script, ("search", "cheap_search")), guard)
        seen = await stage.harness.run(scene)
        told = scene.voices["lead"].answer("c-1")
        expect(scene.toolbox.ran, [("cheap_search", {"q": "a paper on tea"})], "what ran")
        expect(told.tool in ("", "search"), True, "the result goes by the name of the call")
        expect_in("cheap_search found a paper on tea", told.text, "what the model is told")
        expect_in(CHEAPER, told.text, "the notice that another call ran")
        expect(seen.answer, "Done.", "the last words")


async def asks_and_resumes(stage: Stage) -> None:
    """Check that a question to a person ends the run for now, and that the answer resumes the same decision,
    once."""
    for answer in ("allow", "refuse"):
        letter = {"to": "boss", "text": "hello"}
        script = (calls(Use("send", letter, "c-1")), OVER)
        with stage.guard() as guard:
            scene = stage.scene(Actor("lead", script, ("send",)), guard)
            seen = await stage.harness.run(scene)
            asked = [(one.id, one.tool, dict(one.arguments)) for one in seen.questions]
            expect(asked, [("c-1", "send", letter)], "what waits for a person")
            expect_in(QUESTION, seen.questions[0].prompt or QUESTION, "what the person is asked")
            expect(scene.toolbox.ran, [], "what ran before the answer")
            end = await stage.harness.resume(scene, seen, {"c-1": answer})
            told = scene.voices["lead"].answer("c-1").text
            expect(
                scene.toolbox.run("send"), [letter] if answer == "allow" else [], f"what ran after {answer}"
            )
            expect(
                "sent hello to boss" in told, answer == "allow", f"the model is told of {answer}: {told!r}"
            )
            expect((end.questions, end.answer), ((), "Done."), "the end of the run")
            decided = await stage.facts(scene, "tool:deferred", "tool:answered", at_least=2)
            ids = {one.get("decision_id") or one.get("id") for one in decided}
            expect(len(ids), 1, "decisions on one call, before and after its answer")


async def answers_each_of_parallel_calls(stage: Stage) -> None:
    """Check that each of several calls in one answer has its own ruling and result; an allowed one runs
    once."""
    query, runs, said = stage.swap
    script = (
        calls(
            Use("search", {"query": "tea"}, "c-1"),
            Use("delete", {"path": "secret.txt"}, "c-2"),
            Use("search", {"query": query}, "c-3"),
            Use("search", {"query": "loud"}, "c-4"),
            Use("delete", {"path": "old.txt"}, "c-5"),
        ),
        OVER,
    )
    with stage.guard() as guard:
        scene = stage.scene(Actor("lead", script, ("search", "cheap_search", "delete")), guard)
        seen = await stage.harness.run(scene)
        lead = scene.voices["lead"]
        ran = sorted((one.tool, *one.arguments.values()) for one in scene.toolbox.ran)
        wanted = sorted([runs, ("delete", "old.txt"), ("search", "quiet"), ("search", "tea")])
        expect(ran, wanted, "what ran")
        words = (
            "search found tea",
            SECRETS,
            said,
            "search found quiet",
            "deleted old.txt",
        )
        for number, part in enumerate(words, 1):
            expect_in(part, lead.answer(f"c-{number}").text, f"what the model is told of call {number}")
        expect(len(lead.told), len(words), "one result for each call")
        expect(seen.answer, "Done.", "the last words")
