"""Reads the Dockerfile, and does its steps without an engine: each stage in a folder of its own."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

INSTRUCTIONS = {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "ENV", "USER", "STOPSIGNAL", "ENTRYPOINT"}
ROOTS = ("/src", "/dist", "/opt/toolgate", "/made")
"""Folders that the steps make; in a step they stand for folders of the test's."""


class Step(NamedTuple):
    """One instruction."""

    what: str
    words: str


def read(path: Path) -> list[list[Step]]:
    """The stages, each with its steps; FROM is the first of each."""
    stages: list[list[Step]] = []
    for line in path.read_text().replace("\\\n", " ").splitlines():
        if line.strip() and not line.startswith("#"):
            what, _, words = line.partition(" ")
            assert what in INSTRUCTIONS, f"{what}: teach tests/deploy/dockerfile.py, or do without"
            if what == "FROM":
                stages.append([])
            stages[-1].append(Step(what, words.strip()))
    return stages


def ignored(patterns: Path, name: str) -> bool:
    """Whether a path of the context stays out of it: the last pattern that fits it, or a folder above it."""
    above = [name, *map(str, list(Path(name).parents)[:-1])]
    out = False
    for line in patterns.read_text().splitlines():
        pattern = line.strip().removeprefix("!")
        if pattern and not pattern.startswith("#"):
            plain = pattern.removeprefix("**/")
            fits = any(
                fnmatch(one, pattern) or (plain != pattern and fnmatch(Path(one).name, plain))
                for one in above
            )
            if fits:
                out = not line.startswith("!")
    return out


def built(dockerfile: Path, context: Path, directory: Path, arguments: Mapping[str, str]) -> dict[str, str]:
    """Do the steps; the environment of the last stage, its paths those of `directory`."""
    patterns = dockerfile.with_name(f"{dockerfile.name}.dockerignore")
    places = {root: directory / root.strip("/").replace("/", "-") for root in ROOTS}
    env, work = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(directory)}, directory
    if "PIP_CACHE_DIR" in os.environ:
        env["PIP_CACHE_DIR"] = os.environ["PIP_CACHE_DIR"]
    for stage in read(dockerfile):
        given: dict[str, str] = {}
        for step in stage:
            words = _placed(step.words, places)
            if step.what == "WORKDIR" and words != "/tmp":
                work = Path(words)
                work.mkdir(parents=True)
            elif step.what == "ARG":
                name, has_default, default = words.partition("=")
                if has_default or name in arguments:
                    given[name] = arguments.get(name, default.strip('"'))
            elif step.what == "COPY" and not words.startswith("--from="):
                _copy(words, context, work, patterns)
            elif step.what == "RUN":
                ran = subprocess.run(
                    ["/bin/sh", "-c", words],
                    cwd=work,
                    env=env | given,
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert ran.returncode == 0, f"RUN {words}\n{ran.stdout}\n{ran.stderr}"
            elif step.what == "ENV":
                env = dict(pair.split("=", 1) for pair in shlex.split(words))
    return env


def _placed(words: str, places: Mapping[str, Path]) -> str:
    for root, place in places.items():
        words = re.sub(rf"(?<![\w/]){re.escape(root)}\b", str(place), words)
    return words


def _copy(words: str, context: Path, work: Path, patterns: Path) -> None:
    *sources, to = words.split()
    for name in sources:
        assert not ignored(patterns, name) or (context / name).is_dir(), f"{name} is ignored"
        if (context / name).is_dir():
            files = [one for one in (context / name).rglob("*") if one.is_file()]
            for one in files:
                place = work / to / one.relative_to(context / name)
                if not ignored(patterns, str(one.relative_to(context))):
                    place.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(one, place)
        else:
            shutil.copyfile(context / name, work / to / name)
