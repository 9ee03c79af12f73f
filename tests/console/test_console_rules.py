"""Rules that are tried on recorded decisions: what they would have changed, by tool and agent. Pure."""

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_bus.state.config_record import ConfigRecord, StoredConfig
from toolgate_bus.state.config_store import ConfigsRead, ReplicaReport
from toolgate_bus.state.rollout_rules import TrialCounts
from toolgate_bus.transport.ports import Member
from toolgate_schedulers.commands.console import rule_trial
from toolgate_schedulers.commands.console.ring import Ring
from toolgate_schedulers.commands.console.rule_trial import PushRequest, RuleTrial, TrialRequest
from toolgate_schedulers.commands.scheduler_configs import Status

pytestmark = pytest.mark.pure
NOW = 1_000_000.0


def verdict(scheduler, action="continue", **more):
    about = {"scheduler": scheduler, "action": action, "phase": "select", "priority": 0, "seconds": 0.001}
    return {**about, **({"reason": "no"} if action == "deny" else {}), **more}


def decision(number, tool="write_file", outcome="continue", **more):
    told = {"path": "a.txt"}
    ran = {"final_tool": tool, "final_input": told} if outcome != "deny" else {}
    return {
        "event": "decision", "id": f"{number:032x}", "seq": number, "at": NOW + number, "outcome": outcome,
        "why": "denied" if outcome == "deny" else "agreed", "tool_name": tool, "tool_input": told,
        "seconds": 0.004, "verdicts": [], "silent": [], "reason": None, "scheduler": None,
        "final_tool": None, "final_input": None, "agent": "clerk", "session": "s-1", **ran, **more,
    }  # fmt: skip


def ring_of(*facts):
    ring = Ring()
    for fact in facts:
        ring.take(fact)
    return ring


async def tried(ring, text, scheduler="policy"):
    return await RuleTrial(ring).run(TrialRequest(scheduler=scheduler, text=text))


async def test_what_rules_would_have_changed_is_told_by_tool_and_agent():
    facts = [decision(number, verdicts=[verdict("policy")]) for number in range(5)]
    facts += [decision(10, "read_file"), decision(11, agent="boss")]
    rules = "rules: [{name: no writes, tools: write_*, agents: clerk, action: deny}]"
    found = await tried(ring_of(*facts), rules)
    assert (found["judged"], found["of"], found["heard"]) == (7, 7, 5)
    assert (found["counts"]["veto"], found["counts"]["same"]) == (5, 2)
    (group,) = found["groups"]
    told = (group["tool"], group["agent"], group["of"], group["veto"], group["rules"])
    assert told == ("write_file", "clerk", 5, 5, ["no writes"])
    assert len(group["examples"]) == rule_trial.MAX_EXAMPLES


async def test_a_denial_of_another_scheduler_stands_and_its_own_falls_away():
    own = {"outcome": "deny", "scheduler": "policy", "verdicts": [verdict("policy", "deny")]}
    other = {"outcome": "deny", "scheduler": "guard", "verdicts": [verdict("guard", "deny")]}
    ring = ring_of(decision(1, **own), decision(2, **other))
    assert (await tried(ring, "default: allow"))["counts"] | {"same": 1, "allow": 1} == {
        "same": 1, "veto": 0, "reroute": 0, "ask": 0, "hold": 0, "allow": 1,
    }  # fmt: skip
    assert (await tried(ring, "default: ask"))["counts"]["ask"] == 1
    assert (await tried(ring, "default: deny"))["counts"]["same"] == 2


async def test_rules_on_order_see_the_calls_before():
    post = {"event": "tool:post", "decision_id": f"{1:032x}", "at": NOW + 1.5, "success": True, "seq": 9}
    facts = [decision(0, "deploy"), decision(1, "run_tests"), post, decision(2, "deploy")]
    found = await tried(ring_of(*facts), "rules: [{tools: deploy, after: {tool: run_tests}}]")
    assert (found["counts"]["veto"], found["counts"]["same"]) == (1, 2)
    assert found["groups"][0]["examples"] == [f"{0:032x}"]


async def test_wrong_rules_are_refused_by_their_line_and_odd_decisions_are_counted():
    ring = ring_of(decision(1), decision(2, cut=True), decision(3, outcome="cancelled", why="cancelled"))
    found = await tried(ring, "default: deny")
    assert (found["of"], found["unreadable"], found["counts"]["veto"]) == (3, 2, 1)
    with pytest.raises(ConfigError, match=r"line:2: rules\.0\.action"):
        await tried(ring, "rules:\n- {tools: x, action: maybe}")
    with pytest.raises(ConfigError):
        await tried(ring, "&a [*a]")


async def test_a_trial_is_bounded_in_time_and_begins_with_the_newest(monkeypatch):
    monkeypatch.setattr(rule_trial, "BUDGET_S", -1.0)
    found = await tried(ring_of(*(decision(number) for number in range(9))), "default: deny")
    assert (found["judged"], found["of"]) == (1, 9)
    assert found["groups"][0]["examples"] == [f"{8:032x}"]


@pytest.mark.parametrize(
    "wrong", [{"scheduler": "a b"}, {"share": 100}, {"share": -1}, {"share": True}, {"text": "x" * 70_000}]
)
def test_an_order_to_push_is_checked(wrong):
    right = {"scheduler": "policy", "text": "default: allow", "share": 0}
    PushRequest.model_validate(right)
    with pytest.raises(ValueError, match="validation error"):
        PushRequest.model_validate({**right, **wrong})


@pytest.mark.parametrize(
    ("record", "follows"),
    [
        (ConfigRecord(), None),
        (ConfigRecord(1, (StoredConfig("a" * 64, at=NOW - 1),), "a" * 64), None),
        (ConfigRecord(1, (StoredConfig("a" * 64, at=NOW - 60),), "a" * 64), False),
    ],
)
def test_a_replica_is_said_not_to_follow_only_if_it_had_the_time_to(record, follows):
    members = [Member("policy", "r-1")]
    status = Status("policy", ConfigsRead(record, None), members, {}, TrialCounts(), NOW)
    assert [one["follows"] for one in status.as_json()["replicas"]] == [follows]
    told = {"r-1": ReplicaReport("file")}
    status = Status("policy", ConfigsRead(record, None), members, told, TrialCounts(), NOW)
    assert [one["follows"] for one in status.as_json()["replicas"]] == [True]
