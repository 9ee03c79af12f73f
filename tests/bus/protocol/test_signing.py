"""Signatures: forged, replayed and misdirected messages are told from genuine ones."""

import hashlib
import hmac
import json
from functools import partial
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.signing import Keyring, Kind, digest, make_signature, names_other_scheme

pytestmark = pytest.mark.pure

KEYS = {"cost": b"c" * 32, "router": b"r" * 32}
NAMESPACE = "fleet-1"
RING = Keyring(KEYS, NAMESPACE)
QUESTION, BODY = b"the question", b"the verdict"
VECTORS = Path(__file__).parents[2] / "vectors"
(VECTOR,) = json.loads((VECTORS / "wire.json").read_text())["signatures"]
PARTS = json.loads((VECTORS / "wire-2.json").read_text())["parts"]


def hexed(name):
    return bytes.fromhex(VECTOR[name])


def test_the_golden_signatures_are_made_and_accepted():
    ring = Keyring({VECTOR["scheduler"]: hexed("key")}, VECTOR["namespace"])
    who = (VECTOR["orchestrator"], VECTOR["scheduler"])
    covered = packing.bytes_to_sign(hexed("id"), VECTOR["phase"], hexed("question_body"))
    asked = digest(covered)
    assert ring.sign_question(*who, covered) == hexed("question_mac")
    assert ring.is_question(*who, covered, hexed("question_mac"))
    assert ring.sign_verdict(*who, asked, hexed("verdict_body")) == hexed("verdict_mac")
    assert ring.is_verdict(*who, asked, hexed("verdict_body"), hexed("verdict_mac"))
    gone = packing.bytes_to_sign(hexed("id"), VECTOR["phase"], hexed("withdrawn_body"))
    assert ring.sign_withdrawn(*who, gone) == hexed("withdrawn_mac")


@pytest.mark.parametrize("vector", PARTS, ids=[one["name"] for one in PARTS])
def test_the_golden_signatures_of_parts_are_made(vector):
    parts = map(bytes.fromhex, vector["parts"])
    made = make_signature(bytes.fromhex(vector["key"]), vector["namespace"], vector["kind"], *parts)
    assert made == bytes.fromhex(vector["mac"])


def test_no_two_golden_signatures_are_the_same():
    assert len({one["mac"] for one in PARTS}) == len(PARTS)


@given(st.binary(min_size=1, max_size=200), st.lists(st.binary(max_size=200), max_size=4))
def test_a_signature_is_the_hmac_of_all_parts_with_their_lengths_whatever_the_key(key, parts):
    covered = b"".join(len(one).to_bytes(4, "big") + one for one in (b"fleet", b"config", *parts))
    expected = b"\2" + hmac.new(key, covered, hashlib.sha256).digest()
    assert make_signature(key, "fleet", "config", *parts) == expected


def test_the_signed_bytes_are_those_of_the_contract():
    parts = (b"fleet-1", b"verdict", b"cost", b"o1", b"\1", hashlib.sha256(QUESTION).digest(), BODY)
    covered = b"".join(len(one).to_bytes(4, "big") + one for one in parts)
    expected = b"\2" + hmac.new(KEYS["cost"], covered, hashlib.sha256).digest()
    assert RING.sign_verdict("o1", "cost", digest(QUESTION), BODY) == expected


TEXTS = st.lists(st.binary(max_size=4), max_size=4)
KINDS = st.sampled_from(get_args(Kind))
NAMES = st.text("ab", min_size=1, max_size=3)


@given(NAMES, KINDS, TEXTS, NAMES, KINDS, TEXTS)
def test_a_signature_is_of_one_namespace_one_kind_and_these_parts(name, kind, parts, other, another, rest):
    one = make_signature(KEYS["cost"], name, kind, *parts)
    two = make_signature(KEYS["cost"], other, another, *rest)
    assert (one == two) == ((name, kind, parts) == (other, another, rest))


def test_a_signature_holds_in_its_own_namespace_only():
    elsewhere = Keyring(KEYS, "fleet-2")
    covered = digest(QUESTION)
    for made, is_genuine in (
        (RING.sign_question("o1", "cost", QUESTION), partial(elsewhere.is_question, "o1", "cost", QUESTION)),
        (
            RING.sign_withdrawn("o1", "cost", QUESTION),
            partial(elsewhere.is_withdrawn, "o1", "cost", QUESTION),
        ),
        (
            RING.sign_verdict("o1", "cost", covered, BODY),
            partial(elsewhere.is_verdict, "o1", "cost", covered, BODY),
        ),
        (RING.sign_heartbeat("cost", "r1", BODY), partial(elsewhere.is_heartbeat, "cost", "r1", BODY)),
    ):
        assert not is_genuine(made)
        assert not names_other_scheme(made)


@pytest.mark.parametrize(
    ("mac", "other"),
    [
        pytest.param(b"x" * 32, True, id="of a release that signed without the namespace"),
        pytest.param(b"\3" + b"x" * 32, True, id="of a release to come"),
        pytest.param(b"\2" + b"x" * 32, False, id="forged"),
        pytest.param(b"x" * 31, False, id="no signature's length"),
        pytest.param(b"", False, id="empty"),
        pytest.param(None, False, id="none"),
        pytest.param("x" * 32, False, id="a text"),
    ],
)
def test_a_signature_of_another_release_is_told_from_a_forgery(mac, other):
    assert names_other_scheme(mac) is other


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
    thief = Keyring({"cost": KEYS["router"]}, NAMESPACE)
    assert not RING.is_verdict("o1", "cost", b"q", BODY, thief.sign_verdict("o1", "cost", b"q", BODY))


def test_names_cannot_run_into_each_other():
    ring = Keyring({"b": b"k", "ab": b"k"}, NAMESPACE)
    assert ring.sign_question("oa", "b", b"") != ring.sign_question("o", "ab", b"")


def test_a_scheduler_without_a_key_is_known_as_such():
    assert (RING.knows("cost"), RING.knows("stranger")) == (True, False)
    with pytest.raises(KeyError):
        RING.sign_question("o1", "stranger", QUESTION)
