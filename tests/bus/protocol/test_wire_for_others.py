"""What writers in other languages go by: golden vectors beyond the codec's own, and the JSON Schemas."""

import json
import runpy
from pathlib import Path

import jsonschema
import msgpack
import pytest
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.signing import digest
from toolgate_bus.transport.heartbeats import decode_member, encode_member
from toolgate_bus.transport.memory import MemoryStore
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.roster.roster import (
    decode_reading,
    decode_role,
    encode_reading,
)
from toolgate_schedulers import Hold
from toolgate_schedulers.worker.holds import ReplyTo, StoredHolds

pytestmark = pytest.mark.pure

ROOT = Path(__file__).parents[3]
WIRE = json.loads((ROOT / "tests" / "vectors" / "wire.json").read_text(encoding="utf-8"))
SCHEMAS = ROOT / "bus" / "schemas"
UNSAID = {
    "phase of the body differs from the item's",
    "priority as a float",  # JSON Schema takes 5.0 for an integer
    "hold for no number of seconds",
    "34 levels",
    "bad UTF-8",
    "a surrogate in UTF-8",
    "nothing",
    "no map",
    "cut off",
    "more after the end",
}
"""What is refused for its bytes, its depth, or its item: a schema of the body says nothing of it."""


def named(vectors):
    return [pytest.param(one, id=one["name"]) for one in vectors]


def raw(vector, field="body"):
    return bytes.fromhex(vector[field])


def validator(name):
    schema = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


# ------------------------------------------------------------------ golden vectors


@pytest.mark.parametrize("vector", named(WIRE["read"]["verdicts"]))
def test_a_verdict_that_is_written_otherwise_means_the_same(vector):
    assert codec.verdict(raw(vector)).model_dump(mode="json", exclude_none=True) == vector["fields"]


@pytest.mark.parametrize("vector", named(WIRE["read"]["questions"]))
def test_a_question_that_is_written_otherwise_means_the_same(vector):
    question = codec.question(packing.Item(bytes(16), vector["phase"], raw(vector), None))
    assert question.model_dump(mode="json", exclude_unset=True, exclude={"id"}) == vector["fields"]


@pytest.mark.parametrize("vector", named(WIRE["questions"]))
def test_the_golden_digests_are_what_a_verdicts_signature_covers(vector):
    assert digest(packing.bytes_to_sign(raw(vector, "id"), vector["phase"], raw(vector))) == raw(
        vector, "digest"
    )


@pytest.mark.parametrize("vector", named(WIRE["withdrawn"]))
def test_the_golden_withdrawals_are_written_so(vector):
    assert packing.pack(vector["fields"]) == raw(vector)
    assert vector["fields"]["phase"] == ("select", "verify")[vector["phase"]]


def test_the_golden_heartbeats_are_read_and_written_byte_for_byte():
    replica, orchestrator, reader = WIRE["heartbeats"]
    fields = replica["fields"]
    member = Member("cost-aware", "r", **{**fields, "tools": tuple(fields["tools"])})
    assert encode_member(member) == raw(replica, "value")
    assert decode_member("cost-aware", "r", raw(replica, "value")) == member
    assert encode_reading(orchestrator["fields"]["reading"]) == raw(orchestrator, "value")
    assert decode_reading(raw(orchestrator, "value")) == set(orchestrator["fields"]["reading"])
    assert decode_role(raw(reader, "value")) == reader["fields"]["role"]


@pytest.mark.parametrize("vector", named(WIRE["holds"]))
async def test_a_golden_hold_is_kept_and_found_so(vector):
    store = MemoryStore()
    item = packing.Item(raw(vector, "id"), vector["phase"], raw(vector, "question_body"), None)
    holds = StoredHolds(store, "s", lambda *_: None)
    await holds.keep(ReplyTo(vector["orchestrator"], item), Hold(seconds=9))
    key = f"hold:s:{vector['id']}:{vector['phase']}"
    assert await store.get(key) == raw(vector, "value")
    assert [one.decision_id for one in await holds.open()] == [vector["id"]]


# ------------------------------------------------------------------ schemas


def test_the_schemas_are_those_of_the_models():
    made = runpy.run_path(str(SCHEMAS / "generate.py"))["texts"]()
    there = {
        path.relative_to(SCHEMAS).as_posix(): path.read_text(encoding="utf-8")
        for path in SCHEMAS.rglob("*.json")
    }
    assert there == made, "run: python bus/schemas/generate.py"


@pytest.mark.parametrize("kind", ["verdict", "question"])
def test_a_schema_takes_every_golden_body(kind):
    checked = validator(kind)
    for vector in [*WIRE[f"{kind}s"], *WIRE["read"][f"{kind}s"]]:
        checked.validate(vector["fields"])
        checked.validate(msgpack.unpackb(raw(vector)))


@pytest.mark.parametrize("kind", ["verdict", "question"])
def test_a_schema_takes_no_body_that_is_refused(kind):
    checked = validator(kind)
    told = [vector for vector in WIRE["refused"][f"{kind}s"] if vector["name"] not in UNSAID]
    assert len(told) >= 6
    for vector in told:
        assert not checked.is_valid(msgpack.unpackb(raw(vector))), vector["name"]


def test_the_schemas_of_heartbeats_and_withdrawals_take_the_golden_ones():
    validator("heartbeat").validate(WIRE["heartbeats"][0]["fields"])
    assert set(validator("heartbeat").schema["properties"]) == set(WIRE["heartbeats"][0]["fields"])
    assert not validator("heartbeat").is_valid({"priority": 1})
    for vector in WIRE["withdrawn"]:
        validator("withdrawn").validate(vector["fields"])
    assert not validator("withdrawn").is_valid({})
