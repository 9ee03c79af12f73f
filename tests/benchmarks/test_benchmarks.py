"""Every benchmark still loads with the product as it is, and explains its options. None is run here."""

import runpy
from pathlib import Path

import agentdyn_runs
import pytest
import yaml
from agentdojo_attacks import RULES, SETUPS, lay_out
from toolgate_bus.config.check import check
from toolgate_schedulers.shipped.policy.rules import PolicyConfig
from toolgate_schedulers.shipped.provenance import ProvenanceConfig

pytestmark = pytest.mark.pure

HERE = Path(__file__).parent
BENCHMARKS = sorted(
    file.relative_to(HERE).with_suffix("").as_posix()
    for file in HERE.rglob("*.py")
    if "\nOPTIONS = " in file.read_text()
)


def test_all_benchmarks_are_looked_at() -> None:
    assert {"cost", "fleet", "fleet/benefit", "rate", "routed_requests", "slots"} <= set(BENCHMARKS)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_loads_and_explains_its_options(name: str) -> None:
    loaded = runpy.run_path(str(HERE / f"{name}.py"), run_name="benchmark")
    words = loaded["OPTIONS"].format_help()
    assert f"python tests/benchmarks/{name}.py" in words
    assert "--json" in words


def test_the_rules_for_agentdojos_suites_are_rules_that_schedulers_take(tmp_path: Path) -> None:
    for suite in yaml.safe_load(RULES.read_text()):
        actions = {}
        for setup in SETUPS:
            for one in lay_out(tmp_path, suite, setup):
                if one.name == "provenance" and one.config is not None:
                    read = check(ProvenanceConfig, yaml.safe_load(one.config.read_text()), "rules")
                    actions[setup] = read.action
        denying = dict.fromkeys(("provenance", "policy + provenance", "session labels"), "deny")
        assert actions == {**denying, "provenance asks": "ask"}


def test_the_rules_for_agentdyns_runs_are_rules_that_schedulers_take() -> None:
    for row in agentdyn_runs.ROWS:
        name, rules = agentdyn_runs.find_rules(row)
        config = PolicyConfig if name == "policy" else ProvenanceConfig
        check(config, dict(rules), "rules")


def test_a_recorded_run_is_read_with_its_calls_and_what_became_of_it() -> None:
    call = {"function": "read_file", "args": {"path": "/a"}}
    text = [{"type": "text", "content": "hello"}]
    messages = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": text, "tool_call": call, "error": None},
        {"role": "tool", "content": text, "tool_call": call, "error": "no such file"},
        {"role": "assistant", "content": text},
    ]
    told = {"messages": messages, "injection_task_id": "injection_task_1", "utility": False, "security": True}
    run = agentdyn_runs.read_run(told)
    assert run.steps == [
        ("read_file", {"path": "/a"}, "hello", True),
        ("read_file", {"path": "/a"}, "no such file", False),
    ]
    assert (run.request, run.answer) == ("hello", "hello")
    assert (run.is_attack, run.done, run.attacked) == (True, False, True)
