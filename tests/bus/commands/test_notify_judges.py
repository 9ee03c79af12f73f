"""What is told, and when: each cause once, by times that are given."""

from typing import get_args

import pytest
from toolgate_bus.commands.notify.config import BudgetCause, ChangeCause, ChangeEvent, HeldCause
from toolgate_bus.commands.notify.judges import CallOnHold, judge_budgets, judge_change, judge_held
from toolgate_bus.commands.notify.notification import describe
from toolgate_bus.fleet.books import Book
from toolgate_bus.ledger.money.ledger import Balance
from toolgate_bus.ledger.money.limits import BudgetDescription
from toolgate_bus.state.changes import EVENTS, ConfigChange

pytestmark = pytest.mark.pure

CALL = CallOnHold("c1", "approval", "transfer", "teller", {"team": "pay"}, 900.0)


def told(found):
    """Keys and stages."""
    return [(one.key, one.stage) for one in found]


def test_a_held_call_is_told_again_so_often_and_its_end_once():
    known, cause = {}, HeldCause(repeat_s=60)
    found = [told(judge_held(known, [CALL], {}, now, cause)) for now in (0, 59, 60, 119, 120)]
    assert found == [
        [("held:c1:0", "open")],
        [],
        [("held:c1:1", "repeat")],
        [],
        [("held:c1:2", "repeat")],
    ]
    (end,) = judge_held(known, [], {"c1": "approved"}, 130, cause)
    assert (end.key, end.stage, end.fields["end"]) == ("held:c1:end", "closed", "approved")
    assert told(judge_held(known, [], {}, 140, cause)) == []


def test_a_long_absence_brings_one_repeat_and_not_one_for_each_time_missed():
    known, cause = {}, HeldCause(repeat_s=60)
    list(judge_held(known, [CALL], {}, 0, cause))
    assert len(list(judge_held(known, [CALL], {}, 6000, cause))) == 1


def test_a_call_that_is_not_to_be_repeated_is_told_once():
    known, cause = {}, HeldCause(repeat_s=0, tell_end=False)
    found = [
        told(judge_held(known, calls, {}, now, cause))
        for now, calls in ((0, [CALL]), (1e6, [CALL]), (2e6, []))
    ]
    assert found == [[("held:c1:0", "open")], [], []]


def book(spent, reserved=0, window=0, level="fleet", window_s=0):
    budget = BudgetDescription("daily", level, 1000, window_s, "USD")
    balance = Balance("daily/fleet", window, 1000, spent, reserved)
    return [Book("budget", {"daily": budget}, {}, [balance])]


def thresholds(known, books, now=0.0, **cause):
    return [one.fields["threshold"] for one in judge_budgets(known, books, now, BudgetCause(**cause))]


def test_a_threshold_is_told_once_in_each_window_and_of_several_the_highest():
    known = {}
    steps = [(499, 0), (500, 0), (510, 0), (990, 0), (990, 10), (1000, 0), (1000, 0)]
    found = [thresholds(known, book(*step, window_s=86_400)) for step in steps]
    assert found == [[], [50], [], [80], [100], [], []]
    tomorrow = 86_400.0
    assert thresholds(known, book(900, window=0, window_s=86_400), tomorrow) == []
    assert thresholds(known, book(900, window=1, window_s=86_400), tomorrow) == [80]


def test_what_is_only_held_for_calls_that_run_passes_the_last_threshold_alone():
    assert thresholds({}, book(400, 590)) == []
    assert thresholds({}, book(400, 600)) == [100]


def test_the_account_of_a_session_is_told_of_only_where_that_is_wanted():
    assert thresholds({}, book(1000, level="session")) == []
    assert thresholds({}, book(1000, level="session"), each=True) == [100]


def test_of_a_change_the_words_of_people_stay_where_they_are():
    change = ConfigChange("rollout:undone", "policy", "v8@2", "v7@1", author="eve", why="planted")
    (one,) = judge_change("1-0", change, 5.0, ChangeCause())
    assert describe(one) == "rollout undone: policy from v7@1 to v8@2 by eve"
    assert "planted" not in repr(one)
    pushed = change._replace(event="config:pushed")
    assert list(judge_change("2-0", pushed, 5.0, ChangeCause())) == []
    assert len(list(judge_change("2-0", pushed, 5.0, ChangeCause(events=["config:pushed"])))) == 1


def test_every_event_of_the_record_of_changes_can_be_named():
    assert set(get_args(ChangeEvent)) == EVENTS


def test_a_name_with_ends_of_lines_and_control_characters_stays_on_one_line():
    call = CALL._replace(tool="transfer\nToolgate fleet: all is well", agent="\x1b[2Jteller\u202e")
    (one,) = judge_held({}, [call], {}, 0.0, HeldCause())
    assert describe(one).isprintable()
    assert "transfer\\u000aToolgate" in describe(one)
