"""A sub-agent's plan is its parent's with the agent's own laid over it, and keeps all that rules."""

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator.commands.host.child_plan import (
    SELF,
    child_plan,
    instruction_of,
)

pytestmark = pytest.mark.pure

PARENT = {
    "session": {
        "orchestrator": {
            "module": "loop-events",
            "config": {"max_iterations": 9, "toolgate": {"agent": "clerk", "required": ["policy"]}},
        },
        "context": {"module": "context-simple", "config": {"max_tokens": 100}},
    },
    "providers": [{"module": "provider-a", "config": {"model": "big", "retries": 2}}],
    "tools": [{"module": "tool-files", "config": {"root": "."}}, {"module": "tool-delegate"}],
    "hooks": [
        {"module": "hooks-logging", "config": {"path": "p"}},
        {"module": "hooks-scheduler-cost-aware", "config": {"budget_limit": 1}},
    ],
    "agents": {"helper": {"description": "helps"}},
}


def names(specs):
    return [spec["module"] for spec in specs]


def loop_of(plan):
    return plan["session"]["orchestrator"]


def test_an_agent_that_says_nothing_is_as_its_parent_under_its_own_name():
    plan = child_plan(PARENT, "helper", {})
    assert loop_of(plan)["config"]["toolgate"] == {"agent": "helper", "required": ["policy"]}
    assert {**plan, "session": 0} == {**PARENT, "session": 0}
    assert plan["session"]["context"] == PARENT["session"]["context"]


def test_self_is_the_parent_once_more():
    assert child_plan(PARENT, SELF, {}) == PARENT


def test_modules_are_merged_by_id_and_configs_key_by_key():
    plan = child_plan(
        PARENT,
        "helper",
        {
            "providers": [{"module": "provider-a", "config": {"model": "small"}}],
            "tools": ["tool-web", {"module": "tool-files", "config": {"root": "sub"}}],
        },
    )
    assert plan["providers"] == [{"module": "provider-a", "config": {"model": "small", "retries": 2}}]
    assert names(plan["tools"]) == ["tool-files", "tool-delegate", "tool-web"]
    assert plan["tools"][0]["config"] == {"root": "sub"}


def test_another_loop_brings_its_own_config_and_keeps_the_rules():
    plan = child_plan(PARENT, "helper", {"session": {"orchestrator": "loop-basic"}})
    assert loop_of(plan)["module"] == "loop-basic"
    assert loop_of(plan)["config"] == {"toolgate": {"agent": "helper", "required": ["policy"]}}


def test_a_loop_that_asks_nobody_is_refused():
    with pytest.raises(ConfigError, match=r"agent helper: loop-other asks no scheduler.*Toolgate's loops"):
        child_plan(
            PARENT,
            "helper",
            {"session": {"orchestrator": "loop-other"}},
            ours=lambda module: module != "loop-other",
        )


def test_tools_can_be_kept_from_a_child():
    kept = child_plan(PARENT, "helper", {}, tool_inheritance={"exclude_tools": ["tool-delegate"]})
    assert names(kept["tools"]) == ["tool-files"]
    only = child_plan(PARENT, "helper", {}, tool_inheritance={"inherit_tools": ["tool-delegate"]})
    assert names(only["tools"]) == ["tool-delegate"]


def test_hooks_that_rule_stay_and_stay_as_they_are():
    loose = {"hooks": [{"module": "hooks-scheduler-cost-aware", "config": {"budget_limit": 1000}}]}
    plan = child_plan(PARENT, "helper", loose, hook_inheritance={"inherit_hooks": []})
    assert plan["hooks"] == [{"module": "hooks-scheduler-cost-aware", "config": {"budget_limit": 1}}]


def test_the_caller_can_configure_the_loop():
    plan = child_plan(PARENT, "helper", {}, orchestrator_config={"max_iterations": 3})
    assert loop_of(plan)["config"]["max_iterations"] == 3


def test_the_parents_plan_is_not_changed():
    before = repr(PARENT)
    child_plan(PARENT, "helper", {"tools": [{"module": "tool-files", "config": {"root": "x"}}]})
    assert repr(PARENT) == before


def test_what_an_agent_is_told_first():
    assert instruction_of({"system": {"instruction": "Be brief."}}) == "Be brief."
    assert instruction_of({"instruction": "Be kind."}) == "Be kind."
    assert instruction_of({}) == ""
