"""Notes of what schedulers leave alone: merged over replicas, bounded, and read whatever stands there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.protocol.packing import pack
from toolgate_bus.state.ejections import (
    BACK,
    FAILURES,
    KEY,
    MAX_NOTES,
    SAME_S,
    TRY,
    EjectionNote,
    decode_notes,
    encode_notes,
    left_alone,
    merge_notes,
    read_notes,
    sum_up,
    write_notes,
)
from toolgate_bus.transport.memory import MemoryStore

pytestmark = pytest.mark.pure

ONE = EjectionNote(100.0, "cost-aware", "search", FAILURES, "5 failures running", 10.0)


def test_notes_of_two_replicas_of_one_event_are_one():
    other = ONE._replace(at=ONE.at + SAME_S)
    assert merge_notes([ONE], [other]) == [ONE]
    apart = [ONE._replace(at=ONE.at + SAME_S + 1), ONE._replace(of="read"), ONE._replace(why=TRY)]
    assert len(merge_notes([ONE], apart)) == 4


def test_only_the_newest_are_kept():
    many = [ONE._replace(at=100.0 * number) for number in range(MAX_NOTES + 5)]
    kept = merge_notes([], reversed(many))
    assert kept == many[5:]
    assert decode_notes(encode_notes(kept)) == kept


async def test_what_another_replica_has_overwritten_is_written_again():
    store, other = MemoryStore(), ONE._replace(of="read")
    assert not await write_notes(store, [ONE])
    await store.put(KEY, encode_notes([other]))  # it had read before this one wrote
    assert not await write_notes(store, [ONE])
    assert await write_notes(store, [ONE])
    assert {one.of for one in await read_notes(store)} == {"search", "read"}


def test_left_alone_is_who_gets_no_calls_now():
    back = ONE._replace(at=105.0, why=BACK, seconds=0.0)
    again = ONE._replace(of="read", at=104.0, seconds=20.0)
    assert left_alone([ONE], 109.9) == [ONE]
    assert left_alone([ONE], 110.0) == []  # a call may try it
    assert left_alone([ONE, again, back], 106.0) == [again]
    assert left_alone([ONE, back], 104.0) == []  # by a clock that is a little ahead


def test_a_report_sums_what_is_of_its_time_and_no_return():
    notes = [
        ONE,
        ONE._replace(at=200.0, why=TRY, seconds=20.0),
        ONE._replace(at=220.0, why=BACK, seconds=0.0),
    ]
    (one,) = sum_up(notes, None, None)
    assert (one.times, one.seconds, one.last.why) == (2, 30.0, TRY)
    assert [one.times for one in sum_up(notes, 150.0, None)] == [1]
    assert sum_up(notes, None, 100.0) == []


@given(
    st.recursive(
        st.none() | st.integers(-5, 5) | st.floats() | st.text(max_size=4) | st.sampled_from(("try", "back")),
        lambda inner: st.lists(inner, max_size=7),
        max_leaves=30,
    )
)
def test_the_store_may_hold_anything(value):
    for raw in (None, b"", b"\xc1", pack(value), pack([[1.0, "s", "t", "try", "w", 2.0], value])):
        assert all(isinstance(one, EjectionNote) for one in decode_notes(raw))
    assert decode_notes(pack([[float("nan"), "s", "t", "try", "w", 2.0]])) == []
    assert (
        decode_notes(pack([[1.0, "s", "t", "try", "w", -2.0], [1.0, "s" * 999, "t", "try", "w", 2.0]])) == []
    )
