"""The Dockerfile: what it says. That its image runs, the fleets of `containers/` show."""

import json
import tomllib

from dockerfile import ignored, read
from guarded_server import DEPLOY
from packaging.specifiers import SpecifierSet

ROOT = DEPLOY.parent
DOCKERFILE = DEPLOY / "Dockerfile"
IGNORE = DEPLOY / "Dockerfile.dockerignore"


def test_the_last_stage_has_what_was_built_and_no_tools_and_runs_as_a_normal_user():
    build, last = read(DOCKERFILE)
    assert build[0].words == "python:3.13-slim AS build"
    assert last[0].words == "python:3.13-slim"
    said = {step.what: step.words for step in last}
    assert [step.words for step in last if step.what == "COPY"] == [
        "--from=build /opt/toolgate /opt/toolgate",
        "--from=build --chown=10001:10001 /made/ /",
    ]
    assert "RUN" not in said
    user, _, group = said["USER"].partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert json.loads(said["ENTRYPOINT"]) == ["toolgate"]
    assert not any(step.what == "HEALTHCHECK" for step in last)


def test_the_python_of_the_image_is_one_that_the_project_takes():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tags = {
        stage[0].words.split()[0].removeprefix("python:").removesuffix("-slim") for stage in read(DOCKERFILE)
    }
    (tag,) = tags
    assert tag in SpecifierSet(project["requires-python"])


def test_only_what_the_wheel_is_made_of_is_sent_to_the_builder():
    assert not ignored(IGNORE, "pyproject.toml")
    assert not ignored(IGNORE, "bus/toolgate_bus/commands/main.py")
    assert not ignored(IGNORE, "schedulers/toolgate_schedulers/templates/README.md.tmpl")
    for name in (".git/config", "tests/conftest.py", "deploy/made/env", ".venv/bin/python", "bus/README.md"):
        assert ignored(IGNORE, name), name
    assert ignored(IGNORE, "bus/toolgate_bus/__pycache__/cli.cpython-313.pyc")


def test_each_package_of_the_wheel_is_let_into_the_image():
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    let_in = {line.removeprefix("!") for line in IGNORE.read_text().splitlines() if line.startswith("!")}
    assert {*targets["wheel"]["packages"]} <= let_in
