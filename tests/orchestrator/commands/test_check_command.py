"""`toolgate check` loads what it is told to, asks who knows the framework, and ends by what was found.

Real frameworks are checked where they are installed: in the conformance runs (`tests/adapters`).
"""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator import contrib
from toolgate_orchestrator.commands.check import frameworks
from toolgate_orchestrator.commands.check.cli import check
from toolgate_orchestrator.commands.check.target import load_target
from toolgate_orchestrator.contrib.gap import Gap

pytestmark = pytest.mark.pure

AGENT = """
import sys
print("loading", __name__)

class Agent:
    def __init__(self, *bare):
        self.bare = bare

class Team:
    pass

good, bad = Agent(), Agent("web_search", "rm\\x1b[2J")

def make(name="later"):
    return good

async def make_async():
    return bad

def needs(guard):
    return good

def fails():
    raise RuntimeError("no key")
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A program with agents of a framework that has a check."""
    path = tmp_path / "agent_of_mine.py"
    path.write_text(AGENT)
    monkeypatch.syspath_prepend(tmp_path)
    pretend = ModuleType("toolgate_orchestrator.contrib.pretend.check")

    def find_gaps(found):
        return [Gap("lead", tool, "it is hosted") for tool in found.bare]

    pretend.find_gaps = find_gaps
    monkeypatch.setitem(sys.modules, pretend.__name__, pretend)
    monkeypatch.setattr(frameworks, "CHECKS", {"agent_of_mine": "pretend"})
    monkeypatch.setattr(frameworks, "TITLES", {"pretend": "Pretend"})
    pretend.TAKES = (load_target(f"{path}:Agent"),)
    yield path
    sys.modules.pop("agent_of_mine", None)


def reload(path, pretend="toolgate_orchestrator.contrib.pretend.check"):
    """Each load makes its classes anew; the check takes those of the last."""
    sys.modules[pretend].TAKES = (object,)
    return path


def test_an_agent_is_found_by_its_name_or_by_what_makes_it(file, capsys):
    path = reload(file)
    assert load_target(f"{path}:good").bare == ()
    assert load_target(f"{path}:make").bare == ()
    assert load_target(f"{path}:make_async").bare[0] == "web_search"
    assert load_target("agent_of_mine:good.bare") == ()
    told = capsys.readouterr()
    assert told.out == ""
    assert "loading" in told.err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("{}:nobody", "there is no nobody"),
        ("{}:fails", "no key"),
        ("{}", "agent.py:agent"),
        ("no_such_file.py:agent", "no such file"),
        ("no_such_module:agent", "cannot be loaded"),
    ],
)
def test_what_cannot_be_loaded_is_said_with_what_to_do(file, name, words):
    with pytest.raises(ConfigError, match=words):
        load_target(name.format(file))


def test_all_is_gated_is_zero_and_a_gap_is_one_line_for_scripts(file, capsys):
    path = reload(file)
    check([f"{path}:good"], as_json=True)
    assert capsys.readouterr().out == ""
    with pytest.raises(typer.Exit) as left:
        check([f"{path}:good", f"{path}:bad"], as_json=True)
    assert left.value.exit_code == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["agent"], line["tool"], line["reason"]) for line in lines] == [
        ("lead", "web_search", "it is hosted"),
        ("lead", "rm\x1b[2J", "it is hosted"),
    ]
    assert {line["framework"] for line in lines} == {"Pretend"}


def test_people_read_which_tool_and_why_and_no_name_steers_their_terminal(file, capsys):
    path = reload(file)
    with pytest.raises(typer.Exit):
        check([f"{path}:bad"])
    told = capsys.readouterr().out
    assert "2 not gated" in told
    assert "web_search" in told
    assert "\x1b[2J" not in told


def test_what_is_no_agent_is_refused_and_not_called_gated(file):
    with pytest.raises(ConfigError, match="cannot check a dict of builtins"):
        frameworks.find_gaps({})
    other = load_target(f"{file}:Team")()
    with pytest.raises(ConfigError, match="name one of Agent"):
        frameworks.find_gaps(other)


def test_whoever_has_an_adapter_has_a_check():
    folder = Path(contrib.__file__).parent
    checks = {file.parent.name for file in folder.glob("*/check.py")}
    assert checks == set(frameworks.CHECKS.values()) == set(frameworks.TITLES)
    assert checks == {file.parent.name for file in folder.glob("*/adapter.py")}
