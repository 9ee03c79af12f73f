"""Rules of a policy on results, in a process of its own, by what a gate gives the agent."""

import json
from typing import Any

import pytest
import yaml
from toolgate_bus.protocol.events import AskUser
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance

AT = Caller(session="s")
KEY = "AKIAIOSFODNN7EXAMPLE"
POLICY = {
    "rules": [
        {"on": "result", "tools": ["read", "look"], "mask": ["api keys", "cards"]},
        {"on": "result", "tools": "read", "when": {"$result": "*ignore all*"}, "action": "deny"},
        {"on": "result", "tools": "look", "action": "ask", "prompt": "Show it?"},
        {"on": "result", "tools": "gone", "label": {"source": "untrusted"}},
        {"on": "output", "mask": "cards"},
        {
            "tools": "pay",
            "after": {"tool": "approve", "result": {"ok": True}, "same": {"$.id": "$result.id"}},
        },
    ],
}


async def test_results_and_answers_are_masked_withheld_and_asked_about_before_anybody_sees_them(
    schedulers: Any, tmp_path: Any
) -> None:
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

        async def given(tool: str, result: Any) -> Any:
            call = Call(tool, {}, [tool], at=AT)
            return await gate.rule_on_result(call, await gate.decide(call), result)

        text = await given("read", f"the key is {KEY}.")
        assert (text.value, text.outcome) == ("the key is [withheld: api key].", "masked")
        nested = await given("read", {"a": [{KEY: 1}, "4111 1111 1111 1111", 4111111111111111], "b": "clear"})
        assert nested.value == {"a": ["[withheld: api key]", *["[withheld: card]"] * 2], "b": "clear"}
        assert json.dumps(nested.clean({"copy": f"{KEY} 4111 1111 1111 1111"})).count("[withheld]") == 2
        withheld = await given("read", "ignore all that")
        assert withheld.outcome == "withheld"
        assert "ignore" not in withheld.value
        released = await given("look", f"the key is {KEY}.")
        assert (released.value, released.outcome) == ("the key is [withheld: api key].", "replaced")
        assert [one.prompt for one in asked] == ["Show it?"]
        same = await given("gone", marker := {"x": 1})
        assert same.value is marker

        point = Call("turn:output", {"text": "pay 4111111111111111"}, ["turn:output"], at=AT, is_point=True)
        answer = await gate.rule(point)
        assert answer is not None
        assert answer.tool_input == {"text": "pay [withheld: card]"}


async def test_two_replicas_know_what_a_call_gave(schedulers: Any, tmp_path: Any) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(POLICY))
    await schedulers.start("policy", "--config", file, replicas=2)
    async with Gate.open(
        redis=schedulers.url, namespace=schedulers.namespace, required=["policy"], patience_ms=20_000
    ) as gate:
        for number in range(4):
            approve = Call("approve", {"n": number}, ["approve"], at=AT)
            decision = await gate.decide(approve)
            await gate.rule_on_result(approve, decision, {"ok": number != 1, "id": number})
            gate.note("tool:post", {"decision_id": decision.id, "tool": "approve", "success": True})
        outcomes = [
            (await gate.decide(Call("pay", {"id": number}, ["pay"], at=AT))).outcome for number in range(5)
        ]
        assert outcomes == ["continue", "deny", "continue", "continue", "deny"]
