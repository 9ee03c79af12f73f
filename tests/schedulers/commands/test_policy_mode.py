"""`toolgate policy enforce` and `observe` switch the mode in a text and in a file, and keep the rest."""

import stat

import pytest
from toolgate_bus.commands.main import app as frame
from toolgate_bus.errors import ConfigError, ToolgateError
from toolgate_schedulers.commands.policy_mode import set_mode
from typer.testing import CliRunner

pytestmark = pytest.mark.pure

RULES = """\
# what clerks may do
mode: observe   # not yet

rules:
  - {name: no deletes, tools: "delete_*", action: deny}  # for people
  - {name: watched, tools: pay, action: deny, mode: observe}
  - {tools: pay, action: ask}
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (RULES, RULES.replace("mode: observe   #", "mode: enforce   #")),
        ('mode: "observe"\r\ndefault: deny\r\n', 'mode: "enforce"\r\ndefault: deny\r\n'),
        ("# head\ndefault: deny\n", "# head\nmode: enforce\ndefault: deny\n"),
        ("---\n  default: deny\r\n", "---\n  mode: enforce\r\n  default: deny\r\n"),
        ('{"default": "deny"}', '{"mode": "enforce", "default": "deny"}'),
        (
            '{"rules": [{"tools": "x", "mode": "observe", "action": "deny"}], "mode" : "observe"}',
            '{"rules": [{"tools": "x", "mode": "observe", "action": "deny"}], "mode" : "enforce"}',
        ),
        (
            'rules: [{tools: x, action: deny, reason: "mode: observe"}]\nmode: observe',
            'rules: [{tools: x, action: deny, reason: "mode: observe"}]\nmode: enforce',
        ),
    ],
)
def test_the_mode_of_a_text_is_switched_and_every_other_byte_stays(before, after):
    assert set_mode(before.encode(), "p.yaml", "enforce") == after.encode()
    back = set_mode(after.encode(), "p.yaml", "observe")
    assert set_mode(back, "p.yaml", "enforce") == after.encode()


@pytest.mark.parametrize("text", ["mode:\n  observe\ndefault: deny\n", "mode: &a observe\ndefault: deny\n"])
def test_a_mode_that_cannot_be_found_is_left_to_a_person(text):
    with pytest.raises(ConfigError, match="write `mode: enforce` at its top"):
        set_mode(text.encode(), "p.yaml", "enforce")


def policy(*words, code=0):
    """What the command says, or the error that ended it."""
    result = CliRunner().invoke(frame, ["policy", *map(str, words)])
    if isinstance(result.exception, ToolgateError):
        return str(result.exception)
    assert result.exit_code == code, result.output
    return result.output


def test_a_file_is_switched_with_its_comments_and_nobody_is_asked_without_a_terminal(tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text(RULES)
    file.chmod(0o640)
    assert "give --yes" in policy("enforce", "--config", file)
    assert "give --yes" in policy("enforce", "--config", file, "--json")
    assert file.read_text() == RULES
    assert "It counts once the policy runs by it" in policy("enforce", "--config", file, "--yes")
    assert file.read_text() == RULES.replace("mode: observe   #", "mode: enforce   #")
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert "are enforced already" in policy("enforce", "--config", file)
    policy("observe", "--config", file, "--yes")
    assert file.read_text() == RULES


def test_a_file_that_is_no_policy_stays(tmp_path):
    file = tmp_path / "rules.yaml"
    file.write_text("pools: []")
    assert "unknown key" in policy("enforce", "--config", file, "--yes")
    assert file.read_text() == "pools: []"
