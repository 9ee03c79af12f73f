"""Seed loop-events, sentence by sentence: schedulers, what they are asked, and what comes of it.

Here they are hooks in process. The same samples as processes: `tests/acceptance/ruling/test_seed_samples.py`.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from amplifier_core import HookResult

pytestmark = pytest.mark.pure

SELECTION = ("tool:selecting", "tool:selected")


def modify(**data: Any) -> HookResult:
    return HookResult(action="modify", data=data)


async def scheduler_hook(event: str, data: dict[str, Any]) -> HookResult:
    if data["tool_name"] == "expensive_operation":
        # Veto expensive tool
        return HookResult(action="deny", reason="Cost limit exceeded")

    if data["tool_name"] == "slow_tool":
        # Modify to faster alternative
        return HookResult(action="modify", data={"tool": "fast_tool", "arguments": {"quick": True}})

    # Allow tool
    return HookResult(action="continue")


budget = 10


def estimated_cost(tool: str) -> int:
    return 100 if tool == "render_video" else 1


async def cost_scheduler(event: str, data: dict[str, Any]) -> HookResult:
    if estimated_cost(data["tool_name"]) > budget:
        return HookResult(action="deny", reason="Budget exceeded")
    return HookResult(action="continue")


async def router_scheduler(event: str, data: dict[str, Any]) -> HookResult:
    if data["tool_name"] == "web_search":
        # Route to specialized search service
        return HookResult(action="modify", data={"tool": "advanced_search", "arguments": data["tool_input"]})
    return HookResult(action="continue")


def ran(a: Any) -> list[tuple[str, dict[str, Any]]]:
    """Each tool that ran, with its arguments."""
    return [(data["tool_name"], data["tool_input"]) for data in a.told("tool:post")]


# ---------------------------------------------------------------- who decides


async def test_the_llm_makes_the_tool_decisions(agent: Any, tool: Any, calls: Any) -> None:
    async with agent([calls(("b", {"n": 1}), "a"), {"text": "ok"}], tools=map(tool, "ab")) as a:
        await a.ask()
        assert ran(a) == [("b", {"n": 1}), ("a", {})]
        assert [data["source"] for data in a.told("tool:selected")] == ["llm", "llm"]


async def test_schedulers_can_observe_without_deciding(agent: Any, tool: Any, calls: Any) -> None:
    seen: list[str] = []

    async def observer(event: str, data: dict[str, Any]) -> HookResult:
        seen.append(data["tool_name"])
        return HookResult(action="continue")

    async with agent([calls(("b", {"n": 1}), "a"), {"text": "ok"}], tools=map(tool, "ab")) as a:
        a.hooks.register("tool:selecting", observer, name="observer")
        await a.ask()
        assert seen == ["b", "a"]
        assert ran(a) == [("b", {"n": 1}), ("a", {})]


async def test_the_sample_scheduler_vetoes_modifies_and_allows(agent: Any, tool: Any, calls: Any) -> None:
    names = ("expensive_operation", "slow_tool", "fast_tool", "bash")
    turns = [calls("expensive_operation", "slow_tool", ("bash", {"cmd": "ls"})), {"text": "ok"}]
    async with agent(turns, tools=map(tool, names)) as a:
        a.hooks.register("tool:selecting", scheduler_hook, name="sample")
        await a.ask()
        assert ran(a) == [("fast_tool", {"quick": True}), ("bash", {"cmd": "ls"})]
        assert "Cost limit exceeded" in (await a.results())[0]


async def test_the_cost_scheduler_enforces_cost_constraints(agent: Any, tool: Any, calls: Any) -> None:
    async with agent(
        [calls("render_video", "bash"), {"text": "ok"}], tools=map(tool, ("render_video", "bash"))
    ) as a:
        a.hooks.register("tool:selecting", cost_scheduler, name="sample")
        await a.ask()
        assert ran(a) == [("bash", {})]
        assert "Budget exceeded" in (await a.results())[0]


async def test_the_router_routes_a_tool_to_its_specialized_implementation(
    agent: Any, tool: Any, calls: Any
) -> None:
    tools = map(tool, ("web_search", "advanced_search"))
    async with agent([calls(("web_search", {"q": "x"})), {"text": "ok"}], tools=tools) as a:
        a.hooks.register("tool:selecting", router_scheduler, name="sample")
        await a.ask()
        assert ran(a) == [("advanced_search", {"q": "x"})]


# ---------------------------------------------------------------- several of them


async def test_any_deny_vetoes_the_tool(agent: Any, tool: Any, calls: Any) -> None:
    deny = HookResult(action="deny", reason="no")
    for answers in (
        (HookResult(), deny),
        (deny, HookResult()),
        (modify(tool="b"), deny),
        (deny, modify(tool="b")),
    ):
        async with agent([calls("a"), {"text": "ok"}], tools=map(tool, "ab")) as a:
            for order, answer in enumerate(answers):
                a.on("tool:selecting", *[answer] * 9, priority=order)
            await a.ask()
            assert ran(a) == []


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
async def test_of_multiple_modifies_the_highest_priority_wins(
    agent: Any, tool: Any, calls: Any, order: Sequence[int]
) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=map(tool, "abcd")) as a:
        for name, rank, registered in zip("bcd", (5, 10, -3), order, strict=True):
            answer = modify(tool=name, arguments={"by": name}, priority=rank)
            a.on("tool:selecting", *[answer] * 9, priority=registered)
        await a.ask()
        assert ran(a) == [("c", {"by": "c"})]


async def test_if_all_continue_the_original_tool_proceeds(agent: Any, tool: Any, calls: Any) -> None:
    async with agent([calls(("a", {"n": 1})), {"text": "ok"}], tools=map(tool, "ab")) as a:
        for order in range(3):
            a.on("tool:selecting", HookResult(action="continue"), priority=order)
        await a.ask()
        assert ran(a) == [("a", {"n": 1})]
        assert a.told("tool:selected")[0]["source"] == "llm"


@pytest.mark.parametrize("count", [1, 3])
async def test_scheduler_responses_are_reduced_to_a_single_decision(
    agent: Any, tool: Any, calls: Any, count: int
) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=map(tool, "abcd")) as a:
        for name in "bcd"[:count]:
            a.on("tool:selecting", *[modify(tool=name)] * 9)
        await a.ask()
        assert len(a.told("tool:selected")) == len(a.told("tool:pre")) == len(await a.results()) == 1
        assert ran(a) == [("b", {})]


# ---------------------------------------------------------------- the flow, and its events


async def test_each_call_goes_through_selecting_the_decision_and_then_the_tool(
    agent: Any, tool: Any, calls: Any
) -> None:
    order: list[str] = []

    async with agent([calls("a", "a"), {"text": "ok"}]) as a:

        async def note(event: str, data: dict[str, Any]) -> HookResult:
            order.append(event)
            return HookResult()

        noting = tool("a", lambda _: order.append("the tool"))
        await a.session.coordinator.mount("tools", noting, name="a")
        for event in (*SELECTION, "tool:pre", "tool:post"):
            a.hooks.register(event, note, name="order")
        await a.ask()
    one_call = ["tool:selecting", "tool:selected", "tool:pre", "the tool", "tool:post"]
    assert order == one_call * 2


async def test_tool_selecting_tells_name_input_and_available_tools(agent: Any, tool: Any, calls: Any) -> None:
    seen: list[dict[str, Any]] = []

    async with agent(
        [calls(("bash", {"cmd": "ls"})), {"text": "ok"}], tools=map(tool, ("bash", "filesystem"))
    ) as a:

        def note(data: dict[str, Any]) -> HookResult:
            seen.append(data)
            return HookResult()

        a.on("tool:selecting", note)
        await a.ask()
    assert (seen[0]["tool_name"], seen[0]["tool_input"]) == ("bash", {"cmd": "ls"})
    assert seen[0]["available_tools"] == ["bash", "filesystem"]


async def test_tool_selected_tells_tool_source_and_no_original_where_the_llm_decided(
    agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls("bash"), {"text": "ok"}], tools=[tool("bash")]) as a:
        await a.ask()
        told = a.told("tool:selected")[0]
        expected = {"tool": "bash", "source": "llm", "original_tool": None}
        assert {key: told[key] for key in expected} == expected


async def test_tool_selected_tells_scheduler_and_the_original_where_one_modified(
    agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls("slow_tool"), {"text": "ok"}], tools=map(tool, ("slow_tool", "fast_tool"))) as a:
        a.hooks.register("tool:selecting", scheduler_hook, name="sample")
        await a.ask()
        told = a.told("tool:selected")[0]
        expected = {"tool": "fast_tool", "source": "scheduler", "original_tool": "slow_tool"}
        assert {key: told[key] for key in expected} == expected


async def test_a_denied_call_is_never_selected_and_never_runs(agent: Any, tool: Any, calls: Any) -> None:
    async with agent(
        [calls("expensive_operation"), {"text": "ok"}], tools=[tool("expensive_operation")]
    ) as a:
        a.hooks.register("tool:selecting", scheduler_hook, name="sample")
        await a.ask()
        assert a.names("tool:selected", "tool:pre", "tool:post", "tool:error") == []
        assert a.tools["expensive_operation"].calls == []


async def test_an_agent_decision_is_put_before_the_schedulers_too(agent: Any, tool: Any, calls: Any) -> None:
    seen: list[Any] = []

    async with agent(
        [calls(("delegate", {"agent": "coder"})), {"text": "ok"}],
        tools=[tool("delegate")],
        plan={"agents": {"coder": {}, "reviewer": {}}},
    ) as a:

        def redirect(data: dict[str, Any]) -> HookResult:
            seen.append((data["agent_target"], data["available_agents"]))
            return modify(agent_target="reviewer")

        a.on("tool:selecting", redirect)
        await a.ask()
        assert seen == [("coder", ["coder", "reviewer"])]
        assert a.tools["delegate"].calls == [{"agent": "reviewer"}]


# ---------------------------------------------------------------- nobody there


async def test_without_schedulers_the_llms_decisions_are_used_and_nothing_is_asked(
    agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls(("a", {"n": 1})), {"text": "ok"}], tools=[tool("a")], deaf=True) as a:
        asked: list[str] = []
        registry = a.hooks

        class Watched:
            def __getattr__(self, name: str) -> Any:
                return getattr(registry, name)

            async def emit(self, event: str, data: dict[str, Any]) -> Any:
                asked.append(event)
                return await registry.emit(event, data)

        get = a.session.coordinator.get
        loop, parts = get("orchestrator"), map(get, ("context", "providers", "tools"))
        assert await loop.execute("hi", *parts, Watched()) == "ok"
        assert a.tools["a"].calls == [{"n": 1}]
        assert asked == []


async def test_without_schedulers_it_degrades_to_the_standard_loop(agent: Any, tool: Any, calls: Any) -> None:
    """The same turn as loop-basic's, one call after another: what is stored, and what is told."""
    came: dict[str, Any] = {}
    own = ("tool:selected", "content_block:start", "content_block:delta", "content_block:end")
    for loop, config in (("loop-events", {}), ("loop-basic", {"parallel_tools": False})):
        turns = [calls("a", "b", text="so"), {"text": "ok"}]
        async with agent(turns, tools=map(tool, "ab"), loop=loop, config=config) as a:
            await a.ask()
            names = [name for name in a.names() if name not in own]
            came[loop] = (names, await a.messages(), [r.messages for r in a.requests])
    assert came["loop-events"] == came["loop-basic"]


@pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming"])
async def test_the_other_loops_ask_no_schedulers_and_emit_no_selection(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")], loop=loop) as a:
        a.on("tool:selecting", HookResult(action="deny", reason="nobody asks me"))
        await a.ask()
        assert a.tools["a"].calls == [{}]
        assert a.names(*SELECTION) == []


async def test_it_falls_back_gracefully_if_no_scheduler_on_the_bus_responds(
    agent: Any, tool: Any, calls: Any, tmp_path: Any
) -> None:
    nowhere = {"redis": f"unix://{tmp_path}/nobody.sock", "patience_ms": 50}
    turns = [calls("a", "a"), {"text": "ok"}]
    async with agent(turns, tools=[tool("a")], config={"toolgate": nowhere}) as a:
        assert await a.ask() == "ok"
        assert len(a.tools["a"].calls) == 2
