"""What `when:` means, test by test."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from toolgate_schedulers.conditions import MISSING, When, any_glob, find, holds, same

pytestmark = pytest.mark.pure

ARGUMENTS = {
    "user": {"address": {"zip": "12345"}, "a.b": 7},
    "items": [{"price": 10}, {"price": 20}],
    "amount": 250,
    "text": "rm -rf /",
    "count": "12",
    "flag": True,
    "nothing": None,
    "dotted.key": {"x": 1},
}
when = TypeAdapter(When).validate_python


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("amount", 250),
        ("user.address.zip", "12345"),
        ("items.1.price", 20),
        ("user.a.b", 7),
        ("dotted.key.x", MISSING),
        ("dotted.key", {"x": 1}),
        ("nothing", None),
        ("items.2", MISSING),
        ("items.-1", MISSING),
        ("items.9999999999999999999", MISSING),
        ("text.0", MISSING),
        ("amount.x", MISSING),
        ("", MISSING),
    ],
)
def test_a_path_finds_its_value(path, value):
    assert find(path, ARGUMENTS) is value or find(path, ARGUMENTS) == value


@pytest.mark.parametrize(
    ("condition", "fits"),
    [
        ({"amount": 250}, True),
        ({"amount": 251}, False),
        ({"amount": 250.0}, True),
        ({"flag": True}, True),
        ({"flag": 1}, False),
        ({"nothing": None}, True),
        ({"gone": None}, False),
        ({"text": "rm*"}, True),
        ({"text": "*ls*"}, False),
        ({"text": {"equals": "rm -rf /"}}, True),
        ({"text": {"glob": "RM*"}}, False),
        ({"text": {"matches": r"-rf\b"}}, True),
        ({"text": {"matches": "^-rf"}}, False),
        ({"amount": {"matches": "^25"}}, True),
        ({"amount": {"in": [1, 250]}}, True),
        ({"amount": {"in": ["250"]}}, False),
        ({"amount": {"in": []}}, False),
        ({"amount": {"gt": 249}}, True),
        ({"amount": {"gt": 250}}, False),
        ({"amount": {"gte": 250, "lt": 251}}, True),
        ({"amount": {"lte": 249.5}}, False),
        ({"count": {"gt": 11}}, True),
        ({"count": {"gt": 12}}, False),
        ({"text": {"gt": 0}}, False),
        ({"flag": {"gt": 0}}, False),
        ({"items": {"gt": 0}}, False),
        ({"items": {"matches": "."}}, False),
        ({"amount": {"exists": True}}, True),
        ({"nothing": {"exists": True}}, True),
        ({"gone": {"exists": False}}, True),
        ({"amount": {"exists": False}}, False),
        ({"gone": {"exists": True}}, False),
        ({"gone": "*"}, False),
        ({"items": {"equals": [{"price": 10}, {"price": 20}]}}, True),
        ({"amount": {"gt": 1}, "count": {"gt": 100}}, False),
        ({}, True),
    ],
)
def test_a_condition_holds_or_not(condition, fits):
    assert holds(when(condition), ARGUMENTS) is fits


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ({"a": {"equal": 1}}, "equal"),
        ({"a": {}}, "says nothing: give one or more of equals, in, glob"),
        ({"a": [1, 2]}, r"write \{in: \[\.\.\.\]\}"),
        ({"a": {"matches": "("}}, "not a regular expression"),
        ({"a": {"matches": None}}, "matches: needs a value"),
        ({"a": {"gt": "10"}}, "valid number"),
        ({"a": {"gt": True}}, "valid number"),
        ({"a": {"gt": float("nan")}}, "finite number"),
        ({"a": {"in": "abc"}}, "valid tuple"),
        ({"a": {"exists": "no"}}, "valid boolean"),
        ({"a": {"exists": False, "gt": 1}}, "exists: false goes with no other test"),
        ({"": 1}, "at least 1 character"),
        ({1: 1}, "valid string"),
    ],
)
def test_a_wrong_condition_is_refused(condition, said):
    with pytest.raises(ValidationError, match=said):
        when(condition)


def test_globs_regard_case():
    assert any_glob(["web_*", "ls"], "web_search")
    assert not any_glob(["web_*", "LS"], "ls")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON)
def test_everything_is_the_same_as_itself(value):
    assert same(value, value)


@given(st.dictionaries(st.text(), JSON), st.text(), JSON.filter(lambda value: not isinstance(value, list)))
def test_no_arguments_make_a_condition_fail(arguments, path, value):
    find(path, arguments)
    for condition in ({"equals": value}, {"glob": "*"}, {"matches": "x"}, {"gt": 1}, {"exists": False}):
        assert holds(when({path or "x": condition}), arguments) in (True, False)
