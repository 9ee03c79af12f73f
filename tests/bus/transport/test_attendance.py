"""Who vanished without leaving is remembered for a minute; only the replica itself can say that it leaves."""

from dataclasses import replace

import pytest
from toolgate_bus.transport.attendance import GONE_SECONDS, Attendance
from toolgate_bus.transport.ports import Member

pytestmark = pytest.mark.pure

POLICY = Member("policy", "r1", tools=("delete_*",), started=3)
NAME = "s:policy:r1"
SIGNED = replace(POLICY, signed=True, beat=7)


def taken(attendance, now, member=None):
    alive, gone = attendance.take({NAME: member}, now)
    return [one.replica for one in alive], [one.replica for one in gone]


def test_who_vanishes_is_gone_for_a_minute_and_then_forgotten():
    attendance = Attendance()
    assert taken(attendance, 0.0, POLICY) == (["r1"], [])
    assert taken(attendance, 1.0) == ([], ["r1"])
    assert taken(attendance, GONE_SECONDS - 0.1) == ([], ["r1"])
    assert attendance.names == {NAME}
    assert taken(attendance, GONE_SECONDS) == ([], [])
    assert attendance.names == set()


def test_who_is_gone_is_told_as_it_was_and_comes_back_by_a_heartbeat():
    attendance = Attendance()
    attendance.take({NAME: POLICY}, 0.0)
    _, (gone,) = attendance.take({}, 1.0)
    assert gone == replace(POLICY, gone=True)
    assert taken(attendance, 2.0, POLICY) == (["r1"], [])
    assert taken(attendance, GONE_SECONDS + 1) == ([], ["r1"])


def test_who_leaves_is_forgotten_at_once():
    attendance = Attendance()
    attendance.take({NAME: POLICY}, 0.0)
    assert taken(attendance, 1.0, replace(POLICY, left=True)) == ([], [])
    assert taken(attendance, 1.5, replace(POLICY, left=True)) == ([], [])


@pytest.mark.parametrize(
    "forged",
    [
        replace(POLICY, tools=()),
        replace(POLICY, started=99, beat=99),
        replace(POLICY, left=True),
        replace(SIGNED, beat=6),
        replace(SIGNED, started=2, beat=99),
        replace(SIGNED, left=True, beat=6),
    ],
)
def test_who_signed_is_believed_only_signed_and_never_an_older_word(forged):
    attendance = Attendance()
    attendance.take({NAME: SIGNED}, 0.0)
    assert attendance.take({NAME: forged}, 1.0) == ((), (replace(SIGNED, gone=True),))
    newer = replace(SIGNED, beat=8)
    assert attendance.take({NAME: newer}, 2.0) == ((newer,), ())


def test_beyond_the_bound_those_who_came_first_are_remembered(monkeypatch):
    monkeypatch.setattr("toolgate_bus.transport.attendance.MAX_COUNT", 2)
    attendance = Attendance()
    several = {f"s:policy:r{number}": replace(POLICY, replica=f"r{number}") for number in range(4)}
    alive, _ = attendance.take(several, 0.0)
    assert len(alive) == 4
    assert attendance.names == {"s:policy:r0", "s:policy:r1"}
