"""Conditions on results: `$result` and the paths below it, in a text, in JSON, and in JSON within a text."""

import json

import pytest
from pydantic import TypeAdapter, ValidationError
from toolgate_bus.protocol.placeholders import HIDDEN_PART
from toolgate_bus.ruling.conditions.conditions import Condition
from toolgate_bus.ruling.conditions.result_paths import ReadableResult, WhenOrResult, names_result
from toolgate_orchestrator.decision.question import redact

pytestmark = pytest.mark.pure

ORDER = {"ok": True, "order": {"id": "a-1", "lines": [{"price": 5}, {"price": 500}]}, "note": "be quick"}


def holds(result, path, written, elements="any", is_cut=False):
    condition = Condition.model_validate(written)
    return ReadableResult(result, is_cut=is_cut).holds(path, condition, elements)


@pytest.mark.parametrize("result", [ORDER, json.dumps(ORDER), f"  {json.dumps(ORDER)}\n"])
def test_a_path_leads_into_json_and_into_the_json_that_a_text_holds(result):
    assert holds(result, "$result.ok", True) is True
    assert holds(result, "$result.order.id", "a-*") is True
    assert holds(result, "$result.order.lines.price", {"gt": 100}) is True
    assert holds(result, "$result.order.lines.price", {"gt": 100}, "all") is False
    assert holds(result, "$result.order.lines.0.price", {"gt": 100}) is False
    assert holds(result, "$result.missing", {"exists": False}) is True


@pytest.mark.parametrize("result", [ORDER, json.dumps(ORDER), "so be quick now"])
def test_a_text_test_on_all_of_a_result_looks_at_each_text_in_it(result):
    assert holds(result, "$result", {"matches": "be quick"}) is True
    assert holds(result, "$result", "*quick*") is True
    assert holds(result, "$result", {"matches": "be slow"}) is False


def test_a_rule_that_allows_wants_each_text_to_fit():
    assert holds(["ok 1", "ok 2"], "$result", "ok*", "all") is True
    assert holds(["ok 1", "no"], "$result", "ok*", "all") is False
    assert holds([], "$result", "ok*", "all") is False


def test_of_a_plain_text_nothing_is_below():
    assert holds("done", "$result.ok", True) is False
    assert holds("done", "$result", "done") is True
    assert holds({"a": 1}, "$result", {"equals": {"a": 1}}) is True


@pytest.mark.parametrize(
    ("result", "path"),
    [
        (f"the key is {HIDDEN_PART}", "$result"),
        ({"a": f"x{HIDDEN_PART}"}, "$result.a"),
        ('{"a": 1, "a": 2}', "$result.a"),
        ('{"a": ', "$result.a"),
    ],
)
def test_what_is_redacted_or_read_in_two_ways_is_unknown(result, path):
    assert holds(result, path, {"matches": "x"}) is None


def test_of_a_result_that_was_cut_off_nothing_below_is_known():
    assert holds('{"ok": true', "$result.ok", True, is_cut=True) is None
    assert holds("plain", "$result.ok", {"exists": False}, is_cut=True) is None
    assert holds("plain words", "$result", "*words*", is_cut=True) is True


def test_the_mark_of_a_redacted_part_is_the_gates():
    assert redact.HIDDEN == HIDDEN_PART


def test_only_the_result_has_a_path_that_begins_with_a_dollar():
    read = TypeAdapter(WhenOrResult).validate_python
    assert set(read({"$result": "x", "$result.a.b": 1, "a.b": 1})) == {"$result", "$result.a.b", "a.b"}
    assert [names_result(path) for path in ("$result", "$result.a", "result", "$resulta")] == [
        *(True, True),
        *(False, False),
    ]
    for wrong in ("$.a", "$results", "$result.", "$result.a[0]", "$result..a"):
        with pytest.raises(ValidationError):
            read({wrong: 1})
