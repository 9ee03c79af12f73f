"""A file means one thing: the core schema of YAML 1.2, and nothing that readers take for different things."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import Field
from toolgate_bus.config.check import StrictModel, check
from toolgate_bus.config.document import parse_document
from toolgate_bus.config.odd_number import is_odd
from toolgate_bus.errors import ConfigError
from toolgate_bus.ruling.conditions.conditions import Condition, When
from toolgate_bus.ruling.conditions.matching import CallMatcher

pytestmark = pytest.mark.pure


def read(text: str) -> Any:
    return parse_document(f"v: {text}\n".encode(), "f.yaml").value["v"]


@pytest.mark.parametrize(
    "text",
    [
        *("NO", "no", "No", "off", "OFF", "On", "yes", "Y", "n"),
        *("12:30", "1:2:3", "190:20:30.15", "1_000", "0b1", "-0x1F", "0o", "0o8", "0x", "0xG", "-0o7"),
        *("2024-05-01", "2001-12-14t21:59:43.10-05:00", "=", "<<", "1.2.3", "1e", "e3", ".", "-", "+"),
        *(".Inf1", "-.nan", "nan", "NaN", "inf", "Infinity", "tRUE", "nUll", "~~", "1,000", "1__0", "_1"),
        *("0755_", "1.5_0", "0x_1", "+-1", "--1", "\u0661\u0662", "1\u00a0"),
    ],
)
def test_what_is_no_value_of_the_core_schema_is_the_text_that_it_is(text):
    if text == "-":
        text = '"-"'
    assert read(text) == text.strip('"')


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("true", True), ("True", True), ("TRUE", True), ("false", False), ("False", False)),
        *(("null", None), ("Null", None), ("NULL", None), ("~", None), ("", None)),
        *(("0", 0), ("-0", 0), ("0755", 755), ("0o755", 493), ("0x1F", 31), ("0xfF", 255), ("+5", 5)),
        *(("-17", -17), ("1.10", 1.1), ("1e3", 1000.0), ("1E+3", 1000.0), ("-1.5e-3", -0.0015), (".5", 0.5)),
        *(("5.", 5.0), ("-.5", -0.5), (".inf", math.inf), ("-.INF", -math.inf), ("+.Inf", math.inf)),
        *(('"NO"', "NO"), ("'1.10'", "1.10"), ('"\\ud83d\\ude00"', "\U0001f600"), ("!!str 0755", "0755")),
    ],
)
def test_values_of_the_core_schema_are_read_as_it_says(text, value):
    found = read(text)
    assert found == value
    assert type(found) is type(value)


def test_not_a_number_is_read():
    assert all(math.isnan(read(text)) for text in (".nan", ".NaN", ".NAN"))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("a: 1\nb: !!int '0755'", r"f\.yaml:2: a tag"),
        ("a: !!set {x, y}", r"f\.yaml:1: a tag"),
        ("a: !!binary aGk=", r"f\.yaml:1: a tag"),
        ("a: !!timestamp 2024-05-01", r"f\.yaml:1: a tag"),
        ("a: !!pairs [x: 1, x: 2]", r"f\.yaml:1: a tag"),
        ("a: ! 12", r"f\.yaml:1: a tag"),
        ("a: &b {c: 1}\n!!merge x: *b", r"f\.yaml:2: a tag"),
        ("a: !mine {b: 1}", r"f\.yaml:1: a tag"),
        ("%YAML 1.1\n---\na: NO", r"f\.yaml: its line %YAML names a version other than 1\.2"),
        ("a: 1\n1: x\n'1': y", r"f\.yaml:3: the key '1' is given twice"),
        ("1: x\n0x1: y", r"f\.yaml:2: the key '0x1' is not a text: write it in quotes"),
        ("1.0: x\n1: y", r"f\.yaml:1: the key '1.0' is not a text"),
        ("true: x", r"f\.yaml:1: the key 'true' is not a text"),
        ("~: x", r"f\.yaml:1: the key '~' is not a text"),
        ("0755: x", r"f\.yaml:1: the key '0755' is not a text"),
        ("{a: 1, ? a : 2}", r"f\.yaml:1: the key 'a' is given twice"),
        ('"\\u0061": 1\na: 2', r"f\.yaml:2: the key 'a' is given twice"),
        ("a: b\u2028c: d", r"f\.yaml:1: contains the character U\+2028.*\"\\u2028\", in double quotes"),
        ("a: 1\nb: 'x\x85 y'", r"f\.yaml:2: contains the character U\+0085"),
        ("a: 1\u2029# b", r"f\.yaml:1: contains the character U\+2029"),
        ('a: 1\nb: "\\ud83d"', r"f\.yaml:2: a text holds half a character"),
        ('a: "\\Ud83dde00"', r"f\.yaml: is not YAML: "),
        ("a: 1\nb: 1e400", r"f\.yaml:2: is not YAML: a number is too large"),
        ("a: -1e999", r"f\.yaml:1: is not YAML: a number is too large"),
        ("a: 0x" + "F" * 5000, r"f\.yaml:1: is not YAML: a number is too large"),
    ],
)
def test_what_readers_take_for_different_things_is_refused_by_its_line(raw, said):
    with pytest.raises(ConfigError, match=said):
        parse_document(raw.encode(), "f.yaml")


class Rules(StrictModel):
    when: When = Field(default_factory=dict)
    condition: Condition | None = None
    limit: float | None = None
    many: tuple[int, ...] = ()
    free: Any = None


ODD = [
    *("1.10", "0755", "1e3", "+5", ".5", "5.", "00", "-0", "0x1F", "0o17", "1.0e3", "1.00", "-01", "1E5"),
    *(".inf", "-.Inf", ".nan", "0.10000000000000000001", "1e-3", "123456789012345678901.5"),
]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    "form",
    [
        "when: {a: ODD}",
        "when: {a: {equals: ODD}}",
        "when: {a: {in: [x, ODD]}}",
        "when: {a: {equals: {b: [1, ODD]}}}",
        "when: {a: {in: [[ODD]]}}",
        "condition: ODD",
    ],
)
def test_a_number_that_may_be_a_text_is_refused_where_values_are_compared(form, odd):
    document = parse_document(f"free: 1\n{form.replace('ODD', odd)}\n".encode(), "rules.yaml")
    with pytest.raises(ConfigError) as error:
        check(Rules, document.mapping(), document)
    assert str(error.value).startswith("rules.yaml:2: ")
    assert f"write '{odd}', in quotes, for the text" in str(error.value)


@pytest.mark.parametrize("fragment", ["{const: ODD}", "{enum: [ODD, 2]}", "{anyOf: [{enum: [[ODD]]}]}"])
def test_so_is_one_in_a_fragment_of_json_schema(fragment):
    fragment = f"{{properties: {{const: {{minimum: 1e3}}, a: {fragment}}}}}"
    document = parse_document(f"schema: {fragment.replace('ODD', '1.10')}".encode(), "rules.yaml")
    with pytest.raises(ConfigError, match=r"^rules\.yaml:1: schema: 1\.10 can be read as a text"):
        check(CallMatcher, document.mapping(), document)
    document = parse_document(f"schema: {fragment.replace('ODD', '1.1')}".encode(), "rules.yaml")
    assert check(CallMatcher, document.mapping(), document).schema_({"a": 3}) is not True


@pytest.mark.parametrize(
    "plain",
    [
        *("0", "1", "-1", "1.5", "1.0", "-0.5", "1e-07", "1e-7", "0.0000001", "0.001", "1000000", "1e+16"),
        *("12345678901234567890123", "'1.10'", '"0755"', "NO", "12:30", "1_000", "true", "null", "0.1"),
    ],
)
def test_what_json_would_write_may_be_compared_with(plain):
    document = parse_document(f"when: {{a: {plain}, b: {{in: [{plain}]}}}}".encode(), "rules.yaml")
    assert check(Rules, document.mapping(), document).when["b"].in_ == (read(plain),)


def test_elsewhere_an_odd_number_is_the_number():
    text = "limit: 1e3\nmany: [0755, 0x1F]\nfree: {a: 1.10}\nwhen: {a: {gt: .5, lte: 1.50}, b: '1.10'}"
    document = parse_document(text.encode(), "f")
    read = check(Rules, document.mapping(), document)
    assert (read.limit, read.many, read.free) == (1000.0, (755, 31), {"a": 1.1})
    assert type(read.free["a"]) is float
    assert (read.when["a"].gt, read.when["a"].lte) == (0.5, 1.5)


def test_an_odd_number_is_found_by_way_of_an_alias_and_at_places_within_a_file():
    document = parse_document(b"x: &n 1.10\nin:\n  config:\n    when: {v: {equals: *n}}\n", "plan.yaml")
    with pytest.raises(ConfigError, match=r"^plan\.yaml:4: in\.config\.when\.v\.equals: 1\.10 can be read"):
        check(Rules, document.value["in"]["config"], document, ("in", "config"))


def test_a_value_from_elsewhere_than_the_file_is_not_taken_for_its_number():
    document = parse_document(b"config: {when: {v: 1.10}}", "plan.yaml")
    assert check(Rules, {"when": {"v": 2.5}}, document, ("config",)).when["v"].equals == 2.5


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values, st.booleans(), st.sampled_from([None, 2, "\t"]))
def test_every_json_file_is_read_as_json_reads_it(value, ascii_alone, indent):
    text = json.dumps({"v": value}, ensure_ascii=ascii_alone, indent=indent)
    found = parse_document(text.encode(), "f.json").value
    assert json.dumps(found) == json.dumps({"v": value})


TRICKY = (
    *(
        "NO",
        "1.10",
        "0755",
        "12:30",
        "1_000",
        "<<",
        "=",
        "~",
        "",
        ".inf",
        "0x1F",
        "2024-05-01",
        "null",
        "- a",
    ),
    *(
        "\x85",
        "\ufeff",
        "a: b",
        "#c",
        "'",
        "\t",
        "\u2028",
        "\U0001f600",
        "true",
        "off",
        "1e3,",
        "!x",
        "*a",
        "&a",
    ),
)
NEW_NUMBERS = ("1e3", "-2E5", "0o17", "1e07", "12e03")
"""Texts that are numbers to YAML 1.2 alone: PyYAML writes them without quotes."""


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            yield from texts_in(item)


@given(
    json_values | st.lists(st.sampled_from(TRICKY)) | st.dictionaries(st.sampled_from(TRICKY), json_values)
)
def test_what_pyyaml_writes_is_read_back_as_the_same(value):
    text = yaml.safe_dump({"v": value}, sort_keys=False)
    assume(not re.search(r"[-+]?[0-9.]+[eE][-+]?[0-9]+|0o[0-7]+", json.dumps([*texts_in(value)])))
    assert json.dumps(parse_document(text.encode(), "f.yaml").value) == json.dumps({"v": value})


@pytest.mark.parametrize("text", NEW_NUMBERS)
def test_a_text_that_pyyaml_writes_as_a_number_of_yaml_1_2_is_no_rule(text):
    document = parse_document(yaml.safe_dump({"when": {"a": {"equals": text}}}).encode(), "f.yaml")
    with pytest.raises(ConfigError, match=f"write '{text}', in quotes"):
        check(Rules, document.mapping(), document)


numbers = st.from_regex(r"[-+]?(0|[0-9]{1,6})(\.[0-9]{0,6})?([eE][-+]?[0-9]{1,2})?", fullmatch=True)


@given(numbers)
def test_a_number_is_plain_exactly_where_json_reads_its_text_and_no_digit_is_idle(text):
    value = read(text)
    if is_odd(text, value):
        return
    assert json.loads(text) == value
    digits, _, exponent = text.lower().partition("e")
    assert digits.endswith(".0") or "." not in digits or not digits.endswith("0")
    assert not exponent or text.replace("e-0", "e-") in (repr(value), repr(value).replace("e-0", "e-"))
