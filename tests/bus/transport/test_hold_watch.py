"""When it is asked whether calls are still held, and what counts as lost."""

from itertools import pairwise

import pytest
from toolgate_bus.errors import TransportError
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.ports import HoldPlace
from toolgate_bus.transport.redis.asking.hold_watch import (
    EVERY_S,
    FIRST_AGAIN_S,
    LAST_AGAIN_S,
    MAX_COUNT,
    HoldWatch,
)

pytestmark = pytest.mark.pure

ONE, TWO = (HoldPlace("approval", bytes([number] * 16), 0) for number in (1, 2))


class Held:
    """What is held, what the server knows of it, and a watch."""

    def __init__(self, *held):
        self.held, self.known = list(held), set(held)
        self.watch = HoldWatch(Keys("ns"), lambda: self.held)
        self.keys = {Keys("ns").hold(*one): one for one in held}
        self.commands = 0

    def look(self, now):
        """One heartbeat at this time; gives what is lost."""
        lost = []
        for query in self.watch.command(now):
            self.commands += 1
            details = self.watch.details(sum(self.keys[key] in self.known for key in query[1:]))
            self.commands += len(details)
            if details:
                lost = self.watch.take([int(self.keys[key] in self.known) for _, key in details], now)
        return lost


def test_who_waits_for_nobody_asks_nothing():
    assert Held().watch.command(0.0) == []


def test_what_is_there_costs_one_command_every_few_seconds():
    held = Held(ONE, TWO)
    for tenth in range(100):
        assert held.look(tenth / 10) == []
    assert held.commands == 10 / EVERY_S


def test_what_is_missing_twice_is_lost_and_nothing_else():
    held = Held(ONE, TWO)
    held.known = {TWO}
    assert held.look(0.0) == []
    assert held.look(0.5) == [ONE]


def test_what_was_answered_meanwhile_is_not_lost():
    held = Held(ONE, TWO)
    held.known = {TWO}
    held.look(0.0)
    held.held = [TWO]
    assert held.look(0.5) == []


def test_what_is_there_again_was_late_and_not_lost():
    held = Held(ONE)
    held.known = set()
    held.look(0.0)
    held.known = {ONE}
    held.look(0.5)
    held.known = set()
    assert held.look(0.5 + EVERY_S) == []  # the first look at which it is missing, once more


def test_what_stays_missing_is_asked_again_ever_more_rarely():
    held = Held(ONE)
    held.known = set()
    asked = [half / 2 for half in range(400) if held.look(half / 2)]
    pauses = [after - before for before, after in pairwise(asked)]
    assert pauses[:5] == [FIRST_AGAIN_S, 4.0, 8.0, 16.0, LAST_AGAIN_S]
    assert set(pauses[4:]) == {LAST_AGAIN_S}


def test_a_lost_connection_has_it_asked_at_once():
    held = Held(ONE)
    held.look(0.0)
    held.known = set()
    held.watch.hurry()
    held.look(0.1)
    assert held.look(0.2) == [ONE]


def test_of_very_many_all_are_looked_at_in_turn():
    many = [HoldPlace("approval", number.to_bytes(16), 0) for number in range(2 * MAX_COUNT)]
    held = Held(*many)
    first, last = many[0], many[-1]
    held.known = set(many) - {first, last}
    assert {one for beat in range(20) for one in held.look(beat / 2)} == {first, last}


def test_a_server_that_does_not_let_it_be_asked_is_left_alone():
    watch = HoldWatch(Keys("ns"), lambda: [ONE])
    watch.command(0.0)
    assert watch.details(TransportError("NOPERM")) == []
