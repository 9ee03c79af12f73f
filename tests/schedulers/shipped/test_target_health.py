"""When a target is left alone, for how long, and how it comes back: time is an argument."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_schedulers.shipped.router.health import MAX_CALLS, Fallback, TargetHealth
from toolgate_schedulers.shipped.score.ejection import MAX_FACTOR
from toolgate_schedulers.shipped.score.outcomes import outcome_of

pytestmark = pytest.mark.pure


def health(**fields):
    return TargetHealth(Fallback(**fields), ["t", "u"])


def fail(of, times, now, tool="t"):
    for _ in range(times):
        of.record_result(tool, False, now)


def test_it_is_left_alone_after_so_many_failures_within_the_time():
    one = health(after=3, within_s=60)
    fail(one, 2, 0.0)
    assert one.usable("t", 1.0)
    one.record_result("t", False, 61.0)  # the first two are forgotten by now
    assert one.usable("t", 61.0)
    fail(one, 2, 62.0)
    assert not one.usable("t", 62.0)
    assert one.usable("u", 62.0)


def test_a_busy_tool_may_fail_now_and_then():
    one = health(after=3, share=0.5)
    for _ in range(20):
        one.record_result("t", True, 0.0)
    fail(one, 19, 1.0)
    assert one.usable("t", 1.0)
    fail(one, 1, 1.0)
    assert not one.usable("t", 1.0)


def test_it_is_tried_by_one_call_when_its_time_is_over():
    one = health(after=1, for_s=30)
    fail(one, 1, 0.0)
    assert not one.usable("t", 29.9)
    assert one.usable("t", 30.0)
    one.record_call("t", 30.0)
    assert not one.usable("t", 30.1)
    assert one.usable("t", 60.0)  # nothing was heard of the one that tried


def test_a_success_of_the_trial_counts_it_in_again():
    one = health(after=2, for_s=30)
    fail(one, 2, 0.0)
    one.record_call("t", 30.0)
    one.record_result("t", True, 31.0)
    assert one.usable("t", 31.0)
    fail(one, 1, 32.0)  # what was before is forgotten
    assert one.usable("t", 32.0)


def test_each_failure_of_a_trial_leaves_it_alone_for_twice_as_long_up_to_a_bound():
    one, now, alone = health(after=2, for_s=30), 0.0, []
    fail(one, 2, now)
    for factor in (1, 2, 4, 8, 8):
        alone.append(factor * 30)
        assert not one.usable("t", now + alone[-1] - 0.1)
        now += alone[-1]
        assert one.usable("t", now)
        one.record_call("t", now)
        fail(one, 1, now)
    one.record_call("t", now + 8 * 30)
    one.record_result("t", True, now + 8 * 30)
    fail(one, 2, now + 300)
    assert one.usable("t", now + 330)  # after a success it begins anew


def test_what_began_before_it_was_left_alone_changes_nothing():
    one = health(after=1, for_s=30)
    fail(one, 1, 0.0)
    one.record_result("t", True, 1.0)
    fail(one, 5, 2.0)
    assert not one.usable("t", 29.0)
    assert one.usable("t", 30.0)


def test_without_a_rule_and_for_other_tools_all_is_well():
    assert TargetHealth(None, ["t"]).tools == frozenset()
    for one, tool in ((TargetHealth(None, ["t"]), "t"), (health(after=1), "stranger")):
        fail(one, 9, 0.0, tool)
        one.record_call(tool, 0.0)
        assert one.usable(tool, 0.0)


EVENTS = st.lists(st.tuples(st.floats(0, 5), st.booleans()), max_size=60)


@given(EVENTS, st.integers(1, 5), st.floats(1, 20), st.floats(0.1, 1), st.floats(1, 20))
def test_it_opens_exactly_when_the_rule_says_so(events, after, within_s, share, for_s):
    one, now, window = health(after=after, within_s=within_s, share=share, for_s=for_s), 0.0, []
    opened, factor = None, 1
    for pause, well in events:
        now += pause
        one.record_result("t", well, now)
        if opened is None:
            window = [(at, ok) for at, ok in [*window, (now, well)] if at >= now - within_s]
            failures = sum(not ok for _, ok in window)
            if failures >= after and failures >= share * len(window):
                opened = now
        elif now >= opened + for_s * factor:
            opened, window, factor = (None, [], 1) if well else (now, [], min(2 * factor, MAX_FACTOR))
        assert one.usable("t", now) is (opened is None)


def test_only_so_many_calls_are_remembered():
    one = health(after=MAX_CALLS, share=0.01, within_s=86_400)
    for _ in range(3 * MAX_CALLS):
        one.record_result("t", True, 0.0)
    fail(one, MAX_CALLS - 1, 0.0)
    assert one.usable("t", 0.0)
    fail(one, 1, 0.0)
    assert not one.usable("t", 0.0)


@pytest.mark.parametrize(
    ("fact", "told"),
    [
        ({"event": "tool:error", "tool": "t", "error": "ValueError"}, ("t", False)),
        ({"event": "tool:post", "tool": "t", "success": False}, ("t", False)),
        ({"event": "tool:post", "tool": "t", "success": True}, ("t", True)),
        ({"event": "tool:post", "tool": "t"}, ("t", True)),
        ({"event": "tool:error", "tool": "t", "error": "CancelledError"}, None),
        ({"event": "tool:unused", "tool": "t"}, None),
        ({"event": "usage", "provider": "a", "model": "m"}, ("llm:a/m", True)),
        ({"event": "usage", "provider": "a", "model": "m", "partial": True}, ("llm:a/m", False)),
        ({"event": "provider:error", "provider": "a", "model": ["m"]}, ("llm:a/", False)),
        ({"event": "tool:post", "tool": 3}, None),
        ({"event": ["tool:post"], "tool": "t"}, None),
        ({"event": "tool:error", "tool": "t", "error": {"type": "x"}}, ("t", False)),
        ({"event": "delegate:agent_completed", "agent_target": "t", "agent": "boss"}, ("agent t", True)),
        ({"event": "delegate:agent_completed", "agent_target": "t", "status": "success"}, ("agent t", True)),
        (
            {"event": "delegate:agent_completed", "agent_target": "t", "status": "incomplete"},
            ("agent t", False),
        ),
        (
            {"event": "delegate:agent_completed", "agent_target": "t", "status": "budget_exhausted"},
            ("agent t", False),
        ),
        ({"event": "delegate:error", "agent_target": "t"}, ("agent t", False)),
        ({"event": "delegate:agent_cancelled", "agent_target": "t"}, None),
        ({"event": "delegate:error", "agent_target": ["t"]}, None),
        ({}, None),
    ],
)
def test_what_a_fact_says_of_a_tool(fact, told):
    assert outcome_of(fact) == told
