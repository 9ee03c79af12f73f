"""`toolgate init`: a mount plan, rules and cases for them, in a folder of one's own; they work as they are.

Nothing is overwritten. What it prints last are the commands to go on with.
"""

import shlex
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

import typer
from toolgate_bus.commands.new_files import write_new_files
from toolgate_bus.commands.options import QuietOption, command_name
from toolgate_bus.commands.terminal import print_text

NAMES: Final = ("plan.yaml", "rules.yaml", "cases.yaml", "workspace/notes.txt")


def init(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="The folder to write to; it is made if need be.")
    ] = Path(),
    quiet: QuietOption = False,
) -> None:
    """Write a mount plan and the rules for it: an agent with a script for an LLM, which runs at once.

    \b
      plan.yaml     an agent with tools; a real LLM stands in it as a comment
      rules.yaml    what it may do: the configuration of a policy
      cases.yaml    what is expected of these rules
      workspace/    the folder that its tools work in

    Nothing is overwritten. Exit codes: 0 written, 2 a file is there already.
    """
    write_new_files(directory, read_templates())
    if quiet:
        return
    print_text(f"Wrote to {directory.absolute()}:\n  {', '.join(NAMES)}\n")
    toolgate, folder = command_name(), shlex.quote(str(directory))
    there = "" if directory == Path() else f"cd {folder} && "
    print_text(
        "Start the rules, which stay; then, in another terminal, the agent:\n"
        f"  {there}{toolgate} scheduler run policy --config rules.yaml\n"
        f'  {there}{toolgate} run "Tidy up" --plan plan.yaml\n\n'
        f"Change the rules, and see what becomes of calls:\n"
        f"  {there}{toolgate} policy test rules.yaml cases.yaml"
    )


def read_templates() -> dict[str, str]:
    """What is written, by path."""
    folder = files("toolgate_orchestrator.commands.init") / "files"
    return {name: (folder / Path(name).name).read_text(encoding="utf-8") for name in NAMES}
