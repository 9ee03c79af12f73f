"""The YAML of the seeds loop-basic and orchestrator-contract, word for word, run in real sessions.

A page's block names no provider: `providers:` is added, and nothing else is changed. Where a block is
only a part of a plan (`config:`, `hooks:`) it is put where the page's other blocks have that part.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from amplifier_core import AmplifierSession, HookResult
from amplifier_core.events import ALL_EVENTS
from four_loops import LOOPS
from toolgate_orchestrator.commands.host.plan import Plan, read_plan

pytestmark = pytest.mark.pure


CONFIGURATION = """
session:
  orchestrator: loop-basic

orchestrators:
  - module: loop-basic
    source: git+https://github.com/microsoft/amplifier-module-loop-basic@main
    config:
      max_iterations: -1              # Maximum iterations (-1 = unlimited)
      extended_thinking: false        # Enable extended thinking mode (default: false)
"""
TESTING_AND_DEBUGGING = """
session:
  orchestrator: loop-basic

hooks:
  - module: hooks-logging
    config:
      log_events: true  # Every event captured
"""
SIMPLE_DEPLOYMENTS = """
# Simple configuration, predictable behavior
session:
  orchestrator: loop-basic
"""
ITERATION_LIMITS = """
config:
  max_iterations: 20  # Prevent infinite loops
"""
MONITOR_EVENTS = """
hooks:
  - module: hooks-logging  # Capture all events
"""
SWITCH_TO_STREAMING = """
session:
  orchestrator: loop-streaming  # Better user experience
"""
CONTRACT = """
session:
  orchestrator: my-orchestrator
  context: context-simple

# Orchestrator-specific config can be passed via providers/tools config
"""
PROVIDERS = """
providers:
  - module: provider-scripted
    config:
      turns:
        - tool_calls: [{name: calculate, arguments: {expression: "20 + 1"}}]
        - text: "It is ${last_result}."
"""

Read = Callable[[str], Plan]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Read:
    """`read(block)`: the plan of a page's block with a provider added, as the program reads it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def plan(block: str) -> Plan:
        path = tmp_path / "plan.yaml"
        path.write_text(block + PROVIDERS)
        return read_plan(path)

    return plan


async def answer(plan: Plan, heard: list[str] | None = None) -> str:
    """What the plan's agent answers; `heard` takes the names of the kernel's events meanwhile."""

    async def hear(event: str, data: dict[str, Any]) -> HookResult:
        if heard is not None:
            heard.append(event)
        return HookResult()

    async with AmplifierSession(plan.mount, session_id="s-1") as session:
        for event in ALL_EVENTS:
            session.coordinator.hooks.register(event, hear, name="test-hears")
        said: str = await session.execute("What is 20 + 1?")
        return said


def log(tmp_path: Path) -> list[dict[str, Any]]:
    """The lines that hooks-logging wrote."""
    (file,) = (tmp_path / "state").rglob("s-1.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_the_configuration_block_of_loop_basic_runs_as_it_stands(read: Read) -> None:
    plan = read(CONFIGURATION)
    assert plan.orchestrator == {
        "module": "loop-basic",
        "config": {"max_iterations": -1, "extended_thinking": False},
    }
    source = "git+https://github.com/microsoft/amplifier-module-loop-basic@main"
    assert plan.notices == (f"loop-basic: the installed module is used, not {source}",)
    assert "there is no tool 'calculate'" in await answer(plan)


async def test_the_testing_and_debugging_block_captures_every_event(read: Read, tmp_path: Path) -> None:
    plan = read(TESTING_AND_DEBUGGING)
    assert (plan.orchestrator["module"], plan.notices) == ("loop-basic", ())
    assert plan.mount["hooks"] == [{"module": "hooks-logging", "config": {"log_events": True}}]
    heard: list[str] = []
    await answer(plan, heard)
    assert heard.count("provider:response") == 2
    assert "tool:error" in heard
    assert [line["event"] for line in log(tmp_path)] == heard


async def test_the_simple_deployments_block_runs_as_it_stands(read: Read) -> None:
    plan = read(SIMPLE_DEPLOYMENTS)
    assert plan.orchestrator == {"module": "loop-basic", "config": {}}
    assert (await answer(plan)).startswith("It is ")


async def test_the_iteration_limits_block_limits_the_loop_it_is_given_to(read: Read) -> None:
    indented = "\n".join(f"    {line}" for line in ITERATION_LIMITS.strip().splitlines())
    plan = read(f"{SIMPLE_DEPLOYMENTS}\norchestrators:\n  - module: loop-basic\n{indented}\n")
    assert plan.orchestrator == {"module": "loop-basic", "config": {"max_iterations": 20}}
    async with AmplifierSession(plan.mount) as session:
        assert session.coordinator.get("orchestrator").settings.max_iterations == 20


@pytest.mark.parametrize("loop", LOOPS)
async def test_the_monitor_events_block_captures_all_events_under_any_loop(
    read: Read, tmp_path: Path, loop: str
) -> None:
    heard: list[str] = []
    await answer(read(f"session:\n  orchestrator: {loop}\n{MONITOR_EVENTS}"), heard)
    own = ("tool:selecting", "tool:selected")
    assert [line["event"] for line in log(tmp_path) if line["event"] not in own] == heard
    assert (heard.count("execution:start"), heard.count("execution:end")) == (1, 1)


async def test_the_switch_to_streaming_block_runs_as_it_stands(read: Read) -> None:
    plan = read(SWITCH_TO_STREAMING)
    assert plan.orchestrator == {"module": "loop-streaming", "config": {}}
    assert (await answer(plan)).startswith("It is ")


@pytest.mark.parametrize("loop", LOOPS)
async def test_the_contracts_block_runs_with_each_loop_in_the_place_of_my_orchestrator(
    read: Read, loop: str
) -> None:
    plan = read(CONTRACT.replace("my-orchestrator", loop))
    assert plan.mount["session"] == {
        "orchestrator": {"module": loop, "config": {}},
        "context": {"module": "context-simple", "config": {}},
    }
    assert (await answer(plan)).startswith("It is ")


@pytest.mark.parametrize("loop", LOOPS)
async def test_the_contracts_block_is_a_mount_plan_that_the_kernel_takes_as_it_stands(loop: str) -> None:
    mount = yaml.safe_load(CONTRACT.replace("my-orchestrator", loop) + PROVIDERS)
    async with AmplifierSession(mount) as session:
        assert session.coordinator.get("orchestrator").name == loop
        assert (await session.execute("What is 20 + 1?")).startswith("It is ")


@pytest.mark.parametrize("loop", LOOPS)
async def test_an_orchestrator_receives_its_configuration_from_the_mount_plan(read: Read, loop: str) -> None:
    listed = f"orchestrators:\n  - module: {loop}\n    config: {{max_iterations: 7}}\n"
    block = f"session:\n  orchestrator: {loop}\n{listed}"
    async with AmplifierSession(read(block).mount) as session:
        assert session.coordinator.get("orchestrator").settings.max_iterations == 7
