"""Pauses as they are written, read and named; what others write there never raises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.agents import LiveAgent, Stop, decode_stop, name_session
from toolgate_bus.protocol.packing import pack
from toolgate_bus.protocol.pauses import (
    MARK,
    MAX_PAUSES,
    MAX_STOPS,
    Pause,
    StandingStops,
    decode_notice,
    decode_pauses,
    encode_notice,
    encode_pause,
    find_named,
    make_stop,
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
stops = st.builds(
    Pause,
    st.text("0123456789abcdef", min_size=1, max_size=8),
    st.lists(names).map(tuple),
    st.lists(names).map(tuple),
    st.booleans(),
    by=names,
    since_ms=st.integers(0, 2**53),
    stop=st.just(True),
    now=st.booleans(),
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(pauses | stops)
def test_a_pause_or_stop_is_read_as_it_was_written_until_it_is_over(pause):
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
    with pytest.raises(ConfigError, match="means several: ab12, ab34"):
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


# ---------------------------------------------------------------------- stops


def stop(*names, id="s", **fields):  # noqa: A002 - the field's name
    return Pause(id, names, stop=True, **fields)


ODD = ["*", "?", "[a-z]*", "a b", " a", "a\n", "a\x00", "é", "x" * 256, "x" * 257, "x" * 70_000, "\ud800"]


def test_a_stop_is_found_by_the_session_its_root_or_any_session_above_it_and_by_no_other():
    stops = StandingStops([stop("s1", id="a"), Pause("b", roots=("r1",), stop=True), Pause("p", ("s2",))])
    for session, root, above, found in (
        ("s1", "r", (), "a"),
        ("s", "s1", (), "a"),
        ("s", "r", ("x", "s1"), "a"),
        ("r1", "r1", (), "b"),
        ("s", "r1", (), "b"),
        ("s", "r", ("r1",), "b"),
        ("s2", "s2", (), None),  # it is paused
        ("s11", "r11", ("s",), None),
        ("", "", (), None),
    ):
        one = stops.find_stop(session, root, above)
        assert (None if one is None else one.id) == found
    assert stops.ids == {"a", "b"}


def test_a_stop_of_everyone_means_calls_without_a_session_too():
    stops = StandingStops([Pause("all", everyone=True, stop=True)])
    assert stops.find_stop("", "") is not None
    assert StandingStops([stop("")]).find_stop("", "") is None
    assert StandingStops().find_stop("s", "r") is None


@pytest.mark.parametrize("id_", ODD, ids=ascii)
def test_ids_are_compared_exactly_whatever_is_in_them(id_):
    others = ["a", "ab", "xa", "x" * 255, "x" * 258, "x" * 70_001, "\ud801", *ODD]
    stops = StandingStops([stop(name_session(id_))])
    assert [one for one in dict.fromkeys(others) if stops.find_stop(one, one) is not None] == [id_]
    assert len(name_session(id_)) <= 256
    assert name_session(name_session(id_)) == name_session(id_)
    (read,) = decode_pauses({"s": encode_pause(stop(name_session(id_)))}, 0).pauses
    assert StandingStops([read]).find_stop(id_, "r") is not None


def test_pauses_and_stops_that_stand_are_bounded_apart():
    fields = {f"p{number:03}": encode_pause(Pause(f"p{number:03}")) for number in range(MAX_PAUSES)}
    fields |= {f"s{number:03}": encode_pause(stop(id=f"s{number:03}")) for number in range(MAX_STOPS)}
    found = decode_pauses(fields, 0)
    assert (len(found.pauses), found.unreadable) == (MAX_PAUSES + MAX_STOPS, 0)


def test_a_stop_by_labels_is_none():
    raw = pack({**Pause("s", stop=True).as_json(), "labels": {"team": "x"}})
    assert decode_pauses({"s": raw}, 0).unreadable == 1
    with pytest.raises(ConfigError, match="a stop can name"):
        encode_pause(Pause("s", labels=(("team", "x"),), stop=True))


def test_an_order_that_means_the_same_renews_the_stop_that_stands():
    standing = [Pause("p", ("a",)), stop("a", id="old", by="ann")]
    again = make_stop(Stop(("a",), now=True, by="bob"), standing, "new")
    assert (again.id, again.by, again.now, again.stop) == ("old", "bob", True, True)
    assert make_stop(Stop(("a", "b")), standing, "new").id == "new"
    assert make_stop(Stop(everyone=True), standing, "new").everyone


def test_a_session_names_its_pause_and_its_stop():
    both = [Pause("p1", ("kid",)), stop("kid", id="s1")]
    assert find_named(both, "kid") == both
    assert find_named(both, "s") == both[1:]


def test_an_id_that_somebody_named_a_session_after_lifts_nothing_else():
    standing = [stop("x", id="ab12"), stop("ab12", id="cd34")]
    assert find_named(standing, "ab12") == standing[:1]
