"""The score of alternatives: what it prefers, what it forgets, and what becomes of crowds and of bad ones."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.state.ejections import BACK, FAILURES, FAR_BELOW, TRY
from toolgate_schedulers.shipped.score.ejection import Ejection
from toolgate_schedulers.shipped.score.outcomes import (
    GUESS,
    HALF_LIFE_S,
    IN_A_ROW,
    OUT_S,
    Outcomes,
    Performance,
)
from toolgate_schedulers.shipped.score.score import (
    Option,
    describe,
    ejected,
    rank_keys,
    rank_options,
    rate_options,
)
from toolgate_schedulers.shipped.score.sums import (
    EXPECTED_S,
    HALF_LIFE_GROUP,
    LOST_MIN_S,
    LOST_S,
    LOST_TIMES,
)

pytestmark = pytest.mark.pure

weights = st.floats(0, 1)
performances = st.builds(
    Performance,
    success=st.floats(0.01, 1),
    calls=st.floats(0, 1000),
    median_s=st.floats(0.01, 10),
    usual_s=st.floats(0.01, 100),
    weight=st.floats(0, 43),
    place_s=st.floats(0, 10),
    under_way=st.integers(0, 50),
    wait_s=st.floats(0, 100),
    age_s=st.floats(0, 100),
    failure_cost=st.none() | st.integers(0, 10**9),
)
options = st.lists(
    st.tuples(st.integers(0, 10**9), st.floats(0.001, 1000), performances), min_size=2, max_size=5
).map(
    lambda found: [
        Option(f"t{number}", cost, seconds, number == 0, known)
        for number, (cost, seconds, known) in enumerate(found)
    ]
)


def sure(key, cost, seconds, success=1.0, own=False, **known):
    return Option(key, cost, seconds, own, Performance(success=success, **known))


@given(options, weights, weights, st.data())
def test_dearer_slower_and_worse_never_scores_better(found, for_cost, for_time, data):
    number = data.draw(st.integers(0, len(found) - 1))
    one, others = found[number], [each for each in found if each is not found[number]]
    limits = [Option("dear", 2 * 10**9, 2000, False), *others]  # what is dearest and slowest stays as it is
    worse = [
        one._replace(cost=one.cost + 1000),
        one._replace(seconds=one.seconds + 1),
        one._replace(performance=one.performance._replace(success=one.performance.success * 0.9)),
        one._replace(performance=one.performance._replace(under_way=one.performance.under_way + 5)),
    ]
    score = rate_options([one, *limits], for_cost, for_time)[0].score
    assert all(rate_options([each, *limits], for_cost, for_time)[0].score >= score - 1e-9 for each in worse)


@given(options, weights, weights)
def test_of_idle_and_sure_ones_it_is_the_plain_weighted_sum(found, for_cost, for_time):
    plain = [one._replace(performance=Performance(success=1.0)) for one in found]
    dearest, slowest = max(one.cost for one in found), max(one.seconds for one in found)
    for rating in rate_options(plain, for_cost, for_time):
        cost = for_cost * rating.option.cost / dearest if dearest else 0
        assert rating.score == pytest.approx(cost + for_time * rating.option.seconds / slowest, abs=1e-9)
        assert rating.score <= for_cost + for_time + 1e-9


@given(options, weights, weights, st.integers(2, 1000))
def test_neither_the_currency_nor_the_unit_of_time_matters(found, for_cost, for_time, factor):
    def scaled(one):
        known = one.performance
        times = {
            name: getattr(known, name) * factor
            for name in ("median_s", "usual_s", "place_s", "wait_s", "age_s")
        }
        if known.failure_cost is not None:
            times["failure_cost"] = known.failure_cost * factor
        return one._replace(
            cost=one.cost * factor, seconds=one.seconds * factor, performance=known._replace(**times)
        )

    before = [one.score for one in rate_options(found, for_cost, for_time)]
    after = [one.score for one in rate_options([scaled(one) for one in found], for_cost, for_time)]
    assert after == pytest.approx(before)


def test_cost_and_time_are_those_of_a_success():
    half = rate_options([sure("a", 10, 1, success=0.5), sure("b", 10, 1)], 0.6, 0.4)
    assert [one.score for one in half] == pytest.approx([(0.6 + 0.4 + 0.5) / 0.5, 1.0])


def test_a_request_to_an_llm_that_failed_costs_no_further_request():
    half = rate_options([sure("llm:a/m", 10, 1, success=0.5), sure("llm:b/m", 10, 1)], 0.6, 0.4)
    assert [one.score for one in half] == pytest.approx([(0.6 + 0.4) / 0.5, 1.0])


def test_a_cheap_tool_that_always_fails_is_not_the_first():
    outcomes = Outcomes([["cheap", "dear"]])
    for number in range(31):
        end(outcomes, "cheap", False, number * 0.1)
        end(outcomes, "dear", True, number * 0.1)
    ranked = rank_keys([Option("cheap", 2, 1, False), Option("dear", 40, 1, True)], outcomes, 4.0, 0.6, 0.4)
    assert [one.option.key for one in ranked] == ["dear", "cheap"]


def test_what_a_failed_call_costs_counts():
    free = sure("free", 10, 1, success=0.5, failure_cost=0)
    paid = free._replace(key="paid", performance=free.performance._replace(failure_cost=10))
    assert [one.cost for one in rate_options([free, paid], 1, 0)] == [5, 10]


def test_near_equals_leave_the_call_as_it_is():
    assert rank_options([sure("a", 100, 1), sure("b", 103, 1, own=True)], 1, 0)[0].option.key == "b"
    assert rank_options([sure("a", 100, 1), sure("b", 120, 1, own=True)], 1, 0)[0].option.key == "a"


def test_an_ejected_one_comes_last_however_cheap_it_is():
    ranked = rank_options([sure("a", 1, 1, is_usable=False), sure("b", 100, 1, own=True)], 1, 0)
    assert [one.option.key for one in ranked] == ["b", "a"]


def test_the_reason_says_what_is_known():
    rating = rate_options([sure("median_search", 20_000, 0.4, success=0.97, calls=210)], 0.6, 0.4)[0]
    words = describe("median_search", rating, "USD")
    assert words == "median_search: 0.02 USD, 0.4 s, 97 % of 210"
    assert describe("median_search", rating) == "median_search: 0.4 s, 97 % of 210"


# ---------------------------------------------------------------------- outcomes


def begin(outcomes, decision, tool, now):
    told = {"event": "decision", "id": decision, "outcome": "continue", "tool_name": tool}
    outcomes.hear(told, now)


def end(outcomes, tool, well, now, decision="", seconds=1.0, **fields):
    told = {"event": "tool:post" if well else "tool:error", "tool": tool, "decision_id": decision}
    outcomes.hear({**told, "seconds": seconds, **fields}, now)


def success(outcomes, key, now):
    return outcomes.performance(key, now).success


def test_of_a_new_one_nothing_is_known_and_it_is_good_enough_to_be_tried():
    assert success(Outcomes([["a", "b"]]), "a", 0.0) == GUESS


@given(st.lists(st.booleans(), min_size=1, max_size=80), st.floats(1, 20))
def test_what_was_is_forgotten_with_time_and_with_the_calls_of_others(results, times):
    by_time, by_group = Outcomes([["a", "b"]]), Outcomes([["a", "b"]])
    for well in results:
        end(by_time, "a", well, 0.0)
        end(by_group, "a", well, 0.0)
    far = abs(success(by_time, "a", 0.0) - GUESS)
    for _ in range(round(times * HALF_LIFE_GROUP)):
        end(by_group, "b", True, 0.0)
    for outcomes, now in ((by_time, times * HALF_LIFE_S), (by_group, 0.0)):
        nearer = abs(success(outcomes, "a", now) - GUESS)
        assert nearer <= far + 1e-9
        assert nearer <= 20 * 0.5**times + 1e-9


def test_the_last_calls_of_a_busy_tool_count_most():
    outcomes = Outcomes([["a", "b"]])
    for _ in range(1000):
        end(outcomes, "a", True, 0.0)
    for number in range(60):
        end(outcomes, "a", number % 2 == 0, 1.0)
    assert success(outcomes, "a", 1.0) < 0.7


def test_calls_under_way_are_counted_from_the_verdict_to_the_end():
    outcomes, now = Outcomes([["a", "b"]]), 0.0
    outcomes.expect("d1", "a", now)
    begin(outcomes, "d1", "a", 0.1)  # the fact of the same call
    begin(outcomes, "d2", "a", 0.1)
    begin(outcomes, "d3", "other", 0.1)
    outcomes.expect("d4", "b", 0.2)
    assert [outcomes.performance(key, 0.2).under_way for key in "ab"] == [2, 1]
    begin(outcomes, "d4", "a", 0.3)  # another scheduler had its way
    assert [outcomes.performance(key, 0.3).under_way for key in "ab"] == [3, 0]
    end(outcomes, "a", True, 1.0, "d1")
    outcomes.hear({"event": "tool:unused", "tool": "a", "decision_id": "d2"}, 1.0)
    outcomes.hear({"event": "decision", "id": "d4", "outcome": "deny", "tool_name": "a"}, 1.0)
    assert outcomes.performance("a", 1.0).under_way == 0


def test_a_call_whose_end_is_never_heard_is_given_up():
    outcomes = Outcomes([["a", "b"]])
    outcomes.expect("d1", "a", 0.0)
    begin(outcomes, "d2", "b", 0.0)
    begin(outcomes, "d3", "b", EXPECTED_S)
    assert [outcomes.performance(key, EXPECTED_S).under_way for key in "ab"] == [0, 2]
    begin(outcomes, "d4", "b", LOST_S + 1)
    assert outcomes.performance("b", LOST_S + 1).under_way == 2


def test_a_lost_call_of_a_tool_that_is_known_is_given_up_long_before():
    outcomes = Outcomes([["a", "b"]])
    for number in range(20):
        end(outcomes, "a", True, number, seconds=0.5)
    begin(outcomes, "lost", "a", 20.0)
    assert outcomes.performance("a", 20.0 + LOST_MIN_S - 1).under_way == 1
    assert outcomes.performance("a", 20.0 + LOST_MIN_S).under_way == 0
    for number in range(60):
        end(outcomes, "b", True, number, seconds=10.0)
    begin(outcomes, "late", "b", 60.0)
    assert outcomes.performance("b", 60.0 + LOST_TIMES * 10.0 - 1).under_way == 1


def test_what_a_queue_added_is_no_duration_of_a_tool_that_is_idle_now():
    outcomes = Outcomes([["a", "b"]])
    for number in range(12):
        begin(outcomes, f"d{number}", "a", 0.0)
    for number in range(12):  # four at a time, each for a second
        end(outcomes, "a", True, 1.0 + number // 4, f"d{number}", seconds=1.0 + number // 4)
    known = outcomes.performance("a", 5.0)
    assert (known.median_s, known.usual_s) == (1.0, 1.0)
    assert 0.2 < known.place_s < 0.4  # what waits are told by
    assert known.weight > 9


def test_failures_that_come_at_once_do_not_make_a_tool_fast_and_long_ones_make_it_slow():
    outcomes = Outcomes([["a", "b"]])
    for number in range(10):
        end(outcomes, "a", True, number, seconds=1.0)
        end(outcomes, "a", number % 3 == 0, number, seconds=1.0 if number % 3 == 0 else 0.01)
    assert outcomes.performance("a", 10.0).median_s == pytest.approx(1.0)
    end(outcomes, "a", False, 10.0, seconds=60.0)
    assert outcomes.performance("a", 10.0).median_s > 1.1


def test_one_call_that_takes_long_makes_a_known_tool_little_slower_and_many_make_it_slow():
    def seconds(under_way):
        known = Performance(1.0, 40, 1.0, 1.0, weight=40.0, under_way=under_way, age_s=50.0)
        return rate_options([Option("a", 0, 1.0, True, known)], 0, 1)[0].seconds

    assert seconds(1) < 1.2
    assert 5 < seconds(40) < 10


def test_an_agent_whose_work_is_not_done_has_failed_though_its_call_succeeded():
    outcomes = Outcomes([["agent senior", "agent junior"]])
    for number in range(20):
        named = {"decision_id": f"d{number}", "tool": "delegate"}
        told = {"event": "decision", "id": f"d{number}", "outcome": "modify", "tool_name": "delegate"}
        outcomes.hear({**told, "final_agent": "junior", "agent_target": "senior"}, 0.0)
        status = {"event": "delegate:agent_completed", "agent_target": "junior", "status": "incomplete"}
        outcomes.hear({**named, **status}, 1.0)
        end(outcomes, "delegate", True, 1.0, f"d{number}")
    assert success(outcomes, "agent junior", 1.0) < 0.2
    assert success(outcomes, "agent senior", 1.0) == GUESS


def test_models_are_told_apart_by_provider_and_name():
    outcomes = Outcomes([["llm:a/m", "llm:b/m"]])
    for number in range(20):
        sent = {"provider": "b", "model": "m"}
        told = {"event": "decision", "id": f"d{number}", "outcome": "continue", "tool_name": "llm:request"}
        outcomes.hear({**told, "tool_input": sent}, 0.0)
        outcomes.hear({"event": "provider:error", "decision_id": f"d{number}", **sent}, 1.0)
    assert success(outcomes, "llm:b/m", 1.0) < 0.2
    assert success(outcomes, "llm:a/m", 1.0) == GUESS


anything = st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5), st.lists, max_leaves=3)


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(
                ["event", "id", "decision_id", "tool", "seconds", "cost", "final_tool", "agent_target"]
            ),
            st.sampled_from(["decision", "tool:post", "tool:error", "usage", "a", "d"]) | anything,
        ),
        max_size=20,
    )
)
def test_facts_may_hold_anything(facts):
    outcomes = Outcomes([["a", "b"]])
    for number, fact in enumerate(facts):
        outcomes.hear(fact, float(number))
        known = outcomes.performance("a", float(number))
        assert 0 <= known.success <= 1
        assert known.under_way >= 0


# ---------------------------------------------------------------------- ejection


def test_after_failures_running_it_gets_no_calls_and_then_one_at_a_time():
    outcomes, now = Outcomes([["a", "b"]]), 0.0
    for _ in range(IN_A_ROW):
        end(outcomes, "a", False, now)
    assert not outcomes.performance("a", OUT_S - 0.1).is_usable
    assert outcomes.performance("a", OUT_S).is_usable
    outcomes.expect("d1", "a", OUT_S)
    assert not outcomes.performance("a", OUT_S + 1).is_usable
    end(outcomes, "a", True, OUT_S + 1, "d1")
    back = outcomes.performance("a", OUT_S + 1)
    assert back.is_usable
    assert back.success > GUESS


def test_one_that_does_far_worse_than_its_group_is_ejected():
    outcomes = Outcomes([["a", "b"]])
    for number in range(60):
        end(outcomes, "a", number % 4 == 0, 0.0)
        end(outcomes, "b", True, 0.0)
    rank_keys([Option("a", 1, 1, True), Option("b", 9, 1, False)], outcomes, 0.0, 1, 0)
    assert not outcomes.performance("a", 0.0).is_usable
    assert outcomes.performance("b", 0.0).is_usable


def test_each_ejection_is_told_once_with_why_and_for_how_long_and_so_is_its_end():
    outcomes = Outcomes([["a", "b"]])
    for _ in range(IN_A_ROW + 2):  # those of calls that were under way say nothing new
        end(outcomes, "a", False, 0.0)
    end(outcomes, "a", False, OUT_S)
    end(outcomes, "a", True, OUT_S + 2 * OUT_S)
    told = [(one.of, one.why, one.seconds) for one in outcomes.changes]
    assert told == [("a", FAILURES, OUT_S), ("a", TRY, 2 * OUT_S), ("a", BACK, 0.0)]
    assert outcomes.changes[0].words == "5 failures running"


def test_far_worse_than_the_best_is_told_in_numbers():
    outcomes = Outcomes([["a", "b"]])
    for number in range(60):
        end(outcomes, "a", number % 4 == 0, 0.0)
        end(outcomes, "b", True, 0.0)
    rank_keys([Option("a", 1, 1, True), Option("b", 9, 1, False)], outcomes, 0.0, 1, 0)
    (told,) = outcomes.changes
    assert (told.of, told.why) == ("a", FAR_BELOW)
    assert told.words == "30 % of 60 calls succeed, 99 % of the best one's"


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=6))
def test_at_most_half_of_a_group_is_ejected_the_worst_first(chances):
    group = [sure(f"t{number}", 1, 1, chance, is_usable=False) for number, chance in enumerate(chances)]
    out = ejected(group)
    assert len(out) == len(group) // 2
    stay = [one.performance.success for one in group if one.key not in out]
    assert all(one.performance.success <= min(stay) for one in group if one.key in out)


def test_time_out_grows_with_each_failed_try():
    one, now, times = Ejection(), 0.0, []
    one.eject(now, 10)
    for _ in range(5):
        times.append(one.until - now)
        now = one.until
        one.record_call(now)
        one.record_result(False, now, 10)
    assert times == [10, 20, 40, 80, 80]


# ---------------------------------------------------------------------- small worlds


class Fleet:
    """Calls one after another, two replicas that hear of them a moment later, tools with a queue."""

    def __init__(self, seconds, capacity=4, seed=1):
        self.keys = list(seconds)
        self.seconds, self.capacity, self.random = seconds, capacity, Random(seed)
        self.replicas = [Outcomes([self.keys]) for _ in range(2)]
        self.ends, self.facts, self.chosen = [], [], []
        self.free = {key: [0.0] * capacity for key in self.keys}
        self.fails = lambda _key, _now: 0.0
        self.now = 0.0

    def call(self, costs, at, delays=(0.05, 0.3), weights=(0.6, 0.4)):
        """Decide one call at a time; every earlier fact is told, to each replica after its delay."""
        self.now = at
        number = len(self.chosen)
        for replica, delay in zip(self.replicas, delays, strict=True):
            for told_at, fact, heard in self.facts:
                if told_at + delay <= at and id(replica) not in heard:
                    replica.hear(fact, at)
                    heard.add(id(replica))
        self.facts = [one for one in self.facts if len(one[2]) < 2]
        replica = self.replicas[number % 2]
        options = [Option(key, costs[key], 0, key == self.keys[0]) for key in self.keys]
        key = rank_keys(options, replica, at, *weights)[0].option.key
        replica.expect(f"d{number}", key, at)
        self.chosen.append(key)
        place = min(range(self.capacity), key=self.free[key].__getitem__)
        begun = max(at, self.free[key][place])
        well = self.random.random() >= self.fails(key, begun)
        ended = self.free[key][place] = begun + (
            self.seconds[key] * self.random.lognormvariate(0, 0.3) if well else 0.1
        )
        begin_fact = {"event": "decision", "id": f"d{number}", "outcome": "continue", "tool_name": key}
        end_fact = {"event": "tool:post" if well else "tool:error", "tool": key, "decision_id": f"d{number}"}
        self.facts += [(at, begin_fact, set()), (ended, {**end_fact, "seconds": ended - at}, set())]
        self.facts.sort(key=lambda one: one[0])
        return well, ended - at


def test_a_crowd_does_not_all_run_to_the_cheapest():
    fleet = Fleet({"dear": 1.0, "cheap": 1.0})
    waits = [fleet.call({"dear": 20, "cheap": 10}, number / 6)[1] for number in range(600)]
    assert 0.2 < fleet.chosen.count("dear") / 600 < 0.7  # one alone can do four calls a second
    assert sorted(waits)[540] < 5


def test_alone_the_cheapest_is_taken_and_there_is_no_flapping():
    fleet = Fleet({"dear": 1.0, "cheap": 1.0})
    for number in range(300):
        fleet.call({"dear": 20, "cheap": 10}, number * 2.0)
    switches = sum(one != other for one, other in zip(fleet.chosen, fleet.chosen[1:], strict=False))
    assert fleet.chosen.count("cheap") > 290
    assert switches < 10


def test_one_that_breaks_is_left_and_taken_again_once_it_has_recovered():
    fleet = Fleet({"dear": 1.0, "cheap": 1.0})
    fleet.fails = lambda key, now: 1.0 if key == "cheap" and 100 <= now < 200 else 0.0
    for number in range(800):
        fleet.call({"dear": 20, "cheap": 10}, number * 0.5)
    broken, after = fleet.chosen[210:400], fleet.chosen[600:]
    assert broken.count("cheap") <= 8  # its failures running, and a try now and then
    assert after.count("cheap") > 0.9 * len(after)


def test_replicas_that_hear_at_different_times_agree_when_all_is_heard():
    fleet = Fleet({"dear": 1.0, "cheap": 1.0})
    fleet.fails = lambda key, _now: 0.3 if key == "cheap" else 0.0
    for number in range(200):
        fleet.call({"dear": 20, "cheap": 10}, number / 5, delays=(0.01, 2.0))
    for _, fact, heard in fleet.facts:
        for replica in fleet.replicas:
            if id(replica) not in heard:
                replica.hear(fact, fleet.now)
    one, other = ([each.performance(key, fleet.now) for key in fleet.keys] for each in fleet.replicas)
    for here, there in zip(one, other, strict=True):
        assert here.success == pytest.approx(there.success, abs=0.05)
        assert here.under_way == there.under_way == 0
