"""Numbers of facts: each counts once, and no forged one hides the true ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.errors import CodecError
from toolgate_bus.facts.sequence import MAX_JUMP, MAX_RANGES, MAX_VALUE, REMEMBERED, SeenNumbers

pytestmark = pytest.mark.pure


def taken(seen, numbers):
    """Those that were new; `far` for one that was refused."""
    found = []
    for number in numbers:
        try:
            found += [number] if seen.take(number) else []
        except CodecError as error:
            found.append("far" if error.reason == "jump" else error.reason)
    return found


def test_each_number_is_new_once():
    assert taken(SeenNumbers(), [1, 2, 3, 2, 3, 4, 7, 7, 5, 6, 8]) == [1, 2, 3, 4, 7, 5, 6, 8]


def test_a_forged_number_is_refused_and_hides_nothing():
    seen = SeenNumbers()
    assert taken(seen, [1, 2, 2**52, 3, 4]) == [1, 2, "far", 3, 4]
    assert taken(seen, [4 + MAX_JUMP, 5, 6, 4 + MAX_JUMP]) == [4 + MAX_JUMP, 5, 6]
    assert seen.last == 6


def test_who_really_went_so_far_is_believed_with_the_second_number():
    seen = SeenNumbers()
    assert taken(seen, [1, 5 * MAX_JUMP, 5 * MAX_JUMP + 1, 5 * MAX_JUMP + 2]) == [
        *(1, "far", 5 * MAX_JUMP + 1, 5 * MAX_JUMP + 2)
    ]


def test_the_first_number_may_be_any_and_what_is_below_it_is_read_as_well():
    assert taken(SeenNumbers(), [MAX_VALUE, 1, 2, MAX_VALUE]) == [MAX_VALUE, 1, 2]


def test_who_goes_on_for_another_passes_over_what_that_one_read():
    assert taken(SeenNumbers(500), [499, 500, 501]) == [501]
    assert taken(SeenNumbers(MAX_VALUE), [7, MAX_VALUE - REMEMBERED]) == [7]
    assert SeenNumbers(500).last == 500
    assert SeenNumbers().last == 0


def test_all_of_several_were_read_only_where_none_is_missing():
    seen = SeenNumbers()
    taken(seen, [3, 4, 5, 9])
    assert [seen.has_all(*both) for both in ((3, 5), (4, 4), (9, 9))] == [True, True, True]
    assert [seen.has_all(*both) for both in ((2, 5), (3, 6), (3, 9), (6, 8))] == [False] * 4


@given(st.lists(st.integers(1, 60)))
def test_within_what_is_remembered_it_is_a_set(numbers):
    seen, known = SeenNumbers(), set()
    for number in numbers:
        before = len(seen._ranges)
        if before < MAX_RANGES:
            assert seen.take(number) == (number not in known)
            known.add(number)
        assert len(seen._ranges) <= MAX_RANGES
