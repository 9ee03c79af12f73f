"""The time of a call counts from the verdict: with its wait for a slot, and for a tool that is full."""

import pytest
from toolgate_schedulers.shipped.score.outcomes import IN_A_ROW, Outcomes
from toolgate_schedulers.shipped.score.score import Option, rank_keys, rate_options
from toolgate_schedulers.shipped.score.sums import EXPECTED_S, FULL_S, MAX_FULL_S

pytestmark = pytest.mark.pure

OPTIONS = [Option("a", 0, 1.0, True), Option("b", 0, 1.2, False)]


def let(outcomes, decision, tool, now, waited=0.0):
    told = {"event": "decision", "id": decision, "outcome": "continue", "tool_name": tool}
    outcomes.hear(told | ({"waited": waited} if waited else {}), now)


def end(outcomes, tool, well, now, decision="", **fields):
    told = {"event": "tool:post" if well else "tool:error", "tool": tool, "decision_id": decision}
    outcomes.hear({**told, "seconds": 1.0, **fields}, now)


def first(outcomes, now):
    return rank_keys(OPTIONS, outcomes, now, 0, 1)[0].option.key


def known(well=20):
    outcomes = Outcomes([["a", "b"]])
    for number in range(well):
        for tool in "ab":
            end(outcomes, tool, True, 0.0, f"{tool}{number}")
    return outcomes


def test_a_call_goes_where_it_need_not_wait_for_a_slot_until_the_queue_is_gone():
    outcomes = known()
    let(outcomes, "d1", "a", 10.0, waited=8.0)
    end(outcomes, "a", True, 11.0, "d1")
    assert first(outcomes, 11.0) == "b"
    assert outcomes.performance("a", 12.0).wait_s == 6.0  # nobody came: the queue is shorter by that
    assert first(outcomes, 18.0) == "a"


def test_of_waits_that_of_the_call_that_came_last_counts():
    outcomes = known()
    let(outcomes, "urgent", "a", 100.0)
    let(outcomes, "batch", "a", 101.0, waited=60.0)  # it came before, and had to let others pass
    assert outcomes.performance("a", 101.0).wait_s == 0.0
    let(outcomes, "next", "a", 103.0, waited=2.0)
    assert outcomes.performance("a", 103.0).wait_s == 2.0


def test_where_calls_wait_one_that_is_not_let_through_yet_counts_as_under_way():
    outcomes = known()
    let(outcomes, "d1", "a", 10.0, waited=8.0)
    for tool in "ab":
        outcomes.expect(f"waits-{tool}", tool, 10.0)
    later = 10.0 + 2 * EXPECTED_S
    assert [outcomes.performance(tool, later).under_way for tool in "ab"] == [2, 0]
    assert outcomes.performance("a", 10.0 + 40.0).under_way == 0  # it is lost, or a person thinks about it


def test_a_wait_for_a_slot_is_the_queue_and_no_duration_of_the_tool():
    outcomes = known()
    for number in range(5):
        outcomes.expect(f"d{number}", "a", 0.0)
    for number in range(5):  # one at a time
        let(outcomes, f"d{number}", "a", float(number), waited=float(number))
        end(outcomes, "a", True, number + 1.0, f"d{number}")
    found = outcomes.performance("a", 5.0)
    assert (found.median_s, found.under_way) == (1.0, 0)
    assert found.place_s == pytest.approx(1.0, abs=0.1)  # each that is before it takes a second
    busy = found._replace(under_way=3, wait_s=0.5)
    assert rate_options([OPTIONS[0]._replace(performance=busy)], 0, 1)[0].seconds > 3


@pytest.mark.parametrize(
    ("told", "seconds"),
    [({"signal": "429"}, FULL_S), ({"retry_after": 7.0}, 7.0), ({"retry_after": 9000}, MAX_FULL_S)],
)
def test_one_that_refuses_since_there_are_too_many_is_full_for_a_while_and_not_bad(told, seconds):
    outcomes = known()
    before = outcomes.performance("a", 1.0).success
    for _ in range(2 * IN_A_ROW):  # those that were under way say nothing new
        end(outcomes, "a", False, 1.0, **told)
    assert (first(outcomes, 1.0), first(outcomes, 0.99 + seconds)) == ("b", "b")
    assert first(outcomes, 1.0 + seconds) == "a"
    assert outcomes.performance("a", 1.0).success == pytest.approx(before, abs=0.01)
    assert not outcomes.changes


def test_refused_again_at_once_it_is_left_for_twice_as_long_until_a_success():
    outcomes, now = known(), 1.0
    for seconds in (FULL_S, 2 * FULL_S, 4 * FULL_S):
        end(outcomes, "a", False, now, signal="429")
        assert not outcomes.performance("a", now + seconds - 0.01).is_usable
        now += seconds
        assert outcomes.performance("a", now).is_usable
    end(outcomes, "a", True, now)
    end(outcomes, "a", False, now, signal="429")
    assert outcomes.performance("a", now + FULL_S).is_usable


def test_a_try_that_is_refused_has_failed():
    outcomes = known()
    for _ in range(IN_A_ROW):
        end(outcomes, "a", False, 1.0)
    end(outcomes, "a", False, 11.0, signal="429")
    assert not outcomes.performance("a", 11.0 + FULL_S).is_usable


@pytest.mark.parametrize(
    "told", [{"waited": -1}, {"waited": "x"}, {"waited": True}, {"waited": float("nan")}]
)
def test_a_wait_of_another_form_is_none(told):
    outcomes = known()
    outcomes.hear({"event": "decision", "id": "d", "outcome": "continue", "tool_name": "a", **told}, 1.0)
    end(outcomes, "a", False, 1.0, signal=["429"], retry_after="soon")
    assert outcomes.performance("a", 1.0).wait_s == 0.0
    assert outcomes.performance("a", 1.0).is_usable
