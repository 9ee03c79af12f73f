"""Calls that are cheap to write and dear to look at: no agent's loop stands still for them."""

import pytest
from questions import question_about
from steps import count_steps
from toolgate_orchestrator.decision.config import RedactConfig
from toolgate_orchestrator.decision.question.question import write_question
from toolgate_orchestrator.decision.question.redact import Redactor
from toolgate_orchestrator.decision.question.schema_check import Checker, Uncheckable

pytestmark = pytest.mark.pure

WIDE = {f"k{number}": [1] * 90 for number in range(1000)}


@pytest.mark.system
@pytest.mark.parametrize("config", [RedactConfig(), RedactConfig(fields=("password",))])
@pytest.mark.parametrize(
    "written", [WIDE, {name: dict.fromkeys(map(str, range(90)), "x" * 9) for name in WIDE}]
)
def test_many_small_arguments_are_fitted_into_a_question_in_one_pass(config, written):
    def write(arguments):
        return write_question(question_about("t", arguments), Redactor(config))

    half = dict(list(written.items())[: len(written) // 2])
    assert count_steps(write, written) < 2.5 * count_steps(write, half)
    _, outgoing = write(written)
    assert outgoing.truncated
    assert 0 < len(outgoing.placeholders) < 1000  # as many as can still travel as they are


def test_texts_that_are_json_are_read_up_to_a_bound_and_hidden_beyond_it():
    texts = {f"k{number}": f"[{'1,' * 7000}1]" for number in range(200)}
    asked = question_about("t", {**texts, "last": '{"password": "hunter2"}'})
    _, outgoing = write_question(asked, Redactor(RedactConfig(fields=("password",))))
    assert "hunter2" not in repr(outgoing.value)


@pytest.mark.parametrize("items", [[{"k": n} for n in range(3000)], [*range(3000), *map(str, range(3000))]])
def test_items_that_cannot_be_sorted_are_compared_in_one_pass(items):
    checker = Checker({"properties": {"a": {"type": "array", "uniqueItems": True}}})
    half = items[::2]
    assert count_steps(checker.problems, {"a": items}) < 2.5 * count_steps(checker.problems, {"a": half})
    assert checker.problems({"a": items}) == []
    assert checker.problems({"a": [*items, items[0]]}) == ["a: has non-unique elements"]


def test_a_check_of_too_many_steps_is_given_up():
    checker = Checker({"properties": {"a": {"contains": {"anyOf": [{"const": n} for n in range(100)]}}}})
    assert checker.problems({"a": [*range(200, 210), 5]}) == []
    with pytest.raises(Uncheckable, match="steps"):
        checker.problems({"a": list(range(1000, 15_000))})
