"""Who is passed over, and when it is asked again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.ruling.breaker import PROBE_EVERY, SILENCES, Breaker

pytestmark = pytest.mark.pure

PATIENCE, LONG = 0.5, 5.0


class Asker:
    """Asks one question after the other with one patience, on a clock of its own."""

    def __init__(self, breaker, patience=PATIENCE, now=0.0):
        self.breaker, self.patience, self.now = breaker, patience, now

    def silence(self, name="slow"):
        """One question, asked now and not answered."""
        asked, self.now = self.now, self.now + self.patience
        self.breaker.silent(name, self.patience, asked, self.now)

    def passes_over(self, name="slow"):
        return self.breaker.passes_over(name, self.patience)


def silenced(name="slow", at=0.0):
    breaker = Breaker()
    asker = Asker(breaker, now=at - SILENCES * PATIENCE)
    for _ in range(SILENCES):
        asker.silence(name)
    return breaker


def test_three_silences_running_pass_a_scheduler_over():
    asker = Asker(Breaker())
    for _ in range(2):
        asker.silence()
        assert not asker.passes_over()
    asker.silence()
    assert asker.passes_over()


def test_an_answer_in_between_begins_the_count_anew():
    asker = Asker(Breaker())
    for _ in range(5):
        asker.silence()
        asker.silence()
        asker.breaker.record_answer("slow")
        assert not asker.passes_over()


def test_one_schedulers_silence_is_not_anothers():
    assert not silenced("slow").passes_over("quick", PATIENCE)


def test_one_who_is_too_slow_for_the_impatient_is_not_passed_over_by_the_patient():
    breaker = Breaker()
    impatient = Asker(breaker, 0.02)
    for _ in range(9):
        impatient.silence()
    assert impatient.passes_over()
    assert not breaker.passes_over("slow", LONG)
    assert not breaker.probe("slow", LONG, 99.0)


def test_all_that_was_asked_in_one_stall_is_one_silence():
    breaker = Breaker()
    for asked in (0.0, 0.1, 0.2, 0.49):
        breaker.silent("slow", PATIENCE, asked, asked + PATIENCE)
    assert not breaker.passes_over("slow", PATIENCE)
    for asked in (0.6, 1.2):
        breaker.silent("slow", PATIENCE, asked, asked + PATIENCE)
    assert breaker.passes_over("slow", PATIENCE)


def test_an_answer_makes_everybody_wait_for_it_again():
    breaker = silenced()
    breaker.record_answer("slow")
    assert not breaker.passes_over("slow", PATIENCE)
    assert breaker.calm


def test_a_probe_is_due_once_a_second():
    breaker = silenced(at=5.0)
    asked = [now for now in range(500, 1000) if breaker.probe("slow", PATIENCE, now / 100)]
    assert asked == [600, 700, 800, 900]


def test_the_first_probe_waits_a_second_after_the_silence_that_tipped_it():
    breaker = silenced(at=5.0)
    assert not breaker.probe("slow", PATIENCE, 5.0 + PROBE_EVERY - 0.01)
    assert breaker.probe("slow", PATIENCE, 5.0 + PROBE_EVERY)


def test_a_silent_probe_leaves_it_passed_over_and_the_rhythm_unchanged():
    breaker = silenced(at=0.0)
    assert breaker.probe("slow", PATIENCE, 1.0)
    breaker.silent("slow", PATIENCE, 1.0, 1.5)
    assert breaker.passes_over("slow", PATIENCE)
    assert not breaker.probe("slow", PATIENCE, 1.9)
    assert breaker.probe("slow", PATIENCE, 2.0)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=30))
def test_it_is_passed_over_exactly_after_three_silences_without_an_answer(events):
    asker, running = Asker(Breaker()), {"a": 0, "b": 0}
    for name, spoke in events:
        if spoke:
            asker.breaker.record_answer(name)
            running[name] = 0
        else:
            asker.silence(name)
            running[name] += 1
        assert {n: asker.passes_over(n) for n in "ab"} == {n: running[n] >= 3 for n in "ab"}
