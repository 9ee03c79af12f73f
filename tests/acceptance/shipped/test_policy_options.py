"""`policy` as a process of its own, by what a gate decides."""

from typing import Any

import pytest
import yaml
from questions import decide as decide_on
from toolgate_bus.protocol.events import AskUser
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance


POLICY = {
    "rules": [
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


async def test_the_first_rule_that_fits_a_call_decides_and_is_named(schedulers: Any, tmp_path: Any) -> None:
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
            decision = await decide_on(gate, tool, tool_input or {}, [tool], **call)
            return decision.outcome, decision.reason

        long = {"a": 20_000 * "x"}
        assert await decide("say", long) == ("deny", "no rule allows say (default)")
        outcome, reason = await decide("run", long)
        assert (outcome, reason[:56]) == ("deny", "run is not allowed (strict; a could not be seen whole: t")

        for tool in ("web_search", "fetch"):
            assert await decide(tool) == ("deny", "nobody leaves the house (rule 1)")

        small = await gate.decide(Call("pay", {"amount": 100}, ["pay"]))
        assert (small.outcome, small.asked_user) == ("continue", False)
        note = "allowed by rule 4; no more payments would have denied"
        assert [heard.verdict.reason for heard in small.verdicts] == [note]
        large = await gate.decide(Call("pay", {"amount": 101}, ["pay"]))
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
