"""Local tables at the gate: what a scheduler's table answers is not asked, and never says more than it."""

import asyncio
import json
from collections import Counter

import pytest
from gate_world import growth, never
from toolgate_bus.facts import record
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import Continue, Deny
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.ruling.local_table import digest_of, encode_table, table_key
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.fact_metrics import metrics_of
from toolgate_bus.transport import lease
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.link import session_labels
from toolgate_orchestrator.decision.link.recipients import RecipientCache

pytestmark = pytest.mark.pure

TOOLS = {name: {"type": "object"} for name in ("read", "delete", "pay", "fast")}
TABLE = json.dumps(
    {
        "rules": [
            {"tools": ["delete"], "answer": "deny", "name": "no deletes"},
            {"tools": ["pay"], "when": {"amount": {"gt": 100}}, "answer": "ask"},
            {"tools": ["read"], "agents": "boss", "answer": "deny"},
        ],
        "default": "continue",
    }
).encode()
NO_READS = b'{"rules": [{"tools": ["read"], "answer": "deny"}], "default": "continue"}'


class Rules:
    """A scheduler's `decide` that counts what it is asked."""

    def __init__(self):
        self.asked = []

    async def __call__(self, call):
        self.asked.append(call.tool_name)
        return Continue()


async def until(true):
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.001)


async def in_force(gate, name="policy"):
    tables = gate._client.tables
    await until(lambda: name in tables.in_force)
    return tables


@pytest.fixture
def rules():
    return Rules()


@pytest.fixture
async def gate(world, rules):
    await world.scheduler("policy", rules.__call__, local_table=TABLE)
    made = await world.gate(required=["policy"])
    await in_force(made)
    return made


async def test_what_the_table_answers_is_not_asked(gate, rules):
    assert (await gate.decide(Call("read", {}, TOOLS))).outcome == "continue"
    denied = await gate.decide(Call("delete", {}, TOOLS))
    assert (denied.outcome, denied.scheduler) == ("deny", "policy")
    assert "delete is not allowed (no deletes)" in denied.reason
    assert [one.revision for one in denied.verdicts] == [" local"]
    assert rules.asked == []


async def test_a_call_that_tables_answer_is_decided_without_leaving_the_turn_of_the_loop(gate, monkeypatch):
    monkeypatch.setattr(type(gate._client.table), "is_rest_due", lambda table, now: False)
    monkeypatch.setattr(gate, "_decide", None)  # it may wait, and costs more
    for tool, outcome in (("read", "continue"), ("delete", "deny")):
        deciding = gate.decide(Call(tool, {}, TOOLS))
        with pytest.raises(StopIteration) as ended:
            deciding.send(None)
        assert ended.value.value.outcome == outcome
    assert not gate._client.table.open


@pytest.mark.parametrize("is_rest_due", [False, True])
async def test_a_required_scheduler_that_cannot_be_asked_is_not_passed_over_for_the_tables_of_others(
    world, monkeypatch, is_rest_due
):
    await world.scheduler("policy", Continue(), local_table=TABLE)
    gate = await world.gate(required=["stranger"], patience_ms=50)
    await in_force(gate)
    monkeypatch.setattr(type(gate._client.table), "is_rest_due", lambda table, now: is_rest_due)
    gate._audiences = RecipientCache(gate.config, Keyring({"policy": b"k" * 32}, "default"))
    decision = await gate.decide(Call("read", {}, TOOLS))
    assert (decision.outcome, decision.scheduler) == ("deny", "stranger")


async def test_what_tables_answer_is_counted_as_the_record_says(world, gate):
    world.hub.is_read = True
    before = metrics_so_far()
    for call in (Call("read", {}, TOOLS), Call("delete", {}, TOOLS), Call("pay", {"amount": 500}, TOOLS)):
        await gate.decide(call)
    await gate._client.flush(5)
    counted = [one - was for one, was in zip(metrics_so_far(), before, strict=True)]
    told = Counter()
    for raw in world.hub.facts:
        for fact in record.read_facts(packing.items(packing.frame([raw]))[0]):
            for metric, labels, _, _ in metrics_of(fact):
                told[metric.name, labels] += 1
    assert counted == [1, 1, 1]
    assert [told["toolgate_local_verdicts", ("policy", action)] for action in ("continue", "deny")] == [1, 1]
    assert told["toolgate_verdict_seconds", ("policy",)] == 1  # that of the verdict that was asked for


async def test_the_record_of_a_call_that_a_table_denies_keeps_the_request_that_a_reader_is_told(world):
    world.hub.is_read = True
    await world.scheduler("policy", Continue(), local_table=TABLE, reads=("request",))
    gate = await world.gate(required=["policy"])
    await in_force(gate)
    assert (await gate.decide(Call("delete", {}, TOOLS, request="tidy up"))).outcome == "deny"
    await gate._client.flush(5)
    told = [
        fact["request"]
        for raw in world.hub.facts
        for fact in record.read_facts(packing.items(packing.frame([raw]))[0])
        if fact["event"] == "decision"
    ]
    assert told == ["tidy up"]


def metrics_so_far():
    local = [
        metrics.value("toolgate_local_verdicts_total", scheduler="policy", action=action)
        for action in ("continue", "deny")
    ]
    return [*local, metrics.value("toolgate_verdict_seconds_count", scheduler="policy")]


async def test_the_rest_is_asked(gate, rules):
    assert (await gate.decide(Call("pay", {"amount": 5}, TOOLS))).outcome == "continue"
    assert rules.asked == []
    assert (await gate.decide(Call("pay", {"amount": 500}, TOOLS))).outcome == "continue"
    assert (await gate.decide(Call("pay", {"amount": {"a": 1}}, TOOLS))).outcome == "continue"
    assert rules.asked == ["pay", "pay"]


async def test_a_table_sees_what_its_scheduler_would_be_sent(world, rules):
    await world.scheduler("policy", rules.__call__, local_table=TABLE)
    gate = await world.gate(redact={"fields": ["amount"]})
    await in_force(gate)
    assert (await gate.decide(Call("pay", {"amount": 5}, TOOLS))).allowed
    assert rules.asked == ["pay"]  # the amount is hidden: it is unknown whether the rule fits


async def test_a_call_counts_for_each_agent_above(gate):
    at = Caller(session="s", agent="clerk", parent="r", lineage=("boss", "clerk"), root="r")
    assert (await gate.decide(Call("read", {}, TOOLS, at))).outcome == "deny"


async def test_who_says_which_calls_concern_it_learns_of_one_that_a_table_denies(world, rules):
    counts = Rules()
    concerns = encode_table([{"tools": ["delete"], "answer": "ask"}], "continue")
    await world.scheduler("policy", rules.__call__, local_table=TABLE)
    await world.scheduler("limit", counts.__call__, local_table=concerns)
    gate = await world.gate()
    await in_force(gate)
    await in_force(gate, "limit")
    assert (await gate.decide(Call("delete", {}, TOOLS))).outcome == "deny"
    await until(lambda: counts.asked == ["delete"])
    assert (await gate.decide(Call("read", {}, TOOLS))).allowed
    assert (rules.asked, counts.asked) == ([], ["delete"])


async def test_of_a_call_that_a_table_denies_only_those_without_a_table_learn(world, rules):
    counting, other = Rules(), Rules()
    await world.scheduler("policy", rules.__call__, local_table=TABLE)
    await world.scheduler("other", other.__call__, local_table=b'{"rules":[{"tools":["x"],"answer":"deny"}]}')
    await world.scheduler("counting", counting.__call__)
    gate = await world.gate()
    await in_force(gate)
    await in_force(gate, "other")
    labels = {"tool": "delete", "agent": ""}
    told, untold = (
        growth("toolgate_asked_decisions_total", scheduler=one, **labels) for one in ("counting", "other")
    )
    denied = await gate.decide(Call("delete", {}, TOOLS))
    await until(lambda: counting.asked)
    assert (denied.outcome, denied.scheduler) == ("deny", "policy")
    assert (counting.asked, rules.asked, other.asked) == (["delete"], [], [])
    assert (told(), untold()) == (1, 0)
    assert (await gate.decide(Call("read", {}, TOOLS))).allowed
    assert other.asked == ["read"]


async def test_another_schedulers_denial_counts_beside_a_table(world, rules):
    await world.scheduler("policy", rules.__call__, local_table=TABLE)
    await world.scheduler("other", Deny(reason="not today"))
    gate = await world.gate()
    await in_force(gate)
    assert (await gate.decide(Call("read", {}, TOOLS))).outcome == "deny"
    assert rules.asked == []


async def test_replicas_that_announce_different_tables_are_asked_about_what_none_denies(world, gate, rules):
    tables = gate._client.tables
    other = await world.scheduler("policy", rules.__call__, local_table=NO_READS)
    await until(lambda: len(tables.in_force["policy"].tables) == 2)
    denied = [(await gate.decide(Call(tool, {}, TOOLS))).outcome for tool in ("delete", "read")]
    assert denied == ["deny", "deny"]
    assert (await gate.decide(Call("fast", {}, TOOLS))).allowed
    assert rules.asked == ["fast"]
    await other.aclose()
    await until(lambda: tables.in_force["policy"].digest)
    assert (await gate.decide(Call("read", {}, TOOLS))).allowed
    assert rules.asked == ["fast"]


async def test_beside_a_replica_without_a_table_only_denials_count(world, gate, rules):
    await world.scheduler("policy", rules.__call__)
    await until(lambda: not gate._client.tables.in_force["policy"].digest)
    assert (await gate.decide(Call("delete", {}, TOOLS))).outcome == "deny"
    assert (await gate.decide(Call("read", {}, TOOLS))).allowed
    assert rules.asked == ["read"]


async def test_a_scheduler_that_has_left_is_missed_at_once(world, rules):
    bus = await world.scheduler("policy", rules.__call__, local_table=TABLE)
    gate = await world.gate(required=["policy"], patience_ms=50)
    await in_force(gate)
    await bus.aclose()
    denied = await gate.decide(Call("read", {}, TOOLS))
    assert (denied.outcome, denied.why) == ("deny", "silent")


async def test_a_continue_counts_as_long_as_the_heartbeats_and_a_denial_longer(gate, rules, monkeypatch):
    later = lease.now() + lease.LEASE_S + 1
    monkeypatch.setattr(type(gate._client.bus), "seen_at", property(lambda _: later - lease.LEASE_S - 1))
    monkeypatch.setattr(lease, "now", lambda: later)
    assert (await gate.decide(Call("read", {}, TOOLS))).allowed
    assert rules.asked == ["read"]
    assert (await gate.decide(Call("delete", {}, TOOLS))).outcome == "deny"
    assert rules.asked == ["read"]


@pytest.mark.parametrize("policy", ["continue", "deny"])
async def test_while_the_bus_is_away_what_the_table_denies_is_denied(world, rules, policy):
    await world.scheduler("policy", rules.__call__, local_table=TABLE)
    gate = await world.gate(on_bus_down=policy, patience_ms=20)
    await in_force(gate)
    gate._client.on_connection(False)
    denied = await gate.decide(Call("delete", {}, TOOLS))
    assert denied.outcome == "deny"
    assert denied.why == ("denied" if policy == "continue" else "bus_down")
    assert (await gate.decide(Call("read", {}, TOOLS))).allowed is (policy == "continue")


async def test_while_the_bus_is_away_the_labels_that_a_session_was_given_are_borne_however_long_ago(
    world, monkeypatch
):
    table = b'{"rules": [{"tools": ["pay"], "when_session": {"source": "web"}, "answer": "deny"}]}'

    async def label(call):
        return Continue(session_labels={"source": ["web"]})

    await world.scheduler("policy", label, local_table=table, reads=("session_labels",))
    gate = await world.gate(on_bus_down="continue", patience_ms=200)
    await in_force(gate)
    await gate.decide(Call("read", {}, TOOLS, Caller("s")))
    monkeypatch.setattr(session_labels, "FRESH_S", -1.0)
    gate._client.on_connection(False)
    said = [(await gate.decide(Call("pay", {}, TOOLS, Caller(one)))).outcome for one in ("s", "other")]
    assert said == ["deny", "continue"]


@pytest.mark.parametrize("raw", [b"{", TABLE + b" ", b"{}" * 40_000], ids=["broken", "another", "too long"])
async def test_a_table_that_is_not_as_announced_is_refused_and_its_scheduler_asked(world, rules, raw):
    refused = growth("toolgate_bad_messages_total", sender="policy", reason="malformed")
    await world.scheduler("policy", rules.__call__, local_table=TABLE)
    await world.hub.store.put(table_key("policy", digest_of(TABLE)), raw)
    gate = await world.gate()
    await until(lambda: refused() == 1)
    assert (await gate.decide(Call("delete", {}, TOOLS))).allowed
    assert rules.asked == ["delete"]


async def test_the_table_of_a_scheduler_that_is_set_aside_still_denies(world):
    await world.scheduler("policy", never, local_table=TABLE)
    gate = await world.gate(patience_ms=200)
    await in_force(gate)
    async with asyncio.timeout(40):  # on a busy machine nobody is blamed for each silence
        while (await gate.decide(Call("pay", {"amount": 500}, TOOLS))).passed_over != ("policy",):
            pass
    assert (await gate.decide(Call("delete", {}, TOOLS))).outcome == "deny"


async def test_a_tool_whose_every_call_is_denied_is_not_offered_and_is_denied_all_the_same(
    gate, rules, caplog
):
    caplog.set_level("INFO")
    below = Caller(session="s", agent="clerk", parent="r", lineage=("boss", "clerk"), root="r")
    assert await gate.find_denied(TOOLS) == {"delete"}
    assert await gate.find_denied(TOOLS, below) == {"delete", "read"}
    told = [one.message for one in caplog.records if "is not offered" in one.message]
    assert ["(tool='delete'" in told[0], "(tool='read'" in told[1]] == [True, True]
    assert len(told) == 2  # each once
    assert (await gate.decide(Call("delete", {}, TOOLS))).outcome == "deny"
    assert rules.asked == []


async def test_an_agent_that_keeps_its_tools_is_offered_all(world, rules):
    await world.scheduler("policy", rules.__call__, local_table=TABLE)
    gate = await world.gate(offer_denied=True)
    await in_force(gate)
    assert await gate.find_denied(TOOLS) == frozenset()


async def test_a_table_that_does_not_count_leaves_every_tool_offered(world, rules):
    await world.scheduler("policy", rules.__call__, local_table=TABLE)
    shadowed = await world.gate(shadow=["policy"])
    elsewhere = await world.gate(schedulers={"policy": {"tools": ["pay"]}})
    for gate in (shadowed, elsewhere):
        await in_force(gate)
        assert await gate.find_denied(TOOLS) == frozenset()


async def test_the_tools_that_are_offered_follow_the_rules(world, gate, rules):
    tables = gate._client.tables
    assert await gate.find_denied(TOOLS) == {"delete"}
    pays = b'{"rules":[{"tools":["pay"],"answer":"deny"}]}'
    other = await world.scheduler("policy", rules.__call__, local_table=pays)
    await until(lambda: not tables.in_force["policy"].digest)
    assert await gate.find_denied(TOOLS) == {"delete", "pay"}  # the denials of both stand
    await other.aclose()
    await until(lambda: tables.in_force["policy"].digest)
    assert await gate.find_denied(TOOLS) == {"delete"}


async def test_the_first_list_of_tools_waits_for_the_tables(world, rules):
    await world.scheduler("policy", rules.__call__, local_table=TABLE)
    gate = await world.gate()
    assert await gate.find_denied(TOOLS) == {"delete"}


async def test_a_table_that_cannot_be_read_holds_up_no_list_of_tools(world, rules):
    await world.scheduler("policy", rules.__call__, local_table=TABLE)
    await world.hub.store.delete(table_key("policy", digest_of(TABLE)))
    gate = await world.gate(patience_ms=600_000)
    assert await gate.find_denied(TOOLS) == frozenset()


async def test_a_replacement_is_answered_like_a_call(world, rules):
    from toolgate_bus.protocol.events import Modify

    await world.scheduler("policy", rules.__call__, local_table=TABLE)
    await world.scheduler(
        "router", lambda call: Modify(tool="delete") if call.phase == "select" else Continue()
    )
    gate = await world.gate()
    await in_force(gate)
    denied = await gate.decide(Call("fast", {}, TOOLS))
    assert (denied.outcome, denied.scheduler) == ("deny", "policy")
    assert rules.asked == []
