"""`toolgate init`: writes a mount plan, rules and cases into a folder of yours. They work as they are.

It overwrites nothing. At the end it prints the next commands to run.
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
        Path, typer.Argument(metavar="[DIR]", help="Folder to write to; created if it is missing.")
    ] = Path(),
    quiet: QuietOption = False,
) -> None:
    """Write a mount plan and rules for it: an agent with a scripted LLM that runs at once.

    \b
      plan.yaml     an agent with tools; comments show how to use a real LLM
      rules.yaml    what the agent may do: the configuration of a policy
      cases.yaml    calls and the expected outcome of each
      workspace/    the folder that the tools work in

    Toolgate overwrites nothing. Exit codes: 0 written, 2 a file exists already.
    """
    write_new_files(directory, read_templates())
    if quiet:
        return
    print_text(f"Wrote to {directory.absolute()}:\n  {', '.join(NAMES)}\n")
    toolgate, folder = command_name(), shlex.quote(str(directory))
    there = "" if directory == Path() else f"cd {folder} && "
    print_text(
        "Start the rules, and in another terminal the agent:\n"
        f"  {there}{toolgate} scheduler run policy --config rules.yaml\n"
        f'  {there}{toolgate} run "Tidy up" --plan plan.yaml\n\n'
        f"Change the rules, and test them with calls:\n"
        f"  {there}{toolgate} policy test rules.yaml cases.yaml"
    )


def read_templates() -> dict[str, str]:
    """Return the files to write, by path."""
    folder = files("toolgate_orchestrator.commands.init") / "files"
    return {name: (folder / Path(name).name).read_text(encoding="utf-8") for name in NAMES}
