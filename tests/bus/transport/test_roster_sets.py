"""Names stand in a set of their kind and minute; what is read of a set is bounded, and costs little."""

import pytest
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.redis.clock import ServerClock
from toolgate_bus.transport.redis.roster.roster_sets import (
    FEW,
    MAX_COUNT,
    NOBODY,
    OLD,
    OLD_SET_MS,
    SET_MS,
    TIME,
    RosterMembership,
    RosterNames,
)

pytestmark = pytest.mark.pure

KEYS = Keys("ns")
OF_SCHEDULERS = KEYS.roster_of("schedulers", 100)


def minutes(at=100 * 60.0):
    known = ServerClock()
    known.set_time([b"%d" % at, b"0"], 0.0)
    return known


def test_the_minute_is_the_servers():
    clock = ServerClock()
    assert not clock.is_synced
    clock.set_time(OSError("no"), 5.0)
    assert not clock.is_synced
    clock.set_time([b"6059", b"500000"], 1000.0)
    assert clock.minute(1000.0) == (100, 59.5)
    assert clock.minute(1001.0)[0] == 101


def test_a_place_costs_five_commands_a_minute_beside_the_heartbeats_themselves():
    place, clock = RosterMembership(KEYS, "s:cost:r1"), minutes()
    first = place.commands(clock, 0.0)
    assert first == [
        ("SADD", OF_SCHEDULERS, "s:cost:r1"),
        ("PEXPIRE", OF_SCHEDULERS, SET_MS),
        ("SADD", KEYS.roster, "s:cost:r1"),
        ("PEXPIRE", KEYS.roster, OLD_SET_MS),
        TIME,
    ]
    later = [place.commands(clock, beat / 2) for beat in range(1, 601)]
    assert sum(map(len, later)) == 25
    assert later.count([TIME]) == 5


def test_a_new_minute_or_a_heartbeat_that_was_missed_names_it_at_once():
    place, clock = RosterMembership(KEYS, "s:cost:r1"), minutes(100 * 60.0 + 59)
    place.commands(clock, 0.0)
    place.commands(clock, 0.5)
    assert place.commands(clock, 1.0)[0] == ("SADD", KEYS.roster_of("schedulers", 101), "s:cost:r1")
    assert [one[0] for one in place.commands(clock, 4.0)] == ["SADD", "PEXPIRE", "SADD", "PEXPIRE", "TIME"]
    place.name_again()
    assert [one[0] for one in place.commands(clock, 4.5)] == ["SADD", "PEXPIRE", "SADD", "PEXPIRE", "TIME"]


def test_one_kind_is_read_at_a_time_and_the_others_stay_as_they_were_found():
    names, clock = RosterNames(KEYS, ("schedulers", OLD)), minutes(100 * 60.0 + 30)
    look = names.asks(clock, 0.0, everything=False)  # the first time it is everything
    assert [one[:2] for one in look.commands] == [
        ("SRANDMEMBER", OF_SCHEDULERS),
        ("SRANDMEMBER", KEYS.roster),
    ]
    names.take(look, [[b"s:a:1", b"s:b:1"], [b"s:old:1"]])
    assert names.all == {"s:a:1", "s:b:1", "s:old:1"}
    look = names.asks(clock, 0.5, everything=False)
    assert [one[1] for one in look.commands] == [OF_SCHEDULERS]
    names.take(look, [[b"s:b:1"]])
    assert names.all == {"s:b:1", "s:old:1"}
    assert [one[1] for one in names.asks(clock, 1.0, everything=False).commands] == [KEYS.roster]


def test_in_a_turn_of_nobody_no_set_is_read():
    names, clock = RosterNames(KEYS, ("schedulers", NOBODY)), minutes(100 * 60.0 + 30)
    look = names.asks(clock, 0.0, everything=True)
    assert [one[1] for one in look.commands] == [OF_SCHEDULERS]
    names.take(look, [[b"s:a:1"]])
    looks = [names.asks(clock, 0.5, everything=False) for _ in range(4)]
    assert sorted(len(one.commands) for one in looks) == [0, 0, 1, 1]
    names.take(next(one for one in looks if not one.commands), [])
    assert names.all == {"s:a:1"}


def test_looks_side_by_side_take_their_own_replies():
    names, clock = RosterNames(KEYS, ("schedulers", OLD)), minutes(100 * 60.0 + 30)
    names.take(names.asks(clock, 0.0, everything=True), [[], []])
    one, all_ = names.asks(clock, 0.5, everything=False), names.asks(clock, 0.5, everything=True)
    names.take(one, [[b"s:old:1"]])
    assert names.all == {"s:old:1"}
    names.take(all_, [[b"s:a:1"], [b"s:old:2"]])
    assert names.all == {"s:a:1", "s:old:2"}


def test_early_in_a_minute_who_knows_nobody_reads_the_one_before_as_well():
    names, clock = RosterNames(KEYS, ("schedulers",)), minutes(100 * 60.0 + 1)
    look = names.asks(clock, 0.0, everything=True)
    assert [one[1] for one in look.commands] == [OF_SCHEDULERS, KEYS.roster_of("schedulers", 99)]
    names.take(look, [[b"s:a:1"], [b"s:b:1"]])
    assert names.all == {"s:a:1", "s:b:1"}


def test_a_set_holds_the_names_of_its_kind_and_no_others():
    names, clock = RosterNames(KEYS, ("schedulers", "readers", OLD)), minutes(100 * 60.0 + 30)
    look = names.asks(clock, 0.0, everything=True)
    odd = [b"\xff", b"", b"s", b"x:1", b"o:1", b"s:" + b"x" * 500, None]
    found = ([b"s:a:1", b"r:forged"], [b"r:one", b"s:forged:1"], [*odd, b"s:old:1", b"r:two"])
    names.take(look, found)
    assert names.all == {"s:a:1", "r:one", "s:old:1", "r:two"}


def test_beyond_the_bound_strangers_are_counted_and_few_of_them_are_looked_at():
    names, clock = RosterNames(KEYS, ("schedulers",)), minutes(100 * 60.0 + 30)
    look = names.asks(clock, 0.0, everything=False)
    assert look.commands == (("SRANDMEMBER", OF_SCHEDULERS, MAX_COUNT),)
    many = [b"s:a:%d" % number for number in range(MAX_COUNT)]
    assert names.take(look, [many]) == {}, "there may be more: how many is asked from now on"
    look = names.asks(clock, 0.5, everything=False)
    assert look.commands == (("SRANDMEMBER", OF_SCHEDULERS, MAX_COUNT), ("SCARD", OF_SCHEDULERS))
    assert names.take(look, [many, 300_000]) == {"schedulers": 300_000 - MAX_COUNT}
    look = names.asks(clock, 1.0, everything=False)
    assert look.commands == (("SRANDMEMBER", OF_SCHEDULERS, FEW), ("SCARD", OF_SCHEDULERS))
    assert names.take(look, [many[:FEW], 7]) == {}
    assert names.asks(clock, 1.5, everything=False).commands == (("SRANDMEMBER", OF_SCHEDULERS, MAX_COUNT),)


def test_a_set_that_cannot_be_read_names_nobody():
    names, clock = RosterNames(KEYS, ("schedulers",)), minutes(100 * 60.0 + 30)
    look = names.asks(clock, 0.0, everything=False)
    assert names.take(look, [OSError("WRONGTYPE")]) == {}
    assert names.all == set()


def test_only_in_the_set_of_version_1_the_dead_are_taken_off_after_a_minute():
    names, clock = RosterNames(KEYS, ("schedulers", OLD)), minutes(100 * 60.0 + 30)
    look = names.asks(clock, 0.0, everything=True)
    names.take(look, [[b"s:dead:1"], [b"s:dead:2", b"s:alive:1"]])
    assert names.dead({"s:alive:1"}, 0.0) == []
    assert names.dead({"s:alive:1"}, 59.9) == []
    assert names.dead({"s:alive:1"}, 60.0) == ["s:dead:2"]
