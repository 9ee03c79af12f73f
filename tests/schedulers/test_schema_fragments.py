"""What `schema:` means: JSON Schema, refused where it would fall silent, and never without an end."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from toolgate_schedulers.json_schema import MAX_NODES, MAX_PATTERN, reader

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
    items = [{"n": number} for number in range(20_000)]  # twenty times what a question may hold
    began = time.monotonic()
    assert check(items)
    assert not check([*items, {"n": 0}])
    assert time.monotonic() - began < 10  # each with each takes minutes


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
        ({"pattern": "x" * (MAX_PATTERN + 1)}, "^pattern: a pattern may have 1024 characters"),
        ({"$ref": "https://example.com/x.json"}, r"^\$ref: must lead into this fragment: #/\$defs/NAME"),
        ({"$ref": "#"}, r"^\$ref: must lead into this fragment"),
        ({"$ref": 3}, r"^\$ref: must lead into this fragment"),
        ({"$defs": {"a": {}}, "$ref": "#/$defs/b"}, r"^\$ref: there is no #/\$defs/b; there are: a"),
        ({"$defs": [], "$ref": "#/$defs/0"}, r"^\$ref: must lead into"),
        ({"$id": "x", "type": "null"}, r"^\$id: unknown keyword"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, r"^\$schema: unknown keyword"),
        ({"not": {"$defs": {}}}, r"^not\.\$defs: stands at the top of a fragment only"),
        (
            {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"items": {"$ref": "#/$defs/a"}}}, "not": {}},
            "leads round in a circle",
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
