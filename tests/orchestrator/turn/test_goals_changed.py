"""A goal that the host sets, replaces, revises or clears while turns run and judges read."""

import asyncio
from typing import Any

import pytest
from amplifier_core import HookResult, LLMError
from four_loops import LOOPS
from goal_judges import judging, progress_of

pytestmark = pytest.mark.pure


def state_of(a: Any) -> Any:
    return a.session.coordinator.session_state


def on_judging(a: Any, act: Any, iteration: int = 0) -> None:
    """Do this when the judge is asked (or the LLM, with another iteration)."""

    async def hook(event: str, data: dict[str, Any]) -> HookResult:
        if data["iteration"] == iteration:
            act()
        return HookResult()

    a.hooks.register("provider:request", hook, name="host")


CHANGES: dict[str, Any] = {
    "replaced": lambda state: state.update(goal={"condition": "another"}),
    "revised": lambda state: state["goal"].update(condition="another"),
    "cleared": lambda state: state.update(goal=None),
}


@pytest.mark.parametrize("verdict", ["YES\ndone", "NO\nnot yet", LLMError("overloaded")])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("loop", LOOPS)
async def test_what_a_judge_says_of_a_goal_that_no_longer_stands_counts_for_nothing(
    agent: Any, llm: Any, says: Any, loop: str, change: str, verdict: Any
) -> None:
    model = judging(llm, [[says("one")], [says("two")]], [verdict])
    async with agent(llm=model, loop=loop) as a:
        heard = progress_of(a)
        state_of(a)["goal"] = {"condition": "the tests pass"}
        on_judging(a, lambda: CHANGES[change](state_of(a)))
        assert await a.ask() == "one"
        assert heard == []
        assert len(model.judged) == 1
        left = state_of(a)["goal"]
        assert (
            (left is None)
            if change == "cleared"
            else (left["condition"], left.get("reasons", []))
            == (
                "another",
                [],
            )
        )
        ends = a.told("orchestrator:complete")
        assert [end["goal_final"] for end in ends] == [True]


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_goal_that_is_set_while_the_turn_runs_is_pursued(
    agent: Any, llm: Any, says: Any, loop: str
) -> None:
    model = judging(llm, [[says("one")], [says("two")]], ["NO\nnot yet", "YES\ndone"])
    async with agent(llm=model, loop=loop) as a:
        heard = progress_of(a)
        on_judging(a, lambda: state_of(a).setdefault("goal", {"condition": "it is done"}), iteration=1)
        assert await a.ask() == "two"
        assert [event["state"] for event in heard] == ["continuing", "achieved"]
        assert state_of(a)["goal"] is None


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_goal_that_is_revised_while_the_turn_runs_is_judged_as_revised(
    agent: Any, llm: Any, says: Any, loop: str
) -> None:
    model = judging(llm, [[says("one")]], ["YES\ndone"])
    async with agent(llm=model, loop=loop) as a:
        heard = progress_of(a)
        state_of(a)["goal"] = {"condition": "the tests pass"}
        on_judging(a, lambda: state_of(a)["goal"].update(condition="another"), iteration=1)
        await a.ask()
        assert [event["condition"] for event in heard] == ["another"]


async def test_a_hook_that_clears_the_goal_on_its_progress_stops_before_the_next_turn(
    agent: Any, llm: Any, says: Any
) -> None:
    model = judging(llm, [[says("one")], [says("two")]], ["NO\nnot yet"])
    async with agent(llm=model) as a:

        async def pause(event: str, data: dict[str, Any]) -> HookResult:
            state_of(a)["goal"] = None
            return HookResult()

        a.hooks.register("orchestrator:goal_progress", pause, name="host")
        state_of(a)["goal"] = {"condition": "the tests pass"}
        assert await a.ask() == "one"
        assert [end["goal_final"] for end in a.told("orchestrator:complete")] == [True]


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_failure_of_the_turns_own_provider_is_not_blamed_on_the_judge_and_the_goal_stays(
    agent: Any, llm: Any, says: Any, loop: str
) -> None:
    model = judging(llm, [[LLMError("overloaded")]], [])
    async with agent(llm=model, loop=loop) as a:
        heard = progress_of(a)
        state_of(a)["goal"] = {"condition": "the tests pass"}
        if loop == "loop-events":
            assert "could not answer" in await a.ask()
        else:
            with pytest.raises(RuntimeError, match="overloaded"):
                await a.ask()
        assert (heard, model.judged) == ([], [])
        assert state_of(a)["goal"]["condition"] == "the tests pass"
        (end,) = a.told("orchestrator:complete")
        assert end["status"] == ("error" if loop == "loop-streaming" else "incomplete")


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_provider_that_fails_in_a_later_turn_ends_the_run_too(
    agent: Any, llm: Any, says: Any, loop: str
) -> None:
    model = judging(llm, [[says("one")], [LLMError("overloaded")]], ["NO\nnot yet"])
    async with agent(llm=model, loop=loop) as a:
        heard = progress_of(a)
        state_of(a)["goal"] = {"condition": "the tests pass"}
        if loop == "loop-events":
            assert "could not answer" in await a.ask()
        else:
            with pytest.raises(RuntimeError, match="overloaded"):
                await a.ask()
        assert [event["state"] for event in heard] == ["continuing"]
        assert state_of(a)["goal"]["continuations"] == 1
        assert [end["goal_final"] for end in a.told("orchestrator:complete")] == [False, True]


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_session_that_is_cancelled_at_once_in_a_later_turn_runs_no_further_one(
    agent: Any, llm: Any, says: Any, loop: str
) -> None:
    model = judging(llm, [[says("one")], [says("two"), asyncio.Event()]], ["NO\nnot yet"])
    async with agent(llm=model, loop=loop) as a:
        heard = progress_of(a)
        state_of(a)["goal"] = {"condition": "the tests pass"}
        cancel = a.session.coordinator.cancellation.request_immediate
        on_judging(a, lambda: len(model.requests) < 2 or cancel(), iteration=1)
        assert await asyncio.wait_for(a.ask(), 10) == ""
        assert [event["state"] for event in heard] == ["continuing", "cancelled"]
        assert state_of(a)["goal"] is None
        ends = [(end["status"], end["goal_final"]) for end in a.told("orchestrator:complete")]
        assert ends == [("success", False), ("cancelled", True)]


async def test_a_task_that_is_cancelled_while_the_judge_reads_ends_the_pursuit(
    agent: Any, llm: Any, says: Any
) -> None:
    model = judging(llm, [[says("one")]], ["NO\nnot yet"])
    async with agent(llm=model) as a:
        heard = progress_of(a)
        reached = asyncio.Event()

        async def hook(event: str, data: dict[str, Any]) -> HookResult:
            if data["iteration"] == 0:
                reached.set()
                await asyncio.Event().wait()
            return HookResult()

        a.hooks.register("provider:request", hook, name="host")
        state_of(a)["goal"] = {"condition": "the tests pass"}
        turn = asyncio.ensure_future(a.ask())
        await asyncio.wait_for(reached.wait(), 5)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        get = a.session.coordinator.get
        await get("orchestrator").aclose()
        assert [event["state"] for event in heard] == ["cancelled"]
        assert state_of(a)["goal"] is None
