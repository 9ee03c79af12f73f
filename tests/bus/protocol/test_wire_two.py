"""What version 2 of the wire adds: ignorable fields, revisions, kinds that are signed, signed heartbeats."""

import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import msgpack
import pytest
from bus_strategies import json_maps, texts, verdicts
from hypothesis import given
from hypothesis import strategies as st
from questions import question_about
from toolgate_bus.errors import CodecError, ConfigError
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.compression import compress, decompress
from toolgate_bus.protocol.events import Continue, Deny, Replace, SentResult
from toolgate_bus.protocol.revision import Revision, revision_of
from toolgate_bus.protocol.signing import Keyring, digest
from toolgate_bus.transport.heartbeats import (
    MAX_MEMBER,
    decode_member,
    encode_leave,
    encode_member,
    is_signed,
)
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.roster.roster import (
    decode_read_ms,
    decode_reading,
    decode_role,
    decode_wire,
    encode_reading,
    encode_role,
)

pytestmark = pytest.mark.pure

WIRE = json.loads((Path(__file__).parents[2] / "vectors" / "wire-2.json").read_text(encoding="utf-8"))
SCHEMAS = Path(__file__).parents[3] / "bus" / "schemas" / "v2"
ID = bytes(range(16))
RING = Keyring({"cost": b"c" * 32, "router": b"r" * 32}, "fleet-1")
MEMBER = Member(
    "cost",
    "r1",
    priority=3,
    tools=("web_*",),
    wire=(1, 2),
    kinds=("question", "withdrawn"),
    build="toolgate 1.0",
    revision=Revision("v7", "0123456789ab"),
    server_replicas=2,
    shards=(0, 2),
    beat=5,
)


def refusal(read, *args):
    with pytest.raises(CodecError) as caught:
        read(*args)
    return caught.value.reason


def deep(levels):
    value = None
    for _ in range(levels):
        value = [value]
    return value


def named(vectors):
    return [pytest.param(one, id=one["name"]) for one in vectors]


def raw(vector, field="body"):
    return None if vector[field] is None else bytes.fromhex(vector[field])


# ------------------------------------------------------------------ golden vectors


@pytest.mark.parametrize("vector", named(WIRE["verdicts"] + WIRE["read"]["verdicts"]))
def test_a_golden_verdict_is_read_with_its_revision_and_its_start(vector):
    for _ in range(2):  # the second time it is known by its bytes
        verdict, revision, start = codec.decode_verdict(raw(vector))
        assert start == vector.get("start", "")
    assert verdict.model_dump(mode="json", exclude_none=True) == vector["fields"]
    assert revision == vector.get("revision", "")
    assert (verdict.model_extra or {}) == vector.get("unknown", {})
    if "unknown" not in vector:
        assert codec.verdict_body(verdict, revision, start) == raw(vector)


@pytest.mark.parametrize("vector", named(WIRE["read"]["questions"]))
def test_a_golden_question_is_read_whatever_else_it_says(vector):
    question = codec.question(packing.Item(ID, vector["phase"], raw(vector), None, 2))
    known = question.model_dump(mode="json", exclude_unset=True, include=set(vector["fields"]))
    assert (known, question.model_extra) == (vector["fields"], vector["unknown"])


@pytest.mark.parametrize("vector", named(WIRE["frames"]))
def test_a_golden_frame_is_read_and_written_byte_for_byte(vector):
    items = [
        packing.Item(raw(one, "id"), one["phase"], raw(one), raw(one, "mac"), one["version"])
        for one in vector["items"]
    ]
    assert packing.items(raw(vector, "frame")) == items
    assert packing.frame([packing.item(*one) for one in items]) == raw(vector, "frame")


@pytest.mark.parametrize("vector", named(WIRE["compressed"]))
def test_a_golden_compressed_frame_is_opened_and_what_is_hostile_is_refused(vector):
    opened = raw(vector, "zlib"), raw(vector, "base") or b""
    if "reason" in vector:
        assert refusal(decompress, *opened) == vector["reason"]
    else:
        assert decompress(*opened) == raw(vector, "frame")
        assert decompress(compress(raw(vector, "frame"), opened[1]), opened[1]) == raw(vector, "frame")


@pytest.mark.parametrize("vector", named(WIRE["signatures"]))
def test_the_golden_signatures_are_made_and_accepted(vector):
    ring, who = (
        Keyring({vector["scheduler"]: raw(vector, "key")}, vector["namespace"]),
        (vector["orchestrator"], vector["scheduler"]),
    )
    covered = packing.bytes_to_sign(raw(vector, "id"), vector["phase"], raw(vector, "question_body"))
    gone = packing.bytes_to_sign(raw(vector, "id"), vector["phase"], raw(vector, "withdrawn_body"))
    assert ring.sign_question(*who, covered, 2) == raw(vector, "question_mac")
    assert ring.sign_withdrawn(*who, gone, 2) == raw(vector, "withdrawn_mac")
    asked, body = digest(covered), raw(vector, "verdict_body")
    assert ring.sign_verdict(*who, asked, body, 2) == raw(vector, "verdict_mac")


@pytest.mark.parametrize("vector", named(WIRE["withdrawn"]))
def test_the_golden_withdrawals_are_taken(vector):
    codec.check_withdrawal(packing.Item(ID, vector["phase"], raw(vector), None, 2))


@pytest.mark.parametrize("vector", named(WIRE["readers"]))
def test_the_golden_heartbeat_of_a_reader_of_facts_is_read_and_written_byte_for_byte(vector):
    role, read_ms = vector["fields"]["role"], vector["fields"].get("read_ms", 0)
    assert encode_role(role, read_ms) == raw(vector, "value")
    assert (decode_role(raw(vector, "value")), decode_read_ms(raw(vector, "value"))) == (role, read_ms)


def test_the_golden_heartbeats_are_read_and_written_byte_for_byte():
    replica, leaves, orchestrator, durable, sharded, told = WIRE["heartbeats"]
    fields = replica["fields"]
    ring = Keyring({replica["scheduler"]: raw(replica, "key")}, replica["namespace"])
    lists = {name: tuple(fields[name]) for name in ("tools", "wire", "phases", "kinds")}
    revision = Revision(**fields["revision"])
    member = Member(replica["scheduler"], replica["replica"], **{**fields, **lists, "revision": revision})
    assert encode_member(member, ring) == raw(replica, "value")
    read = decode_member(member.name, member.replica, raw(replica, "value"), ring)
    assert (read, read.signed, read.beat) == (member, True, 12)
    waits = replace(member, server_replicas=durable["fields"]["server_replicas"])
    assert encode_member(waits, ring) == raw(durable, "value")
    reads = replace(member, reads=tuple(told["fields"]["reads"]))
    assert encode_member(reads, ring) == raw(told, "value")
    assert decode_member(member.name, member.replica, raw(told, "value"), ring) == reads
    assert decode_member(member.name, member.replica, raw(durable, "value"), ring) == waits
    reads = replace(member, shards=tuple(sharded["fields"]["shards"]))
    assert encode_member(reads, ring) == raw(sharded, "value")
    assert decode_member(member.name, member.replica, raw(sharded, "value"), ring) == reads
    assert encode_leave(replace(member, beat=13), ring) == raw(leaves, "value")
    assert decode_member(member.name, member.replica, raw(leaves, "value"), ring).left
    told = orchestrator["fields"]
    assert encode_reading(told["reading"], told["wire"]) == raw(orchestrator, "value")
    assert decode_reading(raw(orchestrator, "value")) == set(told["reading"])
    assert decode_wire(raw(orchestrator, "value")) == (1, 2)


@pytest.mark.parametrize("vector", named(WIRE["refused"]["items"]))
def test_a_bad_item_stands_as_its_error(vector):
    assert packing.items(packing.frame([raw(vector, "item")]))[0].reason == vector["reason"]


@pytest.mark.parametrize("kind", ["verdicts", "questions", "withdrawn"])
def test_what_is_refused_is_refused_for_its_reason(kind):
    for vector in WIRE["refused"][kind]:
        item = packing.Item(ID, vector.get("phase", 0), raw(vector), None, vector.get("version", 2))
        read = {
            "verdicts": codec.decode_verdict,
            "questions": codec.question,
            "withdrawn": codec.check_withdrawal,
        }[kind]
        assert refusal(read, item.body if kind == "verdicts" else item) == vector["reason"], vector["name"]


# ------------------------------------------------------------------ schemas


@pytest.mark.parametrize("kind", ["verdict", "question", "withdrawn", "heartbeat"])
def test_the_schemas_of_version_two_take_what_is_written_in_it(kind):
    schema = json.loads((SCHEMAS / f"{kind}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    checked = jsonschema.Draft202012Validator(schema)
    bodies = {
        "verdict": [raw(one) for one in WIRE["verdicts"] + WIRE["read"]["verdicts"]],
        "question": [raw(one) for one in WIRE["read"]["questions"]],
        "withdrawn": [raw(one) for one in WIRE["withdrawn"]],
        "heartbeat": [msgpack.packb(WIRE["heartbeats"][0]["fields"])],
    }[kind]
    for body in bodies:
        checked.validate(msgpack.unpackb(body))
    assert not checked.is_valid({})
    assert not checked.is_valid([])


# ------------------------------------------------------------------ items and bodies


def test_items_of_both_versions_share_a_frame_and_a_third_is_counted():
    raw = packing.frame([packing.item(ID, 1, b"x", None, version) for version in (1, 2, 3)])
    one, two, three = packing.items(raw)
    assert (one.version, two.version, three.reason) == (1, 2, "version")
    assert one[:4] == two[:4] == (ID, 1, b"x", None)


@pytest.mark.parametrize(("phase", "reason"), [(6, "phase"), (127, "phase"), (128, "malformed")])
def test_a_phase_that_nobody_knows_yet_is_counted_as_that(phase, reason):
    before, unknown, after = packing.items(
        packing.frame([packing.item(ID, number, b"", None, 2) for number in (0, phase, 1)])
    )
    assert (before.phase, unknown.reason, after.phase) == (0, reason, 1)
    assert packing.items(packing.frame([packing.item(ID, phase, b"")]))[0].reason == "malformed"


@pytest.mark.parametrize("field", ["result", "success", "result_cut", "session_labels"])
def test_a_question_of_version_one_has_no_field_of_a_result(field):
    fields = {"phase": "select", "tool_name": "search", field: True}
    assert refusal(codec.question, packing.Item(ID, 0, packing.pack(fields), None, 1)) == "malformed"


def test_a_question_about_a_call_has_no_result_whatever_it_says():
    nested = b"\x91" * 500 + b"\xc0"
    for result in (packing.pack("x"), nested):
        body = b"\x83" + b"".join((packing.pack("phase"), packing.pack("select"), packing.pack("tool_name")))
        body += packing.pack("search") + packing.pack("result") + result
        assert codec.question(packing.Item(ID, 0, body, None, 2)).result is None


def test_a_replacement_by_nothing_is_a_replacement():
    for result in (None, {"a": None, "b": [None]}):
        said = Replace(result=result)
        assert codec.decode_verdict(codec.verdict_body(said)).verdict == said


def test_rulings_on_a_result_have_numbers_of_their_own():
    numbers = [packing.NUMBERS["result", again] for again in (False, True)]
    assert numbers == [4, 5]
    body = packing.pack({"phase": "result", "tool_name": "t", "result_form": "text", "result": b"r"})
    read = [codec.question(packing.Item(ID, number, body, None, 2)) for number in numbers]
    assert [(one.phase, one.again, one.result) for one in read] == [
        ("result", False, "r"),
        ("result", True, "r"),
    ]


# JSON has no number that is none or endless: who sends a result turns them into texts.
@given(json_maps.filter(lambda value: not re.search("Infinity|NaN", json.dumps(value))) | texts)
def test_a_result_travels_as_one_string_of_bytes_and_comes_back_as_it_was(result):
    is_text = isinstance(result, str)
    data = result.encode() if is_text else json.dumps(result, ensure_ascii=False).encode()
    sent = SentResult("text" if is_text else "json", data, False, True)
    asked = question_about("t", {}, phase="result", result=sent, session_labels=None)
    body = codec.question_body(asked, {}, truncated=False)
    read = codec.question(packing.Item(ID, 4, body, None, 2))
    assert (read.result, read.success, read.result_cut) == (result, False, True)
    assert read.session_labels is None


def test_a_second_round_of_verify_has_a_number_of_its_own_and_says_so_to_an_author():
    body = msgpack.packb({"phase": "verify", "tool_name": "search", "again": "no matter what it says"})
    numbers = [packing.NUMBERS["verify", again] for again in (False, True)]
    first, second = (packing.Item(ID, number, body, None, 2) for number in numbers)
    assert (first.phase, second.phase) == (1, 3)
    assert [(one.phase, one.again) for one in map(codec.question, (first, second))] == [
        ("verify", False),
        ("verify", True),
    ]
    [old] = packing.items(packing.frame([packing.item(ID, 3, body)]))
    assert old.reason == "malformed"
    with pytest.raises(CodecError):
        codec.question(packing.Item(ID, 1, body, None, 1))


NAMED = {"action", "reason", "priority", "revision", "start"}


@given(verdicts, json_maps.filter(lambda one: not set(one) & NAMED))
def test_fields_that_nobody_knows_are_kept_and_change_nothing(verdict, more):
    known = verdict.model_dump(exclude_none=True)
    if isinstance(verdict, Replace):
        known["result"] = verdict.result  # null is a result, too
    more = {name: value for name, value in more.items() if name not in type(verdict).model_fields}
    said = codec.decode_verdict(msgpack.packb({**more, **known, "revision": "v1"}))
    assert said.revision == "v1"
    assert type(said.verdict) is type(verdict)
    assert said.verdict.model_dump() == verdict.model_dump()
    assert (said.verdict.model_extra or {}) == more


@given(verdicts, texts.filter(lambda text: 0 < len(text) <= 64))
def test_every_verdict_and_its_revision_survive_the_wire(verdict, revision):
    for _ in range(2):  # a plain continue is known by its bytes the second time
        assert codec.decode_verdict(codec.verdict_body(verdict, revision)) == (verdict, revision, "")
        named = codec.verdict_body(verdict, revision, "r:1")
        assert codec.decode_verdict(named) == (verdict, revision, "r:1")


def test_one_revision_is_never_taken_for_another():
    bodies = [codec.verdict_body(Continue(), f"v{number}") for number in range(600)]
    for number in [at // 2 for at in range(1200)]:  # decoded, and then known by its bytes
        assert codec.decode_verdict(bodies[number]) == (codec.PLAIN_CONTINUE, f"v{number}", "")
    assert len(codec.PLAIN_BODIES) <= 256
    assert codec.decode_verdict(codec.CONTINUE_BODY) == (codec.PLAIN_CONTINUE, "", "")


def test_a_continue_with_a_grant_is_one_and_is_not_remembered_as_plain():
    body = msgpack.packb({"action": "continue", "grant": {"until": 5}})
    said = codec.decode_verdict(body)
    assert (type(said.verdict), said.verdict.model_extra) == (Continue, {"grant": {"until": 5}})
    assert body not in codec.PLAIN_BODIES


@pytest.mark.parametrize("unsound", [7, "x" * 97, None, ["v1"]])
def test_a_denial_that_names_no_sound_revision_or_start_is_still_a_denial(unsound):
    body = {"action": "deny", "reason": "no", "revision": unsound, "start": unsound}
    assert codec.decode_verdict(msgpack.packb(body)) == (Deny(reason="no"), "", "")


def test_version_one_knows_no_further_fields():
    body = msgpack.packb({"action": "deny", "reason": "no", "revision": "v1"})
    assert refusal(codec.verdict, body) == refusal(codec.decode_verdict, body, 1) == "malformed"
    asked = msgpack.packb({"phase": "select", "tool_name": "t", "later": 1})
    assert refusal(codec.question, packing.Item(ID, 0, asked, None, 1)) == "malformed"
    assert codec.question(packing.Item(ID, 0, asked, None, 2)).model_extra == {"later": 1}


@pytest.mark.parametrize(
    "unknown",
    [deep(40), [[0] * 1000] * 11, {"k": b"binary"}],
    ids=["too deep", "too many nodes", "no JSON"],
)
def test_what_nobody_knows_is_bounded_as_well(unknown):
    assert (
        refusal(codec.decode_verdict, msgpack.packb({"action": "deny", "reason": "no", "x": unknown}))
        == "malformed"
    )
    body = msgpack.packb({"phase": "select", "tool_name": "t", "x": unknown})
    assert refusal(codec.question, packing.Item(ID, 0, body, None, 2)) == "malformed"


@pytest.mark.parametrize("leaf", [b"\x80", b"\x90"])
def test_containers_are_counted_before_there_are_too_many(leaf):
    rows = (b"\xdc\x04\x00" + leaf * 1024) * 62
    made = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing._Count, "__call__", counting(packing._Count.__call__, made))
        assert (
            refusal(codec.decode_verdict, b"\x82\xa6action\xa8continue\xa1x\xdc\x00\x3e" + rows)
            == "malformed"
        )
        assert len(made) <= packing.MAX_NODES + packing.MAX_ENTRIES + 1
        made.clear()
        assert refusal(packing.items, b"\xdc\x00\x3e" + rows) == "malformed"
        assert len(made) <= packing.MAX_IN_FRAME + 1


def counting(count, made):
    def call(self, container):
        made.append(1)
        return count(self, container)

    return call


# ------------------------------------------------------------------ withdrawals


def test_a_withdrawal_says_the_phase_and_in_version_one_nothing_else():
    said = packing.pack({"phase": "select"})
    for version in packing.VERSIONS:
        codec.check_withdrawal(packing.Item(ID, 0, said, None, version))
        assert refusal(codec.check_withdrawal, packing.Item(ID, 1, said, None, version)) == "malformed"
    question = packing.pack({"phase": "select", "tool_name": "t"})
    assert refusal(codec.check_withdrawal, packing.Item(ID, 0, question, None, 1)) == "malformed"
    codec.check_withdrawal(packing.Item(ID, 0, packing.pack({"phase": "select", "why": "late"}), None, 2))


def test_a_signed_question_passes_for_no_withdrawal():
    signed = packing.bytes_to_sign(ID, 0, packing.pack({"phase": "select", "tool_name": "t"}))
    mac = RING.sign_question("o1", "cost", signed, 2)
    assert RING.is_question("o1", "cost", signed, mac, 2)
    assert not RING.is_withdrawn("o1", "cost", signed, mac, 2)


# ------------------------------------------------------------------ signatures


@given(st.sampled_from([1, 2]), st.sampled_from([1, 2]))
def test_a_signature_is_of_one_version(version, later):
    mac = RING.sign_question("o1", "cost", b"body", version)
    assert RING.is_question("o1", "cost", b"body", mac, later) == (version == later)


# ------------------------------------------------------------------ heartbeats


def test_a_heartbeat_says_to_each_version_what_it_knows():
    raw = encode_member(MEMBER)
    assert decode_member("cost", "r1", raw) == MEMBER
    plain = msgpack.unpackb(raw)
    told = msgpack.unpackb(plain.pop("v2"))
    assert {name: told[name] for name in plain} == plain
    assert (told["wire"], told["revision"]) == ([1, 2], {"label": "v7", "digest": "0123456789ab"})


def test_what_stands_beside_the_second_versions_word_counts_for_nothing():
    fields = msgpack.unpackb(encode_member(MEMBER, RING))
    read = decode_member("cost", "r1", msgpack.packb(fields | {"tools": [], "priority": 99}), RING)
    assert (read.tools, read.priority, read.signed) == (("web_*",), 3, True)


def test_only_the_replica_with_the_key_signs_for_itself():
    raw = encode_member(MEMBER, RING)
    read = decode_member("cost", "r1", raw, RING)
    assert read.signed
    assert is_signed(read, RING)
    other = Keyring({"cost": b"x" * 32}, "fleet-1")
    for name, replica, bytes_, ring in [
        ("cost", "r2", raw, RING),  # another's, said again
        ("router", "r1", raw, RING),
        ("cost", "r1", encode_member(MEMBER), RING),
        ("cost", "r1", encode_member(MEMBER, other), RING),
        ("cost", "r1", raw, None),
    ]:
        read = decode_member(name, replica, bytes_, ring)
        assert not read.signed
        assert not is_signed(read, RING if ring else other)


def test_a_replica_of_the_first_version_is_read_as_that():
    read = decode_member("cost", "r1", encode_member(replace(MEMBER, wire=(1,))))
    assert (read.wire, read.phases, read.revision.text, read.signed) == (
        (1,),
        ("select", "verify"),
        "",
        False,
    )


def test_a_heartbeat_that_would_be_too_long_is_of_the_first_version():
    tools = tuple(f"{number:04}{'x' * 10}" for number in range(1000))
    raw = encode_member(replace(MEMBER, tools=tools), RING)
    assert len(raw) <= MAX_MEMBER
    assert decode_member("cost", "r1", raw).wire == (1,)


@given(st.binary(max_size=60) | json_maps.map(msgpack.packb))
def test_any_other_word_of_the_second_version_is_a_member_or_none(told):
    raw = msgpack.packb({"tools": ["*"], "v2": told, "mac": b"x"})
    assert decode_member("cost", "r1", raw, RING) is None or not decode_member("cost", "r1", raw, RING).signed


@given(
    st.sampled_from(["wire", "phases", "kinds", "build", "revision", "server_replicas", "beat"]),
    json_maps | texts | st.none(),
)
def test_a_capability_that_is_none_is_not_told(field, value):
    told = msgpack.packb({"tools": ["*"], "wire": [1, 2], field: value})
    read = decode_member("cost", "r1", msgpack.packb({"v2": told}))
    assert isinstance(read, Member)
    assert all(isinstance(one, int) for one in read.wire)
    assert type(read.server_replicas) is int
    assert all(isinstance(one, str) for one in (*read.phases, *read.kinds, read.build, *read.revision))


# ------------------------------------------------------------------ revisions


def test_a_revision_is_what_is_in_a_config_in_whatever_order():
    one = revision_of({"b": [1, 2], "a": {"y": 1, "x": "é"}})
    assert one == revision_of({"a": {"x": "é", "y": 1}, "b": [1, 2]})
    assert one.text == one.digest
    assert len(one.digest) == 12
    assert revision_of({"b": [2, 1], "a": {"y": 1, "x": "é"}}).digest != one.digest
    named = revision_of({}, "2026-11-22")
    assert named.text == f"2026-11-22@{named.digest}"


@pytest.mark.parametrize("label", ["", "a b", "x" * 49, "a@b", "é", "new\n"])
def test_a_label_that_could_not_be_shown_is_refused_by_name(label):
    with pytest.raises(ConfigError, match="revision: 1 to 48"):
        revision_of({}, label)


def test_the_rule_that_a_verdict_names_travels_in_version_two_alone():
    said = Deny(reason="no", rule_name="office hours")
    told = codec.decode_verdict(codec.verdict_body(said, "r1"))
    assert told.verdict == said
    assert codec.verdict(codec.verdict_body(said)) == Deny(reason="no")
