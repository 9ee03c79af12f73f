"""Who floods is left out for longer each time, and forgiven."""

import pytest
from toolgate_bus.transport.redis.asking.quarantine import FORGIVEN_S, MAX_BYTES, MAX_SECONDS, Quarantine

pytestmark = pytest.mark.pure


def test_the_first_slip_is_forgiven_at_once_and_each_further_one_costs_four_times_as_much():
    one, now, told = Quarantine(), 100.0, []
    for _ in range(8):
        told.append(round(one.again("a", now), 2))
        now += told[-1] + 0.01
    assert told == [0.0, 0.1, 0.4, 1.6, 6.4, 25.6, MAX_SECONDS, MAX_SECONDS]


def test_who_is_out_comes_back_and_is_forgiven_after_good_behaviour():
    one = Quarantine()
    one.again("a", 0.0)
    seconds = one.again("a", 0.0)
    assert one.out(seconds / 2) == {"a"}
    assert one.out(seconds) == frozenset()
    assert one.suspects
    assert one.out(seconds + FORGIVEN_S + 1) == frozenset()
    assert not one.suspects
    assert one.again("a", 100.0) == 0.0


def test_only_what_comes_within_a_second_is_a_flood_and_only_of_who_brings_it():
    one = Quarantine()
    assert not one.much(MAX_BYTES, 0.0)
    assert not one.much(MAX_BYTES, 2.0)
    assert one.much(1, 2.5)
    assert not one.count_bytes("quiet", 100)
    assert one.count_bytes("loud", MAX_BYTES)
