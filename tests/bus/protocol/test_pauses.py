"""Pauses as they are written, read and named; what others write there never raises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.agents import LiveAgent, decode_stop
from toolgate_bus.protocol.packing import pack
from toolgate_bus.protocol.pauses import (
    MARK,
    MAX_PAUSES,
    Pause,
    decode_notice,
    decode_pauses,
    encode_notice,
    encode_pause,
    find_named,
    pause_of,
)

pytestmark = pytest.mark.pure

names = st.text(max_size=20)
pauses = st.builds(
    Pause,
    st.text("0123456789abcdef", min_size=1, max_size=8),
    st.lists(names).map(tuple),
    st.lists(names).map(tuple),
    st.booleans(),
    st.dictionaries(names, names, max_size=4).map(lambda labels: tuple(sorted(labels.items()))),
    names,
    st.integers(0, 2**53),
    st.none() | st.integers(0, 2**53),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(pauses)
def test_a_pause_is_read_as_it_was_written_until_it_is_over(pause):
    fields = {pause.id: encode_pause(pause), MARK: b"7"}
    now = 0 if pause.until_ms else 5
    found = decode_pauses(fields, now)
    assert (found.mark, found.unreadable) == (7, 0)
    assert found.pauses == ((pause,) if pause.until_ms != 0 else ())
    if pause.until_ms is not None:
        assert decode_pauses(fields, pause.until_ms).pauses == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"sessions": tuple(f"s{number}" for number in range(1025))},
        {"labels": tuple((f"l{number:02}", "x") for number in range(17))},
        {"labels": (("team", "x" * 70_000),)},
    ],
)
def test_a_pause_that_agents_would_not_read_as_it_is_meant_is_refused(fields):
    with pytest.raises(ConfigError, match="a pause can name 1024 sessions and 16 labels, in 64 KiB"):
        encode_pause(Pause("p", **fields))


@given(st.dictionaries(st.text(), st.binary() | anything.map(pack)), st.binary() | anything.map(pack))
def test_nothing_that_is_written_there_raises(fields, mark):
    found = decode_pauses({**fields, MARK: mark}, 0)
    assert all(isinstance(one, Pause) for one in found.pauses)
    decode_notice(mark)


def test_a_label_that_cannot_be_read_makes_no_wider_pause():
    whole = Pause("p", labels=(("team", "x"),)).as_json()
    for labels in ({"team": 7}, {"team": "x", "more": None}, ["team"], None):
        found = decode_pauses({"p": pack({**whole, "labels": labels})}, 0)
        assert (found.pauses, found.unreadable) == ((), 1)


def test_no_more_than_may_stand_are_read():
    fields = {f"{number:03}": encode_pause(Pause(f"{number:03}")) for number in range(MAX_PAUSES + 3)}
    found = decode_pauses(fields, 0)
    assert (len(found.pauses), found.unreadable) == (MAX_PAUSES, 3)


def test_a_notice_of_pauses_stops_nobody_in_an_older_agent():
    notice = encode_notice("order", 12)
    assert decode_notice(notice) == ("order", 12)
    order = decode_stop(notice)
    assert order is not None
    assert not order.means("a", "a", ["b"])
    assert order.id == ""


LIVING = [LiveAgent("root1", "root1"), LiveAgent("kid1", "root1", "root1"), LiveAgent("solo", "solo")]


def test_whom_a_pause_means_is_said_by_ids_by_labels_or_by_neither():
    assert pause_of(LIVING, ["ki"], {}, id="p", by="me").sessions == ("kid1",)
    assert pause_of(LIVING, ["root"], {}, id="p", by="me").roots == ("root1",)
    assert pause_of(LIVING, [], {}, id="p", by="me").everyone
    labels = pause_of(LIVING, [], {"b": "2", "a": "1"}, id="p", by="me")
    assert (labels.labels, labels.everyone) == ((("a", "1"), ("b", "2")), False)
    assert pause_of([], ["later"], {}, exact=True, id="p", by="me").roots == ("later",)
    with pytest.raises(ConfigError, match="is no live session"):
        pause_of(LIVING, ["later"], {}, id="p", by="me")
    with pytest.raises(ConfigError, match="16 labels"):
        pause_of(LIVING, [], {str(number): "x" for number in range(17)}, id="p", by="me")


def test_a_pause_is_named_by_its_id_or_by_whom_it_names_or_by_their_first_letters():
    one, other = Pause("ab12", sessions=("kid1",)), Pause("ab34", roots=("root1",))
    for id_, found in {
        "ab12": [one],
        "ab3": [other],
        "kid": [one],
        "root1": [other],
        "x": [],
        "": [],
    }.items():
        assert find_named([one, other], id_) == found
    with pytest.raises(ConfigError, match="several pauses: ab12, ab34"):
        find_named([one, other], "ab")


@pytest.mark.parametrize(
    ("pause", "words"),
    [
        (Pause("p", everyone=True), "everyone"),
        (Pause("p", ("a",), ("r",)), "r a"),
        (Pause("p", labels=(("team", "x"), ("tier", "y"))), "team=x tier=y"),
        (Pause("p"), "nobody"),
    ],
)
def test_whom_it_means_is_told_in_words(pause, words):
    assert pause.target == words
