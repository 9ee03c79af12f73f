"""Write the parts of the documents that are the code's: commands, metrics, keys, what tests show.

And the tables of what `tests/benchmarks/figures.py` measured.

    python docs/generate.py      rewrites them in place; a test says where one is out of date

A generated part stands in a document between two comments, the first of which names it:

    <!-- generated: metrics -->
    …
    <!-- end of generated -->
"""

import ast
import inspect
import re
import runpy
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import EntryPoint
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, get_args

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from rich.text import Text
from toolgate_bus.commands.main import SUMMARIES, app
from toolgate_bus.commands.notify import config as notify
from toolgate_bus.ruling.conditions.matching import CallMatcher
from toolgate_bus.telemetry import metrics
from toolgate_orchestrator.commands.mcp.config import McpConfig, McpServer
from toolgate_orchestrator.decision.config import RedactConfig, SchedulerLimits, ToolgateConfig
from toolgate_orchestrator.loops.reactive import ReactiveConfig
from toolgate_orchestrator.modules.hooks_logging.module import LoggingConfig
from toolgate_orchestrator.modules.hooks_required import RequiredConfig
from toolgate_orchestrator.modules.provider_openai.config import OpenAIConfig
from toolgate_orchestrator.modules.tool_delegate import DelegateConfig
from toolgate_orchestrator.turn.goals.config import GoalConfig
from toolgate_orchestrator.turn.loop_config import ParallelConfig
from toolgate_schedulers.shipped.approval import config as approval
from toolgate_schedulers.shipped.cost_aware.config import Budget, CostAwareConfig, PaidExploration, Price
from toolgate_schedulers.shipped.cost_aware.llm_prices import LlmConfig, ModelPrice
from toolgate_schedulers.shipped.heuristic import HeuristicConfig
from toolgate_schedulers.shipped.loop_guard import LoopGuardConfig
from toolgate_schedulers.shipped.policy import needs as policy_needs
from toolgate_schedulers.shipped.policy import rules as policy_rules
from toolgate_schedulers.shipped.policy import scheduler as policy
from toolgate_schedulers.shipped.policy.scheduler import PolicyConfig
from toolgate_schedulers.shipped.provenance import ProvenanceConfig, Sink
from toolgate_schedulers.shipped.rate_limit import Limit
from toolgate_schedulers.shipped.router.health import Fallback
from toolgate_schedulers.shipped.router.router import Route, RouterConfig
from toolgate_schedulers.shipped.router.targets import Target
from toolgate_schedulers.shipped.slots import config as slots

ROOT: Final = Path(__file__).resolve().parents[1]
_PART: Final = re.compile(r"(<!-- generated: ([\w. -]+) -->\n).*?(<!-- end of generated -->)", re.DOTALL)
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
        _place(param) if param.required else f"[{_place(param).strip('[]')}]"
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
    rows = ["| option or argument | default | meaning |", "|---|---|---|"]
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


# ---------------------------------------------------------------- keys

_KEYS: Final[dict[str, tuple[type[BaseModel], type[BaseModel] | None]]] = {
    "a loop": (ParallelConfig, GoalConfig),
    "goals": (GoalConfig, None),
    "loop-reactive": (ReactiveConfig, ParallelConfig),
    "toolgate": (ToolgateConfig, None),
    "schedulers.NAME": (SchedulerLimits, None),
    "redact": (RedactConfig, None),
    "provider-openai-compatible": (OpenAIConfig, None),
    "hooks-logging": (LoggingConfig, None),
    "hooks-toolgate-required": (RequiredConfig, None),
    "tool-delegate": (DelegateConfig, None),
    "a policy": (PolicyConfig, None),
    "a rule": (policy.PolicyRule, CallMatcher),
    "a mask": (policy_rules.MaskLine, None),
    "a call before": (policy_needs.Precondition, None),
    "at_most": (policy_needs.CallCount, None),
    "a rule or route": (CallMatcher, None),
    "a router": (RouterConfig, None),
    "a route": (Route, CallMatcher),
    "a target": (Target, None),
    "fallback": (Fallback, None),
    "a cost-aware": (CostAwareConfig, None),
    "a price": (Price, None),
    "an llm": (LlmConfig, None),
    "a model price": (ModelPrice, None),
    "a budget": (Budget, None),
    "explore": (PaidExploration, None),
    "a heuristic": (HeuristicConfig, None),
    "a limit": (Limit, None),
    "a loop-guard": (LoopGuardConfig, None),
    "a provenance": (ProvenanceConfig, None),
    "a sink": (Sink, None),
    "a slots": (slots.SlotsConfig, None),
    "a pool": (slots.PoolConfig, CallMatcher),
    "share": (slots.Share, None),
    "priority": (slots.Priority, None),
    "adaptive": (slots.Adaptive, None),
    "an approval rule": (approval.ApprovalRule, CallMatcher),
    "a notify.yaml": (notify.NotifyConfig, None),
    "a receiver": (notify.Receiver, None),
    "a route to receivers": (notify.NotifyRoute, None),
    "causes": (notify.CauseSettings, None),
    "causes.held": (notify.HeldCause, None),
    "causes.budget": (notify.BudgetCause, None),
    "causes.change": (notify.ChangeCause, None),
    "retry": (notify.RetrySettings, None),
    "a servers.yaml": (McpConfig, None),
    "a server": (McpServer, None),
}
"""By what tables call them: the model whose keys are listed, and the one whose keys are listed elsewhere."""


def keys_part(where: str) -> str:
    """The keys of a configuration, with defaults and meaning; raises ValueError for one that says nothing."""
    model, listed = _KEYS[where]
    said = {name: words for one in reversed(model.__mro__) for name, words in _docstrings(one).items()}
    rows = [f"| in {where if ' ' in where else f'`{where}`'} | default | meaning |", "|---|---|---|"]
    for name, field in model.model_fields.items():
        if listed is None or name not in listed.model_fields:
            if name not in said:
                raise ValueError(f"{model.__name__}.{name} has no docstring")
            rows.append(f"| `{field.alias or name}` | {_default_of(field)} | {_as_cell(said[name])} |")
    return "\n".join(rows)


def _docstrings(model: type) -> dict[str, str]:
    """What stands below each field of a model's source."""
    if model in (object, BaseModel):
        return {}
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    found = {}
    for field, below in pairwise(getattr(node, "body", ())):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                found[name] = " ".join(words.split())
    return found


def _default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    match field.get_default(call_default_factory=True):
        case bool() as value:
            return str(value).lower()
        case int() | float() as value:
            return f"{value:,}".replace(",", " ") if value != int(value) else str(int(value))
        case str() as value if value:
            return f"`{value}`"
    return "none"


def _as_cell(words: str) -> str:
    whole = words if ". " in words else words.rstrip(".")
    return whole.replace("|", "\\|")


# ---------------------------------------------------------------- figures


def figure_parts() -> dict[str, Callable[[], str]]:
    """Return the tables of what `tests/benchmarks/figures.py` measured."""
    file = Path(__file__).parents[1] / "tests" / "benchmarks" / "figures.py"
    return dict(runpy.run_path(str(file))["PARTS"])


def framework_parts() -> dict[str, Callable[[], str]]:
    """What the conformance kit saw."""
    return dict(runpy.run_path(str(Path(__file__).with_name("conformance.py")))["PARTS"])


def events_part() -> str:
    """What hooks hear of a turn here and of the same turn under Amplifier's own loops."""
    return str(runpy.run_path(str(ROOT / "tests" / "orchestrator" / "event_table.py"))["table"]())


PARTS: Final[dict[str, Callable[[], str]]] = {
    "events of both": events_part,
    "commands": commands_part,
    **figure_parts(),
    **framework_parts(),
    "metrics": lambda: metrics.table().rstrip(),
    **{f"keys of {where}": partial(keys_part, where) for where in _KEYS},
}


def hand_written(text: str) -> str:
    """A document without its generated parts."""
    return _PART.sub("", text)


def rewritten(text: str) -> str:
    """A document with its generated parts as they should be; raises KeyError for one that nobody makes."""
    return _PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]]()}\n\n{part[3]}", text)


def main() -> None:
    """Rewrite every document that has generated parts."""
    for file in sorted([ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("tests/*.md")]):
        text = file.read_text(encoding="utf-8")
        if (new := rewritten(text)) != text:
            file.write_text(new, encoding="utf-8")
            print(file.relative_to(ROOT), file=sys.stderr)  # noqa: T201 - a command


if __name__ == "__main__":
    main()
