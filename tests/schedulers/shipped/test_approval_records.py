"""`approval`: which calls need a person, what is kept of them, and the verdict that an answer becomes."""

import pytest
from approval_calls import ID, RULES, call, config
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.events import Continue, Deny, Modify
from toolgate_schedulers.author.forms import as_scheduler
from toolgate_schedulers.shipped.approval.config import find_rule, tools_of
from toolgate_schedulers.shipped.approval.messages import verdict_of
from toolgate_schedulers.shipped.approval.records import (
    Approval,
    ApprovalAnswer,
    digest,
    pack_record,
    unpack_record,
)
from toolgate_schedulers.shipped.approval.scheduler import ApprovalScheduler

pytestmark = pytest.mark.pure


# ---------------------------------------------------------------------- which calls need a person


def test_the_first_rule_that_fits_counts_and_other_calls_need_nobody():
    assert find_rule(config(), call(amount=9)) is None
    assert find_rule(config(), call(amount=10)).called == "money"
    assert find_rule(config(), call("refund")).called == "rule 4"
    assert find_rule(config(), call("ls")) is None


def test_it_is_asked_only_about_tools_that_can_need_a_person():
    made = as_scheduler(ApprovalScheduler(config()))
    assert made.tools == tools_of(config()) == ("transfer", "file_*", "app", "refund")


def test_always_is_bound_to_what_a_rule_says_and_not_to_its_place():
    before = find_rule(config(), call(amount=10)).key
    moved = RULES.replace("rules:", "rules:\n  - {tools: other}")
    assert find_rule(config(moved), call(amount=10)).key == before
    assert find_rule(config(RULES.replace("Sure?", "Really?")), call(amount=10)).key != before


def test_always_is_bound_to_the_schema_of_a_rule():
    text = "rules: [{tools: pay, schema: {required: [amount], properties: {amount: {maximum: %d}}}}]"
    keys = {find_rule(config(text % most), call("pay", amount=9)).key for most in (10, 10, 5000)}
    assert len(keys) == 2


@pytest.mark.parametrize(
    "amount", [[5, 5000], "[5, 5000]", '{"a": 5, "b": 5000}', "['5', 5000]", {"a": 5}, "some"]
)
def test_always_lets_nothing_pass_that_fits_in_part(amount):
    small = config("rules: [{tools: pay, when: {amount: {lte: 10}}}, {tools: pay}]")
    assert find_rule(small, call("pay", amount=5)).always
    assert find_rule(small, call("pay", amount=[5, 6])).always
    assert not find_rule(small, call("pay", amount=amount)).always


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rules: []", "rules: "),
        ("rules: [{tools: a, via: hold, options: [x, y]}]", "options: only for via: ask_user"),
        ("rules: [{tools: a, action: allow, expires_s: 5}]", "expires_s: only for action: ask"),
        ("rules: [{tools: a, expires_s: 90000}]", "rules.0.expires_s: "),
        ("rules: [{tools: a, notify: me}]", "rules.0.notify: unknown key; allowed: action, agent"),
        ("rules: [{tools: a, always: 1}]", "rules.0.always: "),
    ],
)
def test_a_wrong_config_is_refused_by_field(text, words):
    with pytest.raises(ConfigError) as refusal:
        config(text)
    assert words in str(refusal.value)


# ---------------------------------------------------------------------- the digest

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(st.text(max_size=3), PLAIN, max_size=4)


def plain(value):
    """The value, so that what JSON tells apart is told apart: true is not 1."""
    if isinstance(value, dict):
        return {key: plain(child) for key, child in value.items()}
    return [plain(child) for child in value] if isinstance(value, list) else (type(value), value)


@given(ARGUMENTS, ARGUMENTS)
def test_calls_have_the_same_digest_exactly_if_they_are_the_same_call(one, other):
    assert (digest("t", one) == digest("t", other)) == (plain(one) == plain(other))


@given(ARGUMENTS)
def test_the_order_of_arguments_says_nothing_and_tool_and_agent_say_something(arguments):
    turned = dict(reversed(arguments.items()))
    assert digest("t", arguments) == digest("t", turned)
    assert len({digest("t", arguments), digest("u", arguments), digest("t", arguments, "anna")}) == 3


@given(st.binary(max_size=200))
def test_bytes_that_are_no_record_are_none(raw):
    assert unpack_record(ApprovalAnswer, raw) is None
    assert unpack_record(Approval, raw) is None


# ---------------------------------------------------------------------- what an answer becomes


def test_each_answer_has_its_verdict_and_says_who():
    given_ = ApprovalAnswer(action="approve", decision=ID, digest="d", by="anna", host="desk")
    assert verdict_of(given_, call()) == Continue(reason="approved by anna@desk")
    no = given_.model_copy(update={"action": "deny", "reason": "too much"})
    told = "A person was asked about this call and refused it: too much (anna)"
    assert verdict_of(no, call()) == Deny(reason=told)
    edit = given_.model_copy(update={"action": "edit", "tool": "refund", "arguments": {"a": 1}})
    assert verdict_of(edit, call()) == Modify(
        tool="refund", arguments={"a": 1}, reason="corrected by anna@desk"
    )


def test_a_replacement_is_not_replaced_again_but_refused_with_what_to_call():
    edit = ApprovalAnswer(
        action="edit", decision=ID, digest="d", tool="refund", arguments={"a": 1}, by="anna"
    )
    verdict = verdict_of(edit, call(phase="verify"))
    assert verdict.action == "deny"
    assert 'call refund with {"a": 1} instead' in verdict.reason


# ---------------------------------------------------------------------- records


def test_records_are_what_they_were_after_a_journey():
    approval = Approval(id="a", scheduler="s", digest="d", question=call(amount=1), rule="r", always=True)
    assert unpack_record(Approval, pack_record(approval)) == approval


@given(ARGUMENTS)
def test_arguments_are_kept_to_the_last_null(arguments):
    answer = ApprovalAnswer(action="edit", decision=ID, digest="d", tool="t", arguments=arguments)
    assert unpack_record(ApprovalAnswer, pack_record(answer)) == answer
    approval = Approval(id="a", scheduler="s", digest="d", question=call(given=arguments))
    assert unpack_record(Approval, pack_record(approval)) == approval
