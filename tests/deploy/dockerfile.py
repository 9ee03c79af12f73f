"""Reads the Dockerfile, and what is kept out of its context."""

from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

INSTRUCTIONS = {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "ENV", "USER", "STOPSIGNAL", "ENTRYPOINT"}


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
