"""Bytes and back: golden vectors, round trips, bounds, and everything that may be wrong with bytes."""

import json
import math
from pathlib import Path

import msgpack
import pytest
from bus_strategies import json_maps, texts, verdicts
from hypothesis import example, given
from hypothesis import strategies as st
from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import Continue, Deny, Modify, ToolSelecting

pytestmark = pytest.mark.pure

WIRE = json.loads((Path(__file__).parents[2] / "vectors" / "wire.json").read_text())
REASONS = {"malformed", "oversize", "version", "phase"}
ID = bytes(range(16))
GOOD = packing.item(ID, 0, codec.verdict_body(Continue()))


def named(vectors):
    return [pytest.param(one, id=one["name"]) for one in vectors]


def bytes_of(text):
    return None if text is None else bytes.fromhex(text)


def refusal(decode, *args):
    """The reason why something was refused; fails unless it was, and by a CodecError."""
    with pytest.raises(CodecError) as caught:
        decode(*args)
    return caught.value.reason


# ------------------------------------------------------------------ golden vectors


@pytest.mark.parametrize("vector", named(WIRE["verdicts"]))
def test_a_golden_verdict_is_read_and_written_byte_for_byte(vector):
    body = bytes_of(vector["body"])
    verdict = codec.verdict(body)
    fields = verdict.model_dump(mode="json", exclude_none=True)
    assert fields == vector["fields"]
    assert codec.verdict_body(verdict) == body


@pytest.mark.parametrize("vector", named(WIRE["questions"]))
def test_a_golden_question_is_read_and_written_byte_for_byte(vector):
    body, id_ = bytes_of(vector["body"]), bytes_of(vector["id"])
    assert packing.pack(vector["fields"]) == body
    question = codec.question(packing.Item(id_, vector["phase"], body, None))
    told = question.model_dump(mode="json")
    assert told == ToolSelecting(id=vector["id"], session_labels=None, **vector["fields"]).model_dump(
        mode="json"
    )
    assert {name: told[name] for name in vector["fields"]} == vector["fields"]


@pytest.mark.parametrize("vector", named(WIRE["frames"]))
def test_a_golden_frame_is_read_and_written_byte_for_byte(vector):
    items = [
        packing.Item(bytes_of(one["id"]), one["phase"], bytes_of(one["body"]), bytes_of(one["mac"]))
        for one in vector["items"]
    ]
    raw = bytes_of(vector["frame"])
    assert packing.items(raw) == items
    assert packing.frame([packing.item(*one) for one in items]) == raw


@pytest.mark.parametrize("vector", named(WIRE["refused"]["frames"]))
def test_a_bad_frame_is_refused(vector):
    assert refusal(packing.items, bytes_of(vector["frame"])) == vector["reason"]


@pytest.mark.parametrize("vector", named(WIRE["refused"]["items"]))
def test_a_bad_item_stands_as_its_error_between_its_neighbours(vector):
    before, bad, after = packing.items(packing.frame([GOOD, bytes_of(vector["item"]), GOOD]))
    assert isinstance(bad, CodecError)
    assert bad.reason == vector["reason"]
    assert before == after == packing.Item(ID, 0, codec.verdict_body(Continue()), None)


@pytest.mark.parametrize("vector", named(WIRE["refused"]["verdicts"]))
def test_a_bad_verdict_is_refused(vector):
    assert refusal(codec.verdict, bytes_of(vector["body"])) == vector["reason"]


@pytest.mark.parametrize("vector", named(WIRE["refused"]["questions"]))
def test_a_bad_question_is_refused(vector):
    item = packing.Item(ID, vector["phase"], bytes_of(vector["body"]), None)
    assert refusal(codec.question, item) == vector["reason"]


# ------------------------------------------------------------------ round trips


@given(verdicts)
def test_every_verdict_survives_the_wire(verdict):
    assert codec.verdict(codec.verdict_body(verdict)) == verdict


labels = st.dictionaries(texts, texts, max_size=3)
words = st.lists(texts, max_size=4)
questions = st.fixed_dictionaries(
    {"phase": st.sampled_from(["select", "verify"]), "tool_name": texts},
    optional={
        "session": texts,
        "parent": st.none() | texts,
        "labels": labels,
        "tool_input": json_maps,
        "iteration": st.integers(0, 2**31),
        "available_tools": words,
        "available_agents": st.none() | words,
        "agent_target": st.none() | texts,
        "ttl_ms": st.integers(1, 600_000),
        "trace": labels,
        "truncated": st.booleans(),
    },
)


@given(questions, st.binary(min_size=16, max_size=16), st.none() | st.binary(max_size=32))
def test_every_question_survives_the_wire(fields, id_, mac):
    phase = ["select", "verify"].index(fields["phase"])
    raw = packing.frame([packing.item(id_, phase, packing.pack(fields), mac)])
    (item,) = packing.items(raw)
    assert item.mac == mac
    assert codec.question(item) == ToolSelecting(id=id_.hex(), session_labels=None, **fields)


@given(st.lists(st.tuples(st.binary(max_size=40), st.none() | st.binary(max_size=32)), max_size=64))
def test_a_frame_gives_its_items_back_in_order(bodies):
    items = [packing.Item(ID, at % 2, body, mac) for at, (body, mac) in enumerate(bodies)]
    assert packing.items(packing.frame([packing.item(*one) for one in items])) == items


def test_a_continue_with_its_fields_in_another_order_is_read_as_well():
    raw = msgpack.packb({"priority": None, "reason": None, "action": "continue"})
    assert codec.verdict(raw) == Continue()


def test_of_a_key_said_twice_one_value_counts_and_nothing_breaks():
    raw = b"\x83\xa6action\xa4deny\xa6reason\xa1a\xa6reason\xa1b"
    assert codec.verdict(raw) == Deny(reason="b")


def test_no_number_is_a_value_that_arguments_may_hold():
    verdict = codec.verdict(codec.verdict_body(Modify(tool="t", arguments={"n": math.nan})))
    assert math.isnan(verdict.arguments["n"])


# ------------------------------------------------------------------ bad bytes


def read_everything(raw):
    """All that either side may do with a frame; a CodecError is the only complaint."""
    for item in complaint(packing.items, raw) or ():
        if isinstance(item, CodecError):
            assert item.reason in REASONS
        else:
            complaint(codec.verdict, item.body)
            complaint(codec.decode_verdict, item.body)
            complaint(codec.check_withdrawal, item)
            complaint(codec.question, item)


def complaint(read, value):
    """What reading gives, or None where it is refused for one of the known reasons."""
    try:
        return read(value)
    except CodecError as error:
        reason = error.reason
    assert reason in REASONS
    return None


wild = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.binary(max_size=20)
    | texts,
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(
            st.sampled_from(["action", "reason", "seconds", "phase"]) | texts, inner, max_size=4
        )
    ),
)
versions = st.sampled_from(packing.VERSIONS) | st.integers(-1, 3) | wild
item_like = st.tuples(
    versions,
    st.just(ID) | wild,
    st.sampled_from([0, 1, 0.0, 1.0, True, 2]) | wild,
    (wild | verdicts.map(lambda one: one.model_dump())).map(msgpack.packb) | wild,
    st.none() | st.binary(max_size=32) | wild,
)


@given(st.binary(max_size=200))
@example(b"\xc1")
@example(b"\x91\xc7\x00\x01")
def test_random_bytes_are_refused_or_read_and_nothing_else(raw):
    read_everything(raw)
    read_everything(packing.frame([packing.item(ID, 0, raw)]))


@given(st.lists(item_like | wild, max_size=4))
def test_any_well_formed_msgpack_is_refused_or_read_and_nothing_else(items):
    read_everything(msgpack.packb(items))


@given(st.sampled_from(WIRE["frames"] + WIRE["questions"]), st.integers(0, 10**6), st.integers(1, 255))
def test_a_good_frame_with_one_byte_changed_is_refused_or_read_and_nothing_else(vector, at, flip):
    raw = bytearray(
        bytes_of(vector["frame"])
        if "frame" in vector
        else packing.frame([packing.item(ID, vector["phase"], bytes_of(vector["body"]))])
    )
    raw[at % len(raw)] ^= flip
    read_everything(bytes(raw))


@pytest.mark.parametrize("vector", named(WIRE["frames"]))
def test_a_frame_cut_off_anywhere_is_refused(vector):
    raw = bytes_of(vector["frame"])
    for length in range(len(raw)):
        assert refusal(packing.items, raw[:length]) == "malformed"


@pytest.mark.parametrize("levels", [34, 1000, 100_000])
@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1k"])
def test_depth_is_no_weapon(levels, opening):
    bomb = opening * levels + b"\xc0"
    assert refusal(codec.verdict, bomb) in ("malformed", "oversize")
    nested = b"\x83\xa6action\xa6modify\xa4tool\xa1t\xa9arguments\x81\xa1k" + bomb
    assert refusal(codec.verdict, nested) in ("malformed", "oversize")
    read_everything(b"\x91" + bomb)
    read_everything(packing.frame([packing.item(ID, 0, nested)]))


@pytest.mark.parametrize("leaf", [b"\x80", b"\x90"])
def test_a_map_of_many_empty_containers_is_refused(leaf):
    rows = b"\xdc\x04\x00" + leaf * 1024
    nested = b"\x83\xa6action\xa6modify\xa4tool\xa1t\xa9arguments\x81\xa1k\xdc\x00\x30" + rows * 48
    assert len(nested) < packing.MAX_VERDICT
    assert refusal(codec.verdict, nested) == "malformed"


@pytest.mark.parametrize(
    "header", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff"]
)
def test_a_length_that_is_a_lie_costs_nothing(header):
    assert refusal(packing.items, header) == "malformed"
    assert refusal(codec.verdict, header) == "malformed"


@pytest.mark.parametrize("value", [2**64, {"a": object()}, {"a": "\ud800"}, {1, 2}])
def test_what_cannot_be_written_is_refused_and_leaves_nothing_behind(value):
    assert refusal(packing.pack, value) == "malformed"
    assert refusal(packing.pack, ["before", value]) == "malformed"
    assert packing.pack({"a": 1}) == msgpack.packb({"a": 1})


def test_a_value_without_end_is_refused():
    endless: list[object] = []
    endless.append(endless)
    assert refusal(packing.pack, endless) == "malformed"


# ------------------------------------------------------------------ exact bounds


def padded_modify(length):
    """A modify whose body has exactly this many bytes, in strings that are short enough."""
    empty = len(codec.verdict_body(Modify(tool="t", arguments={"a": "", "b": "x" * 30_000})))
    body = codec.verdict_body(
        Modify(tool="t", arguments={"a": "x" * (length - empty - 2), "b": "x" * 30_000})
    )
    assert len(body) == length
    return body


def test_a_verdict_may_have_64_kib_and_not_a_byte_more():
    assert isinstance(codec.verdict(padded_modify(packing.MAX_VERDICT)), Modify)
    assert refusal(codec.verdict, padded_modify(packing.MAX_VERDICT + 1)) == "oversize"


def question_of(length):
    fields = {
        "phase": "select",
        "tool_name": "t",
        "tool_input": dict.fromkeys("abcd", "x" * 60000) | {"e": ""},
    }
    fields["tool_input"]["e"] = "x" * (length - len(packing.pack(fields)) - 2)
    body = packing.pack(fields)
    assert len(body) == length
    return packing.Item(ID, 0, body, None)


def test_a_question_may_have_256_kib_and_not_a_byte_more():
    assert isinstance(codec.question(question_of(packing.MAX_QUESTION)), ToolSelecting)
    assert refusal(codec.question, question_of(packing.MAX_QUESTION + 1)) == "oversize"


def test_a_string_may_have_64_kib_and_not_a_byte_more():
    assert packing.unpack(packing.pack("x" * packing.MAX_STRING)) == "x" * packing.MAX_STRING
    assert refusal(packing.unpack, packing.pack("x" * (packing.MAX_STRING + 1))) == "malformed"
    assert refusal(packing.unpack, packing.pack("é" * (packing.MAX_STRING // 2 + 1))) == "malformed"


@pytest.mark.parametrize("make", [lambda n: [0] * n, lambda n: {str(at): 0 for at in range(n)}])
def test_a_container_may_have_1024_entries_and_not_one_more(make):
    assert packing.unpack(packing.pack(make(packing.MAX_ENTRIES))) == make(packing.MAX_ENTRIES)
    assert refusal(packing.unpack, packing.pack(make(packing.MAX_ENTRIES + 1))) == "malformed"


def nested(levels):
    """A map with this many levels of maps below it."""
    value = {}
    for _ in range(levels):
        value = {"k": value}
    return value


def test_a_value_may_have_32_levels_below_it_and_not_one_more():
    assert packing.within_bounds(nested(packing.MAX_DEPTH))
    assert not packing.within_bounds(nested(packing.MAX_DEPTH + 1))


def test_a_value_may_have_10_000_nodes_and_not_one_more():
    rows = [[0] * 999 for _ in range(10)]
    assert packing.within_bounds(rows)
    assert not packing.within_bounds([*rows, 0])


def test_a_frame_may_have_64_items_and_not_one_more():
    assert len(packing.items(packing.frame([GOOD] * packing.MAX_ITEMS))) == packing.MAX_ITEMS
    assert refusal(packing.items, packing.frame([GOOD] * (packing.MAX_ITEMS + 1))) == "malformed"


def test_a_frame_longer_than_the_longest_is_refused_unread():
    assert refusal(packing.items, b"\x91" * (packing.MAX_FRAME + 1)) == "oversize"


def test_the_largest_verdicts_travel_in_frames_that_are_read():
    big = packing.item(ID, 0, padded_modify(packing.MAX_VERDICT - 100))
    frames = list(packing.frames([big] * 63))
    assert sum(map(len, frames)) == 63
    for part in frames:
        assert all(isinstance(one, packing.Item) for one in packing.items(packing.frame(part)))


@given(st.lists(st.integers(0, 2 * packing.FULL_FRAME), max_size=200))
def test_frames_keep_every_item_in_order_within_the_limits(sizes):
    items = [bytes(size) for size in sizes]
    parts = list(packing.frames(items))
    assert [one for part in parts for one in part] == items
    for part in parts:
        assert 0 < len(part) <= packing.MAX_ITEMS
        assert len(part) == 1 or sum(map(len, part)) <= packing.FULL_FRAME


@given(json_maps)
def test_what_fits_can_be_read_back(value):
    assert packing.fits(value, packing.size(value))
    assert not packing.fits(value, packing.size(value) - 1)
    assert packing.unpack(packing.pack(value)) == value
