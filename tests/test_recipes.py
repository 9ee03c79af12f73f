"""The recipes rule as their page says: each file stands there whole, and its cases come out as shown."""

import re
import shlex
from pathlib import Path

import pytest
from documents import blocks, page, text_of
from toolgate_schedulers.commands import policy, scheduler
from typer.testing import CliRunner

pytestmark = pytest.mark.pure

PAGE = page("recipes/index")
COMMANDS = {"policy": policy.app, "scheduler": scheduler.app}


def recipes() -> dict[str, dict[str, str]]:
    """Return what the page shows of each recipe: its file (`yaml`), a command (`sh`), the output (`text`)."""
    found = {}
    for part in re.split(r"^## ", text_of(PAGE), flags=re.MULTILINE)[1:]:
        shown = {block.language: block.text for block in blocks(part)}
        start = re.match(r"# toolgate scheduler run \S+ --config (\S+)\n", shown["yaml"])
        assert start, part
        found[start[1]] = shown
    return found


RECIPES = recipes()


def test_every_file_of_rules_is_a_recipe_of_the_page() -> None:
    assert {file.name for file in PAGE.parent.glob("*.yaml") if not file.stem.endswith("-cases")} == set(
        RECIPES
    )


@pytest.mark.parametrize("file", RECIPES)
def test_a_recipe_stands_whole_on_the_page_and_rules_as_shown(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = RECIPES[file]
    assert shown["yaml"] == (PAGE.parent / file).read_text(encoding="utf-8")
    monkeypatch.chdir(PAGE.parent)
    _, command, *words = shlex.split(shown["sh"].replace("\\\n", " "))
    assert file in words
    assert {Path(one).name for one in words if one.endswith("-cases.yaml")} <= {
        f"{Path(file).stem}-cases.yaml"
    }
    ended = CliRunner().invoke(COMMANDS[command], words)
    assert (ended.exit_code, ended.stdout) == (0, shown["text"])
