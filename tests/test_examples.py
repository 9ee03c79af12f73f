"""The examples of the manual end as their pages show, on the real frameworks, and leave no process behind."""

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import frameworks
import pytest
from documents import ROOT, Block, blocks, text_of
from marked_processes import World

pytestmark = [pytest.mark.system, pytest.mark.acceptance, pytest.mark.timeout(600)]

FOLDER = ROOT / "docs" / "examples"
BY_MAKE = "cedar"
"""Started by the command of its page; the others in environments that the tests have anyway."""
ENVIRONMENTS = dict.fromkeys(("langgraph", "pydantic-ai"), "langchain__pydantic_ai") | {
    "openai-agents": "openai_agents"
}
"""Environment of an adapter that has an example's framework; the others run where the tests run."""
EXAMPLES = sorted(file.parent.name for file in FOLDER.glob("*/main.py"))


def shown(name: str) -> Block:
    """Return what the page of an example says that it prints; check that it names its one command."""
    found = blocks(text_of(FOLDER / name / "README.md"))
    assert found[0] == Block("sh", f"make example NAME={name}\n")
    (output,) = (block for block in found if block.language == "text")
    return output


def python_of(name: str) -> str | Path:
    """Return the Python that has an example's packages."""
    if name not in ENVIRONMENTS:
        return sys.executable
    try:
        return frameworks.environment_of(ENVIRONMENTS[name], 300.0)
    except frameworks.NoPackages as error:
        pytest.skip(f"the packages of {name} cannot be had here: {error}")


@pytest.fixture(name="world")
def _world(short_directory: Path) -> World:
    """A user of its own, whose runtime folder leaves room for the names of sockets."""
    world = World(short_directory)
    packages = os.pathsep.join(str(ROOT / one) for one in frameworks.PACKAGES)
    world.env |= {"XDG_RUNTIME_DIR": str(short_directory), "PYTHONPATH": packages}
    return world


@pytest.mark.parametrize("name", [one for one in EXAMPLES if one != BY_MAKE])
async def test_an_example_prints_what_its_page_shows_and_leaves_nothing_running(
    name: str, world: World, process: Callable[..., Any], wait_until: Callable[..., Awaitable[Any]]
) -> None:
    running = process(python_of(name), FOLDER / name / "main.py", env=world.env)
    assert running.wait(180) == 0, running.stderr
    assert (running.stdout, running.stderr) == (shown(name).text, "")
    await wait_until(lambda: not world.processes(), timeout=60)


async def test_the_one_command_of_a_page_makes_what_it_needs_and_runs(
    world: World, process: Callable[..., Any], wait_until: Callable[..., Awaitable[Any]]
) -> None:
    made = ["make", f".venv-examples/{BY_MAKE}/.installed"]
    if (ended := subprocess.run(made, cwd=ROOT, capture_output=True, text=True, check=False)).returncode:
        pytest.skip(f"the packages of {BY_MAKE} cannot be had here: {ended.stderr[-500:]}")
    running = process("make", "example", f"NAME={BY_MAKE}", cwd=ROOT, env=world.env)
    assert running.wait(180) == 0, running.stderr
    assert running.stdout == shown(BY_MAKE).text
    await wait_until(lambda: not world.processes(), timeout=60)


def test_a_name_that_is_no_example_is_refused_with_those_that_are() -> None:
    ended = subprocess.run(
        ["make", "example", "NAME=none"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert " ".join(EXAMPLES) in ended.stderr
