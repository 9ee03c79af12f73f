"""The schedulers of seed loop-events, their blanks filled in: as processes of their own, and as hooks."""

import importlib.util
from pathlib import Path

import pytest
from amplifier_core import AmplifierSession, ToolResult
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance

TOOLS = [
    "expensive_operation",
    "slow_tool",
    "fast_tool",
    "render_video",
    "web_search",
    "advanced_search",
    "bash",
]
SAMPLES = ("scheduler_hook", "cost_scheduler", "router_scheduler")
QUERY = {"query": "redis streams"}

# What the LLM wants, and what comes of it: tool, arguments, reason told, scheduler.
RULINGS = {
    "expensive_operation": (None, None, "Cost limit exceeded", "scheduler_hook"),
    "slow_tool": ("fast_tool", {"quick": True}, None, "scheduler_hook"),
    "render_video": (None, None, "Budget exceeded", "cost_scheduler"),
    "web_search": ("advanced_search", QUERY, None, "router_scheduler"),
    "bash": ("bash", QUERY, None, None),
}


class Recorder:
    """A tool that does nothing but remember what it ran with."""

    description, input_schema = "remembers", {"type": "object"}

    def __init__(self, name, ran):
        self.name, self._find_last_arguments = name, ran

    async def execute(self, arguments):
        self._find_last_arguments.append((self.name, dict(arguments)))
        return ToolResult(success=True, output=f"{self.name} is done")


@pytest.fixture
async def run():
    """`await run(toolgate, hooks)`: a session whose LLM wants each tool once; what ran, and each result."""

    async def session(toolgate, hooks=()):
        turns = [{"tool_calls": [{"name": tool, "arguments": QUERY}]} for tool in RULINGS]
        plan = {
            "session": {
                "orchestrator": {"module": "loop-events", "config": {"toolgate": toolgate}},
                "context": "context-simple",
            },
            "providers": [{"module": "provider-scripted", "config": {"turns": [*turns, {"text": "done"}]}}],
        }
        ran = []
        async with AmplifierSession(plan) as opened:
            for name in TOOLS:
                await opened.coordinator.mount("tools", Recorder(name, ran), name=name)
            for hook in hooks:
                opened.coordinator.hooks.register("tool:selecting", hook, name=hook.__name__)
            assert await opened.execute("go") == "done"
            messages = await opened.coordinator.get("context").get_messages()
        return ran, [one["content"] for one in messages if one["role"] == "tool"]

    return session


def assert_as_the_seed_says(ran, results):
    assert ran == [(tool, arguments) for tool, arguments, _, _ in RULINGS.values() if tool]
    for (tool, _, reason, _), result in zip(RULINGS.values(), results, strict=True):
        assert (reason or f"{tool} is done") in result


@pytest.fixture
async def processes(schedulers):
    """The three samples as three processes."""
    children = [schedulers.run(f"seed_samples:{name}") for name in SAMPLES]
    for child in children:
        await schedulers.ready(child)
    return schedulers


async def test_they_run_unchanged_as_separate_processes(processes):
    async with Gate.open(redis=processes.url, namespace=processes.namespace, patience_ms=10_000) as gate:
        for wanted, (tool, arguments, reason, scheduler) in RULINGS.items():
            decision = await gate.decide(Call(wanted, QUERY, TOOLS))
            assert decision.scheduler == scheduler
            if reason:
                assert (decision.outcome, decision.reason) == ("deny", reason)
            else:
                assert (decision.tool_name, decision.tool_input) == (tool, arguments)
                assert decision.outcome == ("modify" if tool != wanted else "continue")


async def test_a_session_is_ruled_on_by_them_as_separate_processes(processes, run):
    toolgate = {"redis": processes.url, "namespace": processes.namespace, "patience_ms": 10_000}
    assert_as_the_seed_says(*await run(toolgate))


async def test_a_session_is_ruled_on_by_them_as_its_own_hooks(run, server_url, namespace):
    samples = loaded()
    hooks = [getattr(samples, name) for name in SAMPLES]
    assert_as_the_seed_says(*await run({"redis": server_url, "namespace": namespace}, hooks))


async def test_hooks_and_processes_rule_together(processes, run):
    """One in process denies what those on the bus let through, and the other way round."""
    from amplifier_core import HookResult

    async def no_shell(event, data):
        denied = data["tool_name"] == "bash"
        return HookResult(action="deny", reason="no shell") if denied else HookResult(action="continue")

    toolgate = {"redis": processes.url, "namespace": processes.namespace, "patience_ms": 10_000}
    ran, results = await run(toolgate, [no_shell])
    assert [tool for tool, _ in ran] == ["fast_tool", "advanced_search"]
    assert "no shell" in results[-1]


async def test_of_two_modifying_hooks_the_higher_priority_wins_in_process_and_out(schedulers, run):
    """`HookResult(action="modify", priority=10, …)`, as the seed writes it."""
    for name in ("low", "high"):
        await schedulers.start(f"seed_samples:{name}")
    toolgate = {"redis": schedulers.url, "namespace": schedulers.namespace, "patience_ms": 10_000}
    async with Gate.open(**toolgate) as gate:
        decision = await gate.decide(Call("bash", {}, TOOLS))
    assert (decision.scheduler, decision.tool_input) == ("high", {"by": "high"})
    samples = loaded()
    alone = {"redis": schedulers.url, "namespace": f"{schedulers.namespace}-empty"}
    ran, _ = await run(alone, [samples.low, samples.high])
    assert ran[-1] == ("fast_tool", {"by": "high"})


def loaded():
    """The samples' module in this process."""
    path = Path(__file__).parents[1] / "schedulers_for_tests" / "seed_samples.py"
    spec = importlib.util.spec_from_file_location("seed_samples", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
