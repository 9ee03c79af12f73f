"""Every option of `policy`, in one process, by what a gate decides.

The file's default denies, so a rule that does not fit shows itself as well.
"""

from typing import Any, NamedTuple

import pytest
import yaml
from toolgate_bus.events import AskUser
from toolgate_orchestrator.gate.gate import Gate
from toolgate_schedulers.about import About
from toolgate_schedulers.conditions import Condition
from toolgate_schedulers.policy import PolicyConfig, Rule

pytestmark = pytest.mark.acceptance


class Row(NamedTuple):
    """A rule that denies, a call that it fits, and one that it does not."""

    option: str
    rule: dict[str, Any]
    fits: dict[str, Any]
    other: dict[str, Any]


def given(**arguments: Any) -> dict[str, Any]:
    return {"tool_input": arguments}


ROWS = (
    Row("equals", {"when": {"a": {"equals": 1}}}, given(a=1.0), given(a=True)),
    Row("in", {"when": {"a": {"in": ["x", 2]}}}, given(a=2), given(a="2")),
    Row("glob", {"when": {"a.b": "x*"}}, given(a={"b": "xy"}), given(a={"b": "y"})),
    Row("matches", {"when": {"a": {"matches": r"rm\s"}}}, given(a="sudo rm -r"), given(a="arm")),
    Row("gt", {"when": {"a": {"gt": 10}}}, given(a="10.5"), given(a=10)),
    Row("gte", {"when": {"a": {"gte": 10}}}, given(a=10), given(a=9)),
    Row("lt", {"when": {"a": {"lt": 10}}}, given(a=-1), given(a=10)),
    Row("lte", {"when": {"a": {"lte": 10}}}, given(a=10), given(a=11)),
    Row("exists", {"when": {"a": {"exists": False}}}, given(b=1), given(a=None)),
    Row(
        "schema",
        {"schema": {"properties": {"a": {"type": "array", "minItems": 2}}, "required": ["a"]}},
        given(a=[1, 2]),
        given(a=[1]),
    ),
    Row("agents", {"agents": ["intern-*", "temp"]}, {"agent": "intern-7"}, {"agent": "boss"}),
    Row("labels", {"labels": {"team": "ops-*"}}, {"labels": {"team": "ops-1"}}, {"labels": {"tem": "ops-1"}}),
    Row("sessions", {"sessions": "s7"}, {"session": "s8", "root_session": "s7"}, {"session": "s9"}),
    Row("agent_targets", {"agent_targets": "root*"}, {"agent_target": "root"}, {"agent_target": "leaf"}),
)
MORE = {"name", "tools", "action", "mode", "reason", "prompt", "options", "timeout_s", "when"}
"""Seen in the test below the table's."""

POLICY = {
    "rules": [
        *({"name": f"by {row.option}", "tools": row.option, "action": "deny", **row.rule} for row in ROWS),
        {"tools": ["web_*", "fetch"], "action": "deny", "reason": "nobody leaves the house"},
        {"tools": "pay", "action": "deny", "mode": "observe", "name": "no more payments"},
        {
            "tools": "pay",
            "action": "ask",
            "prompt": "Pay?",
            "options": ["Pay", "Do not"],
            "timeout_s": 77,
            "when": {"amount": {"gt": 100}},
        },
        {"tools": "pay", "action": "allow"},
    ],
    "default": "deny",
}


def fields(*models: Any) -> set[str]:
    return {field.alias or name for model in models for name, field in model.model_fields.items()}


def test_no_option_is_without_a_test() -> None:
    assert {row.option for row in ROWS} | MORE == fields(Rule, About, Condition)
    assert set(POLICY) == fields(PolicyConfig)


async def test_every_option_of_a_rule_holds(schedulers: Any, tmp_path: Any) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(POLICY))
    await schedulers.start("policy", "--config", file)
    asked: list[AskUser] = []

    async def person(question: AskUser, _call: Any) -> str:
        asked.append(question)
        return "allow"

    async with Gate.open(
        redis=schedulers.url,
        namespace=schedulers.namespace,
        required=["policy"],
        patience_ms=20_000,
        ask=person,
    ) as gate:

        async def decide(tool: str, tool_input: Any = None, **call: Any) -> tuple[str, str | None]:
            decision = await gate.decide(tool, tool_input or {}, [tool], **call)
            return decision.outcome, decision.reason

        for row in ROWS:
            fitting = ("deny", f"{row.option} is not allowed (by {row.option})")
            assert await decide(row.option, **row.fits) == fitting
            assert await decide(row.option, **row.other) == ("deny", f"no rule allows {row.option} (default)")

        number = len(ROWS) + 1  # a rule without a name is called by its place
        for tool in ("web_search", "fetch"):
            assert await decide(tool) == ("deny", f"nobody leaves the house (rule {number})")

        small = await gate.decide("pay", {"amount": 100}, ["pay"])
        assert (small.outcome, small.asked_user) == ("continue", False)
        note = f"allowed by rule {number + 3}; no more payments would have denied"
        assert [heard.verdict.reason for heard in small.verdicts] == [note]
        large = await gate.decide("pay", {"amount": 101}, ["pay"])
        assert (large.outcome, large.asked_user) == ("continue", True)
    (question,) = asked
    assert (question.prompt, question.options, question.timeout_s) == ("Pay?", ("Pay", "Do not"), 77)


@pytest.mark.parametrize(
    ("scheduler", "config", "said"),
    [
        (
            "policy",
            "rules: [{tools: x, action: deny, schema: {requierd: [a]}}]",
            "rules.0.schema: requierd: unknown keyword; allowed: $comment",
        ),
        (
            "router",
            "routes: [{from: a, targets: [{to: b}], sticky: user}]",
            "routes.0.sticky: must be decision, session, tree, agent or label:NAME",
        ),
    ],
)
async def test_a_wrong_configuration_is_refused_by_its_field_before_it_joins(
    schedulers: Any, tmp_path: Any, scheduler: str, config: str, said: str
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(config)
    child = schedulers.run(scheduler, "--config", file)
    assert child.wait(30) == 2
    assert said in " ".join(schedulers.said(child).split())
    assert schedulers.pids(child) == []
