"""Write the parts of the documents that are the code's: commands, metrics.

    python docs/generate.py      rewrites them in place; a test says where one is out of date

A generated part stands in a document between two comments, the first of which names it:

    <!-- generated: metrics -->
    …
    <!-- end of generated -->
"""

import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final, get_args

import typer
from rich.text import Text
from toolgate_bus.commands.main import SUMMARIES, app
from toolgate_bus.telemetry import metrics

ROOT: Final = Path(__file__).resolve().parents[1]
_PART: Final = re.compile(r"(<!-- generated: ([\w -]+) -->\n).*?(<!-- end of generated -->)", re.DOTALL)
_OWN_PARAMS: Final = ("help", "install_completion", "show_completion")
_BUS: Final = ("--redis", "--namespace", "--keys")


# ---------------------------------------------------------------- commands


def commands_part() -> str:
    """Every command with its help, arguments, options and exit codes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    offered = project["entry-points"]["toolgate.commands"]
    found = {name: EntryPoint(name, where, "").load() for name, where in offered.items()}
    texts = [_frame()]
    for name in [*SUMMARIES, *sorted(found.keys() - SUMMARIES.keys())]:
        if name in found:
            texts += _command_texts(_click_command(found[name]), f"toolgate {name}", level=2)
    return "\n\n".join(texts)


def _click_command(loaded: Any) -> Any:
    if isinstance(loaded, typer.Typer):
        return typer.main.get_command(loaded)
    holder = typer.Typer(add_completion=False)
    holder.command()(loaded)
    return typer.main.get_command(holder)


def _frame() -> str:
    return "Before the command:\n\n" + _table(typer.main.get_command(app).params)


def _command_texts(command: Any, name: str, level: int) -> Iterator[str]:
    children = getattr(command, "commands", {})
    yield f"{'#' * level} `{name}`"
    yield _prose(command.help or "")
    own = [param for param in command.params if param.name not in _OWN_PARAMS]
    arguments = [
        f"[{_place(param)}]" if not param.required else _place(param)
        for param in own
        if not param.opts[0].startswith("-")
    ]
    if not children or command.invoke_without_command:
        yield f"```text\n{' '.join([name, *arguments, '[OPTIONS]'])}\n```"
        if shown := [param for param in own if param.opts[0] not in _BUS]:
            yield _table(shown)
        if any(param.opts[0] in _BUS for param in own):
            yield "And the options of the bus."
    for child_name, child in children.items():
        if not child.hidden:
            yield from _command_texts(child, f"{name} {child_name}", level + 1)


def _prose(help_text: str) -> str:
    """A help text as Markdown: commands, and what it keeps line by line, become blocks."""
    texts = []
    for paragraph in re.split(r"\n[ \t]*\n", help_text.strip(" \n")):
        lines = Text.from_markup(paragraph.removeprefix("\b\n")).plain.splitlines()
        if not paragraph.startswith("\b\n") and not all(line.startswith("toolgate ") for line in lines):
            texts.append(" ".join(line.strip() for line in lines))
            continue
        kept = "\n".join(line.removeprefix("  ").rstrip() for line in lines)
        texts.append(f"```text\n{kept}\n```")
    return "\n\n".join(texts)


def _place(param: Any) -> str:
    name = param.metavar or param.name.upper()
    return f"{name}…" if param.nargs == -1 and not name.endswith("…") else str(name)


def _table(params: list[Any]) -> str:
    rows = ["| | default | |", "|---|---|---|"]
    shown = (param for param in params if param.name not in _OWN_PARAMS)
    return "\n".join([*rows, *(f"| {_spelled(one)} | {_default(one)} | {_words(one)} |" for one in shown)])


def _spelled(param: Any) -> str:
    if not param.opts[0].startswith("-"):
        return f"`{_place(param)}`"
    value = "" if param.is_flag else f" {param.metavar or _kind(param.type_descriptor.annotation)}"
    names = [*param.opts, *param.secondary_opts]
    return ", ".join(f"`{name}{value}`".replace("|", "/") for name in names)


def _kind(annotation: Any) -> str:
    """What a value is, for an option that does not say it."""
    if choices := [str(one) for one in get_args(annotation) if not isinstance(one, type)]:
        return "|".join(choices)
    kinds = {int: "N", float: "SECONDS", Path: "FILE"}
    return next((kinds[one] for one in (annotation, *get_args(annotation)) if one in kinds), "TEXT")


def _default(param: Any) -> str:
    if param.required:
        return "required"
    shown = "" if getattr(param, "is_flag", False) or callable(param.default) else param.default
    return "" if shown in (None, (), [], "") else f"`{shown}`"


def _words(param: Any) -> str:
    words = " ".join(Text.from_markup(param.help or "").plain.split())
    if param.multiple and "repeat" not in words:
        words += " May be repeated."
    if param.envvar:
        words += f" `{param.envvar}`"
    return words.replace("|", "\\|").strip()


# ---------------------------------------------------------------- all of them

PARTS: Final[dict[str, Callable[[], str]]] = {
    "commands": commands_part,
    "metrics": lambda: metrics.table().rstrip(),
}


def hand_written(text: str) -> str:
    """A document without its generated parts."""
    return _PART.sub("", text)


def rewritten(text: str) -> str:
    """A document with its generated parts as they should be; raises KeyError for one that nobody makes."""
    return _PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]]()}\n\n{part[3]}", text)


def main() -> None:
    """Rewrite every document that has generated parts."""
    for file in sorted([*ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/*.md")]):
        text = file.read_text(encoding="utf-8")
        if (new := rewritten(text)) != text:
            file.write_text(new, encoding="utf-8")
            print(file.relative_to(ROOT), file=sys.stderr)  # noqa: T201 - a command


if __name__ == "__main__":
    main()
