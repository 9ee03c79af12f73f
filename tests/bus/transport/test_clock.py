"""How old an entry is, told by the server's clock alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.transport.redis.clock import ServerClock

pytestmark = pytest.mark.pure

SERVER = 1_700_000_000.0
"""The server's time when ours is 0."""


def entry(seconds):
    """An id that the server gave this long after SERVER."""
    return f"{round((SERVER + seconds) * 1000)}-7".encode()


def told(offset=SERVER, rtt=0.0):
    clock = ServerClock()
    whole = int(offset)
    clock.set_time([whole, round((offset - whole) * 1e6)], rtt / 2, -rtt / 2)
    return clock


def test_an_age_is_the_servers_time_since_the_entry_was_written():
    assert told().age(entry(2.0), 5.0) == pytest.approx(3.0, abs=0.002)


def test_half_of_the_round_trip_is_taken_off():
    clock = ServerClock()
    clock.set_time([int(SERVER), 500_000], 1.0, 0.0)
    assert clock.age(entry(0.0), 2.0) == pytest.approx(2.0, abs=0.002)


def test_without_any_word_from_the_server_every_age_is_nothing():
    clock = ServerClock()
    assert clock.age(entry(0.0), 100.0) == 0.0
    assert clock.entry_before(100.0, 1) is None


def test_an_id_just_given_is_a_lower_bound_of_the_servers_time():
    clock = ServerClock()
    clock.observe_id(entry(10.0), 10.5)
    assert clock.age(entry(0.0), 10.5) == pytest.approx(10.0, abs=0.002)
    clock.observe_id(entry(11.0), 11.1)
    assert clock.age(entry(0.0), 11.1) == pytest.approx(11.0, abs=0.002)
    clock.observe_id(entry(5.0), 12.0)  # says less than is known already
    assert clock.age(entry(0.0), 12.0) == pytest.approx(11.9, abs=0.002)


@pytest.mark.parametrize("written", [100.0, -4000.0, -1e9])
def test_an_absurd_age_counts_as_nothing(written):
    assert told().age(entry(written), 5.0) == 0.0


def test_ids_before_a_moment_are_those_older_than_so_many_milliseconds():
    assert told().entry_before(10.0, 4000) == f"{round((SERVER + 6) * 1000)}-0"


def test_the_time_of_a_server_younger_than_the_span_is_not_negative():
    assert told(offset=1.0).entry_before(0.0, 10_000) == "0-0"


def test_the_last_answer_to_time_corrects_whatever_was_believed():
    clock = told()
    clock.set_time([int(SERVER) - 100, 0], 0.0, 0.0)
    assert clock.age(entry(-100.0), 1.0) == pytest.approx(1.0, abs=0.002)


@given(st.floats(-1e6, 1e6), st.floats(0, 3000), st.floats(0, 3000))
def test_no_two_machines_clocks_are_compared(skew, written, later):
    """Whatever our own clock says, the age is the same."""
    clock = ServerClock()
    clock.set_time([int(SERVER), 0], skew, skew)
    age = clock.age(entry(written), skew + written + later)
    assert age == pytest.approx(later, abs=0.01)
