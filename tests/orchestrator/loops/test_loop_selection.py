"""The tool selection of loop-events with hooks in process: the seed's flow and its own samples."""

from typing import Any

import pytest
from amplifier_core import HookResult

pytestmark = pytest.mark.pure

SEARCHES = ("web_search", "advanced_search")


def deny(reason: str, **data: Any) -> HookResult:
    return HookResult(action="deny", reason=reason, data=data or None)


def modify(**data: Any) -> HookResult:
    return HookResult(action="modify", data=data)


async def seed_scheduler(event: str, data: dict[str, Any]) -> HookResult:
    """The sample of seed loop-events, its blanks filled in."""
    if data["tool_name"] == "expensive_operation":
        return HookResult(action="deny", reason="Cost limit exceeded")
    if data["tool_name"] == "slow_tool":
        return HookResult(action="modify", data={"tool": "fast_tool", "arguments": {"n": 1}})
    return HookResult(action="continue")


async def test_the_seeds_sample_denies_an_expensive_tool(agent: Any, tool: Any, calls: Any) -> None:
    async with agent(
        [calls("expensive_operation"), {"text": "ok"}], tools=[tool("expensive_operation")]
    ) as a:
        a.hooks.register("tool:selecting", seed_scheduler)
        await a.ask()
        assert a.tools["expensive_operation"].calls == []
        assert "Cost limit exceeded" in (await a.results())[0]
        assert "Cost limit exceeded" in str(a.requests[1].messages)
        assert a.names("tool:selected", "tool:pre", "tool:post", "tool:error") == []
        violation = a.told("policy:violation")[0]
        assert (violation["tool_name"], violation["reason"]) == ("expensive_operation", "Cost limit exceeded")
        assert violation["decision"]["verdicts"][0]["scheduler"] == "in-process"


async def test_the_seeds_sample_replaces_a_slow_tool_and_its_arguments(
    agent: Any, tool: Any, calls: Any
) -> None:
    tools = [tool("slow_tool"), tool("fast_tool", lambda arguments: arguments)]
    async with agent([calls(("slow_tool", {"n": 9})), {"text": "ok"}], tools=tools) as a:
        a.hooks.register("tool:selecting", seed_scheduler)
        await a.ask()
        assert a.tools["slow_tool"].calls == []
        assert a.tools["fast_tool"].calls == [{"n": 1}]
        assert await a.results() == ['{"n": 1}']
        selected = a.told("tool:selected")[0]
        assert (selected["tool"], selected["source"]) == ("fast_tool", "scheduler")
        assert (selected["original_tool"], selected["tool_call_id"]) == ("slow_tool", "c1")
        assert selected["tool_input"] == {"n": 1}
        assert selected["original_input"] == {"n": 9}
        assert a.told("tool:pre")[0]["tool_name"] == "fast_tool"


async def test_the_seeds_cost_scheduler_denies_past_the_budget(agent: Any, tool: Any, calls: Any) -> None:
    budget, spent = 50, [0]

    async def cost_scheduler(event: str, data: dict[str, Any]) -> HookResult:
        if data.get("phase") != "verify":
            spent[0] += 20
        if spent[0] > budget:
            return HookResult(action="deny", reason="Budget exceeded")
        return HookResult(action="continue")

    async with agent([calls("t", "t", "t"), {"text": "ok"}], tools=[tool("t")]) as a:
        a.hooks.register("tool:selecting", cost_scheduler)
        await a.ask()
        assert len(a.tools["t"].calls) == 2
        assert ["Budget exceeded" in result for result in await a.results()] == [False, False, True]


async def test_the_seeds_router_sends_a_search_to_the_specialised_tool(
    agent: Any, tool: Any, calls: Any
) -> None:
    async def router_scheduler(event: str, data: dict[str, Any]) -> HookResult:
        if data["tool_name"] == "web_search":
            return HookResult(
                action="modify", data={"tool": "advanced_search", "arguments": data["tool_input"]}
            )
        return HookResult(action="continue")

    async with agent([calls(("web_search", {"q": "x"})), {"text": "ok"}], tools=map(tool, SEARCHES)) as a:
        a.hooks.register("tool:selecting", router_scheduler)
        await a.ask()
        assert a.tools["advanced_search"].calls == [{"q": "x"}]


async def test_the_question_carries_the_seeds_fields(agent: Any, tool: Any, calls: Any) -> None:
    seen: list[dict[str, Any]] = []

    def note(data: dict[str, Any]) -> HookResult:
        seen.append(data)
        return HookResult()

    async with agent([calls(("a", {"x": 1})), {"text": "ok"}], tools=[tool("a"), tool("b")]) as a:
        a.on("tool:selecting", note)
        await a.ask()
    assert (seen[0]["tool_name"], seen[0]["tool_input"]) == ("a", {"x": 1})
    assert seen[0]["available_tools"] == ["a", "b"]
    assert (seen[0]["tool_call_id"], seen[0]["iteration"], seen[0]["phase"]) == ("c1", 1, "select")
    assert (seen[0]["session"], seen[0]["root_session"]) == ("s-1", "s-1")


async def test_without_any_scheduler_the_llms_choice_is_selected_and_nothing_is_asked(
    agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls(("a", {"x": 1})), {"text": "ok"}], tools=[tool("a")]) as a:
        await a.ask()
        selected = a.told("tool:selected")[0]
        assert (selected["tool"], selected["source"], selected["original_tool"]) == ("a", "llm", None)
        assert "decision" not in selected
        assert a.tools["a"].calls == [{"x": 1}]


async def test_a_deny_wins_over_a_modify_whatever_the_order(agent: Any, tool: Any, calls: Any) -> None:
    for first, second in (("m", "d"), ("d", "m")):
        answers = {"m": modify(tool="b", arguments={}, priority=1000), "d": deny("no")}
        async with agent([calls("a"), {"text": "ok"}], tools=[tool("a"), tool("b")]) as a:
            a.on("tool:selecting", *[answers[first]] * 3, priority=1)
            a.on("tool:selecting", *[answers[second]] * 3, priority=2)
            await a.ask()
            assert a.tools["a"].calls == a.tools["b"].calls == []
            assert "no" in (await a.results())[0]


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
async def test_the_highest_priority_in_the_data_wins_among_modifies(
    agent: Any, tool: Any, calls: Any, order: tuple[int, int]
) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=map(tool, "abc")) as a:

        def to(name: str, rank: int) -> Any:
            def answer(data: dict[str, Any]) -> HookResult:
                return (
                    modify(tool=name, arguments={}, priority=rank)
                    if data["phase"] == "select"
                    else HookResult()
                )

            return answer

        a.on("tool:selecting", *[to("b", 5)] * 4, priority=order[0])
        a.on("tool:selecting", *[to("c", 10)] * 4, priority=order[1])
        await a.ask()
        assert (a.tools["b"].calls, a.tools["c"].calls) == ([], [{}])


async def test_without_priorities_the_hook_registered_first_wins(agent: Any, tool: Any, calls: Any) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=map(tool, "abc")) as a:
        a.on("tool:selecting", *[modify(tool="c")] * 4, priority=2)
        a.on("tool:selecting", *[modify(tool="b")] * 4, priority=1)
        await a.ask()
        assert (len(a.tools["b"].calls), len(a.tools["c"].calls)) == (1, 0)


@pytest.mark.parametrize(
    "data",
    [
        {"tool": "b", "arguments": {"n": 2}},
        {"tool_name": "b", "tool_input": {"n": 2}},
        {"tool_name": "b", "arguments": {"n": 2}},
    ],
)
async def test_both_spellings_of_a_modify_are_read(
    agent: Any, tool: Any, calls: Any, data: dict[str, Any]
) -> None:
    async with agent([calls(("a", {"n": 1})), {"text": "ok"}], tools=map(tool, "ab")) as a:
        a.on("tool:selecting", HookResult(action="modify", data=data))
        await a.ask()
        assert a.tools["b"].calls == [{"n": 2}]


async def test_a_modify_of_the_arguments_alone_keeps_the_tool(agent: Any, tool: Any, calls: Any) -> None:
    async with agent([calls(("a", {"n": 1})), {"text": "ok"}], tools=[tool("a")]) as a:
        a.on("tool:selecting", lambda data: modify(**{**data, "tool_input": {"n": 7}}))
        await a.ask()
        assert a.tools["a"].calls == [{"n": 7}]
        assert a.told("tool:selected")[0]["source"] == "scheduler"


async def test_a_modify_of_the_tool_alone_keeps_the_arguments(agent: Any, tool: Any, calls: Any) -> None:
    async with agent([calls(("a", {"n": 1})), {"text": "ok"}], tools=map(tool, "ab")) as a:
        a.on("tool:selecting", modify(tool="b"))
        await a.ask()
        assert a.tools["b"].calls == [{"n": 1}]


async def test_a_modify_to_a_tool_that_is_not_there_is_set_aside(agent: Any, tool: Any, calls: Any) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")]) as a:
        a.on("tool:selecting", modify(tool="nowhere", arguments={}))
        await a.ask()
        assert a.tools["a"].calls == [{}]


async def test_a_modify_that_can_run_wins_over_one_of_higher_priority_that_cannot(
    agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=map(tool, "ab")) as a:
        a.on("tool:selecting", *[modify(tool="nowhere", priority=9)] * 3)
        a.on("tool:selecting", *[modify(tool="b", priority=1)] * 3)
        await a.ask()
        assert len(a.tools["b"].calls) == 1


async def test_the_replacement_is_put_before_the_hooks_in_full_and_they_may_veto_it(
    agent: Any, tool: Any, calls: Any
) -> None:
    seen: list[dict[str, Any]] = []

    def judge(data: dict[str, Any]) -> HookResult:
        seen.append(data)
        return deny("not that one either") if data.get("phase") == "verify" else HookResult()

    async with agent([calls(("a", {"n": 1})), {"text": "ok"}], tools=map(tool, "ab")) as a:
        a.on("tool:selecting", *[modify(tool="b", arguments={"n": 2}, priority=1)] * 2, priority=9)
        a.on("tool:selecting", *[judge] * 5, priority=1)
        await a.ask()
        assert a.tools["a"].calls == a.tools["b"].calls == []
        assert "not that one either" in (await a.results())[0]
        last = seen[-1]
        assert (last["phase"], last["tool_name"], last["tool_input"]) == ("verify", "b", {"n": 2})
        assert last["available_tools"] == ["a", "b"]


async def test_a_veto_behind_a_replacing_hook_that_the_kernel_loses_is_heard_in_verify(
    agent: Any, tool: Any, calls: Any
) -> None:
    async def wary(event: str, data: dict[str, Any]) -> HookResult:
        return deny("never b") if data["tool_name"] == "b" else HookResult()

    async with agent([calls("a"), {"text": "ok"}], tools=map(tool, "ab")) as a:
        a.on("tool:selecting", *[modify(tool="b", arguments={})] * 2, priority=1)
        a.hooks.register("tool:selecting", wary, priority=2)
        await a.ask()
        assert a.tools["b"].calls == []
        assert "never b" in (await a.results())[0]


async def test_a_hook_that_raises_is_passed_over_and_the_others_count(
    agent: Any, tool: Any, calls: Any
) -> None:
    def fail(_: dict[str, Any]) -> HookResult:
        raise RuntimeError("scheduler broke")

    async with agent([calls("a", "a"), {"text": "ok"}], tools=map(tool, "ab")) as a:
        a.on("tool:selecting", fail, fail, fail, fail)
        a.on("tool:selecting", deny("still heard"))
        await a.ask()
        assert "still heard" in (await a.results())[0]
        assert len(a.tools["a"].calls) == 1


async def test_an_injection_while_selecting_reaches_the_next_request(
    agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")]) as a:
        inject = HookResult(action="inject_context", context_injection="mind the cost", ephemeral=True)
        a.on("tool:selecting", inject)
        await a.ask()
        assert a.requests[1].messages[-1].content == "mind the cost"
        assert "mind the cost" not in str(await a.messages())
        assert len(a.tools["a"].calls) == 1


async def test_a_modify_beside_an_injection_is_not_lost(agent: Any, tool: Any, calls: Any) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=map(tool, "ab")) as a:
        inject = HookResult(action="inject_context", context_injection="note", ephemeral=True)
        a.on("tool:selecting", *[modify(tool="b", arguments={})] * 2, priority=1)
        a.on("tool:selecting", inject, priority=2)
        await a.ask()
        assert len(a.tools["b"].calls) == 1


async def test_what_tool_pre_changes_is_put_before_the_schedulers_again(
    agent: Any, tool: Any, calls: Any
) -> None:
    def limit(data: dict[str, Any]) -> HookResult:
        return deny("too many") if data["tool_input"].get("n", 0) > 5 else HookResult()

    async with agent([calls(("a", {"n": 1})), {"text": "ok"}], tools=[tool("a")]) as a:
        a.on("tool:selecting", *[limit] * 5)
        a.on("tool:pre", lambda data: modify(**{**data, "tool_input": {"n": 9}}))
        await a.ask()
        assert a.tools["a"].calls == []
        assert "too many" in (await a.results())[0]


async def test_a_call_of_an_unknown_tool_can_be_routed_to_one_that_is_there(
    agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls(("serach", {"q": 1})), {"text": "ok"}], tools=[tool("search")]) as a:
        a.on("tool:selecting", modify(tool="search"))
        await a.ask()
        assert a.tools["search"].calls == [{"q": 1}]


async def test_calls_run_one_after_another_in_the_order_of_the_llm(agent: Any, tool: Any, calls: Any) -> None:
    running: list[str] = []

    def alone(name: str) -> Any:
        async def answer(_: dict[str, Any]) -> str:
            assert running == []
            running.append(name)
            running.remove(name)
            return name

        return answer

    tools = [tool(name, alone(name)) for name in "abc"]
    async with agent([calls("b", "c", "a"), {"text": "ok"}], tools=tools) as a:
        await a.ask()
        assert await a.results() == ["b", "c", "a"]
        order = [data["tool_name"] for name, data in a.events if name in ("tool:pre", "tool:post")]
        assert order == ["b", "b", "c", "c", "a", "a"]
        assert len({data["parallel_group_id"] for data in a.told("tool:pre")}) == 1


async def test_a_delegation_names_its_agent_and_can_be_sent_to_another(
    agent: Any, tool: Any, calls: Any
) -> None:
    seen: list[dict[str, Any]] = []

    def redirect(data: dict[str, Any]) -> HookResult:
        seen.append(data)
        return modify(agent_target="reviewer") if data["phase"] == "select" else HookResult()

    turns = [calls(("delegate", {"agent": "coder", "task": "x"})), {"text": "ok"}]
    plan: dict[str, Any] = {"agents": {"coder": {}, "reviewer": {}}}
    async with agent(turns, tools=[tool("delegate")], plan=plan) as a:
        a.on("tool:selecting", redirect, redirect)
        await a.ask()
        assert seen[0]["available_agents"] == ["coder", "reviewer"]
        assert seen[0]["agent_target"] == "coder"
        assert a.tools["delegate"].calls == [{"agent": "reviewer", "task": "x"}]


async def test_a_gate_that_fails_denies_as_soon_as_anybody_might_have_objected(
    agent: Any, tool: Any, calls: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolgate_orchestrator.decision.gate import Gate

    async def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("bug in the gate")

    monkeypatch.setattr(Gate, "decide", broken)
    for config, hook in (({}, True), ({"toolgate": {"required": ["safety"]}}, False)):
        async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")], config=config) as a:
            if hook:
                a.on("tool:selecting", HookResult())
            await a.ask()
            assert a.tools["a"].calls == []


async def test_a_call_that_a_hook_refuses_is_told_as_a_violation(agent: Any, tool: Any, calls: Any) -> None:
    async with agent([calls("a"), {"text": "done"}], tools=[tool("a")]) as a:
        a.on("tool:pre", deny("not on a Sunday"))
        await a.ask()
        (violation,) = a.told("policy:violation")
        assert (violation["tool_name"], violation["reason"]) == ("a", "not on a Sunday")


async def test_a_call_that_was_ruled_on_while_the_session_was_cancelled_is_not_run(
    agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls("a", "b"), {"text": "never"}], tools=[tool("a"), tool("b")]) as a:

        async def cancel(_: Any) -> HookResult:
            await a.session.coordinator.request_cancel()
            return HookResult()

        a.on("tool:selecting", cancel)
        assert await a.ask() == ""
        assert a.tools["a"].calls == a.tools["b"].calls == []
        # Who took longer to rule than it takes to see the cancellation was not waited for.
        assert all("the session was cancelled" in result for result in await a.results())
