"""`toolgate init` writes a plan, rules and cases that work, and overwrites nothing."""

from pathlib import Path
from typing import Any

import pytest
from toolgate_orchestrator.commands.host.plan import read_plan

pytestmark = pytest.mark.acceptance

FILES = ["cases.yaml", "plan.yaml", "rules.yaml", "workspace/notes.txt"]


def files_in(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def test_what_it_writes_is_a_plan_and_rules_that_are_as_expected(
    process: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = process("toolgate", "init", "a folder", cwd=tmp_path)
    assert written.wait() == 0, written.stderr
    folder = tmp_path / "a folder"
    assert files_in(folder) == FILES
    assert "cd 'a folder' && " in written.stdout
    assert 'run "Tidy up" --plan plan.yaml' in written.stdout
    assert "scheduler run policy --config rules.yaml" in written.stdout
    monkeypatch.chdir(folder)
    assert read_plan(Path("plan.yaml")).orchestrator["config"]["toolgate"]["required"] == ["policy"]
    tested = process("toolgate", "policy", "test", "rules.yaml", "cases.yaml", "--strict", cwd=folder)
    assert tested.wait() == 0, tested.stdout


def test_the_folder_may_be_this_one_and_quiet_says_nothing(process: Any, tmp_path: Path) -> None:
    written = process("toolgate", "init", "--quiet", cwd=tmp_path)
    assert written.wait() == 0, written.stderr
    assert written.stdout == ""
    assert files_in(tmp_path) == FILES


@pytest.mark.parametrize("name", ["rules.yaml", "workspace/notes.txt"])
def test_nothing_is_overwritten(process: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    refused = process("toolgate", "init", tmp_path)
    assert refused.wait() == 2
    assert f"{tmp_path / name} exists already: nothing was written" in refused.stderr
    assert files_in(tmp_path) == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_named(process: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = process("toolgate", "init", tmp_path / "file" / "x")
    assert refused.wait() == 2
    assert "cannot be written: Not a directory" in refused.stderr
