"""Signatures: forged, replayed and misdirected messages are told from genuine ones."""

import hashlib
import hmac
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.signing import Keyring, digest

pytestmark = pytest.mark.pure

KEYS = {"cost": b"c" * 32, "router": b"r" * 32}
RING = Keyring(KEYS)
QUESTION, BODY = b"the question", b"the verdict"
(VECTOR,) = json.loads((Path(__file__).parents[2] / "vectors" / "wire.json").read_text())["signatures"]


def hexed(name):
    return bytes.fromhex(VECTOR[name])


def test_the_golden_signatures_are_made_and_accepted():
    ring = Keyring({VECTOR["scheduler"]: hexed("key")})
    who = (VECTOR["orchestrator"], VECTOR["scheduler"])
    covered = packing.bytes_to_sign(hexed("id"), VECTOR["phase"], hexed("question_body"))
    asked = digest(covered)
    assert ring.sign_question(*who, covered) == hexed("question_mac")
    assert ring.is_question(*who, covered, hexed("question_mac"))
    assert ring.sign_verdict(*who, asked, hexed("verdict_body")) == hexed("verdict_mac")
    assert ring.is_verdict(*who, asked, hexed("verdict_body"), hexed("verdict_mac"))


def test_the_signed_bytes_are_those_of_the_contract():
    head = b"toolgate-1\0verdict\0o1\0cost\0"
    expected = hmac.new(
        KEYS["cost"], head + hashlib.sha256(QUESTION).digest() + BODY, hashlib.sha256
    ).digest()
    assert RING.sign_verdict("o1", "cost", digest(QUESTION), BODY) == expected


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_every_signature_fits_what_it_was_made_for(question, body):
    assert RING.is_question("o1", "cost", question, RING.sign_question("o1", "cost", question))
    mac = RING.sign_verdict("o1", "cost", digest(question), body)
    assert RING.is_verdict("o1", "cost", digest(question), body, mac)


@pytest.mark.parametrize(
    ("orchestrator", "scheduler", "question", "body"),
    [
        pytest.param("o1", "cost", digest(b"another decision"), BODY, id="replayed on another question"),
        pytest.param("o1", "cost", digest(QUESTION + b"!"), BODY, id="question changed since"),
        pytest.param("o2", "cost", digest(QUESTION), BODY, id="sent to another orchestrator"),
        pytest.param("o1", "router", digest(QUESTION), BODY, id="said by another scheduler"),
        pytest.param("o1", "cost", digest(QUESTION), BODY + b"!", id="body changed"),
        pytest.param("o1", "stranger", digest(QUESTION), BODY, id="scheduler without a key"),
    ],
)
def test_a_genuine_signature_fits_nothing_else(orchestrator, scheduler, question, body):
    mac = RING.sign_verdict("o1", "cost", digest(QUESTION), BODY)
    assert RING.is_verdict("o1", "cost", digest(QUESTION), BODY, mac)
    assert not RING.is_verdict(orchestrator, scheduler, question, body, mac)


@pytest.mark.parametrize(
    ("orchestrator", "scheduler", "body"),
    [
        ("o2", "cost", QUESTION),
        ("o1", "router", QUESTION),
        ("o1", "cost", QUESTION + b"!"),
        ("o1", "x", QUESTION),
    ],
)
def test_a_questions_signature_fits_nothing_else(orchestrator, scheduler, body):
    mac = RING.sign_question("o1", "cost", QUESTION)
    assert RING.is_question("o1", "cost", QUESTION, mac)
    assert not RING.is_question(orchestrator, scheduler, body, mac)


def test_a_questions_signature_is_no_verdicts():
    mac = RING.sign_question("o1", "cost", digest(QUESTION) + BODY)
    assert not RING.is_verdict("o1", "cost", digest(QUESTION), BODY, mac)


@pytest.mark.parametrize("mac", [None, b"", b"short", b"\0" * 32, b"\0" * 33])
def test_a_missing_or_made_up_signature_is_refused(mac):
    assert not RING.is_question("o1", "cost", QUESTION, mac)
    assert not RING.is_verdict("o1", "cost", digest(QUESTION), BODY, mac)


@given(st.integers(0, 255))
def test_a_signature_with_one_bit_changed_is_refused(bit):
    mac = bytearray(RING.sign_verdict("o1", "cost", digest(QUESTION), BODY))
    mac[bit // 8] ^= 1 << bit % 8
    assert not RING.is_verdict("o1", "cost", digest(QUESTION), BODY, bytes(mac))


def test_a_key_of_another_scheduler_signs_for_that_one_only():
    thief = Keyring({"cost": KEYS["router"]})
    assert not RING.is_verdict("o1", "cost", b"q", BODY, thief.sign_verdict("o1", "cost", b"q", BODY))


def test_names_cannot_run_into_each_other():
    ring = Keyring({"b": b"k", "ab": b"k"})
    assert ring.sign_question("oa", "b", b"") != ring.sign_question("o", "ab", b"")


def test_a_scheduler_without_a_key_is_known_as_such():
    assert (RING.knows("cost"), RING.knows("stranger")) == (True, False)
    with pytest.raises(KeyError):
        RING.sign_question("o1", "stranger", QUESTION)
