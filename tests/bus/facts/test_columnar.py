"""Decisions that all agreed on: one fact holds many, and readers see each as any other."""

import struct
from functools import partial

import msgpack
import pytest
from bus_strategies import json_maps
from hypothesis import example, given
from hypothesis import strategies as st
from toolgate_bus.errors import CodecError
from toolgate_bus.facts import record
from toolgate_bus.facts.columnar import MAX_QUESTION, MAX_RECIPIENTS, pack_batch, pack_run
from toolgate_bus.facts.entries import read_entry
from toolgate_bus.facts.sequence import SeenNumbers
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import Decision, ReceivedVerdict
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.unanimous import AT_ONCE, Batch, FactRun
from toolgate_bus.transport.redis.asking.fact_buffer import FactBuffer
from toolgate_bus.transport.redis.asking.publisher import MANY_WAITING, Publisher

pytestmark = pytest.mark.pure

names = st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True)
seconds = st.floats(0, 1e6)
groups = st.lists(
    st.tuples(names, st.integers(-(2**31), 2**31 - 1)),
    min_size=1,
    max_size=MAX_RECIPIENTS,
    unique_by=lambda one: one[0],
).map(tuple)
decisions = st.tuples(json_maps, st.binary(min_size=16, max_size=16), seconds, st.floats(0, 1e9))


def revision_of(named, number):
    """What one name calls its configuration in the decision of this number, some of them not at all."""
    return named[number % len(named)] if named else ""


def batch_of(group, given_decisions, seqs, took=0.5, named=()):
    notes = [
        (
            *("t", "shop", lasted, key, asked(arguments), at, seqs[number]),
            *[took] * len(group),
            *[revision_of(named, number)] * len(group),
        )
        for number, (arguments, key, lasted, at) in enumerate(given_decisions)
    ]
    made = Batch(group, notes[0])
    for note in notes[1:]:
        made.notes += note
    return made


def asked(arguments):
    return packing.pack({"available_tools": ["t", "u"], "tool_name": "t", "tool_input": arguments})


def read(packed):
    (item,) = packing.items(packing.frame([packed.item]))
    return record.read_facts(item)


@given(
    groups,
    st.lists(decisions, min_size=1, max_size=AT_ONCE),
    st.integers(1, 2**52),
    seconds,
    st.lists(st.sampled_from(["", "v1", "v2@0123456789ab"]), max_size=3),
    st.integers(0, 3),
    st.booleans(),
)
def test_each_is_read_back_exactly_as_if_it_had_a_fact_of_its_own(
    group, several, seq, took, named, others, parted
):
    epoch = 1e9
    seqs = [seq + number * (1 + others) for number in range(len(several))]
    batch = batch_of(group, several, seqs, took, named)
    found = [fact for one in pack_batch(batch, epoch, parted=parted) for fact in read(one.item)]
    alone = []
    for number, (arguments, key, lasted, at) in enumerate(several):
        said = {"seconds": took, "revision": revision_of(named, number)}
        verdicts = tuple(ReceivedVerdict(name, codec.PLAIN_CONTINUE, rank, **said) for name, rank in group)
        decision = Decision(
            key.hex(), "continue", "agreed", "t", {}, "t", {}, verdicts=verdicts, seconds=lasted
        )
        fields = [record.verdict_fields(one) for one in verdicts]
        raw = record.decision_fact(decision, asked(arguments), fields, None, None, seqs[number], at + epoch)
        (item,) = packing.items(packing.frame([raw]))
        alone += record.read_facts(item)
    assert found == alone


def test_what_all_questions_begin_with_is_kept_once():
    tools = {"available_tools": [f"tool-{number}" for number in range(50)]}
    questions = [packing.pack({**tools, "tool_name": "t", "tool_input": {"n": n}}) for n in range(AT_ONCE)]
    batch = Batch((("cost", 0),), ("t", "", 0.1, bytes(16), questions[0], 0.0, 1, 0.1, "v1"))
    for number, question in enumerate(questions[1:], 2):
        batch.notes += ("t", "", 0.1, bytes(16), question, 0.0, number, 0.1, "v1")
    ((_, packed),) = pack_batch(batch, 0.0)
    assert packed.facts == AT_ONCE
    assert len(packed.item) < 0.2 * sum(map(len, questions))


def test_large_questions_are_parted_into_facts_that_can_be_read():
    large = {"text": "x" * (MAX_QUESTION - 100)}
    batch = batch_of((("cost", 0),), [(large, bytes(16), 0.1, 0.0)] * AT_ONCE, range(7, 7 + AT_ONCE))
    packed = [one.item for one in pack_batch(batch, 0.0)]
    assert sum(one.facts for one in packed) == AT_ONCE
    assert max(len(one.item) for one in packed) <= packing.FULL_FRAME
    assert [fact["seq"] for one in packed for fact in read(one)] == list(range(7, 7 + AT_ONCE))


class RunOf:
    """A run of facts: decisions of two groups, and other facts, as the numbers say."""

    def __init__(self, kinds, size, first=1):
        self.run = FactRun()
        for seq, kind in enumerate(kinds, first):
            if kind == "other":
                self.run.add(seq, partial(record.other_fact, {"event": "cost", "text": "x" * size}, seq, 0.0))
                continue
            group = ((kind, 0),)
            note = ("t", "shop", 0.1, bytes(16), asked({"text": "y" * size}), 0.0, seq, 0.1, "")
            if group in self.run.batches:
                self.run.batches[group].notes += note
            else:
                self.run.batches[group] = metrics.agreed_batch(group, note)


kinds = st.lists(st.sampled_from(["other", "cost", "policy"]), min_size=1, max_size=AT_ONCE)


@given(kinds, st.sampled_from([0, 300, 3000, 20_000]), st.integers(0, 30))
@example(["cost", "other"] * 30, 0, 10)
@example(["cost", "other"] * 20, 20_000, 0)
def test_facts_of_all_kinds_are_read_in_the_order_of_their_numbers(kinds, size, before):
    buffer = FactBuffer()
    alone = [partial(record.other_fact, {"event": "cost"}, number + 1, 0.0) for number in range(before)]
    frames = buffer.add([*alone, partial(pack_run, RunOf(kinds, size, before + 1).run)])
    found = [[fact["seq"] for fact in read_entry(frame)] for frame, _ in frames]
    assert [seq for each in found for seq in each] == list(range(1, before + len(kinds) + 1))
    assert sum(facts for _, facts in frames) == before + len(kinds)


def test_decisions_share_a_fact_whatever_comes_between_them():
    packed = pack_run(RunOf(["cost", "other"] * 20, 300).run)
    assert sorted(one.facts for one in packed) == [1] * 20 + [20]


async def test_while_many_facts_wait_each_counts_for_itself():
    waiting = Publisher(Keys("ns"), "o-1", lambda orchestrator, frames: False)
    assert not waiting.may_interlock()
    waiting.reads_offsets = True
    for number in range(MANY_WAITING):
        assert waiting.may_interlock()
        waiting.fact(partial(record.other_fact, {"event": "cost"}, number + 1, 0.0))
    assert not waiting.may_interlock()


def test_a_fact_that_cannot_be_made_delays_no_other():
    run = RunOf(["cost", "other", "cost"], 0).run
    run.add(4, partial(int, "x"))
    assert sum(one.facts for one in pack_run(run)) == 3


GOOD = {
    "event": "agreed",
    "seq": 1,
    "at": struct.pack(">2d", 1, 2),
    "ids": bytes(32),
    "seconds": struct.pack(">2d", 0.1, 0.2),
    "asked": [["cost", 5, struct.pack(">2d", 0.1, 0.2)]],
    "begin": asked({})[:-1],
    "rest": [b"\x80", b"\x80"],
}


def opened(fields):
    return record.read_facts(packing.Item(bytes(16), 0, msgpack.packb(fields), None))


def test_the_documented_fields_are_two_decisions():
    first, second = opened(GOOD)
    assert (first["seq"], second["seq"]) == (1, 2)
    assert (first["at"], second["seconds"]) == (1.0, 0.2)
    assert second["asked"] == ["cost"]
    assert second["verdicts"][0]["priority"] == 5


def test_who_named_its_configuration_is_told_for_each_decision():
    first, second = opened(GOOD | {"revisions": [[["v1", "v2"], b"\x01\x00"]]})
    assert [one["verdicts"][0]["revision"] for one in (first, second)] == ["v2", "v1"]
    assert opened(GOOD | {"revisions": ["v3"]})[1]["verdicts"][0]["revision"] == "v3"


def test_a_decision_is_as_far_from_the_first_as_its_offset_says():
    assert [one["seq"] for one in opened(GOOD | {"offsets": b"\x00\x05"})] == [1, 6]


@pytest.mark.parametrize("offsets", [5, [0, 1], b"", b"\x00", b"\x00\x00", b"\x01\x02", b"\x00\x01\x02"])
def test_offsets_that_fit_no_decisions_are_refused(offsets):
    with pytest.raises(CodecError):
        opened(GOOD | {"offsets": offsets})


@pytest.mark.parametrize(
    "revisions", [5, [], ["v1", "v2"], [[["v1"], b"\x00\x01"]], [[["v1"], b"\x00"]], [[[1], bytes(2)]], [[]]]
)
def test_revisions_that_fit_no_decisions_are_refused(revisions):
    with pytest.raises(CodecError):
        opened(GOOD | {"revisions": revisions})


WRONG = [None, 5.5, "text", b"", b"short", [], [5], [b"x"], [["a"]], [["a", 0, b"x"]], {}]


@pytest.mark.parametrize(
    ("name", "wrong"),
    # (That nobody was asked is odd, and harmless.)
    [(name, wrong) for name in GOOD for wrong in WRONG if (name, wrong) != ("asked", []) and name != "event"],
)
def test_fields_that_do_not_fit_each_other_are_refused(name, wrong):
    with pytest.raises(CodecError):
        opened({**GOOD, name: wrong})


def test_a_little_that_stands_for_very_much_is_refused():
    begin = packing.pack({"a": "x" * 60_000})
    many = {"at": bytes(512), "ids": bytes(1024), "seconds": bytes(512), "asked": [], "rest": [b""] * 64}
    with pytest.raises(CodecError) as refused:
        opened({**GOOD, **many, "begin": begin})
    assert refused.value.reason == "oversize"
    with pytest.raises(CodecError):
        opened({**GOOD, "rest": [b""] * 65})


def test_what_a_reader_has_all_of_is_left_out_unread():
    seen = SeenNumbers()
    item = packing.Item(bytes(16), 0, msgpack.packb(GOOD), None)
    assert [fact["seq"] for fact in record.read_facts(item, seen.has_all)] == [1, 2]
    seen.take(1)
    assert [fact["seq"] for fact in record.read_facts(item, seen.has_all)] == [1, 2]
    seen.take(2)
    assert record.read_facts(item, seen.has_all) == []
    apart = packing.Item(bytes(16), 0, msgpack.packb(GOOD | {"offsets": b"\x00\x02"}), None)
    assert [fact["seq"] for fact in record.read_facts(apart, seen.has_all)] == [1, 3]
    seen.take(3)
    assert record.read_facts(apart, seen.has_all) == []


@pytest.mark.parametrize("wrong", [1.0, "1", None, [1]])
def test_what_has_no_number_is_not_left_out(wrong):
    item = packing.Item(bytes(16), 0, msgpack.packb({**GOOD, "seq": wrong}), None)
    with pytest.raises(CodecError):
        record.read_facts(item, lambda first, last: True)
