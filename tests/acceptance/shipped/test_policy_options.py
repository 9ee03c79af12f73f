"""Every option of `policy`, in one process, by what a gate decides.

The file's default denies, so a rule that does not fit shows itself as well.
"""

from typing import Any

import pytest
import yaml
from rules_about_calls import ROWS
from toolgate_bus.protocol.events import AskUser
from toolgate_orchestrator.gate.gate import Gate

pytestmark = pytest.mark.acceptance


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
        {"name": "lenient", "tools": "say", "action": "deny", "when": {"a": "*rm*"}, "unknown": "allow"},
        {"name": "strict", "tools": "run", "action": "deny", "when": {"a": "*rm*"}},
    ],
    "default": "deny",
}


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

        long = {"a": 20_000 * "x"}
        assert await decide("say", long) == ("deny", "no rule allows say (default)")
        outcome, reason = await decide("run", long)
        assert (outcome, reason[:56]) == ("deny", "run is not allowed (strict; a could not be seen whole: t")

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
