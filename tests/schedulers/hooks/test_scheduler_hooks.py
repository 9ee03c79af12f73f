"""The schedulers as hook modules in a real session: the seed's plan runs, and no published defect is ours."""

import json

import pytest
from amplifier_core import AmplifierSession, HookResult, ToolResult
from toolgate_bus.errors import ConfigError
from toolgate_bus.state.shared import make_shared_state
from toolgate_orchestrator.commands.host.plan import read_plan
from toolgate_schedulers.hooks import cost_aware as hook_cost_aware
from toolgate_schedulers.hooks import heuristic as hook_heuristic

pytestmark = pytest.mark.pure

MULTI_AGENT = """
session:
  orchestrator: loop-events

hooks:
  - module: hooks-scheduler-heuristic
  - module: hooks-scheduler-cost-aware
    config:
      cost_weight: 0.6
      latency_weight: 0.4
"""
"""Seed loop-events, "Multi-Agent Systems", word for word."""


class Tool:
    """Remembers its calls; says what it cost, if told to."""

    description = "remembers"
    input_schema = {"type": "object"}  # noqa: RUF012 - the kernel's protocol

    def __init__(self, name, cost=None, run=None):
        self.name, self.calls, self._cost, self._run = name, [], cost, run

    async def execute(self, arguments):
        self.calls.append(arguments)
        if self._run is not None:
            await self._run()
        return ToolResult(success=True, output={} if self._cost is None else {"cost_usd": self._cost})


class Agent:
    """A session with a scripted LLM, tools, and what became of each call."""

    def __init__(self, session, tools):
        self.session, self.tools, self.hooks = session, tools, session.coordinator.hooks

    async def ask(self, prompt="go"):
        return await self.session.execute(prompt)

    async def results(self):
        messages = await self.session.coordinator.get("context").get_messages()
        return [str(one["content"]) for one in messages if one["role"] == "tool"]


@pytest.fixture
async def agent(tmp_path):
    """`await agent(turns, tools, hooks)`: turns are lists of tool names, `plan` is without a provider."""
    opened = []

    async def make(turns, tools, hooks=(), plan="session: {orchestrator: loop-events}"):
        script = [
            {"tool_calls": [{"name": name, "arguments": {"query": "x"}} for name in turn]} for turn in turns
        ]
        provider = {"module": "provider-scripted", "config": {"turns": [*script, {"text": "done"}] * 3}}
        path = tmp_path / "plan.yaml"
        rest = f"\nproviders: {json.dumps([provider])}\n" + (
            f"hooks: {json.dumps(list(hooks))}\n" if hooks else ""
        )
        path.write_text(plan + rest)
        session = AmplifierSession(read_plan(path).mount, session_id="s-1")
        await session.initialize()
        opened.append(session)
        for tool in tools:
            await session.coordinator.mount("tools", tool, name=tool.name)
        return Agent(session, {tool.name: tool for tool in tools})

    yield make
    for session in opened:
        await session.cleanup()


def cost_aware(**config):
    return {"module": "hooks-scheduler-cost-aware", "config": config}


def heuristic(**config):
    return {"module": "hooks-scheduler-heuristic", "config": config}


FIFTY = {"budgets": [{"name": "b", "level": "session", "limit": 50}]}
FORTY = {"tools": {"dear": {"cost": 40}, "cheap": {"cost": 5}}}
EQUIVALENT = {"alternatives": [{"tools": {"dear": {}, "cheap": {"arguments": {"q": "$.query"}}}}]}


async def test_the_seeds_plan_with_both_scheduler_hooks_runs_as_it_stands(agent):
    one = await agent([["a"], ["b"]], [Tool("a"), Tool("b")], plan=MULTI_AGENT)
    assert await one.ask() == "done"
    assert [len(tool.calls) for tool in one.tools.values()] == [1, 1]


async def test_with_the_seeds_weights_alone_a_tool_gives_way_to_a_cheaper_one_that_it_declares(agent):
    tools = [Tool("dear"), Tool("cheap")]
    for tool, cost, latency in ((tools[0], 0.40, 1), (tools[1], 0.02, 1.5)):
        tool.cost_usd, tool.latency_s = cost, latency
    tools[0].interchangeable_with = ["cheap", "one that is not mounted"]
    one = await agent([["dear"], ["other"]], [*tools, Tool("other")], plan=MULTI_AGENT)
    await one.ask()
    assert [len(tool.calls) for tool in one.tools.values()] == [0, 1, 1]


async def test_of_three_calls_of_40_a_budget_of_50_lets_one_run(agent):
    one = await agent([["dear"]] * 3, [Tool("dear", 40)], [cost_aware(**FORTY, **FIFTY)])
    assert await one.ask() == "done"
    assert len(one.tools["dear"].calls) == 1
    assert ["Over budget" in result for result in await one.results()] == [False, True, True]
    assert "10.00 USD is left of the budget b" in (await one.results())[1]


@pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming", "loop-reactive"])
async def test_calls_that_run_at_the_same_time_cannot_overspend_either(agent, loop):
    plan = f"session: {{orchestrator: {{module: {loop}, config: {{toolgate: {{}}}}}}}}"
    one = await agent([["dear"] * 3], [Tool("dear", 40)], [cost_aware(**FORTY, **FIFTY)], plan)
    await one.ask()
    assert len(one.tools["dear"].calls) == 1


async def test_what_a_tool_says_it_cost_is_what_is_spent(agent):
    one = await agent([["dear"]] * 3, [Tool("dear", "4.5")], [cost_aware(**FORTY, **FIFTY)])
    await one.ask()
    assert len(one.tools["dear"].calls) == 3
    assert "41" not in str(await one.results())


async def test_the_budget_is_not_renewed_with_the_next_turn(agent):
    one = await agent([["dear"]], [Tool("dear", 40)], [cost_aware(**FORTY, **FIFTY)])
    for _ in range(3):
        await one.ask()
    assert len(one.tools["dear"].calls) == 1


async def test_over_budget_the_cheaper_tool_runs_with_mapped_arguments(agent):
    tools = [Tool("dear"), Tool("cheap")]
    one = await agent([["dear"]] * 3, tools, [cost_aware(**FORTY, **FIFTY, **EQUIVALENT)])
    selected = []

    async def hear(_event, data):
        selected.append((data["source"], data["original_tool"], data["tool"]))
        return HookResult()

    one.hooks.register("tool:selected", hear, name="test-hears")
    await one.ask()
    assert [len(tool.calls) for tool in tools] == [1, 2]
    assert tools[1].calls == [{"q": "x"}] * 2
    assert selected[1] == ("scheduler", "dear", "cheap")


async def test_the_weights_choose_among_equivalents(agent):
    prices = {"tools": {"dear": {"cost": 40, "latency_s": 1}, "cheap": {"cost": 5, "latency_s": 60}}}
    for weights, ran in (((0.6, 0.4), [0, 1]), ((0.4, 0.6), [1, 0])):
        tools = [Tool("dear"), Tool("cheap")]
        config = {"cost_weight": weights[0], "latency_weight": weights[1], **prices, **EQUIVALENT}
        one = await agent([["dear"]], tools, [cost_aware(**config)])
        await one.ask()
        assert [len(tool.calls) for tool in tools] == ran


async def test_what_another_hook_refuses_is_given_back(agent):
    one = await agent([["dear"]], [Tool("dear", 40)], [cost_aware(**FORTY, **FIFTY)])
    answers = [HookResult(action="deny", reason="not now"), HookResult(action="deny", reason="nor now")]

    async def refuse(_event, _data):
        return answers.pop() if answers else HookResult()

    one.hooks.register("tool:selecting", refuse, priority=50, name="test-selecting")
    one.hooks.register("tool:pre", refuse, priority=50, name="test-pre")
    for _ in range(3):
        await one.ask()
    assert len(one.tools["dear"].calls) == 1


async def test_a_tool_that_is_not_there_costs_nothing(agent):
    tools = [Tool("dear", 40)]
    hooks = [cost_aware(**FORTY, **FIFTY, default={"cost": 30})]
    one = await agent([["gone"], ["gone"], ["dear"]], tools, hooks)
    await one.ask()
    assert len(tools[0].calls) == 1


async def test_a_tool_that_fails_is_paid_at_its_estimate(agent):
    async def fail():
        raise OSError("no such host")

    one = await agent([["dear"]] * 2, [Tool("dear", run=fail)], [cost_aware(**FORTY, **FIFTY)])
    await one.ask()
    assert len(one.tools["dear"].calls) == 1


async def test_one_hooks_choice_is_reserved_for_by_the_other(agent):
    """heuristic comes first, so that the kernel gives cost-aware what it made of the call, and both twice."""
    tools = [Tool("dear", 40), Tool("cheap", 5)]
    hooks = [
        heuristic(groups=[{"tools": ["cheap", "dear"]}]),
        cost_aware(**FORTY, budgets=[{"name": "b", "level": "session", "limit": 12}]),
    ]
    one = await agent([["dear"]] * 3, tools, hooks)
    await one.ask()
    assert [len(tool.calls) for tool in tools] == [0, 2]
    assert "2.00 USD is left" in (await one.results())[2]


async def test_of_two_replacements_cost_awares_wins(agent):
    tools = [Tool("dear", 40), Tool("cheap", 5)]
    alike = [{"tools": ["third", "dear", "cheap"]}]
    hooks = [
        heuristic(groups=[{"tools": ["dear", "third"]}]),
        cost_aware(tools=FORTY["tools"], default={"cost": 20}, alternatives=alike, cost_weight=1),
    ]
    one = await agent([["third"]], [*tools, Tool("third")], hooks)
    await one.ask()
    assert [len(tool.calls) for tool in one.tools.values()] == [0, 1, 0]


@pytest.mark.parametrize(("strategy", "ran"), [("first", [3, 0, 0]), ("round-robin", [1, 1, 1])])
async def test_the_heuristics_strategy_chooses_the_tool(agent, strategy, ran):
    tools = [Tool("a"), Tool("b"), Tool("c")]
    one = await agent([["c"]] * 3, tools, [heuristic(strategy=strategy, groups=[{"tools": ["a", "b", "c"]}])])
    await one.ask()
    assert [len(tool.calls) for tool in tools] == ran


async def test_the_best_tool_is_the_one_whose_calls_succeed(agent):
    async def fail():
        raise RuntimeError("down")

    tools = [Tool("a", run=fail), Tool("b")]
    one = await agent([["a"]] * 9, tools, [heuristic(strategy="best", groups=[{"tools": ["a", "b"]}])])
    await one.ask()
    assert len(tools[0].calls) < 4 < len(tools[1].calls)


async def test_switched_off_the_heuristic_denies_only_what_is_not_there(agent):
    tools = [Tool("a"), Tool("b")]
    hooks = [heuristic(override_enabled=False, groups=[{"tools": ["a", "b"]}])]
    one = await agent([["b"], ["gone"]], tools, hooks)
    await one.ask()
    assert [len(tool.calls) for tool in tools] == [0, 1]
    assert "There is no tool gone. Available: a, b" in (await one.results())[1]


@pytest.mark.parametrize(
    ("module", "config", "complaint"),
    [
        (hook_heuristic, {"strategy": "last"}, "hooks-scheduler-heuristic: strategy: Input should be"),
        (hook_cost_aware, {"cost_wieght": 1}, "did you mean cost_weight?"),
        (hook_cost_aware, {"budgets": [{"name": "b", "limit": 1}]}, "b: level fleet needs `redis`"),
        (hook_cost_aware, {"redis": "http://x", "budgets": []}, "redis"),
        (hook_cost_aware, {"namespace": "a b"}, "namespace: String should match"),
    ],
)
async def test_a_wrong_config_is_refused_by_field_name(module, config, complaint):
    with pytest.raises(ConfigError) as refused:
        await module.mount(object(), config)
    assert complaint in str(refused.value)


class OldLoop:
    """Hooks as a loop calls them that numbers neither decisions nor calls (the published loop-events)."""

    def __init__(self):
        self._handlers = {}
        self.hooks, self.session_id = self, "s-1"

    def register(self, event, handler, priority=0, name=""):
        self._handlers[event] = handler
        return lambda: self._handlers.pop(event)

    async def emit(self, event, **data):
        return await self._handlers[event](event, data)


async def test_a_loop_that_numbers_nothing_is_served_as_well():
    loop = OldLoop()
    cleanup = await hook_cost_aware.mount(loop, {**FORTY, **FIFTY})
    actions = []
    for _ in range(3):
        answer = await loop.emit("tool:selecting", tool_name="dear", tool_input={}, available_tools=["dear"])
        actions.append(answer.action)
        if answer.action == "continue":
            await loop.emit("tool:pre", tool_name="dear")
            await loop.emit(
                "tool:post", tool_name="dear", result={"success": True, "output": {"cost_usd": 10}}
            )
    assert actions == ["continue", "continue", "deny"]
    assert "30.00 USD is left" in answer.reason
    await cleanup()
    assert loop._handlers == {}


async def test_what_only_another_hook_returned_is_no_question():
    loop = OldLoop()
    cleanup = await hook_cost_aware.mount(loop, {**FORTY, **FIFTY})
    assert await loop.emit("tool:selecting", tool="dear", arguments={}) is None
    await cleanup()


@pytest.mark.parametrize("asked", [True, False])
async def test_what_a_sub_agents_llm_cost_is_paid_from_the_account_of_the_session_above(asked):
    config = hook_cost_aware.HookConfig.model_validate(
        {"budgets": [{"name": "d", "level": "session", "limit": 5}], "charge_llm": True}
    )
    scheduler, shared = hook_cost_aware.CostAware(config), make_shared_state()
    scheduler.use(shared)
    hook = hook_cost_aware.HookCostAware(scheduler, shared, "o", "child")
    told = {"session_id": "child", "parent_id": "top"}
    if asked:  # this loop knows the root as well, and the other event does not
        call = {"tool": "search", "arguments": {}, "available_tools": ["search"], "root_session": "root"}
        await hook.on_tool_selecting("tool:selecting", {**told, **call})
    await hook.on_llm_response("provider:response", {**told, "usage": {"cost_usd": 2}})
    balances = await shared.ledger.balances()
    assert {one.key: one.spent for one in balances if one.spent} == {
        f"d/session/{'root' if asked else 'top'}": 2_000_000
    }
