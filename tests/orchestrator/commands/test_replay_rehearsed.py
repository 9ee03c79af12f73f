"""Recorded calls on their own times: who would have waited for a slot or another call, reckoned by hand."""

import pytest
from toolgate_bus.protocol.events import Continue, Deny, ReceivedVerdict
from toolgate_bus.ruling.counterfactual import DecisionRecord, ProposedCall
from toolgate_orchestrator.commands.replay.recorded_decisions import RecordedDecision
from toolgate_orchestrator.commands.replay.rehearsed import CallEstimate, list_figures, play
from toolgate_schedulers.shipped.policy.rehearsal import OrderRehearsal
from toolgate_schedulers.shipped.policy.scheduler import PolicyConfig
from toolgate_schedulers.shipped.slots.config import SlotsConfig
from toolgate_schedulers.shipped.slots.rehearsal import SlotsRehearsal
from toolgate_schedulers.testing import question

pytestmark = pytest.mark.pure
EPOCH = 1_700_000_000.0
DESK = {"name": "desk", "tools": "type", "limit": 1, "wait_s": 60, "share": {"by": "agent"}}


def call(name, at, runs=5.0, *, tool="type", session=None, denied=False, **more):
    """A recorded call: decided at once at that second, and run for so many; `deny` was somebody's word."""
    known = {"thinks": 0.0, "waited": 0.0, "arguments": {}, "said": ()} | more
    asked = question(
        tool, known["arguments"], id=f"{name:0>32}", session=session or name, agent=name[0], labels={}
    )
    own = ProposedCall(tool, known["arguments"])
    heard = [ReceivedVerdict("other", Deny(reason="no"))] if denied else []
    ruled = DecisionRecord(
        own,
        own,
        "deny" if denied else "continue",
        "denied" if denied else "agreed",
        (*heard, *known["said"]),
        scheduler="other" if denied else None,
    )
    seconds = known["thinks"] + known["waited"]
    ran = None if denied else {"event": "tool:post", "success": known.get("success", True)}
    ended = None if denied else EPOCH + at + seconds + runs
    return RecordedDecision(asked, ruled, EPOCH + at + seconds, ran, seconds, known["waited"], ended)


def slots(*pools):
    return {"slots": SlotsRehearsal(SlotsConfig(pools=pools))}


def order(*rules):
    return {"policy": OrderRehearsal(PolicyConfig(rules=rules))}


def played(calls, rehearsals):
    names = frozenset(rehearsals)
    return play([(one, CallEstimate(one.ruled, without=names)) for one in calls], rehearsals)


def waits(timed):
    return [round(one.waited_s, 3) for one in timed]


def kinds(timed):
    return [one.effect.kind for one in timed]


def test_who_came_to_one_desk_waits_for_those_before_it():
    # ada 0–5; bob came at 1 and waits until 5, has it until 10; cleo came at 2 and waits until 10.
    calls = [call("ada", 0), call("bob", 1), call("cleo", 2)]
    timed = played(calls, one := slots(DESK))
    assert (waits(timed), kinds(timed)) == ([0, 4, 8], ["run"] * 3)
    (row,) = list_figures(one)
    assert (row["scheduler"], row["pool"], row["calls"], row["waited"], row["denied"]) == (
        "slots",
        "desk",
        3,
        2,
        0,
    )
    assert (row["median_wait_s"], row["longest_wait_s"], row["most_waiting"], row["busy"]) == (4, 8, 2, 1)
    assert [(one["tenant"], one["seconds"]) for one in row["tenants"]] == [("a", 5), ("b", 5), ("c", 5)]


def test_with_two_desks_only_the_third_waits_and_until_the_first_is_done():
    timed = played([call("ada", 0), call("bob", 1), call("cleo", 2)], slots({**DESK, "limit": 2}))
    assert waits(timed) == [0, 0, 3]


def test_who_waits_in_vain_is_denied_and_leaves_its_turn_to_the_next():
    # bob gives up at 4, so that cleo has the desk as soon as ada leaves it.
    calls = [call("ada", 0), call("bob", 1), call("cleo", 3)]
    timed = played(calls, one := slots({**DESK, "wait_s": 3}))
    assert (waits(timed), kinds(timed)) == ([0, 3, 2], ["run", "deny", "run"])
    assert timed[1].effect.scheduler == "slots"
    assert "waited 3 s in vain" in timed[1].effect.reason
    assert list_figures(one)[0]["denied"] == 1


def test_who_never_waits_is_denied_at_once_and_stands_in_nobodys_way():
    timed = played([call("ada", 0), call("bob", 1), call("cleo", 6)], slots({**DESK, "wait_s": 0}))
    assert (waits(timed), kinds(timed)) == ([0, 0, 0], ["run", "deny", "run"])


def test_what_a_session_does_afterwards_comes_as_much_later_as_it_waited():
    # b1 waits 4 s for ada; b2 came a second after it, and comes at 11. ada's second has the desk until 12.
    calls = [
        call("ada", 0),
        call("bob1", 1, session="bob"),
        call("bob2", 7, session="bob"),
        call("ada2", 10, runs=2.0),
    ]
    timed = played(calls, slots(DESK))
    assert waits(timed) == [0, 4, 1, 0]
    assert timed[2].began == EPOCH + 12


def test_a_record_of_slots_that_is_played_with_the_same_pools_gives_the_same_waits():
    said = (ReceivedVerdict("slots", Continue(fence=2), 100, "admit", 4.0),)
    calls = [
        call("ada", 0),
        call("bob1", 1, session="bob", waited=4.0, said=said),
        call("bob2", 11, session="bob"),
    ]
    assert waits(played(calls, slots(DESK))) == [0, 4, 0]
    assert waits(played(calls, slots({**DESK, "limit": 2}))) == [0, 0, 0]


def test_turns_go_by_weight_and_the_same_record_gives_the_same_each_time():
    share = {"by": "agent", "weights": {"g": 3.0, "s": 1.0}}
    calls = [call(f"{'gs'[number % 2]}{number}", number / 100, runs=1.0) for number in range(40)]
    found = [played(calls, one := slots({**DESK, "share": share})) for _ in "12"]
    assert waits(found[0]) == waits(found[1])
    began = sorted(found[0], key=lambda one: one.began)[:20]
    assert sum(one.question.agent == "g" for one in began) == 15
    tenants = {row["tenant"]: row["seconds"] for row in list_figures(one)[0]["tenants"]}
    assert tenants == {"g": 20.0, "s": 20.0}


def test_what_others_denied_takes_no_slot_and_what_runs_now_runs_as_long_as_others_of_its_tool():
    calls = [call("ada", 0, denied=True), call("bob", 1), call("cleo", 2)]
    assert (waits(timed := played(calls, slots(DESK))), kinds(timed)) == ([0, 0, 4], ["deny", "run", "run"])
    freed = [(one, CallEstimate(one.ruled, without=frozenset({"slots", "other"}))) for one in calls]
    timed = play(freed, slots(DESK))
    assert (waits(timed), kinds(timed)) == ([0, 4, 8], ["run"] * 3)


def test_thinking_holds_no_slot():
    calls = [call("ada", 0, thinks=30.0), call("bob", 1)]
    assert waits(played(calls, slots(DESK))) == [0, 0]


AFTER = {"name": "tests first", "tools": "deploy", "after": {"tool": "test", "within_s": 60}}


@pytest.mark.parametrize(
    ("earlier", "kind"),
    [
        ([call("t", 0, tool="test", session="s")], "run"),
        ([call("t", 0, tool="test", session="s", success=False)], "deny"),
        ([call("t", 0, tool="test", session="other")], "deny"),
        ([call("t", 0, tool="test", session="s", denied=True)], "deny"),
        ([call("t", 0, 0.5, tool="test", session="s")], "run"),
        ([call("t", -70, tool="test", session="s")], "deny"),  # it ended 75 s before
        ([call("t", 8, tool="test", session="s")], "deny"),  # it is under way
        ([], "deny"),
    ],
)
def test_a_call_after_another_is_judged_by_what_had_ended_when_it_came(earlier, kind):
    timed = played([*earlier, call("d", 10, tool="deploy", session="s")], order(AFTER))
    assert timed[-1].effect.kind == kind
    assert timed[-1].effect.scheduler == (None if kind == "run" else "policy")


def test_with_wait_s_it_waits_for_what_is_under_way_and_no_longer():
    calls = [call("t", 8, 5.0, tool="test", session="s"), call("d", 10, tool="deploy", session="s")]
    assert (waits(timed := played(calls, order({**AFTER, "wait_s": 30}))), kinds(timed)) == (
        [0, 3],
        ["run", "run"],
    )
    timed = played(calls, order({**AFTER, "wait_s": 2}))
    assert (waits(timed), kinds(timed)) == ([0, 2], ["run", "deny"])
    assert "waited 2 s in vain" in timed[1].effect.reason


def test_a_call_that_the_rules_themselves_deny_came_before_nothing():
    # The third within 10 s is denied at once, so that the fourth comes at 12, as the third that runs.
    few = {"tools": "type", "at_most": {"n": 2, "within_s": 10, "scope": "session"}}
    calls = [call(f"c{at}", at, 1.0, session="s") for at in (0, 2, 4, 13)]
    assert kinds(played(calls, order(few))) == ["run", "run", "deny", "run"]
    chain = [{"tools": "b", "after": {"tool": "a"}}, {"tools": "c", "after": {"tool": "b"}}]
    calls = [call(f"c{at}", at, 1.5, tool=tool, session="s") for at, tool in enumerate("bcabc")]
    assert kinds(played(calls, order(*chain))) == ["deny", "deny", "run", "deny", "deny"]  # a runs yet
    calls = [call(f"c{at}", 3 * at, 1.0, tool=tool, session="s") for at, tool in enumerate("bcabc")]
    assert kinds(played(calls, order(*chain))) == ["deny", "deny", "run", "run", "run"]


def test_unless_after_counts_what_runs_and_what_has_run():
    rule = {"tools": "send", "unless_after": {"tool": "read", "when": {"path": "*.pem"}}}
    secret, plain = {"arguments": {"path": "a.pem"}}, {"arguments": {"path": "a.txt"}}
    for earlier, kind in ((secret, "deny"), (plain, "run")):
        for at in (1, 9):
            calls = [
                call("r", at, tool="read", session="s", **earlier),
                call("m", 10, tool="send", session="s"),
            ]
            assert kinds(played(calls, order(rule))) == ["run", kind]


def test_who_waits_for_another_asks_for_its_slot_only_then():
    # The deployment waits for the tests until 13, and asks for the desk then, which ann has from 11 to 14.
    calls = [
        call("t", 8, 5.0, tool="test", session="s"),
        call("d", 10, 5.0, tool="deploy", session="s"),
        call("ann", 11, 3.0),
    ]
    pool = {**DESK, "tools": ["deploy", "type"]}
    timed = played(calls, {**order({**AFTER, "wait_s": 30}), **slots(pool)})
    assert waits(timed) == [0, 3 + 1, 0]
    assert timed[1].waited == {"policy": 3.0, "slots": 1.0}
