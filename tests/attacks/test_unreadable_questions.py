"""Fields of a call that an app's users choose: a question that nobody can read is no way past a denial."""

import json

import pytest
from questions import decide
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(60)]

RULES = {
    "rules": [
        {"name": "keep", "tools": "delete_file", "action": "deny"},
        {"name": "aside", "tools": "*", "agents": "restricted", "action": "deny"},
    ]
}
LONG = "x" * 70_000
UNREADABLE = [
    {"session": LONG},
    {"session": "s", "root_session": LONG},
    {"parent": LONG},
    {"tool_call_id": LONG},
    {"parallel_group_id": LONG},
    {"agent": LONG},
    {"labels": {"customer": LONG}},
    {"labels": {LONG: "name"}},
    {"labels": {f"label-{number}": "" for number in range(1100)}},
    {"lineage": ["lead", LONG]},
]
READABLE = [
    {"session": 5},
    {"session": None},
    {"parallel_group_id": None},
    {"agent": 5},
    {"tool_call_id": None},
    {"root_session": 5},
    {"root_session": ["a"]},
    {"parent": 5},
    {"parent": 0},
    {"parallel_group_id": 5},
    {"agent_target": 5},
    {"available_agents": [1, None, "a"]},
    {"labels": {"customer": 5}},
    {"lineage": [1, 2]},
    {"iteration": None},
    {"iteration": 1.5},
    {"iteration": 2**70},
    {"available_agents": [f"agent-{number}" for number in range(1100)]},
]


@pytest.fixture
async def gate(schedulers, server_url, namespace, tmp_path):
    (tmp_path / "policy.yaml").write_text(json.dumps(RULES))
    await schedulers.start("asked_policy:Policy", "--config", tmp_path / "policy.yaml")
    async with Gate.open(redis=server_url, namespace=namespace, patience_ms=30_000) as opened:
        yield opened


async def test_a_call_that_no_scheduler_could_read_is_denied_and_takes_nobody_off_the_next_one(gate):
    for fields in UNREADABLE:
        decision = await decide(gate, "delete_file", {}, ["delete_file"], **fields)
        assert (decision.outcome, decision.why) == ("deny", "gate_failed"), fields
        assert "nobody could be asked about it" in decision.reason
    for fields in READABLE:
        decision = await decide(gate, "delete_file", {}, ["delete_file", 5, None], **fields)
        assert (decision.outcome, decision.scheduler) == ("deny", "policy"), fields


async def test_no_agent_of_a_lineage_is_left_out_of_it(gate):
    whole = [*["lead"] * 61, "restricted", "worker"]
    decision = await gate.decide(Call("read", {}, ["read"], Caller(agent="worker", lineage=whole)))
    assert (decision.outcome, decision.scheduler) == ("deny", "policy")
    deeper = ["lead"] * 4 + whole
    decision = await gate.decide(Call("read", {}, ["read"], Caller(agent="worker", lineage=deeper)))
    assert (decision.outcome, decision.why) == ("deny", "gate_failed")
