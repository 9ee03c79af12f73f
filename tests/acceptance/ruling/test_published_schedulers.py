"""What is wrong with the published scheduler hooks is not wrong here: as a process, and as a hook module.

Published cost-aware replies `tool_name` where the loop reads `tool`, reads `tool_name` from a
`tool:selected` that carries `tool`, so that every call costs 1 and three calls of 40 pass a budget of
50, never reads its weights, and has a full budget again with every turn. Published heuristic replies
in the same way.
"""

from contextlib import asynccontextmanager

import pytest
import yaml
from amplifier_core import AmplifierSession, ToolResult

pytestmark = pytest.mark.acceptance

BUDGET = {
    "tools": {"dear": {"cost": 40, "latency_s": 1}, "cheap": {"cost": 5, "latency_s": 60}},
    "budgets": [{"name": "b", "level": "session", "limit": 50}],
}
ALIKE = [{"tools": {"dear": {"arguments": {"q": "$.query"}}, "cheap": {"arguments": {"query": "$.q"}}}}]
TOOLS = ("dear", "cheap")


class Tool:
    """Remembers its calls; tells no cost."""

    description = "remembers"
    input_schema = {"type": "object"}  # noqa: RUF012 - the kernel's protocol

    def __init__(self, name):
        self.name, self.calls = name, []

    async def execute(self, arguments):
        self.calls.append(arguments)
        return ToolResult(success=True, output="done")


class Agent:
    """A session, its tools, and what its loop said that it selected."""

    def __init__(self, session, tools):
        self.session, self.tools, self.selected = session, tools, []

    async def ask(self):
        return await self.session.execute("go")

    @property
    def ran(self):
        """How often each tool ran."""
        return {tool.name: len(tool.calls) for tool in self.tools if tool.calls}

    async def results(self):
        """What the LLM was told of each call."""
        messages = await self.session.coordinator.get("context").get_messages()
        return [str(one["content"]) for one in messages if one["role"] == "tool"]


@pytest.fixture(params=["process", "hooks"])
def agent(request, schedulers, tmp_path):
    """`async with agent(scheduler, config, turns, loop)`: its scheduler is a process, or a hook module."""

    @asynccontextmanager
    async def opened(scheduler, config, turns, loop="loop-events"):
        asking, hooks = {}, []
        if request.param == "process":
            file = tmp_path / "config.yaml"
            file.write_text(yaml.safe_dump(config, sort_keys=False))
            await schedulers.start(scheduler, "--config", file)
            asking = {"redis": schedulers.url, "namespace": schedulers.namespace}
            asking |= {"required": [scheduler], "patience_ms": 20_000}
        else:
            hooks = [{"module": f"hooks-scheduler-{scheduler}", "config": config}]
        script = [
            {"tool_calls": [{"name": tool, "arguments": {"query": "x"}} for tool in turn]} for turn in turns
        ]
        plan = {
            "session": {
                "orchestrator": {"module": loop, "config": {"toolgate": asking}},
                "context": "context-simple",
            },
            "providers": [
                {"module": "provider-scripted", "config": {"turns": [*script, {"text": "done"}] * 3}}
            ],
            "hooks": hooks,
        }
        async with AmplifierSession(plan, session_id="s-1") as session:
            tools = [Tool(name) for name in TOOLS]
            for tool in tools:
                await session.coordinator.mount("tools", tool, name=tool.name)
            yield Agent(session, tools)

    return opened


@pytest.mark.parametrize("loop", ["loop-basic", "loop-events", "loop-streaming", "loop-reactive"])
async def test_of_three_calls_of_40_at_once_a_budget_of_50_lets_one_run(agent, loop):
    async with agent("cost-aware", BUDGET, [["dear"] * 3], loop) as one:
        assert await one.ask() == "done"
        assert one.ran == {"dear": 1}
        told = await one.results()
    assert sum("Over budget" in result for result in told) == 2
    assert sum("10.00 USD is left of the budget b" in result for result in told) == 2


async def test_a_replacement_is_understood_by_the_loop_with_its_arguments(agent):
    config = {**BUDGET, "budgets": [], "alternatives": ALIKE, "cost_weight": 1}
    async with agent("cost-aware", config, [["dear"]]) as one:
        await one.ask()
        assert [tool.calls for tool in one.tools] == [[], [{}]]


async def test_the_heuristics_replacement_is_understood_by_the_loop_with_its_arguments(agent):
    async with agent("heuristic", {"strategy": "first", "groups": ALIKE}, [["cheap"]]) as one:
        await one.ask()
        assert [tool.calls for tool in one.tools] == [[{"q": "x"}], []]


async def test_each_call_costs_what_its_tool_costs(agent):
    turns = [["cheap"]] * 3 + [["dear"]]
    async with agent("cost-aware", BUDGET, turns) as one:
        await one.ask()
        assert one.ran == {"cheap": 3}
        assert "35.00 USD is left" in (await one.results())[-1]


@pytest.mark.parametrize(("cost", "latency", "ran"), [(0.6, 0.4, "cheap"), (0.4, 0.6, "dear")])
async def test_the_weights_are_read(agent, cost, latency, ran):
    weights = {"cost_weight": cost, "latency_weight": latency}
    config = {"tools": BUDGET["tools"], "alternatives": ALIKE, **weights}
    for chosen in TOOLS:
        async with agent("cost-aware", config, [[chosen]]) as one:
            await one.ask()
            assert one.ran == {ran: 1}


async def test_a_budget_does_not_begin_anew_with_each_turn(agent):
    async with agent("cost-aware", BUDGET, [["dear"]]) as one:
        for _ in range(3):
            assert await one.ask() == "done"
        assert one.ran == {"dear": 1}
