"""Labels of sessions as they are stored: they only grow, and only an operator's mark takes one away."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.protocol.names import MAX_SESSION_LABELS
from toolgate_bus.transport.session_labels import (
    MAX_FIELDS,
    OVERFLOW,
    LabelMark,
    LabelNotice,
    decode_label_notice,
    decode_marks,
    encode_label_notice,
    give_labels,
    is_field,
    join_marks,
    name_stored,
    show_labels,
)

pytestmark = pytest.mark.pure

MARKS = st.dictionaries(
    st.sampled_from(("a=1", "a=2", "b=1", OVERFLOW)), st.integers(1, 5).map(LabelMark), max_size=4
)


@given(MARKS, MARKS, MARKS)
def test_marks_are_joined_in_any_order_and_as_often_as_one_likes(one, two, three):
    joined = join_marks((one, two, three))
    assert join_marks((three, join_marks((two, one)), two)) == joined
    assert all(joined[field].times >= mark.times for field, mark in one.items())


@given(MARKS, st.dictionaries(st.sampled_from("ab"), st.sets(st.sampled_from("12"), min_size=1)))
def test_what_a_verdict_gives_is_borne_and_nothing_goes_by_it(marks, labels):
    after = join_marks((marks, give_labels(marks, labels)))
    shown, before = show_labels(after), show_labels(marks)
    if shown is not None:
        assert all(value in shown[name] for name, values in labels.items() for value in values)
        assert before is not None
        assert all(value in shown[name] for name, values in before.items() for value in values)


def test_an_old_copy_does_not_bring_back_what_an_operator_took_away():
    given_, taken = {"a=1": LabelMark()}, {"a=1": LabelMark(2, 1000, "ops")}
    assert show_labels(join_marks((taken, given_))) == {}
    again = join_marks((taken, give_labels(taken, {"a": ["1"]})))
    assert show_labels(again) == {"a": ["1"]}
    assert show_labels(join_marks((again, taken, given_))) == {"a": ["1"]}


def test_a_label_that_is_borne_already_changes_nothing():
    assert give_labels({"a=1": LabelMark(3)}, {"a": ["1"]}) == {}


@pytest.mark.parametrize("kind", ["names", "values"])
def test_beyond_the_bound_all_labels_are_unknown_and_stay_so(kind):
    marks = {}
    for number in range(MAX_SESSION_LABELS):
        label = {f"n{number}": ["x"]} if kind == "names" else {"n": [f"v{number}"]}
        marks = join_marks((marks, give_labels(marks, label)))
    assert show_labels(marks) is not None
    more = give_labels(marks, {"more": ["x"]} if kind == "names" else {"n": ["more"]})
    assert more == {OVERFLOW: LabelMark()}
    assert show_labels(join_marks((marks, more))) is None
    assert give_labels(join_marks((marks, more)), {"n1": ["y"]}) == {}


def test_stored_marks_are_read_and_malformed_ones_left_out():
    stored = {
        "a=1 1": b"1",
        "a=2 1": b"1",
        "a=2 2": b"1234 " + "Ana Ω".encode(),
        "a=3 x": b"1",
        "a=4 0": b"1",
        "a=5 9999999999": b"1",
        "a=6": b"1",
        "no label 1": b"1",
        "!a=2 2": b"1",
        "* 2": b"5 ops",
        "b=1 4": b"who knows",
    }
    assert decode_marks(stored) == {
        "a=1": LabelMark(),
        "a=2": LabelMark(2, 1234, "Ana Ω"),
        "b=1": LabelMark(4),
        OVERFLOW: LabelMark(2, 5, "ops"),
    }


@given(MARKS)
def test_marks_come_back_as_they_were_stored(marks):
    stored = {name_stored(field, mark.times): mark.encode() for field, mark in marks.items()}
    assert decode_marks(stored) == marks


def test_more_marks_than_anybody_writes_are_unknown():
    stored = {f"n{one}=v{two} 1": b"1" for one in range(100) for two in range(MAX_FIELDS // 90)}
    assert show_labels(decode_marks(stored)) is None


@pytest.mark.parametrize("text", ["a", "a=", "=b", "a=b=c", "a b=c", "a=b\n", "*", f"{'a' * 65}=b"])
def test_what_is_no_label_is_none(text):
    assert not is_field(text)


def test_a_notice_comes_back_as_it_was_and_others_are_none():
    notice = LabelNotice("abc", ("s1", "s2"))
    assert decode_label_notice(encode_label_notice(notice)) == notice
    assert [decode_label_notice(raw) for raw in (b"", b"\x80", b"\x81\xa6labels\x01")] == [None] * 3
