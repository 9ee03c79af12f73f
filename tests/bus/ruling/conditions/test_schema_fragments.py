"""What `schema:` means: JSON Schema, refused where it would fall silent, and never without an end."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from toolgate_bus.ruling.conditions.json_schema import MAX_NODES, reader
from toolgate_bus.ruling.conditions.patterns import MAX_PATTERN

pytestmark = pytest.mark.pure

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=10,
)
FRAGMENTS = [
    {"required": ["a"], "properties": {"a": {"type": ["integer", "array"], "multipleOf": 0.5}}},
    {"properties": {"a": {"uniqueItems": True, "contains": {"const": 1}, "minContains": 1}}},
    {"$defs": {"x-1": {"enum": [1, "b"]}}, "additionalProperties": {"not": {"$ref": "#/$defs/x-1"}}},
    {"if": {"required": ["a"]}, "then": {"maxProperties": 1}, "else": {"propertyNames": {"maxLength": 0}}},
    {"patternProperties": {"^[ab]": {"anyOf": [{"pattern": "x"}, {"exclusiveMinimum": 0}]}}},
    {"oneOf": [{"minProperties": 1}, {"dependentRequired": {"a": ["b"]}}], "unevaluatedProperties": False},
    {"properties": {"a": {"prefixItems": [{}, {"type": "null"}], "items": False}}, "title": "words"},
]


@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_a_fragment_means_what_json_schema_says(fragment):
    ours, theirs = reader(fragment), Draft202012Validator(fragment)

    @given(st.dictionaries(st.sampled_from("abc"), JSON))
    def agree(arguments):
        try:
            expected = theirs.is_valid(arguments)
        except (ValueError, OverflowError):  # it raises for numbers that JSON does not know
            expected = False
        assert ours(arguments) is expected

    agree()


@pytest.mark.parametrize(
    ("items", "unique"),
    [
        ([1, 2, True, "1"], True),
        ([1, 1.0], False),
        ([{"a": 1, "b": [2.0]}, {"b": [2], "a": 1}], False),
        ([[1], [True]], True),
        ([None, 0, False, "", []], True),
    ],
)
def test_unique_is_meant_as_json(items, unique):
    assert reader({"uniqueItems": True})(items) is unique
    assert reader({"uniqueItems": False})(items) is True


def test_many_items_that_cannot_be_sorted_are_looked_at_once():
    check = reader({"uniqueItems": True})
    items = [{"n": number} for number in range(100_000)]
    assert check(items)  # comparing each with each would take longer than a test may
    assert not check([*items, {"n": 0}])


@pytest.mark.parametrize(
    ("fragment", "said"),
    [
        ({}, "must be a mapping of JSON-Schema keywords"),
        (True, "must be a mapping of JSON-Schema keywords"),
        ({"description": "only words"}, "says nothing"),
        ({"$defs": {"a": {"type": "null"}}}, "says nothing"),
        ({"maxmum": 3}, r"^maxmum: unknown keyword; allowed: .*; did you mean maximum\?"),
        ({3: 4}, "^3: unknown keyword"),
        ({"anyOf": [{}, {"items": {"x": 1}}]}, r"^anyOf\.1\.items\.x: unknown keyword"),
        ({"properties": {"a": {"format": "email"}}}, r"^properties\.a\.format: is not checked here"),
        ({"properties": {"a": {"type": "text"}}}, r"^properties\.a\.type: 'text' is not valid"),
        ({"properties": ["a"]}, "^properties: .* is not of type 'object'"),
        ({"items": 3}, "^items: must be a mapping of JSON-Schema keywords, true or false"),
        ({"required": "path"}, "^required: 'path' is not of type 'array'"),
        ({"then": {"required": ["a"]}}, "^then: says nothing without if"),
        ({"not": {"minContains": 2}}, r"^not\.minContains: says nothing without contains"),
        ({"pattern": "("}, "^pattern: not a regular expression"),
        ({"patternProperties": {"[": {}}}, "^patternProperties: not a regular expression"),
        ({"pattern": "x" * (MAX_PATTERN + 1)}, "^pattern: a pattern may have at most 1024 characters"),
        ({"$ref": "https://example.com/x.json"}, r"^\$ref: must lead into this fragment: #/\$defs/NAME"),
        ({"$ref": "#"}, r"^\$ref: must lead into this fragment"),
        ({"$ref": 3}, r"^\$ref: must lead into this fragment"),
        ({"$defs": {"a": {}}, "$ref": "#/$defs/b"}, r"^\$ref: there is no #/\$defs/b; there are: a"),
        ({"$defs": [], "$ref": "#/$defs/0"}, r"^\$ref: must lead into"),
        ({"$id": "x", "type": "null"}, r"^\$id: unknown keyword"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, r"^\$schema: unknown keyword"),
        ({"not": {"$defs": {}}}, r"^not\.\$defs: is allowed only at the top of a fragment"),
        (
            {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"items": {"$ref": "#/$defs/a"}}}, "not": {}},
            "leads back to itself",
        ),
    ],
)
def test_a_fragment_that_is_wrong_or_says_nothing_is_refused_by_its_place(fragment, said):
    with pytest.raises(ValueError, match=said):
        reader(fragment)


def test_a_fragment_is_bounded_with_its_references_followed():
    doubling = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(14)}
    with pytest.raises(ValueError, match=f"too large: {MAX_NODES} fragments"):
        reader({"$defs": {**doubling, "d14": {"type": "null"}}, "$ref": "#/$defs/d0"})
    deep = {"type": "null"}
    for _ in range(60):
        deep = {"not": deep}
    with pytest.raises(ValueError, match="32 levels"):
        reader(deep)


HIDDEN = {kind: f"⟦toolgate:truncated:{digit}{31 * 'a'}⟧" for digit, kind in enumerate("nbifsao")}
"""A placeholder of null, a boolean, an integer, a number with a point, a text, an array, an object."""
OLD = "⟦toolgate:redacted:0123456789ab⟧"


@pytest.mark.parametrize(
    ("fragment", "arguments", "truth"),
    [
        ({"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"a": HIDDEN["s"]}, True),
        ({"properties": {"a": {"type": "integer"}}}, {"a": HIDDEN["s"]}, False),
        ({"properties": {"a": {"type": "integer"}}}, {"a": HIDDEN["i"]}, True),
        ({"properties": {"a": {"type": "number"}}}, {"a": HIDDEN["i"]}, True),
        ({"properties": {"a": {"type": "integer"}}}, {"a": HIDDEN["f"]}, None),
        ({"properties": {"a": {"type": ["null", "object"]}}}, {"a": OLD}, None),
        ({"properties": {"a": {"pattern": "x"}}}, {"a": HIDDEN["s"]}, None),
        ({"properties": {"a": {"pattern": "x"}}}, {"a": HIDDEN["o"]}, True),
        ({"properties": {"a": {"maximum": 1}}}, {"a": HIDDEN["i"]}, None),
        ({"properties": {"a": {"maximum": 1}}}, {"a": HIDDEN["s"]}, True),
        ({"properties": {"a": {"const": 1}}}, {"a": HIDDEN["s"]}, None),
        ({"properties": {"a": {"enum": [[1]]}}}, {"a": [HIDDEN["s"]]}, None),
        ({"properties": {"a": {"pattern": "x"}, "b": {"const": 1}}}, {"a": HIDDEN["s"], "b": 2}, False),
        ({"properties": {"a": {"pattern": "x"}, "b": {"const": 1}}}, {"a": HIDDEN["s"], "b": 1}, None),
        ({"properties": {"b": {"const": 1}}}, {"a": HIDDEN["s"], "b": 1}, True),
        ({"properties": {"a": {"properties": {"b": {"maximum": 1}}}}}, {"a": HIDDEN["o"]}, None),
        ({"properties": {"a": {"required": ["b"]}}}, {"a": HIDDEN["o"]}, None),
        ({"properties": {"a": {"items": {"maximum": 1}}}}, {"a": HIDDEN["a"]}, None),
        ({"properties": {"a": {"items": {"maximum": 1}}}}, {"a": HIDDEN["o"]}, True),
        ({"properties": {"a": {"items": {"maximum": 1}}}}, {"a": [HIDDEN["i"], 2]}, False),
        ({"not": {"properties": {"a": {"pattern": "x"}}}}, {"a": HIDDEN["s"]}, None),
        ({"not": {"properties": {"a": {"type": "string"}}}}, {"a": HIDDEN["s"]}, False),
        ({"anyOf": [{"required": ["b"]}, {"properties": {"a": {"const": 1}}}]}, {"a": HIDDEN["i"]}, None),
        ({"anyOf": [{"required": ["a"]}, {"properties": {"a": {"const": 1}}}]}, {"a": HIDDEN["i"]}, True),
        ({"if": {"properties": {"a": {"const": 1}}}, "then": False}, {"a": HIDDEN["i"]}, None),
        ({"properties": {"a": {"uniqueItems": True}}}, {"a": [1, HIDDEN["i"]]}, None),
        (
            {"$defs": {"d": {"minimum": 1}}, "properties": {"a": {"$ref": "#/$defs/d"}}},
            {"a": HIDDEN["i"]},
            None,
        ),
        ({"required": ["a"]}, {"⟦arguments⟧": HIDDEN["o"]}, None),
        ({"required": ["a"]}, {"b": HIDDEN["o"]}, False),
    ],
)
def test_what_a_keyword_cannot_see_is_not_known(fragment, arguments, truth):
    assert reader(fragment)(arguments) is truth


def test_a_pattern_that_may_never_end_does():
    slow = reader({"properties": {"a": {"pattern": r"^(\w+\s?)*$"}}, "patternProperties": {"(b+)+$": False}})
    assert slow({"a": 2000 * "aaaa " + "!"}) is False  # an engine that backtracks never ends here
    assert slow({1000 * "b" + "!": 1}) is True


def test_patterns_that_the_engine_does_not_know_are_refused_by_their_place():
    with pytest.raises(ValueError, match=r"^properties\.a\.pattern: a look ahead or behind"):
        reader({"properties": {"a": {"pattern": "(?=x)y"}}})
    with pytest.raises(ValueError, match="unevaluatedProperties: goes with no patternProperties"):
        reader({"unevaluatedProperties": False, "patternProperties": {"a": True}})


@pytest.mark.parametrize(
    "keyword", ["maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"]
)
def test_a_number_that_is_none_is_in_no_order(keyword):
    valid = reader({"properties": {"a": {keyword: 5}}})
    assert valid({"a": math.nan}) is None
    assert valid({"a": "x"}) is True
