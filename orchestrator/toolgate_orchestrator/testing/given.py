"""Check that model, history, stream and errors show results as they were ruled on, and nothing else."""

import traceback

from toolgate_orchestrator.testing.reader import CLASSIFIED, CODE_WORD, FRESH, KEY, MARK, YESTERDAY
from toolgate_orchestrator.testing.rulings import OVER
from toolgate_orchestrator.testing.script import Actor, Use, calls
from toolgate_orchestrator.testing.stage import PromiseBreak, Stage, expect, expect_in

_SECRETS = (CODE_WORD, KEY, YESTERDAY)


async def withholds_a_result(stage: Stage) -> None:
    """Check that of a withheld result the model is told the reason, and nobody is shown a word of it."""
    told = await _fetch(stage, "vault")
    expect_in(CLASSIFIED, told, "what the model is told of a withheld result")


async def masks_a_result(stage: Stage) -> None:
    """Check that a masked result is given without its hidden part, and with all the rest."""
    told = await _fetch(stage, "keys")
    expect_in(f"the door has {MARK} today", told, "what the model is told of a masked result")


async def replaces_a_result(stage: Stage) -> None:
    """Check that another result is given in place of the tool's own."""
    told = await _fetch(stage, "news")
    expect_in(FRESH, told, "what the model is told of a replaced result")


async def hides_errors(stage: Stage) -> None:
    """Check that a tool's error is a result: neither the model nor an exception shows what was hidden."""
    for page in ("vault", "keys", "news"):
        script = (calls(Use("fetch", {"page": f"broken {page}"}, "c-1")), OVER)
        with stage.guard() as guard:
            scene = stage.scene(Actor("lead", script, ("fetch",)), guard)
            try:
                shown = repr(await stage.harness.run(scene))
            except Exception as error:  # noqa: BLE001 - the framework's own way with a tool that raises
                shown = "".join(traceback.format_exception(error))
            _check_hidden(f"{shown} {scene.voices['lead'].requests}", f"the error of the page {page}")
            told = [one["tool_call_id"] for one in await stage.facts(scene, "tool:error")]
            expect(set(told), {"c-1"}, "calls that are told as failures")


async def _fetch(stage: Stage, page: str) -> str:
    """Fetch a page in every way that the framework has, and return what the model is told of it."""
    script = (calls(Use("fetch", {"page": page}, "c-1")), OVER)
    lead = Actor("lead", script, ("fetch",))
    ways = (
        [stage.harness.run] if "stream" in stage.harness.cannot else [stage.harness.run, stage.harness.stream]
    )
    heard = set()
    with stage.guard() as guard:
        for way in ways:
            scene = stage.scene(lead, guard)
            seen = await way(scene)
            voice = scene.voices["lead"]
            _check_hidden(f"{seen!r} {voice.requests}", f"the page {page}")
            expect(scene.toolbox.ran, [("fetch", {"page": page})], "what ran")
            expect(seen.answer, "Done.", "the last words")
            facts = await stage.facts(scene, "tool:post")
            expect([one["tool_call_id"] for one in facts], ["c-1"], "calls in the record")
            heard.add(voice.answer("c-1").text)
    if len(heard) != 1:
        raise PromiseBreak(f"a run and a stream tell the model different results: {heard}")
    return heard.pop()


def _check_hidden(shown: str, what: str) -> None:
    for secret in _SECRETS:
        if secret in shown:
            raise PromiseBreak(f"{what}: {secret!r} was hidden, and is seen: {shown!r}")
