"""Nothing that an LLM or a tool sends ends a turn: each call has one result, and the turn goes on."""

import json

import pytest
from four_loops import LOOPS
from hostile_turns import CALLS, OUTPUTS, sound, turned
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.timeout(60), pytest.mark.system]


def went_on(done):
    """The turn came to its end, every call has one result, and the sound one behind them ran."""
    assert done.answer == "done"
    assert done.events.count("execution:end") == done.events.count("orchestrator:complete") == 1
    assert len(set(done.called)) == len(done.called)
    assert sorted(done.answered) == sorted(done.called)
    assert "fine" in str(done.result_of("sound"))
    json.dumps(done.messages, allow_nan=False, ensure_ascii=False).encode()  # as any provider may send it
    return done


@pytest.mark.parametrize("loop", LOOPS)
async def test_whatever_a_tool_gives_or_raises_is_the_one_result_of_its_call(loop, tmp_path):
    calls = [{"id": f"c{n}", "name": "do", "arguments": {"n": n}} for n in range(len(OUTPUTS))]
    does = list(OUTPUTS.values())
    done = went_on(
        await turned(loop, lambda: [*calls, sound()], lambda given: does[given["n"]](given), log=tmp_path)
    )
    assert len(done.called) == len(OUTPUTS) + 1
    assert done.ran == len(OUTPUTS)
    told = dict(zip(OUTPUTS, (str(done.result_of(f"c{n}")) for n in range(len(does))), strict=True))
    assert "no more" in told["exits with words"]
    assert "UnreadableResult" in told["every part of a result raises"]
    assert "the tool cancelled itself" in told["raises CancelledError"]
    assert "contains itself" in told["a list of itself"]
    posted, failed = done.events.count("tool:post"), done.events.count("tool:error")
    # Under loop-streaming each failure is told by tool:error and then by tool:post.
    assert posted + failed * (loop != "loop-streaming") == len(done.called)
    assert {json.loads(line)["event"] for line in done.logged} >= {"tool:post", "tool:error", "execution:end"}


@pytest.mark.parametrize("loop", LOOPS)
async def test_whatever_an_llm_calls_has_one_result(loop, tmp_path):
    def calls():
        return [*(call for make in CALLS.values() for call in make()), sound()]

    done = went_on(await turned(loop, calls, log=tmp_path))
    assert len(done.called) == len(calls())
    assert done.ran < len(CALLS)  # what cannot be read is not guessed at
    assert ("ran" in str(done.result_of("deepest"))) == (loop != "loop-reactive")  # it takes half the depth
    assert "levels deep" in str(done.result_of("too-deep"))


async def test_whatever_a_program_asks_about_is_ruled_on(server_url, namespace):
    asked = [call for make in CALLS.values() for call in make() if isinstance(call, dict)]
    async with Gate.open(redis=server_url, namespace=namespace, required=["nobody"], patience_ms=5) as gate:
        for call in asked:
            decision = await gate.decide(Call(call["name"], call["arguments"], ["do", "other"]))
            assert decision.outcome == "deny"
