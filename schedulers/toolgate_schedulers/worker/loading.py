"""Find a scheduler by entry point (`policy`) or `module:attribute`, and make it: class, config, options.

Everything that can be wrong is found here, before the bus is joined, and raised as a ConfigError.
"""

import ast
import difflib
import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from pydantic import BaseModel
from toolgate_bus.config.check import check
from toolgate_bus.config.document import Document, read_document
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.revision import Revision, revision_of
from toolgate_bus.telemetry.logging import load_structlog

from toolgate_schedulers.author.forms import as_scheduler
from toolgate_schedulers.author.scheduler import Scheduler

MAX_BYTES: Final = 256 * 1024
MAX_NAMED: Final = 5
PLACEHOLDER: Final = "ATTRIBUTE"


def suggest_spec(written: str, here: Path) -> str | None:
    """Return how to write a spec that names a file; None if there is no such file below `here`."""
    name, _, attribute = written.partition(":")
    file = _file(name, here)
    if file is None:
        return None
    found = list(_schedulers(file))
    module = ".".join(file.relative_to(_root(file, here)).with_suffix("").parts)
    chosen = attribute or (found[0] if len(found) == 1 else PLACEHOLDER)
    line = f"{file.relative_to(here)} is a file; write its module: toolgate scheduler run {module}:{chosen}"
    if chosen != PLACEHOLDER:
        return line
    return f"{line}, where {PLACEHOLDER} is {', '.join(found[:MAX_NAMED]) or 'a function or class in it'}"


def _file(name: str, here: Path) -> Path | None:
    """Return the Python file that a name may mean: `my.py`, `rules/my.py`, or `my`; None outside `here`."""
    path = name if name.endswith(".py") else f"{name.replace('.', '/')}.py"
    for file in (here / path, here / "src" / path):
        try:
            if name and file.is_file() and file.resolve().is_relative_to(here.resolve()):
                return here / file.resolve().relative_to(here.resolve())
        except (OSError, ValueError):  # a name that no file can have
            continue
    return None


def _root(file: Path, here: Path) -> Path:
    return here / "src" if file.is_relative_to(here / "src") else here


def _schedulers(file: Path) -> Iterator[str]:
    """Yield the names at the top of a file that look like schedulers."""
    try:
        with file.open("rb") as opened:
            tree = ast.parse(opened.read(MAX_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            methods = (
                one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            )
            if "decide" in methods:
                yield node.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(
            "scheduler" in ast.unparse(one) for one in node.decorator_list
        ):
            yield node.name


GROUP = "toolgate.schedulers"
"""Entry point group of installed schedulers."""


def load(
    spec: str,
    *,
    name: str | None = None,
    priority: int | None = None,
    tools: Iterable[str] | None = None,
    shadow: bool | None = None,
    config: Path | Document | None = None,
    revision: str | Revision | None = None,
) -> Scheduler:
    """Return the scheduler that `spec` names, configured. Options given here override what its author set.

    Its revision is `revision`, or has that label and a digest of all that was given. Raises ConfigError,
    which says what was looked for and what there is instead.
    """
    written = _attribute(spec) if ":" in spec else _entry(spec)
    document = read_document(config) if isinstance(config, Path) else config
    made = as_scheduler(make(written, spec, document, f"--config {config}"))
    options: dict[str, Any] = {
        "name": name,
        "priority": priority,
        "tools": tuple(tools) if tools else None,
        "shadow": shadow,
    }
    made = replace(made, **{field: value for field, value in options.items() if value is not None})
    if isinstance(revision, Revision):
        return replace(made, revision=revision)
    told = {"priority": made.priority, "tools": made.tools, "shadow": made.shadow}
    effective = {"scheduler": spec, "config": document.mapping() if document else {}, **told}
    return replace(made, revision=revision_of(effective, revision))


def make(written: Any, spec: str, config: Document | Mapping[str, Any] | BaseModel | None, where: str) -> Any:
    """Return an instance of a class, with its config if it takes one. Return anything else as it is.

    `config` is a document or a mapping to be checked, an instance of the class's own model, or None.
    `where` names the source of it. Raises ConfigError.
    """
    model = getattr(written, "config_model", None) if inspect.isclass(written) else None
    if model is None:
        if config is not None:
            raise ConfigError(f"{spec} takes no configuration: leave {where} out")
        return _call(written, spec) if inspect.isclass(written) else written
    if not (inspect.isclass(model) and issubclass(model, BaseModel)):
        raise ConfigError(f"{spec}: config_model: must be a pydantic model")
    if isinstance(config, model):
        return _call(written, spec, config)
    if isinstance(config, Document):
        return _call(written, spec, check(model, config.mapping(), config))
    if config is not None:
        return _call(written, spec, check(model, config, where))
    try:
        settings = check(model, {}, spec)
    except ConfigError as error:
        raise ConfigError(f"{spec} needs a configuration: --config FILE\n{error}") from None
    return _call(written, spec, settings)


def _call(written: Callable[..., Any], spec: str, *arguments: Any) -> Any:
    try:
        inspect.signature(written).bind(*arguments)
    except TypeError as error:
        none = "no arguments (to be given the configuration, set config_model)"
        expected = "one argument, the configuration" if arguments else none
        raise ConfigError(f"{spec}: its constructor must take {expected}: {error}") from None
    try:
        return written(*arguments)
    except Exception as error:
        raise ConfigError(f"{spec} cannot be created: {authors_words(error)}") from error


def _entry(name: str) -> Any:
    installed = entry_points(group=GROUP)
    found = {(entry.value, _distribution(entry)): entry for entry in installed if entry.name == name}
    if len(found) > 1:
        offers = " and ".join(sorted(f"{distribution} ({value})" for value, distribution in found))
        raise ConfigError(
            f"{name} is offered by {offers}: uninstall one, or name the one you mean as module:attribute"
        )
    if not found:
        raise ConfigError(_unknown(name, sorted({entry.name for entry in installed})))
    return _attribute(next(iter(found.values())).value)


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist else "an unnamed distribution"


def _unknown(name: str, installed: list[str]) -> str:
    if (instead := suggest_spec(name, Path.cwd())) is not None:
        return f"no scheduler {name!r} is installed. {instead}"
    close = difflib.get_close_matches(name, installed, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return (
        f"no scheduler {name!r} is installed.{hint} Installed: {', '.join(installed) or 'none'}. "
        "Name your own scheduler as module:attribute, for example my_pkg.rules:route"
    )


def _attribute(spec: str) -> Any:
    module_name, _, path = spec.partition(":")
    # An entry point may list extras behind its attribute: `module:attr [extra]`.
    path = path.partition("[")[0].strip()
    if not module_name or not path or module_name.endswith(".py"):
        instead = suggest_spec(spec, Path.cwd())
        more = f". {instead}" if instead else ", for example my_pkg.rules:route"
        raise ConfigError(f"{spec!r}: must be module:attribute{more}")
    module = _module(module_name)
    value: Any = module
    for part in path.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise ConfigError(_no_attribute(module, path)) from None
    return value


def _module(name: str) -> ModuleType:
    here = Path.cwd()
    if str(here / "src") not in sys.path and (here / "src").is_dir():
        sys.path.insert(0, str(here / "src"))
    if str(here) not in sys.path and "" not in sys.path:
        sys.path.insert(0, str(here))
    if not name.startswith("toolgate_"):
        load_structlog()  # an author may log by it
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # The module itself is missing, rather than something that it imports.
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            where = f"looked in {here}, its folder src, and where packages are installed"
            raise ConfigError(f"there is no module {error.name!r}: {where}") from None
        raise ConfigError(f"cannot import {name}: {authors_words(error)}") from error
    except Exception as error:
        raise ConfigError(f"cannot import {name}: {authors_words(error)}") from error


def _no_attribute(module: ModuleType, path: str) -> str:
    public = [key for key, value in vars(module).items() if not key.startswith("_") and callable(value)]
    own = [key for key in public if getattr(vars(module)[key], "__module__", None) == module.__name__]
    own += [key for key in public if isinstance(vars(module)[key], Scheduler)]
    close = difflib.get_close_matches(path, own, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return (
        f"module {module.__name__} has no {path!r}.{hint} It has: {', '.join(sorted(set(own))) or 'nothing'}"
    )


def authors_words(error: BaseException) -> str:
    """Return the error of the author's own code and where it was raised, without Toolgate's frames."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and not frame.filename.startswith("<frozen importlib")
        if frame.filename != importlib.__file__
    ]
    said = "".join(traceback.format_exception_only(error)).rstrip()
    return said + ("\n" + "".join(traceback.format_list(frames)).rstrip() if frames else "")
