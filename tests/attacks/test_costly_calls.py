"""Calls that are cheap to write and dear to look at: no agent's loop stands still for them."""

import time

import pytest
from questions import question_about
from toolgate_orchestrator.gate.config import RedactConfig
from toolgate_orchestrator.gate.question import write_question
from toolgate_orchestrator.gate.redact import Redactor
from toolgate_orchestrator.gate.schema_check import Checker, Uncheckable

pytestmark = pytest.mark.pure

SECONDS = 2.0
"""Far more than is needed on a busy machine, and a fraction of what it took."""
WIDE = {f"k{number}": [1] * 90 for number in range(1000)}


@pytest.mark.parametrize("config", [RedactConfig(), RedactConfig(fields=("password",))])
@pytest.mark.parametrize(
    "written", [WIDE, {name: dict.fromkeys(map(str, range(90)), "x" * 9) for name in WIDE}]
)
def test_many_small_arguments_are_fitted_into_a_question_in_one_pass(config, written):
    began = time.thread_time()
    _, outgoing = write_question(question_about("t", written), Redactor(config))
    assert time.thread_time() - began < SECONDS
    assert outgoing.truncated
    assert 0 < len(outgoing.placeholders) < 1000  # as many as can still travel as they are


def test_texts_that_are_json_are_read_up_to_a_bound_and_hidden_beyond_it():
    texts = {f"k{number}": f"[{'1,' * 7000}1]" for number in range(200)}
    began = time.thread_time()
    asked = question_about("t", {**texts, "last": '{"password": "hunter2"}'})
    _, outgoing = write_question(asked, Redactor(RedactConfig(fields=("password",))))
    assert time.thread_time() - began < SECONDS / 4
    assert "hunter2" not in repr(outgoing.value)


@pytest.mark.parametrize("items", [[{"k": n} for n in range(3000)], [*range(3000), *map(str, range(3000))]])
def test_items_that_cannot_be_sorted_are_compared_in_one_pass(items):
    checker = Checker({"properties": {"a": {"type": "array", "uniqueItems": True}}})
    began = time.thread_time()
    assert checker.problems({"a": items}) == []
    assert checker.problems({"a": [*items, items[0]]}) == ["a: has non-unique elements"]
    assert time.thread_time() - began < SECONDS


def test_a_check_of_too_many_steps_is_given_up():
    checker = Checker({"properties": {"a": {"contains": {"anyOf": [{"const": n} for n in range(100)]}}}})
    assert checker.problems({"a": [*range(200, 210), 5]}) == []
    with pytest.raises(Uncheckable, match="steps"):
        checker.problems({"a": list(range(1000, 15_000))})
