"""Facts: what is written of a decision can be read back, and what others wrote does no harm."""

import json

import msgpack
import pytest
from bus_strategies import json_maps, texts
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.errors import CodecError
from toolgate_bus.facts import record
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import AskUser, Continue, Decision, Deny, Modify, ReceivedVerdict

pytestmark = pytest.mark.pure

QUESTION = {
    "phase": "select",
    "tool_name": "t",
    "tool_input": {"a": 1},
    "session": "s",
    "agent_target": "writer",
}


def decided(outcome="continue", why="agreed", **fields):
    base = {"id": "00" * 16, "tool_name": "t", "tool_input": {}, "original_tool": "t", "original_input": {}}
    return Decision(outcome=outcome, why=why, **base | fields)


def kept(decision, *, final_input=None, reason=None, question=QUESTION):
    verdicts = [record.verdict_fields(heard) for heard in decision.verdicts]
    raw = record.decision_fact(decision, packing.pack(question), verdicts, final_input, reason, 7, 2.5)
    (item,) = packing.items(packing.frame([raw]))
    (fact,) = record.read_facts(item)
    return fact


def test_a_decision_everybody_agreed_on_is_read_back_whole():
    fact = kept(
        decided(seconds=0.25, verdicts=(ReceivedVerdict("cost", codec.PLAIN_CONTINUE, 3, seconds=0.1),))
    )
    assert fact["event"] == "decision"
    assert (fact["seq"], fact["at"], fact["seconds"]) == (7, 2.5, 0.25)
    assert (fact["outcome"], fact["why"], fact["final_tool"]) == ("continue", "agreed", "t")
    assert (fact["tool_name"], fact["session"], fact["final_input"]) == ("t", "s", {"a": 1})
    assert fact["verdicts"] == [
        {"scheduler": "cost", "action": "continue", "phase": "select", "priority": 3, "seconds": 0.1}
    ]


def test_that_a_person_was_asked_and_agreed_is_kept():
    assert kept(decided(asked_user=True, scheduler="cost"))["asked_user"] is True


def test_to_whom_a_call_delegates_is_kept():
    fact = kept(decided(agent_target="editor"))
    assert (fact["agent_target"], fact["final_agent"]) == ("writer", "editor")


def test_a_decision_that_left_the_delegation_as_it_was_says_to_whom():
    assert kept(decided())["final_agent"] == "writer"


def test_a_decision_too_long_for_one_item_is_kept_without_the_arguments_of_its_verdicts():
    long = {"text": "x" * 60_000}
    verdicts = tuple(ReceivedVerdict(f"s{n}", Modify(tool="t", arguments=long)) for n in range(5))
    fact = kept(decided("modify", "modified", verdicts=verdicts), final_input=long)
    assert [one["scheduler"] for one in fact["verdicts"]] == ["s0", "s1", "s2", "s3", "s4"]
    assert fact["cut"] is True
    assert fact["final_input"] is None


def test_who_was_passed_over_is_kept():
    assert kept(decided(passed_over=("slow",)))["passed_over"] == ["slow"]


def test_a_denial_has_its_reason_and_no_tool():
    fact = kept(decided("deny", "denied", scheduler="cost"), reason="too dear")
    assert (fact["reason"], fact["scheduler"], fact["final_tool"], fact["final_input"]) == (
        "too dear",
        "cost",
        None,
        None,
    )


def test_a_replacement_is_kept_with_its_arguments():
    fact = kept(decided("modify", "modified", tool_name="u"), final_input={"b": 2})
    assert (fact["final_tool"], fact["final_input"], fact["tool_name"]) == ("u", {"b": 2}, "t")


@pytest.mark.parametrize("flag", ["late", "shadow", "capped"])
@pytest.mark.parametrize("verdict", [codec.PLAIN_CONTINUE, Continue(reason="r"), Deny(reason="no")])
def test_the_flags_of_a_verdict_are_kept_where_they_are_set(verdict, flag):
    fields = record.verdict_fields(ReceivedVerdict("cost", verdict, **{flag: True}))
    assert fields[flag] is True
    others = {"late", "shadow", "capped"} - {flag}
    assert not others.intersection(fields)


def test_all_that_a_verdict_says_is_kept():
    modify = Modify(tool="u", arguments={"b": 2}, reason="cheaper", agent_target="x", priority=99)
    fields = record.verdict_fields(ReceivedVerdict("cost", modify, 5, problem="schema"))
    assert fields["priority"] == 5  # the one it counted with
    assert (fields["tool"], fields["arguments"], fields["agent_target"]) == ("u", {"b": 2}, "x")
    assert (fields["reason"], fields["problem"]) == ("cheaper", "schema")
    assert record.verdict_fields(ReceivedVerdict("cost", AskUser(prompt="?")))["prompt"] == "?"


@given(json_maps)
def test_any_other_fact_comes_back(fields):
    raw = record.other_fact({**fields, "event": "my:event", "question": None}, 3, 1.0)
    (item,) = packing.items(packing.frame([raw]))
    (fact,) = record.read_facts(item)
    told = {name: value for name, value in fields.items() if name not in ("seq", "at", "event", "question")}
    # What JSON cannot say comes back as a text: readers print JSON.
    said = json.loads(json.dumps(told), parse_constant=lambda one: str(float(one)))
    assert {name: fact[name] for name in told} == said
    assert (fact["event"], fact["seq"], fact["at"]) == ("my:event", 3, 1.0)


hostile = st.fixed_dictionaries(
    {"event": st.sampled_from(["decision", "verdict", "agreed"]) | texts},
    optional={
        "question": st.binary(max_size=10) | json_maps.map(msgpack.packb) | st.just(msgpack.packb(QUESTION)),
        "outcome": st.sampled_from(["continue", "deny", 5, None, []]),
        "final_tool": texts | st.none(),
        "verdicts": st.none() | st.lists(texts),
    },
)


@given(hostile.map(msgpack.packb) | st.binary(max_size=50))
def test_what_others_wrote_is_a_fact_or_refused_and_nothing_else(body):
    item = packing.Item(bytes(16), 0, body, None)
    try:
        facts = record.read_facts(item)
    except CodecError:
        return
    assert all(isinstance(fact["event"], str) for fact in facts)
