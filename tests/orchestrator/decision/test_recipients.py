"""Who is asked: a required scheduler always, but for what the plan or its own signed word leave out."""

import pytest
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.transport.ports import Member
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.link.recipients import RecipientCache
from toolgate_orchestrator.decision.link.scheduler_info import SchedulerInfo, newest, select_trusted

pytestmark = pytest.mark.pure

KEYRING = Keyring({"policy": b"k" * 16}, "default")


def audience(config, *announced, tool="pay", keyring=None):
    return RecipientCache(parse(config), keyring).of(tool, {one.name: one for one in announced}, 1)


def policy(*tools, **fields):
    return SchedulerInfo("policy", 0, tools, fields.pop("shadow", False), **fields)


@pytest.mark.parametrize("one", [policy(), policy("read"), policy(shadow=True), policy("read", gone=True)])
def test_a_required_scheduler_is_asked_whatever_the_roster_says(one):
    found = audience({"required": ["policy"]}, one)
    assert found.names == ("policy",)
    assert found.required == {"policy": True}
    assert found.shadows == frozenset()


def test_only_its_own_signed_word_and_the_plan_narrow_what_a_required_one_is_asked():
    required = {"required": ["policy"]}
    assert audience(required, policy("read"), keyring=KEYRING).names == ("policy",)
    assert audience(required, policy("read", signed=True), keyring=KEYRING).names == ()
    assert audience(required, policy("read", signed=True)).names == ("policy",)  # no key: who signed it?
    plan = required | {"schedulers": {"policy": {"tools": ["pay", "read"]}}}
    assert audience(plan, policy("*")).names == ("policy",)
    assert audience(plan, policy("*"), tool="write").names == ()
    assert audience(plan, tool="write").required == {}
    assert audience(plan, policy("read", signed=True), keyring=KEYRING).names == ()


def test_a_plan_narrows_what_an_optional_one_is_asked_and_widens_nothing():
    plan = {"schedulers": {"policy": {"tools": ["pay"]}}}
    assert audience(plan, policy("*")).names == ("policy",)
    assert audience(plan, policy("*"), tool="read").names == ()
    assert audience(plan, policy("read")).names == ()


def test_one_that_vanished_is_asked_and_denies_where_the_plan_says_so():
    gone = policy("*", gone=True)
    assert audience({}, gone).required == {"policy": False}
    assert audience({}, gone).absent == {"policy"}
    assert audience({"on_gone": "deny"}, gone).required == {"policy": True}
    assert audience({"on_gone": "deny"}, policy("*")).required == {"policy": False}
    assert audience({"on_gone": "deny"}, policy("*", gone=True, shadow=True)).required == {}
    assert audience({"required": ["policy"]}).absent == {"policy"}


def test_where_some_replicas_are_signed_the_others_are_not_believed():
    signed = Member("policy", "r1", tools=("pay",), started=3, signed=True)
    forged = Member("policy", "evil", tools=(), started=2**31 - 1)
    found = select_trusted([forged, signed, Member("old", "r1")])
    assert found["policy"] == [signed]
    assert len(found["old"]) == 1


def test_the_newest_start_of_those_alive_counts_and_of_the_gone_where_nobody_is():
    old, new = Member("policy", "r1", started=3), Member("policy", "r2", started=4, gone=True)
    assert newest([old, new]) == old
    assert newest([new, Member("policy", "r3", started=2, gone=True)]) == new
