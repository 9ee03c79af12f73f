"""Who is alive travels as it is told; what others write is looked at before it is believed."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.agents import (
    MAX_AGENTS_COUNT,
    LiveAgent,
    Stop,
    decode_agents,
    decode_stop,
    encode_agents,
    encode_stop,
    forest,
    select_targets,
    stop_of,
)
from toolgate_bus.protocol.packing import pack

pytestmark = pytest.mark.pure

names = st.text(max_size=20)
agents = st.builds(
    LiveAgent,
    session=names,
    root=names,
    parent=st.none() | names,
    agent=names,
    lineage=st.lists(names, max_size=4).map(tuple),
    doing=names,
    turns=st.integers(0, 2**40),
    cost=st.integers(0, 2**60),
    age=st.floats(0, 1e9),
    orchestrator=st.just("o"),
)


@given(st.lists(agents, max_size=5))
def test_agents_are_read_as_they_were_told(told):
    assert decode_agents("o", encode_agents(told)) == told


@given(st.builds(Stop, st.lists(names).map(tuple), st.lists(names).map(tuple), st.booleans(), st.booleans()))
def test_an_order_is_read_as_it_was_given(order):
    assert decode_stop(encode_stop(order)) == order


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(
    st.binary()
    | anything.map(pack)
    | anything.map(lambda one: pack({"pages": [one, pack([one, {"session": one}])]}))
)
def test_nothing_that_is_written_there_raises(raw):
    for one in decode_agents("o", raw):
        assert isinstance(one.session, str)
    decode_stop(raw)


def test_no_more_are_told_than_a_reader_takes():
    many = [LiveAgent(str(number), orchestrator="o") for number in range(MAX_AGENTS_COUNT + 5)]
    assert len(decode_agents("o", encode_agents(many))) == MAX_AGENTS_COUNT


def test_an_order_means_a_session_those_below_it_and_trees():
    assert Stop(sessions=("a",)).means("a", "r")
    assert Stop(sessions=("a",)).means("b", "r", above=("x", "a"))
    assert not Stop(sessions=("a",)).means("b", "r", above=("x",))
    assert Stop(roots=("r",)).means("b", "r")
    assert Stop(roots=("a",)).means("a", "r")  # a root for those in another process, and no root itself
    assert Stop(roots=("a",)).means("b", "c", above=("a",))
    assert not Stop(sessions=("",), roots=("",)).means("", "")
    assert Stop(everyone=True).means("b", "r")
    assert not Stop().means("b", "r")


def test_each_agent_stands_behind_the_one_it_works_for():
    told = [
        LiveAgent("c2", "r", "r", age=1),
        LiveAgent("g", "r", "c1", age=1),
        LiveAgent("r", "r", age=9),
        LiveAgent("c1", "r", "r", age=3),
        LiveAgent("other", "other", age=5),
        LiveAgent("far", "elsewhere", "elsewhere", age=0),
    ]
    order = [(0, "r"), (1, "c1"), (2, "g"), (1, "c2"), (0, "other"), (0, "far")]
    assert [(depth, one.session) for depth, one in forest(told)] == order


def test_agents_who_call_each_other_their_parents_are_told_all_the_same():
    told = [LiveAgent("a", "r", "b"), LiveAgent("b", "r", "a")]
    assert {one.session for _, one in forest(told)} == {"a", "b"}


SPREAD = [
    LiveAgent("r-1", "r-1", orchestrator="a"),
    LiveAgent("a-1", "r-1", "r-1", orchestrator="a"),
    LiveAgent("b-1", "r-1", "a-1", orchestrator="b"),
    LiveAgent("b-2", "r-1", "b-1", orchestrator="b"),
    LiveAgent("c-1", "r-1", "b-2", orchestrator="c"),
    LiveAgent("a-2", "r-1", "r-1", orchestrator="a"),
    LiveAgent("x-1", "gone-1", "gone-1", orchestrator="x"),
]


def stopped(*ids):
    return {one.session for one in select_targets(stop_of(SPREAD, ids, now=False, by="me"), SPREAD)}


def test_who_is_stopped_is_stopped_with_all_that_work_for_it_in_any_process():
    assert stopped("r-1") == {"r-1", "a-1", "b-1", "b-2", "c-1", "a-2"}
    assert stopped("a-1") == {"a-1", "b-1", "b-2", "c-1"}
    assert stopped("b-2", "a-2") == {"b-2", "c-1", "a-2"}
    assert stopped() == {one.session for one in SPREAD}


def test_a_process_that_knows_only_its_own_sessions_finds_itself_meant():
    order = stop_of(SPREAD, ["a-1"], now=True, by="me")
    for process in "abc":
        own = [one for one in SPREAD if one.orchestrator == process]
        found = {one.session for one in select_targets(order, own)}
        assert found == {one.session for one in own} - {"r-1", "a-2"}


def test_who_told_only_its_parent_is_stopped_with_its_tree_in_another_process():
    """What began there takes that parent for its root."""
    living = [
        LiveAgent("top", "top", orchestrator="a"),
        LiveAgent("mid", "top", "top", orchestrator="a"),
        LiveAgent("far", "mid", "mid", orchestrator="b"),
        LiveAgent("kid", "far", "far", orchestrator="b"),
        LiveAgent("other", "other", orchestrator="b"),
    ]
    for ids, whom in ((["top"], {"top", "mid", "far", "kid"}), (["mid"], {"mid", "far", "kid"})):
        order = stop_of(living, ids, now=False, by="me")
        assert {one.session for one in select_targets(order, living)} == whom
        for process in "ab":
            own = [one for one in living if one.orchestrator == process]
            assert {one.session for one in select_targets(order, own)} == {one.session for one in own} & whom


def test_first_letters_and_roots_that_are_gone_name_whom_they_can_only_mean():
    assert stopped("gone") == {"x-1"}
    assert stopped("x") == {"x-1"}
    for wrong, said in {
        "a-": "means several: 'a-1', 'a-2'",
        "q": "is no live session",
        "": "means several",
    }.items():
        with pytest.raises(ConfigError, match=re.escape(said)):
            stopped(wrong)


def test_ids_of_agents_are_told_in_one_line():
    living = [LiveAgent(f"s{end}", "r") for end in ("\nlifted: all", "\u202e")]
    with pytest.raises(ConfigError, match=re.escape(r"several: 's\nlifted: all', 's\u202e'")):
        stop_of(living, ["s"], now=False, by="me")
