"""Checks `toolgate …` command lines in files of deploy/ against the program's own options."""

import itertools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import typer
from toolgate_bus.commands import main as cli


def parsed(words: list[str]) -> dict[str, Any]:
    """The options that these words give to their command; fails where the program would refuse them."""
    command: Any = typer.main.get_command(cli.app)
    context = command.make_context("toolgate", list(words))
    while hasattr(command, "resolve_command"):
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        name, command, rest = command.resolve_command(context, rest)
        context = command.make_context(name, list(rest), parent=context)
    return dict(context.params)


def files_of(given: dict[str, Any]) -> list[str]:
    """The files that a command is told to read: of each scheduler its config, or a plan."""
    told = given.get("config") or ()
    configs = [str(one).rpartition("=")[2] for one in ([told] if isinstance(told, Path) else told)]
    return [*configs, str(given["plan"])] if given.get("plan") else configs


def environment_of(words: list[str]) -> set[str]:
    """The environment variables that the command of this line reads, as its --help says."""
    command = [*itertools.takewhile(lambda word: not word.startswith("-"), words)][:2]
    help_ = [sys.executable, "-m", "toolgate_bus", *command, "--help"]
    said = subprocess.run(help_, capture_output=True, text=True, check=True, env={"COLUMNS": "300"}).stdout
    return set(re.findall(r"\bTOOLGATE_[A-Z_]+\b", said))
