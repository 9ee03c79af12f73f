"""A question whose first part is known is read as any other, whatever follows that part."""

import pytest
from bus_strategies import json_maps
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.codec import MAX_BODY, MAX_KNOWN, QuestionReader

pytestmark = pytest.mark.pure

ID = bytes(range(16))
WORDS = ["", "a", "parallel_group_id", "session", "\ud7ff"]
FIRST = {
    "phase": "select",
    "available_tools": ["t", "u"],
    "available_agents": None,
    "truncated": False,
    "ttl_ms": 500,
    "trace": {},
    "agent_target": None,
    "agent": "shop",
    "labels": {"team": "a"},
    "parent": None,
}
REST = {
    "parallel_group_id": "",
    "iteration": 3,
    "root_session": "s",
    "session": "s",
    "tool_call_id": "c-1",
    "tool_name": "t",
    "tool_input": {"a": [1, {"b": None}]},
}
RESULT = REST | {"result_form": "json", "result": b'{"a":[1]}', "success": True}
UNTRACED = {name: one for name, one in FIRST.items() if name != "trace"}
firsts = st.fixed_dictionaries(
    {
        "available_tools": st.lists(st.sampled_from(WORDS), max_size=5),
        "labels": st.dictionaries(st.sampled_from(WORDS), st.sampled_from(WORDS), max_size=3),
        "agent": st.sampled_from([*WORDS, 5]),
        "phase": st.sampled_from(["select", "select", "select", "verify"]),
        "parent": st.sampled_from([None, *WORDS]),
    }
).map(lambda some: FIRST | some)
others = st.sampled_from([None, True, 0, -(2**63), 1.5, "x", b"x", [], {}])
rests = st.fixed_dictionaries(
    {"tool_input": json_maps | others, "iteration": st.integers(-(2**63), 2**63 - 1)},
    optional={
        "session": st.sampled_from(WORDS) | others,
        "tool_call_id": st.sampled_from(WORDS) | others,
        "lineage": st.just(["a"]),
        "session_labels": st.just({"seen": ["x"]}),
        "request": st.just("do it"),
        "again": st.just(True),
        "unknown": json_maps,
        "phase": st.just("select"),
        "agent": st.just("b"),
    },
).map(lambda some: REST | some)


results = st.fixed_dictionaries(
    {
        "result_form": st.sampled_from(["json", "json", "text", "xml", None]),
        "result": st.sampled_from([b'{"a": 1}', b"[1.5]", b'{"a":1,"a":1}', b"\xff", b"", "x", None]),
        "success": st.booleans() | st.sampled_from([None, 1, "yes"]),
    },
    optional={"result_cut": st.just(True), "again": st.just(True)},
) | st.just({})


def item(body, version=packing.NEWEST, phase=0):
    return packing.Item(ID, phase, body, None, version)


def outcome(read, asked):
    """All that can be seen of a question that was read, or the kind of the error."""
    try:
        found = read(asked)
    except CodecError as error:
        return error.reason
    return vars(found), list(vars(found)), found.__pydantic_extra__, found.__pydantic_fields_set__


def knows(reader, body, version=packing.NEWEST, phase=0):
    for _ in range(2):
        outcome(reader.read, item(body, version, phase))
    return len(reader._known)


@given(firsts, st.lists(rests, min_size=1, max_size=3), st.sampled_from(packing.VERSIONS))
def test_every_question_is_read_as_if_it_were_the_first(first, several, version):
    reader = QuestionReader()
    knows(reader, packing.pack({**FIRST, **REST}), version)
    knows(reader, packing.pack({**first, **REST}), version)
    for rest in several:
        asked = item(packing.pack({**first, **rest}), version)
        for _ in range(3):
            assert outcome(reader.read, asked) == outcome(codec.question, asked)


@given(firsts, st.lists(st.tuples(rests, results), min_size=1, max_size=3), st.sampled_from([0, 4, 5]))
def test_every_question_about_a_result_is_read_as_if_it_were_the_first(first, several, phase):
    reader, first = QuestionReader(), first | {"phase": "result"}
    assert knows(reader, packing.pack({**FIRST, "phase": "result", **RESULT}), phase=4) == 1
    knows(reader, packing.pack({**first, **RESULT}), phase=4)
    for rest, result in several:
        asked = item(packing.pack({**first, **rest, **result}), phase=phase)
        for _ in range(3):
            assert outcome(reader.read, asked) == outcome(codec.question, asked)


def test_a_result_behind_a_known_first_part_is_read_alone(monkeypatch):
    reader, first = QuestionReader(), FIRST | {"phase": "result"}
    assert knows(reader, packing.pack({**first, **RESULT}), phase=4) == 1
    again = item(packing.pack({**first, **RESULT}), phase=5)
    assert reader.read(again).again
    monkeypatch.setattr(codec, "question", None)
    several = [(b"[2]", True), (b'"x"', False)]
    read = [
        reader.read(item(packing.pack({**first, **RESULT, "result": data, "success": went}), phase=4))
        for data, went in several
    ]
    assert [(one.result, one.success, one.phase) for one in read] == [
        ([2], True, "result"),
        ("x", False, "result"),
    ]


@pytest.mark.parametrize("name", REST)
@pytest.mark.parametrize("wrong", [None, True, 1.5, b"x", [], {"a": b"x"}, {5: 1}, ["x"] * 2000])
def test_what_is_wrong_behind_a_known_first_part_is_refused(name, wrong):
    reader = QuestionReader()
    assert knows(reader, packing.pack({**FIRST, **REST})) == 1
    for rest in (REST | {name: wrong}, REST | {"more": wrong}):
        asked = item(packing.pack({**FIRST, **rest}))
        assert outcome(reader.read, asked) == outcome(codec.question, asked)


@given(st.data())
def test_a_question_that_was_tampered_with_is_read_or_refused_as_if_it_were_the_first(data):
    reader, whole = QuestionReader(), packing.pack({**FIRST, **REST})
    assert knows(reader, whole) == 1
    at = data.draw(st.integers(0, len(whole) - 1))
    until = data.draw(st.integers(at, min(len(whole), at + 3)))
    asked = item(whole[:at] + data.draw(st.binary(max_size=3)) + whole[until:])
    for _ in range(3):
        assert outcome(reader.read, asked) == outcome(codec.question, asked)


def test_what_is_known_is_not_decoded_again(monkeypatch):
    reader = QuestionReader()
    assert knows(reader, packing.pack({**FIRST, **REST})) == 1
    monkeypatch.setattr(codec, "question", None)
    read = reader.read(item(packing.pack({**FIRST, **REST, "tool_input": {"b": 2}})))
    assert (read.tool_input, read.available_tools, read.labels) == ({"b": 2}, ("t", "u"), {"team": "a"})


def test_what_one_does_with_a_question_no_other_sees():
    reader, body = QuestionReader(), packing.pack({**FIRST, **REST})
    knows(reader, body)
    one = reader.read(item(body))
    for name in ("labels", "trace", "session_labels", "required_labels", "tool_input", "__pydantic_extra__"):
        getattr(one, name)["mine"] = ["x"]
    assert outcome(reader.read, item(body)) == outcome(codec.question, item(body))


@pytest.mark.parametrize(
    ("first", "phase"),
    [
        (FIRST | {"available_tools": ["t", "parallel_group_id"]}, 0),
        (FIRST | {"more": 1}, 0),
        (FIRST | {"phase": "verify"}, 1),
        (UNTRACED, 0),
        (UNTRACED | {"session_labels": {"seen": ["x"]}}, 0),
        (FIRST | {"available_tools": ["t" * 60_000]}, 0),
    ],
)
def test_what_is_unusual_is_not_kept(first, phase):
    reader, asked = QuestionReader(), item(packing.pack({**first, **REST}), phase=phase)
    for _ in range(3):
        assert outcome(reader.read, asked) == outcome(codec.question, asked)
    assert not reader._known


def test_what_is_kept_is_bounded():
    reader = QuestionReader()
    for number in range(3 * MAX_KNOWN):
        knows(reader, packing.pack({**FIRST, "agent": f"{number}", **REST}))
        reader.read(item(packing.pack({**FIRST, "agent": f"once {number}", **REST})))
    assert len(reader._known) <= MAX_KNOWN
    assert max(map(len, reader._known)) < MAX_BODY
