"""Who is passed over, and when it is asked again (DESIGN §4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.breaker import PROBE_EVERY, SILENCES, Breaker

pytestmark = pytest.mark.pure


def silenced(name="slow", at=0.0):
    breaker = Breaker()
    for _ in range(SILENCES):
        breaker.silent(name, at)
    return breaker


def test_three_silences_running_pass_a_scheduler_over():
    breaker = Breaker()
    for _ in range(2):
        breaker.silent("slow", 0.0)
        assert not breaker.passes_over("slow")
    breaker.silent("slow", 0.0)
    assert breaker.passes_over("slow")


def test_an_answer_in_between_begins_the_count_anew():
    breaker = Breaker()
    for _ in range(5):
        breaker.silent("slow", 0.0)
        breaker.silent("slow", 0.0)
        breaker.answered("slow")
        assert not breaker.passes_over("slow")


def test_one_schedulers_silence_is_not_anothers():
    assert not silenced("slow").passes_over("quick")


def test_an_answer_makes_it_waited_for_again():
    breaker = silenced()
    breaker.answered("slow")
    assert not breaker.passes_over("slow")


def test_a_probe_is_due_once_a_second():
    breaker = silenced(at=5.0)
    asked = [now for now in range(500, 1000) if breaker.probe("slow", now / 100)]
    assert asked == [600, 700, 800, 900]


def test_the_first_probe_waits_a_second_after_the_silence_that_tipped_it():
    breaker = silenced(at=5.0)
    assert not breaker.probe("slow", 5.0 + PROBE_EVERY - 0.01)
    assert breaker.probe("slow", 5.0 + PROBE_EVERY)


def test_a_silent_probe_leaves_it_passed_over_and_the_rhythm_unchanged():
    breaker = silenced(at=0.0)
    assert breaker.probe("slow", 1.0)
    breaker.silent("slow", 1.5)
    assert breaker.passes_over("slow")
    assert not breaker.probe("slow", 1.9)
    assert breaker.probe("slow", 2.0)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=30))
def test_it_is_passed_over_exactly_after_three_silences_without_an_answer(events):
    breaker, running = Breaker(), {"a": 0, "b": 0}
    for name, spoke in events:
        if spoke:
            breaker.answered(name)
            running[name] = 0
        else:
            breaker.silent(name, 0.0)
            running[name] += 1
        assert {n: breaker.passes_over(n) for n in "ab"} == {n: running[n] >= 3 for n in "ab"}
