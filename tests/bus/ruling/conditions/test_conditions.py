"""What `when:` means, test by test."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from toolgate_bus.ruling.conditions import conditions
from toolgate_bus.ruling.conditions.arguments import MISSING, find
from toolgate_bus.ruling.conditions.conditions import When, any_glob, same
from toolgate_bus.ruling.conditions.when_matcher import WhenMatcher

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


def holds(conditions_of, arguments, elements="any"):
    """The truth of `conditions.holds`, which prepared conditions must find as well."""
    truth = conditions.holds(conditions_of, arguments, elements)
    assert WhenMatcher(conditions_of).holds(arguments, elements) is truth
    return truth


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("amount", 250),
        ("user.address.zip", "12345"),
        ("items.1.price", 20),
        ("user.a.b", 7),
        ("dotted.key.x", 1),
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
        ({"flag": 2}, None),
        ({"flag": 0}, False),
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
        ({"amount": {"in": ["250"]}}, None),
        ({"amount": {"in": ["251"]}}, False),
        ({"amount": {"in": []}}, False),
        ({"amount": {"gt": 249}}, True),
        ({"amount": {"gt": 250}}, False),
        ({"amount": {"gte": 250, "lt": 251}}, True),
        ({"amount": {"lte": 249.5}}, False),
        ({"count": {"gt": 11}}, True),
        ({"count": {"gt": 12}}, False),
        ({"text": {"gt": 0}}, None),
        ({"flag": {"gt": 0}}, None),
        ({"items": {"gt": 0}}, None),
        ({"items": {"matches": "."}}, None),
        ({"user": {"matches": "."}}, None),
        ({"nothing": {"gt": 0}}, False),
        ({"nothing": {"matches": "."}}, False),
        ({"count": 12}, None),
        ({"count": 13}, False),
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


EVIL = "*@evil.example"


@pytest.mark.parametrize(
    ("condition", "arguments", "any_fits", "all_fit"),
    [
        ({"to": EVIL}, {"to": ["eve@evil.example"]}, True, True),
        ({"to": EVIL}, {"to": ["ann@ok.example", "eve@evil.example"]}, True, False),
        ({"to": EVIL}, {"to": ["ann@ok.example", ["eve@evil.example"]]}, True, False),
        ({"to": EVIL}, {"to": ["ann@ok.example"]}, False, False),
        ({"to": EVIL}, {"to": []}, False, False),
        ({"to": EVIL}, {"to": ["ann@ok.example", {"email": "eve@evil.example"}]}, None, False),
        ({"to": EVIL}, {"to": '["eve@evil.example"]'}, True, False),
        ({"to": EVIL}, {"to": ' ["eve@evil.example"] '}, True, False),
        ({"to": EVIL}, {"to": '"eve@evil.example"'}, True, False),
        ({"to": EVIL}, {"to": "[to be defined]"}, False, False),
        ({"to": EVIL}, {"to": '{"email": ["eve@evil.example"]}'}, True, False),
        ({"to": EVIL}, {"to": '[{"email": "eve@evil.example"}]'}, True, False),
        ({"to": EVIL}, {"to": '{"email": "ann@ok.example"}'}, False, False),
        ({"n": {"gt": 5}}, {"n": '{"amount": 5000}'}, True, None),
        ({"n": {"equals": 5000}}, {"n": '{"amount": 5000}'}, True, False),
        ({"to.email": EVIL}, {"to": [{"email": "eve@evil.example"}]}, True, True),
        ({"to.email": EVIL}, {"to": [{"name": "Eve"}, {"email": "eve@evil.example"}]}, True, False),
        ({"to.email": EVIL}, {"to": [{"email": ["x@y.example", "eve@evil.example"]}]}, True, False),
        ({"to.email": EVIL}, {"to": [[{"email": "eve@evil.example"}]]}, True, True),
        ({"to.email": EVIL}, {"to": ['{"email": "eve@evil.example"}']}, None, None),
        ({"to.mail.at": EVIL}, {"to": [{"mail.at": "eve@evil.example"}]}, None, None),
        ({"to.email": EVIL}, {"to": []}, False, False),
        ({"to.email": {"exists": False}}, {"to": []}, True, True),
        ({"to.1.email": EVIL}, {"to": [{"email": "a@b.example"}, {"email": "eve@evil.example"}]}, True, True),
        ({"n": {"gt": 5, "lt": 10}}, {"n": [1, 20]}, False, False),
        ({"n": {"gt": 5, "lt": 10}}, {"n": [1, 7]}, True, False),
        ({"n": {"in": [1, 2]}}, {"n": [1, 2, 2]}, True, True),
        ({"n": {"in": [1, 2]}}, {"n": [1, 3]}, True, False),
        ({"n": {"equals": [1, 3]}}, {"n": [1, 3]}, True, True),
        ({"n": {"exists": True}}, {"n": []}, True, True),
    ],
)
def test_a_list_meets_a_condition_by_any_element_or_by_all_and_an_empty_one_by_none(
    condition, arguments, any_fits, all_fit
):
    assert holds(when(condition), arguments, "any") is any_fits
    assert holds(when(condition), arguments, "all") is all_fit


@pytest.mark.parametrize(
    ("given", "value"),
    [
        *((True, "true"), (True, 1), (True, "yes"), (False, "off"), (False, 0), (5, "5"), (5, " 5.0")),
        *(("5", 5), (None, "null"), (1, True), (True, "TRUE"), ("true", True), (1.5, "1.50")),
    ],
)
def test_what_a_tool_may_take_for_the_given_value_is_unknown(given, value):
    assert holds(when({"a": {"equals": given}}), {"a": value}) is None
    assert holds(when({"a": {"in": ["other", given]}}), {"a": value}) is None


@pytest.mark.parametrize(
    ("condition", "value", "fits"),
    [
        ({"under": "/srv"}, "/srv/data/a.txt", True),
        ({"under": "/srv"}, "/srv", True),
        ({"under": "/srv"}, "/srv/../etc/passwd", False),
        ({"under": "/srv"}, "/srvx/a", False),
        ({"under": "/srv"}, "data/a.txt", None),
        ({"under": "/srv"}, "~/a", None),
        ({"under": "/srv", "base": "/srv/app"}, "data/a.txt", True),
        ({"under": "/srv", "base": "/srv/app"}, "../../etc/passwd", False),
        ({"under": "/srv"}, ["/srv/a", "/etc/passwd"], True),
        ({"under": "/srv"}, {"path": "/srv/a"}, None),
        ({"under": "/srv"}, None, False),
    ],
)
def test_a_path_is_under_a_folder_by_its_text(condition, value, fits):
    assert holds(when({"path": condition}), {"path": value}) is fits


@pytest.mark.parametrize(
    ("condition", "value", "fits"),
    [
        (EVIL, "Eve <eve@evil.example>", None),
        (EVIL, "ann@ok.example, eve@evil.example", None),
        (EVIL, "eve@evil.example, ann@ok.example", None),
        (EVIL, "eve@EVIL.example", None),
        (EVIL, "eve@evil.example.", None),
        (EVIL, "Ann <ann@ok.example>", False),
        (EVIL, "meet @ noon", None),
        ("*@evil.example*", "meet @ noon", False),
        ("eve@evil.example", "mailto:eve@evil.example", None),
        ("eve@evil.example", "ann@ok.example", False),
        ("@channel", "@other", False),
    ],
)
def test_a_rule_about_an_address_reads_a_text_as_a_mail_program_does(condition, value, fits):
    assert holds(when({"to": condition}), {"to": value}) is fits


@pytest.mark.parametrize(
    ("path", "write"),
    [
        ("items[0].price", r"write items\.0\.price"),
        ("items[*].price", r"write items\.price"),
        ("$.amount", "write amount"),
        ("$amount", "write amount"),
        ("/items/0", r"write items\.0"),
        ("a..b", "empty name"),
        (".a", "empty name"),
        ("a.", "empty name"),
    ],
)
def test_a_path_that_can_never_fit_is_refused_with_what_to_write(path, write):
    with pytest.raises(ValidationError, match=write):
        when({path: 1})


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
        ({"a": {"exists": False, "gt": 1}}, "exists: false allows no other test"),
        ({"a": {"under": "srv"}}, "whole path of a folder"),
        ({"a": {"under": "/srv/%2e%2e"}}, "can be read in one way only"),
        ({"a": {"equals": "/srv", "base": "/srv"}}, "base: needs under"),
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


HIDDEN = "⟦toolgate:truncated:4" + 31 * "a" + "⟧"
"""A placeholder of a text."""
NUMBER = "⟦toolgate:redacted:2" + 31 * "a" + "⟧"
MAP = "⟦toolgate:truncated:6" + 31 * "a" + "⟧"
NULL = "⟦toolgate:redacted:0" + 31 * "a" + "⟧"
OLD = "⟦toolgate:truncated:0123456789ab⟧"


@pytest.mark.parametrize(
    ("condition", "arguments", "truth"),
    [
        ({"a": {"matches": "x"}}, {"a": HIDDEN}, None),
        ({"a": {"matches": "x"}}, {"a": OLD}, None),
        ({"a": {"matches": "x"}}, {"a": MAP}, None),
        ({"a": {"glob": "x*"}}, {"a": NUMBER}, None),
        ({"a": {"equals": "x"}}, {"a": HIDDEN}, None),
        ({"a": {"equals": "x"}}, {"a": NUMBER}, None),
        ({"a": {"equals": 1}}, {"a": NUMBER}, None),
        ({"a": {"in": [1, "x"]}}, {"a": HIDDEN}, None),
        ({"a": {"in": [1, 2]}}, {"a": HIDDEN}, None),
        ({"a": {"equals": 1}}, {"a": MAP}, None),
        ({"a": {"equals": 1}}, {"a": {"b": 1}}, None),
        ({"a": {"gt": 1}}, {"a": NULL}, False),
        ({"a": {"matches": "x"}}, {"a": NULL}, False),
        ({"a": {"equals": 1}}, {"a": NULL}, False),
        ({"a": {"equals": {"b": 1, "c": 2}}}, {"a": {"b": HIDDEN, "c": 3}}, False),
        ({"a": {"equals": {"b": "x", "c": 2}}}, {"a": {"b": HIDDEN, "c": 2}}, None),
        ({"a": {"equals": [1, {}]}}, {"a": [1, MAP]}, None),
        ({"a": {"gt": 1}}, {"a": HIDDEN}, None),
        ({"a": {"gt": 1}}, {"a": MAP}, None),
        ({"a.b": {"gt": 1}}, {"a": '{"b": 5000}'}, None),
        ({"a.b": {"gt": 1}}, {"a": '\ufeff \n{"b": 5000}'}, None),
        ({"a.b": {"exists": False}}, {"a": '"{\\"b\\": 5000}"'}, None),
        ({"a.0.b": {"gt": 1}}, {"a": '[{"b": 5000}]'}, None),
        ({"a.0.b": {"gt": 1}}, {"a": ['{"b": 5000}']}, None),
        ({"a.b": {"gt": 1}}, {"a": "b: 5000"}, False),
        ({"a": {"gt": 1}}, {"a": '{"b": "much"}'}, None),
        ({"a": {"gt": 1}}, {"a": math.nan}, None),
        ({"a": {"gt": 1}}, {"a": "nan"}, None),
        ({"a": {"exists": True}}, {"a": HIDDEN}, True),
        ({"a": {"exists": False}}, {"a": HIDDEN}, False),
        ({"a.b": {"exists": False}}, {"a": MAP}, None),
        ({"a": False}, {"a": NULL}, None),
        ({"a": ""}, {"a": NULL}, None),
        ({"a": True}, {"a": NULL}, False),
        ({"a.b": {"exists": True}}, {"a": HIDDEN}, None),
        ({"a.b": {"exists": True}}, {"⟦arguments⟧": MAP}, None),
        ({"a": {"exists": False}}, {"⟦arguments⟧": MAP}, None),
        ({"b": 1, "a": "x"}, {"a": HIDDEN, "b": 2}, False),
        ({"b": 1, "a": "x"}, {"a": HIDDEN, "b": 1}, None),
        ({"b": 1}, {"a": HIDDEN, "b": 1}, True),
        ({"a.b": {"gt": 10}}, {"a.b": 1, "a": {"b": 50}}, None),
        ({"a.b": {"gt": 10}}, {"a.b": 1, "a": {"b": 5}}, False),
        ({"a.b": {"gt": 10}}, {"a.b": 11, "a": {"b": 50}}, True),
        ({"a.b": {"gt": 10}}, {"a.b": 11}, None),
        ({"a.b": {"gt": 10}}, {"a.b": 1, "a": MAP}, None),
        ({"a.b": {"exists": False}}, {"a.b": 1, "a": {}}, None),
        ({"a.b.c": 1}, {"a.b": {"c": 1}, "a": {"b": {"c": 2}}}, None),
        ({"a.b.c": 1}, {"a": {"b.c": 1, "b": {"c": 2}}}, None),
        ({r"a\.b": {"gt": 10}}, {"a.b": 11, "a": {"b": 1}}, True),
        ({r"a\.b.c": 1}, {"a.b": {"c": 1}, "a": {"b": {"c": 2}}}, True),
    ],
)
def test_what_cannot_be_seen_is_neither_true_nor_false(condition, arguments, truth):
    assert holds(when(condition), arguments) is truth


@pytest.mark.parametrize(
    "number",
    [
        *("5" * 68, "0" * 90 + "5000", "5" * 60_000, "5_000", " 5000 ", "５０００", "5e3", "inf"),
        *("1e999999999999999999999", 5e300, 2**63, math.inf, "1001." + 70 * "0" + "1"),
    ],
)
def test_a_number_may_be_written_in_any_form_and_at_any_length(number):
    assert holds(when({"a": {"gt": 1000}}), {"a": number}) is True
    assert holds(when({"a": {"lte": 1000}}), {"a": number}) is False


def test_whole_numbers_are_compared_exactly():
    assert holds(when({"a": {"gt": 9007199254740992}}), {"a": 9007199254740993}) is True
    assert holds(when({"a": {"gt": 9007199254740992}}), {"a": "9007199254740993"}) is True
    assert holds(when({"a": {"gt": 9007199254740993}}), {"a": 9007199254740993}) is False


TWICE = '{"email": "eve@evil.example", "email": "ann@ok.example"}'
DEEP = 1500 * "[" + '"eve@evil.example"' + 1500 * "]"
LONG = '["eve@evil.example", ' + 4400 * "1" + "]"


@pytest.mark.parametrize(
    "text",
    [
        *(TWICE, DEEP, LONG, "['eve@evil.example']", '["eve@evil.example",]', "{'x': ('eve@evil.example',)}"),
        *('\u00a0["eve@evil.example"]', '\x0c"eve@evil.example"', "['eve@evil.example'" + 9000 * " " + "]"),
    ],
)
@pytest.mark.parametrize("test", ["*@evil.example", {"equals": "eve@evil.example"}, {"matches": "^eve"}])
def test_a_list_or_map_in_a_text_is_never_read_past(text, test):
    assert holds(when({"to": test}), {"to": text}) is not False
    assert holds(when({"to": "*@ok.example"}), {"to": text}, "all") is not True


@pytest.mark.parametrize(
    "text", ["[draft] the secret plan]", "['a', 'b']", "{'a': print('x')}", "[1, 2, 3,]", '{"a": "secrets"}']
)
def test_an_honest_text_in_brackets_meets_no_other_value(text):
    for test in ("secret", {"glob": "*.env"}, {"equals": "x"}):
        assert holds(when({"content": test}), {"content": text}) is False


@pytest.mark.parametrize("blank", ["\u00a0", "\x0c", "\u2028 ", "```json\n"])
def test_a_path_through_a_text_that_begins_with_any_blank_is_unknown(blank):
    arguments = {"order": f'{blank}{{"amount": 5000}}'}
    assert holds(when({"order.amount": {"gt": 100}}), arguments) is None


@pytest.mark.parametrize(
    ("condition", "value", "truth"),
    [
        ({"gte": 1.1}, "1.1", True),
        ({"gt": 0.3}, "0.3", False),
        ({"gte": 19.99}, "19.99", True),
        ({"gt": 1.1}, "1.1", False),
        ({"gte": 100}, "99.9999999999999999999999", None),
        ({"gte": 100}, "99.99", False),
        ({"equals": 1.1}, "1.1", None),
        ({"in": [19.99, 5]}, "19.990", None),
        ({"equals": 1.1}, "1.2", False),
        ({"equals": 100}, "100.0000000000000000000001", None),
        ({"equals": 5000}, "0x1388", None),
        ({"equals": 5000}, "5,000", None),
        ({"equals": 5000}, "5\u00a0000.00", None),
        ({"equals": 12}, "1,2", False),
        ({"equals": 5000}, "0x1389", False),
    ],
)
def test_a_fraction_in_a_text_is_the_number_that_a_tool_makes_of_it(condition, value, truth):
    assert holds(when({"a": condition}), {"a": value}) is truth


@pytest.mark.parametrize(
    ("given", "value", "truth"),
    [
        (False, None, None),
        (False, [], None),
        (True, None, False),
        (True, [], False),
        ([1, 2], ["1", "2"], None),
        ([1, 2], ["1", "3"], False),
        ([1, 2], [1, 2, 3], False),
        (["a"], "a", None),
        (["a"], "b", False),
        ({"a": 1}, {"a": "1"}, None),
        ({"a": 1}, {"a": "2"}, False),
        ({"a": 1}, '{"a": 1}', True),
        ({"a": 1}, '[{"b": {"a": 1}}]', True),
        ({"a": 1}, '{"a": 2}', False),
    ],
)
def test_values_that_a_tool_takes_for_each_other_are_told_apart_by_nobody(given, value, truth):
    assert holds(when({"x": {"equals": given}}), {"x": value}) is truth


@pytest.mark.parametrize(
    ("glob", "text", "truth"),
    [
        ("*@evil.*", "eve@EVIL.example", None),
        ("eve@*", "Eve <eve@evil.example>", None),
        ("eve@*", "ann@ok.example, eve@evil.example", None),
        ("eve@*", "Ann <ann@ok.example>", False),
        ("*@evil.*", "Dear all, write to us @ noon (or not). Yours <me>", False),
        ("*@evil.*", "eve@evil.example", True),
    ],
)
def test_a_glob_for_addresses_may_have_an_open_end(glob, text, truth):
    assert holds(when({"to": {"glob": glob}}), {"to": text}) is truth


def is_path(text):
    try:
        when({text or "x": 1})
    except ValidationError:  # one that no arguments can have
        return False
    return True


@given(
    st.dictionaries(st.text(), JSON),
    st.text().filter(is_path),
    JSON.filter(lambda value: not isinstance(value, list)),
)
def test_no_arguments_make_a_condition_fail(arguments, path, value):
    find(path, arguments)
    for condition in ({"equals": value}, {"glob": "*"}, {"matches": "x"}, {"gt": 1}, {"exists": False}):
        assert holds(when({path or "x": condition}), arguments) in (True, False, None)


SECRET = "⟦toolgate:redacted:4000000000000000000000000000000a⟧"
OF_EACH_KIND = (
    *(SECRET, "", " 5", "5", '["x"]', "x", "/srv/x", "eve@evil.example", "x" * 65_537, "rm -rf"),
    *(5, 5.0, True, None, math.nan, 2**70, ["x"], [], {"b": "x"}, {"b": SECRET}),
)


@pytest.mark.parametrize(
    "test",
    [
        *("x", "*x*", "*@evil.example", 5, {"in": ["x", "5"]}, {"in": ["x", 5]}, {"in": ["e@evil.example"]}),
        *({"gt": 4}, {"gte": 5, "lt": 6}, {"lte": 4, "equals": 5}, {"exists": True}, {"exists": False}),
        *({"matches": "rm"}, {"matches": "(?i)RM"}, {"matches": "^rm", "glob": "rm*"}, {"under": "/srv"}),
        {"under": "/srv", "base": "/srv"},
    ],
    ids=str,
)
def test_prepared_conditions_find_the_same(test):
    for path, name in itertools.product(("a", "a.b", r"a\.b", "⟦arguments⟧"), ("a", "a.b", "⟦arguments⟧")):
        for value, beside, elements in itertools.product(OF_EACH_KIND, ({}, {"c": 1}), ("any", "all")):
            assert holds(when({path: test}), {name: value, **beside}, elements) in (True, False, None)
