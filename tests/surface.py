"""What others build on, as one snapshot: nothing of it changes by accident.

    python tests/surface.py     writes tests/data/surface.json anew, where a change is meant

In it: metrics with kinds and labels; commands with options and exit codes; keys of configuration with types
and defaults; keys of `--json`; lines of the log; variables of the environment; entry points. No name of a
class, function or module, so that these may change.

Left out, as they need a server or a whole session: keys of facts (the tests of the record have them), events
of `run --stream --json`, rows of `bench`. Log lines that a variable holds stand as `…`.
"""

import ast
import functools
import importlib
import json
import operator
import re
import tomllib
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import toolgate_bus
import toolgate_orchestrator
import toolgate_schedulers
import typer
from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from toolgate_bus.commands.decisions.archive_reader import ArchiveReport
from toolgate_bus.commands.decisions.explained import Explanation
from toolgate_bus.commands.main import app
from toolgate_bus.commands.terminal import print_json
from toolgate_bus.facts.shadow_report import Disagreement, ShadowTotals
from toolgate_bus.fleet.finding import Finding
from toolgate_bus.protocol.agents import LiveAgent
from toolgate_bus.protocol.events import ReceivedVerdict
from toolgate_bus.telemetry import definitions
from toolgate_orchestrator.commands.demo.session import DemoResult, demo_record
from toolgate_orchestrator.commands.hook.cli import HookRow
from toolgate_orchestrator.commands.host.rulings import verdict_record
from toolgate_orchestrator.commands.host.scheduler_processes import RunningScheduler
from toolgate_orchestrator.commands.replay.comparison import ReplayComparison
from toolgate_orchestrator.commands.replay.playback import ReplayConfig
from toolgate_orchestrator.commands.replay.report import Report, call_record
from toolgate_orchestrator.commands.replay.session import ReplayedCall
from toolgate_orchestrator.commands.run.view import TurnResult
from toolgate_orchestrator.decision.config import ToolgateConfig
from toolgate_orchestrator.modules.context_simple import ContextConfig
from toolgate_orchestrator.modules.hooks_logging.module import LoggingConfig
from toolgate_orchestrator.modules.hooks_required import RequiredConfig
from toolgate_orchestrator.modules.provider_openai.config import OpenAIConfig
from toolgate_orchestrator.modules.provider_scripted import ScriptConfig
from toolgate_orchestrator.turn.loop_config import AskingConfig, LoopConfig, ParallelConfig
from toolgate_schedulers.commands.approvals.view import as_fields
from toolgate_schedulers.commands.console.rates import DecisionCounts
from toolgate_schedulers.commands.scheduler_list import Line, as_json
from toolgate_schedulers.shipped.approval.records import Approval, ApprovalAnswer, StandingApproval

__all__ = ["SNAPSHOT", "surface"]

ROOT = Path(__file__).parent.parent
SNAPSHOT = Path(__file__).parent / "data" / "surface.json"
PACKAGES = (toolgate_bus, toolgate_orchestrator, toolgate_schedulers)
LEVELS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
LOGGERS = re.compile(r"_?log(ger)?", re.IGNORECASE)
TYPERS = frozenset({"install_completion", "show_completion"})
ENVIRONMENT = re.compile(r"TOOLGATE_[A-Z_]*[A-Z]")


def surface() -> dict[str, Any]:
    """All of it, from the code as it stands."""
    trees = [ast.parse(path.read_text()) for path in _sources()]
    return {
        "commands": _commands(),
        "config": _config(),
        "entry_points": _entry_points(),
        "environment": sorted({word for tree in trees for word in _variables(tree)}),
        "json": _json(trees),
        "log": sorted({line for tree in trees for line in _log_lines(tree)}),
        "metrics": _metrics(),
    }


def _sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from Path(str(package.__file__)).parent.rglob("*.py")


# ---------------------------------------------------------------------- metrics, commands, entry points


def _metrics() -> dict[str, str]:
    served = {"fleet": definitions.FLEET, "process": definitions.PROCESS, "exporter": definitions.EXPORTER}
    return {
        one.query_name: f"{where} {one.kind} {','.join(one.labels)} {','.join(map(str, one.buckets))}".strip()
        for where, metrics in served.items()
        for one in metrics
    }


def _project() -> Mapping[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def _entry_points() -> dict[str, list[str]]:
    return {group: sorted(named) for group, named in _project()["entry-points"].items()}


def _loaded(point: str) -> Any:
    module, _, name = point.partition(":")
    return operator.attrgetter(name)(importlib.import_module(module))


def _commands() -> dict[str, Any]:
    found = {"toolgate": _command(typer.main.get_command(app))}
    for name, point in _project()["entry-points"]["toolgate.commands"].items():
        loaded = _loaded(point)
        if not isinstance(loaded, typer.Typer):
            alone = typer.Typer()
            alone.command(name)(loaded)
            loaded = alone
        found |= _tree(f"toolgate {name}", typer.main.get_command(loaded))
    return found


def _tree(name: str, command: Any) -> dict[str, Any]:
    inner = getattr(command, "commands", {})
    return functools.reduce(
        operator.or_, (_tree(f"{name} {one}", inner[one]) for one in inner), {name: _command(command)}
    )


def _command(command: Any) -> dict[str, Any]:
    told = re.search(r"Exit codes?: (.+?)(\n\s*\n|$)", command.help or "", re.DOTALL)
    codes = re.findall(r"(?:^|[\s,;])(\d{1,3})\b(?= [A-Za-z])", " " + told[1]) if told else []
    shown = {"options": {_spelling(one): _option(one) for one in command.params if one.name not in TYPERS}}
    return shown | ({"exit_codes": codes} if codes else {})


def _spelling(option: Any) -> str:
    if option.param_type_name == "argument":
        return str(option.metavar or option.name)
    return " ".join([*option.opts, *option.secondary_opts])


def _option(option: Any) -> str:
    kind = option.type_descriptor.annotation
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    words = [option.param_type_name, "/".join(choices) or (str(kind) if get_args(kind) else kind.__name__)]
    words += [
        f"{bound}={getattr(option, bound)}" for bound in ("min", "max") if getattr(option, bound) is not None
    ]
    words += [f"default={option.default!r}"] if option.default not in (None, False, ()) else []
    words += [name for name in ("required", "multiple", "hidden") if getattr(option, name, False)]
    words += [f"nargs={option.nargs}"] if option.nargs != 1 else []
    words += [f"env={option.envvar}"] if option.envvar else []
    return " ".join(words)


# ---------------------------------------------------------------------- configuration


class _Schema(GenerateJsonSchema):
    """One that takes what JSON Schema has no word for as `any`."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
        return {"type": "any"}

    def emit_warning(self, kind: Any, detail: str) -> None:
        pass


def _config() -> dict[str, dict[str, str]]:
    models: dict[str, type[BaseModel]] = {
        "toolgate:": ToolgateConfig,
        "loop-basic": LoopConfig,
        "loop-streaming, loop-reactive": ParallelConfig,
        "loop-events": AskingConfig,
        "context-simple": ContextConfig,
        "hooks-logging": LoggingConfig,
        "hooks-toolgate-required": RequiredConfig,
        "provider-openai-compatible": OpenAIConfig,
        "provider-replay, tool-replay": ReplayConfig,
        "provider-scripted": ScriptConfig,
    }
    for name, point in _project()["entry-points"]["toolgate.schedulers"].items():
        models[f"scheduler {name}"] = _loaded(point).config_model
    return {name: _keys(model) for name, model in models.items()}


def _keys(model: type[BaseModel]) -> dict[str, str]:
    schema = model.model_json_schema(schema_generator=_Schema)
    return dict(_paths(schema, schema.get("$defs", {}), "", ()))


def _paths(
    node: Mapping[str, Any], models: Mapping[str, Any], path: str, within: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    """Every key below a node, with what it may be."""
    if name := str(node.get("$ref", "")).rpartition("/")[2]:
        if name not in within:
            yield from _paths(models[name], models, path, (*within, name))
        return
    for key, child in node.get("properties", {}).items():
        at = f"{path}.{key}" if path else key
        default = f" = {json.dumps(child['default'])}" if "default" in child else ""
        needed = " (required)" if key in node.get("required", ()) else ""
        yield at, f"{_kind(child, models)}{default}{needed}"
        yield from _paths(child, models, at, within)
    below = [node.get("items"), *node.get("prefixItems", ()), node.get("additionalProperties")]
    for child in [*below, *node.get("patternProperties", {}).values()]:
        if isinstance(child, Mapping):
            yield from _paths(child, models, f"{path}.*", within)
    for child in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _paths(child, models, path, within)


def _kind(node: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    if name := str(node.get("$ref", "")).rpartition("/")[2]:
        return _kind({key: value for key, value in models[name].items() if key != "properties"}, models)
    if choices := (*node.get("anyOf", ()), *node.get("oneOf", ())):
        return " | ".join(_kind(one, models) for one in choices)
    if "enum" in node or "const" in node:
        return " | ".join(json.dumps(one) for one in node.get("enum", [node.get("const")]))
    passed_over = {
        "title",
        "description",
        "default",
        "type",
        "properties",
        "required",
        "additionalProperties",
    }
    passed_over |= {"items", "prefixItems", "patternProperties", "discriminator", "examples"}
    told = [f"{key}={json.dumps(value)}" for key, value in sorted(node.items()) if key not in passed_over]
    inner = node.get("items")
    of = f" of {_kind(inner, models)}" if isinstance(inner, Mapping) else ""
    return " ".join([str(node.get("type", "any")) + of, *told])


# ---------------------------------------------------------------------- what scripts read


def _json(trees: Iterable[ast.Module]) -> dict[str, list[str]]:
    shown: dict[str, Any] = {
        "agents": _example(LiveAgent).as_json(),
        "approvals": as_fields(_example(Approval), 1.0, _example(ApprovalAnswer)),
        "approvals list --always": _example(StandingApproval).model_dump(),
        "console, counts": _example(DecisionCounts).as_json(),
        "decisions archive --check": _example(ArchiveReport).as_json(),
        "decisions show, explained": _example(Explanation).as_json(),
        "decisions, disagreements": _example(Disagreement).as_json(),
        "decisions, totals": _example(ShadowTotals).as_json(),
        "demo": demo_record(_example(DemoResult), [_example(RunningScheduler)]),
        "doctor": _example(Finding).as_json(),
        "hook status": asdict(_example(HookRow)),
        "replay": _example(Report).as_json(),
        "replay, calls": call_record(1, _example(ReplayedCall)),
        "replay --against": _example(ReplayComparison).as_json(),
        "run": _example(TurnResult).record,
        "scheduler list": as_json(_example(Line)),
        "verdict": verdict_record(_example(ReceivedVerdict)),
    }
    told = {name: sorted(set(_key_paths(value))) for name, value in shown.items()}
    return told | {"beside": sorted({key for tree in trees for key in _printed_keys(tree)})}


def _key_paths(value: Any, path: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield f"{path}{key}"
            yield from _key_paths(child, f"{path}{key}.")
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _key_paths(child, f"{path}*.")


def _example(kind: Any, depth: int = 0) -> Any:
    """Some value of a type, with one of everything in it."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _example(arguments[0], depth)
    if origin is Literal:
        return arguments[0]
    if origin in (Union, types.UnionType):
        return _example(next(one for one in arguments if one is not type(None)), depth)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind.model_construct(**_filled(kind, depth))
    if is_dataclass(kind) or hasattr(kind, "_fields"):
        return kind(**_filled(kind, depth))
    made: dict[Any, Callable[[], Any]] = {
        **{one: lambda: {_example(arguments[0]): _example(arguments[1], depth)} for one in (dict, Mapping)},
        **{one: lambda: [_example(arguments[0], depth)] for one in (list, Collection, Sequence)},
        tuple: lambda: tuple(_example(one, depth) for one in arguments if one is not ...),
        str: lambda: "key",
        int: lambda: 1,
        float: lambda: 1.0,
        bool: lambda: True,
        bytes: lambda: b"",
    }
    make = made.get(origin or kind)
    return make() if make is not None and (origin is None or arguments) else None


def _filled(kind: Any, depth: int) -> dict[str, Any]:
    names = [one.name for one in fields(kind) if one.init] if is_dataclass(kind) else []
    hidden = importlib.import_module(kind.__module__)
    known = vars(hidden) | {"ShadowTotals": ShadowTotals}
    hints = typing.get_type_hints(kind, known, include_extras=True)
    names = names or list(getattr(kind, "model_fields", ())) or list(kind._fields)
    return {name: _example(hints[name], depth + 1) for name in names}


def _printed_keys(tree: ast.Module) -> Iterator[str]:
    """The keys that stand in functions which print JSON, and in those of the same module that they call."""
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)]
    calls = {one: set(_called(one)) for one in functions}
    printing = {print_json.__name__}
    while more := {one.name for one in functions if calls[one] & printing} - printing:
        printing |= more
    while printing != {print_json.__name__} and (
        more := {
            one.name for one in functions for by in functions if by.name in printing and one.name in calls[by]
        }
        - printing
    ):
        printing |= more
    for one in functions:
        if one.name in printing:
            for node in ast.walk(one):
                if isinstance(node, ast.Dict):
                    yield from (str(key.value) for key in node.keys if isinstance(key, ast.Constant))


def _called(function: ast.AST) -> Iterator[str]:
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name | ast.Attribute):
            yield call.func.id if isinstance(call.func, ast.Name) else call.func.attr


# ---------------------------------------------------------------------- words in the code


def _log_lines(tree: ast.Module) -> Iterator[str]:
    for call in ast.walk(tree):
        if (
            isinstance(call, ast.Call)
            and isinstance(call.func, ast.Attribute)
            and call.func.attr in LEVELS
            and isinstance(call.func.value, ast.Name)
            and LOGGERS.fullmatch(call.func.value.id)
        ):
            named = [one.arg for one in call.keywords if one.arg]
            for words in _texts(call.args[0]):
                yield " ".join([f"{call.func.attr}: {words}", *(f"{name}=" for name in sorted(named))])


def _texts(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.IfExp):
        return [*_texts(node.body), *_texts(node.orelse)]
    if isinstance(node, ast.JoinedStr):
        return ["".join(str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values)]
    return ["…"]


def _variables(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and ENVIRONMENT.fullmatch(node.value)
        ):
            yield node.value


def _write() -> None:
    SNAPSHOT.write_text(json.dumps(surface(), indent=1, ensure_ascii=False, sort_keys=True) + "\n")


if __name__ == "__main__":
    _write()
