"""A secret field is found inside a text that is JSON, however it is dressed up."""

import json

import pytest
from toolgate_orchestrator.decision.config import RedactConfig
from toolgate_orchestrator.decision.question.redact import Redactor

pytestmark = pytest.mark.pure

SECRET = {"password": "hunter22"}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(SECRET),
        "\ufeff \n" + json.dumps([1, {"a": [SECRET]}], indent=2),
        '{"PASSW\\u004frd": "hunter22"}',
        json.dumps(json.dumps(SECRET)),
        json.dumps({"body": json.dumps({"body": json.dumps(SECRET)})}),
        '{"a": {"password": "hunter22"}, "a": 1}',
        '{"n": ' + "9" * 5000 + ', "password": "hunter22"}',
        "[" * 8000 + json.dumps(SECRET) + "]" * 8000,
    ],
)
def test_a_field_inside_a_text_leaves_as_a_placeholder_only(text: str) -> None:
    redactor = Redactor(RedactConfig(fields=("password",)))
    out = redactor.redact_arguments({"body": text, "note": "fine"})
    assert str(out.value["body"]).startswith("⟦toolgate:")
    assert out.value["note"] == "fine"
    assert "hunter22" not in str(out.value)
    if len(text) < 8000:
        assert redactor.text("it said hunter22", out) == "it said ⟦redacted⟧"


@pytest.mark.parametrize("text", ["{}", '{"a": "password"}', "[1, 2", "password: x", "", '"password"'])
def test_other_texts_are_left_as_they_are(text: str) -> None:
    redactor = Redactor(RedactConfig(fields=("password",)))
    assert redactor.redact_arguments({"body": text}).value == {"body": text}
