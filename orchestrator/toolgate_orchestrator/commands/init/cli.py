"""`toolgate init`: writes files to start from into a folder of yours: for a new agent, or for what is there.

It overwrites nothing. At the end it prints the next commands to run.
"""

import os
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final

import typer
from toolgate_bus.commands.new_files import write_new_files
from toolgate_bus.commands.options import QuietOption, command_name
from toolgate_bus.commands.terminal import print_text
from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.commands.init.start import NextStep, Start

NAMES: Final = ("plan.yaml", "rules.yaml", "cases.yaml", "workspace/notes.txt")
SOURCES: Final = ("claude", "mcp", "langgraph")


def init(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="Folder to write to; created if it is missing.")
    ] = Path(),
    source: Annotated[
        str,
        typer.Option(
            "--from", metavar="NAME", help="Write rules for what is there: claude, mcp or langgraph."
        ),
    ] = "",
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --from mcp: the client's file (.mcp.json).")
    ] = None,
    target: Annotated[
        str, typer.Option(metavar="TARGET", help="With --from langgraph: the agent, such as agent.py:agent.")
    ] = "",
    quiet: QuietOption = False,
) -> None:
    """Write files to start from: rules for what you have, or an agent with a scripted LLM.

    \b
      toolgate init my-agent                       a plan, rules, their cases
      toolgate init --from claude                  Claude Code's permissions
      toolgate init --from mcp --file .mcp.json    a client's MCP servers
      toolgate init --from langgraph --target agent.py:agent

    Without --from it writes plan.yaml (an agent with tools; comments show how to use a real LLM), rules.yaml
    (what the agent may do), cases.yaml (calls and the expected outcome of each) and workspace/.

    With --from it writes rules.yaml and cases.yaml. The rules only observe: every call runs, and `toolgate
    report` shows what they would have denied. Read every rule, then run `toolgate policy enforce`. An entry
    that no rule can say exactly is a comment that says so. `claude` reads .claude/settings.json,
    .claude/settings.local.json and .mcp.json of this folder, and your own settings. `mcp` also writes
    mcp.gated.json: the client's file with the gate in front of each server. `langgraph` imports your file,
    as `toolgate check` does, and prints the lines that gate the agent.

    Toolgate overwrites nothing. Exit codes: 0 written, 2 a file exists already, or cannot be read.
    """
    start = _find_start(source, file, target)
    write_new_files(directory, start.files, private=start.private)
    if quiet:
        return
    print_text(f"Wrote to {directory.absolute()}:\n  {', '.join(start.files)}")
    for note in start.notes:
        print_text(note)
    there = "" if directory == Path() else f"cd {shlex.quote(str(directory))} && "
    for step in start.steps:
        print_text(f"\n{step.words}")
        for command in step.commands:
            print_text(f"  {there}{command_name()} {command}")
    if start.code:
        print_text(f"\nThese lines gate the agent:\n\n{start.code.rstrip()}")


def _find_start(source: str, file: Path | None, target: str) -> Start:
    if file is not None and source != "mcp":
        raise ConfigError("--file: works only with --from mcp")
    if target and source != "langgraph":
        raise ConfigError("--target: works only with --from langgraph")
    if source == "":
        return Start(read_templates(), STEPS)
    if source == "claude":
        from toolgate_orchestrator.commands.hook.entries import find_path
        from toolgate_orchestrator.commands.init.claude import draft_from_claude

        try:
            home = Path.home()
        except RuntimeError:
            raise ConfigError("you have no home directory: set HOME") from None
        return draft_from_claude(Path(), find_path("claude", "user", home, Path(), os.environ), home)
    if source == "mcp":
        from toolgate_orchestrator.commands.init.mcp_servers import draft_from_mcp

        return draft_from_mcp(file or Path(".mcp.json"))
    if source == "langgraph":
        from toolgate_orchestrator.commands.init.langgraph import draft_from_langgraph

        if not target:
            raise ConfigError("--from langgraph: name the agent: --target agent.py:agent")
        return draft_from_langgraph(target)
    raise ConfigError(f"--from: unknown source {source[:64]!r}; choose one of: {', '.join(SOURCES)}")


STEPS: Final = (
    NextStep(
        "Start the rules, and in another terminal the agent:",
        ("scheduler run policy --config rules.yaml", 'run "Tidy up" --plan plan.yaml'),
    ),
    NextStep("Change the rules, and test them with calls:", ("policy test rules.yaml cases.yaml",)),
)


def read_templates() -> dict[str, str]:
    """Return the files to write, by path."""
    folder = files("toolgate_orchestrator.commands.init") / "files"
    return {name: (folder / Path(name).name).read_text(encoding="utf-8") for name in NAMES}
