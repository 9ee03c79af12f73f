"""What leaves the process: no secret, nothing that does not fit the wire; and all of it comes back."""

import json
import math
import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from questions import question_about
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_bus.protocol.placeholders import type_behind
from toolgate_orchestrator.decision.config import RedactConfig
from toolgate_orchestrator.decision.question.plain_values import put_back
from toolgate_orchestrator.decision.question.question import write_question
from toolgate_orchestrator.decision.question.redact import (
    BadPlaceholder,
    RedactedArguments,
    Redactor,
    restore,
)

pytestmark = pytest.mark.pure

SECRET = "hunter2-canary"
PLAIN = Redactor(RedactConfig())
STRICT = Redactor(RedactConfig(fields=("Password", "api_key"), patterns=(r"sk-[a-z0-9]{4,}", r"\b\d{16}\b")))


def travels(redactor, arguments):
    """Ask about these arguments and read the question as a scheduler does; fails unless that works."""
    body, outgoing = write_question(question_about("t", arguments, available_tools=["t"] * 100), redactor)
    outgoing = outgoing or RedactedArguments(arguments)
    question = codec.question(packing.Item(bytes(16), 0, body, None))
    assert isinstance(question, ToolSelecting)
    assert same(question.tool_input, outgoing.value)
    assert question.truncated == outgoing.truncated
    return question, outgoing


def back(outgoing, arguments=None):
    restored = restore(outgoing.value, outgoing.placeholders, allowed=True)
    return restored if outgoing.plain is None else put_back(restored, outgoing.plain, arguments)


def same(one, other):
    """Equality for which no number equals itself, and True is not 1."""
    return repr(one) == repr(other)


# ------------------------------------------------------------------ secrets


@pytest.mark.parametrize(
    "arguments",
    [
        {"password": SECRET},
        {"PASSWORD": SECRET},
        {"a": {"b": {"Api_Key": SECRET}}},
        {"list": [{"x": 1}, {"password": [SECRET, {"deep": SECRET}]}]},
        {"password": {"any": SECRET}},
    ],
)
def test_a_named_field_never_leaves_at_any_depth_and_in_any_case(arguments):
    outgoing = STRICT.redact_arguments(arguments)
    assert SECRET not in str(outgoing.value)
    assert SECRET.encode() not in packing.pack(outgoing.value)
    assert same(back(outgoing), arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"command": "curl -H sk-abcd1234"},
        {"deep": [{"x": ["sk-abcd1234"]}]},
        {"card": 1234567890123456},
        {"map": {"sk-abcd1234": "used as a key"}},
        {"sk-abcd1234": "used as the name of an argument"},
    ],
)
def test_what_matches_a_pattern_never_leaves(arguments):
    outgoing = STRICT.redact_arguments(arguments)
    assert "sk-abcd1234" not in str(outgoing.value)
    assert "1234567890123456" not in str(outgoing.value)
    assert same(back(outgoing), arguments)


# ------------------------------------------------------------------ the secrets of a replaced call


def test_what_was_secret_is_secret_under_any_other_name():
    first = STRICT.redact_arguments(
        {"password": SECRET, "path": "a.txt", "api_key": {"id": 123456, "deep": ["tok-7"]}}
    )
    moved = {"q": SECRET, "argv": ["login", f"--as={SECRET}"], "n": 123456, SECRET: 1, "d": {"e": "tok-7"}}
    second = STRICT.redact_arguments({**moved, "path": "a.txt"}, first)
    assert SECRET not in str(second.value)
    assert "123456" not in str(second.value)
    assert "tok-7" not in str(second.value)
    assert same(back(second), {**moved, "path": "a.txt"})
    third = STRICT.redact_arguments(
        {"again": SECRET}, STRICT.redact_arguments({"kept": "tok-7", "more": SECRET}, first)
    )
    assert SECRET not in str(third.value)


def test_what_stood_in_clear_beside_a_secret_stays_in_clear():
    first = STRICT.redact_arguments({"password": "a.txt", "path": "a.txt", "api_key": "1"})
    second = {"path": "a.txt", "words": "in a.txt, 1 time"}
    assert STRICT.redact_arguments(second, first).value == second
    assert STRICT.redact_arguments({"x": "1"}, first).value != {"x": "1"}


def test_without_a_configuration_a_replacement_travels_as_it_is():
    first = PLAIN.redact_arguments({"password": SECRET, "long": "x" * 100_000})
    assert PLAIN.redact_arguments({"q": SECRET}, first).value == {"q": SECRET}


@pytest.mark.parametrize("secret", [SECRET, [SECRET], {"deep": {SECRET: 1}}, 12345678, {"n": 12345678}])
def test_a_reason_does_not_repeat_what_stands_deep_in_a_secret(secret):
    outgoing = STRICT.redact_arguments({"password": secret})
    said = STRICT.text(f"wrong: {SECRET}, 12345678, sk-abcd1234", outgoing)
    assert "sk-abcd1234" not in said
    assert (SECRET if SECRET in str(secret) else "12345678") not in said


def test_numbers_of_any_size_can_be_secret():
    outgoing = STRICT.redact_arguments({"password": 10**6000})
    assert STRICT.text("no", outgoing) == "no"
    assert STRICT.redact_arguments({"x": 10**6000}, outgoing).truncated


secrets = st.from_regex(r"\Ask-[a-z0-9]{8}\Z")
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)


@st.composite
def arguments_with_a_secret(draw):
    """A secret somewhere in nested arguments: in a named field, or in the middle of a text."""
    value = draw(st.sampled_from([SECRET, [SECRET], {"x": SECRET}]))
    inner = {draw(st.sampled_from(["password", "PassWord", "API_KEY"])): value}
    inner["text"] = draw(texts) + draw(secrets) + draw(texts)
    for _ in range(draw(st.integers(0, 6))):
        inner = draw(st.sampled_from([{"k": inner}, {"k": [inner, "x"]}, {"k": 1, "l": {"m": inner}}]))
    return inner


@given(arguments_with_a_secret())
def test_secrets_never_leave_and_always_come_back(arguments):
    question, outgoing = travels(STRICT, arguments)
    wire = packing.pack(question.tool_input)
    assert SECRET.encode() not in wire
    assert b"sk-" not in wire
    assert same(back(outgoing), arguments)
    assert not outgoing.truncated


def test_what_is_not_named_leaves_as_it_is():
    arguments = {"user": "password", "n": 1, "f": 2.5, "yes": True, "none": None, "list": [1, {"a": "b"}]}
    outgoing = STRICT.redact_arguments(arguments)
    assert (outgoing.value, outgoing.placeholders, outgoing.truncated) == (arguments, {}, False)


def test_the_original_is_not_changed():
    arguments = {"password": [SECRET], "list": [{"password": SECRET}]}
    copy = json.loads(json.dumps(arguments))
    STRICT.redact_arguments(arguments)
    assert arguments == copy


def test_equal_values_have_equal_placeholders_and_others_none_of_them():
    first, second = (
        STRICT.redact_arguments({"password": "x", "api_key": {"a": 1, "b": [2]}}) for _ in range(2)
    )
    other = STRICT.redact_arguments({"password": "y", "api_key": {"b": [2.5], "a": 1}})
    alike = STRICT.redact_arguments({"password": "x", "api_key": {"b": (Decimal(2),), "a": 1.0}})
    assert first.value == second.value == alike.value
    assert not {*first.placeholders} & {*other.placeholders}
    swapped = STRICT.redact_arguments({"password": {"b": [2], "a": 1}})
    assert swapped.value["password"] == first.value["api_key"]


def test_no_placeholder_can_be_foretold_and_each_tells_the_type_of_what_it_hides():
    alike = RedactedArguments({})
    with pytest.MonkeyPatch.context() as patch:
        made = [STRICT.redact_arguments({"password": "x"}).value["password"]]
        patch.setattr("toolgate_orchestrator.decision.question.redact._KEY", b"another process")
        made.append(STRICT.redact_arguments({"password": "x"}).value["password"])
    assert made[0] != made[1]
    values = (None, True, 7, 7.5, "x", [1], {"a": 1}, 10**6000, 7.0, b"x")
    kinds = ["null", "boolean", "integer", "number", "string", "array", "object", "integer", "integer", None]
    placeholders = [STRICT.redact_arguments({"password": value}).value["password"] for value in values]
    assert [type_behind(one) for one in placeholders] == kinds
    assert alike.secrets == ()


def test_how_long_a_text_may_be_is_said_for_each_tool():
    redactor = Redactor(RedactConfig(max_chars={"write_*": 65_536, "bash": 100}))
    hidden = {
        tool: [
            redactor.redact_arguments({"a": "x" * size}, tool=tool).truncated
            for size in (101, 16_385, 65_000)
        ]
        for tool in ("write_file", "bash", "ls")
    }
    assert hidden == {
        "write_file": [False, False, False],
        "bash": [True, True, True],
        "ls": [False, True, True],
    }
    assert write_question(question_about("bash", {"a": "x" * 101}), redactor)[1].truncated


def test_a_name_that_was_clear_once_is_hidden_where_it_is_a_secret_of_the_call():
    assert STRICT.redact_arguments({"customer": 1}).value == {"customer": 1}
    before = STRICT.redact_arguments({"password": "customer"})
    assert "customer" not in str(STRICT.redact_arguments({"customer": 1}, before).value)
    assert STRICT.redact_arguments({"customer": 1}).value == {"customer": 1}


def test_a_name_that_was_clear_once_is_too_long_for_a_tool_of_shorter_texts():
    redactor = Redactor(RedactConfig(fields=("password",), max_chars={"brief": 16, "*": 100}))
    assert not redactor.redact_arguments({"number_of_customer": 1}, tool="any").truncated
    assert redactor.redact_arguments({"number_of_customer": 1}, tool="brief").truncated


def test_a_name_that_only_equals_one_that_was_clear_is_not_taken_for_it():
    class Alike(str):
        def __eq__(self, other):
            return True

        __hash__ = str.__hash__

    STRICT.redact_fact({"customer": 1})
    found = type("Hashed", (Alike,), {"__hash__": lambda _: hash("customer")})("sk-abcdefgh")
    assert "sk-abcdefgh" not in str(STRICT.redact_fact({found: 1}))


def test_names_that_come_without_end_are_not_all_remembered():
    redactor = Redactor(RedactConfig(fields=("password",)))
    for number in range(5_000):
        redactor.redact_arguments({f"name{number}": 1})
    assert len(redactor._clear_names) < 1_100


def test_very_many_secrets_hide_everything_rather_than_take_long():
    many = {"password": [f"secret number {number}" for number in range(9_000)], "clear": ["w" * 9] * 9_000}
    outgoing = STRICT.redact_arguments(many)  # each with each would take longer than a test may
    assert STRICT.text("it is secret number 8999", outgoing) == "⟦redacted⟧"
    second = STRICT.redact_arguments({"a": "it is secret number 8999", "n": 7}, outgoing)
    assert all("toolgate:redacted" in str(value) for value in second.value.values())


MANY = "".join(map(chr, range(256, 16_640)))


SLOW = (r"^(\w+\s?)*!$", "(a+)+!$", "(?:a|b)*a(?:a|b){20}c", r"[a-z]{900}!")


@pytest.mark.parametrize("patterns", [SLOW, tuple(f"x{number}[a-z]*q" for number in range(1_000))])
@pytest.mark.parametrize("text", ["a" * 16_384, "ab" * 8_192, "é日" * 8_192, MANY, "word " * 13_000])
def test_every_text_is_redacted_in_linear_time_whatever_the_patterns(text, patterns):
    redactor = Redactor(RedactConfig(patterns=patterns, max_chars=65_536))
    arguments = {str(number): text[number:] for number in range(30)} | {"k": [text[:9]] * 1_000}
    redactor.redact_arguments({"warm": text})
    assert redactor.redact_arguments(arguments).placeholders
    redactor.hide(text)


def test_very_many_placeholders_become_one():
    arguments = {"list": [f"{number}\ud800" for number in range(1_001)], "password": SECRET}
    outgoing = STRICT.redact_arguments(arguments)
    assert list(outgoing.value) == ["⟦arguments⟧"]
    assert STRICT.text(f"it is {SECRET}", outgoing) == "⟦redacted⟧"
    assert back(outgoing) == arguments


def test_what_was_not_looked_at_does_not_leave():
    redactor = Redactor(RedactConfig(patterns=("sk-[a-z]{900}",)))
    outgoing = redactor.redact_arguments({"long": "x" * 16_000, "short": "x"})
    assert "redacted" in outgoing.value["long"]
    assert outgoing.value["short"] == "x"


def test_a_redacted_question_is_not_marked_truncated_a_shortened_one_is():
    assert not STRICT.redact_arguments({"password": SECRET}).truncated
    assert STRICT.redact_arguments({"text": "x" * 20_000}).truncated


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (f"no: {SECRET} is wrong", "no: ⟦redacted⟧ is wrong"),
        ("found sk-abcd1234", "found ⟦redacted⟧"),
        ("nothing", "nothing"),
        (None, None),
    ],
)
def test_a_reason_repeats_no_secret(said, told):
    outgoing = STRICT.redact_arguments({"password": SECRET})
    assert STRICT.text(said, outgoing) == told


# ------------------------------------------------------------------ what does not fit


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"text": "x" * 16_385}, id="a long text"),
        pytest.param({str(at): "x" * 16_000 for at in range(40)}, id="many long texts"),
        pytest.param({"text": "\ud800"}, id="a lone surrogate"),
        pytest.param({"map": {"\ud800": 1}}, id="a lone surrogate as a key"),
        pytest.param({"\ud800": 1}, id="a lone surrogate as an argument's name"),
        pytest.param({"n": 2**64}, id="a huge number"),
        pytest.param({"n": -(2**63) - 1}, id="a huge negative number"),
        pytest.param({"n": 10**4000}, id="a number of four thousand digits"),
        pytest.param({"list": [0.5] * 1025}, id="a wide list"),
        pytest.param({"map": {str(at): 0 for at in range(1025)}}, id="a wide map"),
        pytest.param({str(at): 0 for at in range(1025)}, id="very many arguments"),
        pytest.param({"list": [[0] * 1000 for _ in range(11)]}, id="many nodes"),
        pytest.param({"x" * 70_000: 1}, id="a long argument's name"),
        pytest.param({"map": {"x" * 70_000: 1}}, id="a long key"),
        pytest.param({"set": {1, 2}, "object": object(), "bytes": b"x", "tuple": (1,)}, id="no JSON"),
        pytest.param({"map": {(1,): "x"}}, id="keys that are no texts"),
        pytest.param({"list": [{f"{at}": "é" * 500} for at in range(400)]}, id="many texts"),
    ],
)
def test_what_does_not_fit_travels_as_a_placeholder_and_says_so(arguments):
    for redactor in (PLAIN, STRICT):
        question, outgoing = travels(redactor, arguments)
        assert question.truncated
        assert same(back(outgoing, arguments), arguments)


@pytest.mark.parametrize("levels", [34, 40, 900])
def test_a_deep_value_travels_as_a_placeholder(levels):
    value = "x"
    for _ in range(levels):
        value = {"k": value}
    question, outgoing = travels(PLAIN, {"deep": value, "flat": 1})
    assert question.truncated
    assert outgoing.value["flat"] == 1
    assert back(outgoing) == {"deep": value, "flat": 1}


def test_a_value_without_end_does_not_hang():
    endless = {}
    endless["again"] = endless
    assert travels(PLAIN, endless)[0].truncated


def test_no_number_and_the_infinite_travel():
    question, outgoing = travels(PLAIN, {"a": math.nan, "b": math.inf})
    assert math.isnan(question.tool_input["a"])
    assert not outgoing.truncated


def test_texts_that_are_long_in_bytes_only_travel_however_long_texts_may_be():
    generous = Redactor(RedactConfig(max_chars=65_536))
    arguments = {"text": "😀" * 20_000}
    _, outgoing = travels(generous, arguments)
    assert back(outgoing) == arguments


def test_the_largest_arguments_become_placeholders_first():
    arguments = {"small": "kept", **{str(at): "x" * (9_000 + at) for at in range(16)}}
    outgoing = PLAIN.redact_arguments(arguments)
    assert outgoing.value["small"] == "kept"
    assert outgoing.value["0"] == arguments["0"]
    assert outgoing.value["15"] != arguments["15"]
    assert back(outgoing) == arguments


def test_a_secret_stays_one_when_its_argument_becomes_too_long():
    arguments = {"big": [{"password": SECRET}, *["x" * 16_000] * 10]}
    _, outgoing = travels(STRICT, arguments)
    assert SECRET not in str(outgoing.value)
    assert back(outgoing) == arguments


@pytest.mark.parametrize("large", [[0] * 1025, {str(at): 0 for at in range(1025)}, [[]] * 1025])
def test_a_wide_value_of_few_bytes_is_a_wide_value(large):
    """Nobody drops a question: one that no scheduler could read would pass them all over."""
    question, outgoing = travels(PLAIN, {"wide": large})
    assert question.truncated
    assert back(outgoing) == {"wide": large}


def test_an_argument_that_looks_like_a_placeholder_comes_back_as_it_was():
    arguments = {"text": "⟦toolgate:redacted:000000000000⟧"}
    outgoing = PLAIN.redact_arguments(arguments)
    assert outgoing.value != arguments
    assert back(outgoing) == arguments


any_texts = st.text(max_size=8) | st.sampled_from(
    ["\ud800", "x\udfff", "sk-abcd1234", "⟦toolgate:x⟧", "⟦arguments⟧"]
)
"""Lone surrogates, secrets and things that look like placeholders, too."""
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_texts | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(any_texts, inner, max_size=5)
        | st.dictionaries(st.integers(0, 3), inner, max_size=2)
        | st.tuples(inner)
    ),
    max_leaves=15,
)
sizes = st.sampled_from([1, 3, 1025, 4_000, 20_000])


@st.composite
def large(draw):
    """Arguments of which some part is very long, wide or deep."""
    leaf, times = draw(st.sampled_from(["x", "é", "😀", "\ud800", 0, []])), draw(sizes)
    value = draw(
        st.sampled_from(
            [
                leaf * times if isinstance(leaf, str) else [leaf] * times,
                {str(at): leaf for at in range(times)},
            ]
        )
    )
    for _ in range(draw(st.sampled_from([0, 1, 20, 27, 28, 40]))):
        value = draw(st.sampled_from([[value], {"k": value}, {"k": value, "password": SECRET}]))
    return {"big": value, **draw(st.dictionaries(any_texts, anything, max_size=3))}


@given(st.dictionaries(any_texts, anything, max_size=6) | large())
def test_any_arguments_travel_within_the_bounds_and_come_back_as_they_were(arguments):
    for redactor in (PLAIN, STRICT):
        _, outgoing = travels(redactor, arguments)
        assert same(back(outgoing, arguments), arguments)
        assert same(back(redactor.redact_arguments(arguments), arguments), arguments)


# ------------------------------------------------------------------ restoring


def test_a_placeholder_nobody_gave_out_is_refused():
    outgoing = STRICT.redact_arguments({"password": SECRET})
    forged = "⟦toolgate:redacted:000000000000⟧"
    with pytest.raises(BadPlaceholder):
        restore({"a": [forged]}, outgoing.placeholders, allowed=True)


def test_a_placeholder_is_refused_where_originals_may_not_go():
    outgoing = STRICT.redact_arguments({"password": SECRET})
    with pytest.raises(BadPlaceholder):
        restore(outgoing.value, outgoing.placeholders, allowed=False)


def test_another_values_placeholder_is_refused():
    one, other = (STRICT.redact_arguments({"password": secret}) for secret in (SECRET, "another"))
    with pytest.raises(BadPlaceholder):
        restore(one.value, other.placeholders, allowed=True)


def test_a_placeholder_may_be_moved_to_another_place():
    outgoing = STRICT.redact_arguments({"password": SECRET})
    moved = {"nested": [{"token": outgoing.value["password"]}]}
    assert restore(moved, outgoing.placeholders, allowed=True) == {"nested": [{"token": SECRET}]}


@pytest.mark.parametrize("frame", ["echo {}", "{} ", "a{}b"])
def test_a_placeholder_within_a_longer_text_is_refused(frame):
    """It would run as it stands there, and nobody can have meant that."""
    outgoing = STRICT.redact_arguments({"password": SECRET})
    value = {"command": frame.format(outgoing.value["password"])}
    with pytest.raises(BadPlaceholder):
        restore(value, outgoing.placeholders, allowed=True)


@pytest.mark.parametrize("arguments", [{"⟦arguments⟧": "x"}, {"m": {"⟦arguments⟧": "x"}}])
def test_a_key_that_only_looks_like_ours_is_left_alone(arguments):
    outgoing = PLAIN.redact_arguments(arguments)
    assert back(outgoing) == arguments


def test_what_holds_no_placeholder_is_left_alone():
    value = {"a": [1, "x", None, {"b": True}]}
    assert restore(value, {}, allowed=False) == value


@pytest.mark.parametrize(
    ("fields", "is_plain"),
    [
        ({"tool": "search", "at": struct.unpack(">d", bytes.fromhex("41dac2cf5b296224"))[0]}, True),
        ({"tool": "search", "at": struct.unpack(">d", bytes.fromhex("41dac2e25b296224"))[0]}, True),
        ({"tool": "search", "grants": {"slots": 7}}, True),
        ({"tool": "search", "cost": 2**63}, False),
        ({"tool": "search", "grants": {"slots": 2**63}}, False),
        ({"tool": "⟦arguments⟧"}, False),
    ],
)
def test_a_fact_gets_a_second_look_for_what_it_holds_and_not_for_the_time_of_day(fields, is_plain):
    assert PLAIN.leaves_as_is(fields, packing.pack(fields)) is is_plain
