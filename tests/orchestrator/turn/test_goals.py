"""A goal is pursued turn after turn, judged after each, and every run comes to an end that is told."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core import HookResult, LLMError
from four_loops import LOOPS
from goal_judges import judging, progress_of, set_goal

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_judge_who_says_not_yet_twice_leads_to_three_turns(
    agent: Any, llm: Any, says: Any, loop: str
) -> None:
    verdicts = ["NO\none test fails", "no.\nanother test fails", "YES\nall pass"]
    model = judging(llm, [[says("first")], [says("second")], [says("third")]], verdicts)
    async with agent(llm=model, loop=loop) as a:
        heard = progress_of(a)
        set_goal(a)
        assert await a.ask() == "third"
        assert [event["state"] for event in heard] == ["continuing", "continuing", "achieved"]
        assert heard[-1] == heard[-1] | {
            "orchestrator": loop,
            "state": "achieved",
            "turn": 3,
            "continuations": 2,
            "cap": None,
            "reason": "all pass",
            "reasons": ["one test fails", "another test fails", "all pass"],
            "stall_detail": None,
            "stall_verdict": None,
            "summary": None,
            "distinct_blockers": 3,
            "condition": "the tests pass",
            "schema_version": 1,
        }
        assert [message["content"] for message in await a.messages() if message["role"] == "user"] == [
            *("hello", "one test fails", "another test fails")
        ]
        ends = a.told("orchestrator:complete")
        assert [(end["goal_turn"], end["goal_final"]) for end in ends] == [(1, False), (2, False), (3, True)]
        assert a.session.coordinator.session_state["goal"] is None


async def test_whoever_reads_along_reads_the_turns_on_lines_of_their_own(
    agent: Any, llm: Any, says: Any
) -> None:
    model = judging(llm, [[says("first")], [says("second")]], ["NO\nnot yet", "YES\ndone"])
    async with agent(llm=model, loop="loop-streaming") as a:
        set_goal(a)
        get = a.session.coordinator.get
        parts = (get("context"), get("providers"), get("tools"), a.hooks)
        stream = get("orchestrator").stream("hello", *parts, coordinator=a.session.coordinator)
        assert "".join([piece async for piece in stream]) == "first\nsecond"


async def test_the_judge_has_no_tools_does_not_think_and_is_not_streamed(
    agent: Any, llm: Any, says: Any
) -> None:
    model = judging(llm, [[says("first")]], ["YES\ndone"])
    async with agent(llm=model, config={"extended_thinking": True}) as a:
        set_goal(a)
        await a.ask()
        ((_, request, options),) = model.judged
        assert (request.tools, request.metadata, request.max_output_tokens) == (None, {"stream": False}, 512)
        assert options == {"extended_thinking": False}
        assert "the tests pass" in str(request.messages[1].content)
        assert "assistant: first" in str(request.messages[1].content)
        asked = [event["iteration"] for event in a.told("provider:request")]
        assert asked == [1, 0]
        assert "You judge" not in str(await a.messages())


class Resolver:
    """A host's capability that knows which model has a role."""

    async def resolve(self, role: str) -> list[Any]:
        found = {"provider": "judge", "model": "small-1", "config": {"temperature": 0}}
        return [SimpleNamespace(**found)] if role == "referee" else []


@pytest.mark.parametrize(
    "config",
    [
        {"goal_model_role": "referee"},
        {
            "goal_provider_preferences": [
                {"provider": "judge", "model": "small-1", "config": {"temperature": 0}}
            ]
        },
    ],
    ids=["by role", "by preference"],
)
async def test_the_judge_may_be_another_model(
    agent: Any, llm: Any, says: Any, config: dict[str, Any]
) -> None:
    judge = judging(llm, [], ["YES\ndone"])
    async with agent(llm=llm([says("one")]), config={**config, "default_provider": "llm"}) as a:
        await a.session.coordinator.mount("providers", judge, name="judge")
        a.session.coordinator.register_capability("model_role_resolver", Resolver())
        set_goal(a)
        assert await a.ask() == "one"
        ((_, request, options),) = judge.judged
        assert request.model == "small-1"
        assert options == {"model": "small-1", "temperature": 0, "extended_thinking": False}


async def test_without_a_goal_nobody_judges(agent: Any, llm: Any, says: Any) -> None:
    model = judging(llm, [[says("first")]], [])
    async with agent(llm=model) as a:
        assert await a.ask() == "first"
        (end,) = a.told("orchestrator:complete")
        assert (end["goal_turn"], end["goal_final"], end["continuations"]) == (None, True, None)


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_run_that_is_stuck_is_warned_once_and_then_ended_with_a_summary(
    agent: Any, llm: Any, says: Any, loop: str
) -> None:
    stuck = ["TIME-LOCKED\nthe soak takes a week"] * 2
    model = judging(llm, [[says("waiting")]] * 9, ["NO\nthe soak is not over"] * 9, stuck)
    async with agent(llm=model, loop=loop, config={"goal_stall_threshold": 2}) as a:
        heard = progress_of(a)
        set_goal(a)
        await a.ask()
        assert [event["state"] for event in heard] == ["continuing"] * 3 + ["stalled"]
        last = heard[-1]
        assert (last["stall_verdict"], last["stall_detail"]) == ("time-locked", "the soak takes a week")
        assert last["summary"] == "tests stay red"
        assert last["reasons"] == ["the soak is not over (repeated 4x)"]
        assert last["distinct_blockers"] == 1
        prompts = [message["content"] for message in await a.messages() if message["role"] == "user"]
        assert "different way" in prompts[-1]


async def test_a_run_that_works_and_always_lacks_the_same_is_judged_too(
    agent: Any, llm: Any, says: Any, wants: Any, tool: Any
) -> None:
    turns = [[wants("c1", "a")], [says("tried")]] * 9
    stuck = [
        "RESOLVABLE\nit is getting closer",
        "STRUCTURE-LOCKED\none site cannot",
        "STRUCTURE-LOCKED\nas before",
    ]
    model = judging(llm, turns, ["NO\nsite seven has no figure"] * 9, stuck)
    async with agent(llm=model, tools=[tool("a")], config={"goal_busy_stall_window": 2}) as a:
        heard = progress_of(a)
        set_goal(a)
        await a.ask()
        verdicts = [event["stall_verdict"] for event in heard]
        assert verdicts == [None, "resolvable", "structure-locked", "structure-locked"]
        assert heard[-1]["state"] == "stalled"
        (first, *_) = [request for what, request, _ in model.judged if what == "stuck"]
        assert "used tools in these turns" in str(first.messages[0].content)


@pytest.mark.parametrize(
    ("config", "asked"),
    [({"goal_busy_stall_window": 0}, 0), ({"goal_busy_stall_min_overlap": 1.0}, 0), ({}, 1)],
)
async def test_what_looks_alike_is_a_matter_of_the_config(
    agent: Any, llm: Any, says: Any, wants: Any, tool: Any, config: dict[str, Any], asked: int
) -> None:
    turns = [[wants("c1", "a")], [says("tried")]] * 3
    verdicts = [f"NO\nsite {number} has no figure" for number in range(3)]
    model = judging(llm, turns, verdicts, ["RESOLVABLE\ngo on"])
    async with agent(llm=model, tools=[tool("a")], config=config) as a:
        set_goal(a, cap=3)
        await a.ask()
        assert [what for what, *_ in model.judged].count("stuck") == asked


async def test_a_goal_ends_at_its_cap_with_what_remains(agent: Any, llm: Any, says: Any) -> None:
    model = judging(llm, [[says("one")], [says("two")]], ["NO\none fails", "NO\ntwo fail"])
    async with agent(llm=model) as a:
        heard = progress_of(a)
        set_goal(a, cap=2)
        assert await a.ask() == "two"
        assert [(event["state"], event["cap"]) for event in heard] == [("continuing", 2), ("cap_hit", 2)]
        assert heard[-1]["summary"] == "tests stay red"


@pytest.mark.parametrize(
    "verdict",
    ["perhaps", "", LLMError("overloaded"), asyncio.CancelledError()],
    ids=["words", "silence", "failure", "a cancellation of its own"],
)
async def test_a_judge_that_fails_ends_the_run_and_nothing_was_reached(
    agent: Any, llm: Any, says: Any, verdict: Any
) -> None:
    model = judging(llm, [[says("one")]], [verdict])
    async with agent(llm=model) as a:
        heard = progress_of(a)
        set_goal(a)
        assert await a.ask() == "one"
        ((state, summary),) = [(event["state"], event["summary"]) for event in heard]
        assert (state, summary) == ("error", "tests stay red")
        assert a.session.coordinator.session_state["goal"] is None


async def test_a_hook_that_refuses_the_judges_request_ends_the_run(agent: Any, llm: Any, says: Any) -> None:
    async with agent(llm=judging(llm, [[says("one")]], ["YES\ndone"])) as a:

        async def refuse(event: str, data: dict[str, Any]) -> HookResult:
            return HookResult(action="deny", reason="dear") if data["iteration"] == 0 else HookResult()

        heard = progress_of(a)
        a.hooks.register("provider:request", refuse, name="refuse")
        set_goal(a)
        await a.ask()
        assert (heard[-1]["state"], "dear" in heard[-1]["reason"]) == ("error", True)


@pytest.mark.parametrize("now", [True, False])
async def test_a_session_that_is_cancelled_ends_the_pursuit(
    agent: Any, llm: Any, says: Any, now: bool
) -> None:
    model = judging(llm, [[says("one")], [says("two")]], ["NO\nnot yet"] * 3)
    async with agent(llm=model) as a:

        async def cancel(event: str, data: dict[str, Any]) -> HookResult:
            if data["iteration"] == 0:
                await a.session.coordinator.request_cancel(now)
            return HookResult()

        heard = progress_of(a)
        a.hooks.register("provider:request", cancel, name="cancel")
        set_goal(a)
        await a.ask()
        assert [event["state"] for event in heard] == ["cancelled"]
        assert a.session.coordinator.session_state["goal"] is None


async def test_a_goal_that_the_user_clears_meanwhile_is_over(
    agent: Any, llm: Any, says: Any, wants: Any, tool: Any
) -> None:
    async with agent(llm=judging(llm, [[wants("c1", "clear")], [says("ok")]], [])) as a:

        def clear(arguments: dict[str, Any]) -> str:
            a.session.coordinator.session_state["goal"] = None
            return "cleared"

        await a.session.coordinator.mount("tools", tool("clear", clear), name="clear")
        set_goal(a)
        assert await a.ask() == "ok"


async def test_what_the_judge_costs_is_told_like_any_other_request(agent: Any, llm: Any, says: Any) -> None:
    from toolgate_bus.protocol.fact_events import USAGE

    told: list[dict[str, Any]] = []
    async with agent(llm=judging(llm, [[says("one")]], ["YES\ndone"])) as a:
        note = a.session.coordinator.get("orchestrator").gate.note
        a.session.coordinator.get("orchestrator").gate.note = lambda event, data: (
            told.append({"event": event, **data}),
            note(event, data),
        )
        set_goal(a)
        await a.ask()
    assert [fact["iteration"] for fact in told if fact["event"] == USAGE] == [1, 0]
