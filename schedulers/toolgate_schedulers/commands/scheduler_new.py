"""`toolgate scheduler new`: fill the templates for a package with one scheduler.

The templates define the contents; this module makes and checks the names.
"""

import importlib.util
import json
import keyword
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, entry_points, version
from importlib.resources import files
from string import Template

from toolgate_bus.errors import ConfigError

from toolgate_schedulers.worker.loading import GROUP

MAX_NAME = 64
MAX_DESCRIPTION = 200
_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*")
_TAKEN = ("BaseModel", "ConfigDict", "Continue", "Deny", "Field", "Path", "ToolSelecting", "Verdict")
"""Names that the templates import, and that the class must not have."""
_TEMPLATES = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "config.yaml": "config.yaml",
    "agent.yaml": "agent.yaml",
    "src/{module}/__init__.py": "__init__.py",
    "tests/test_{module}.py": "test.py",
}


@dataclass(frozen=True, slots=True)
class SchedulerNames:
    """Names of one scheduler."""

    name: str
    """Name of the scheduler and of its distribution: `my-guard`."""
    module: str
    """Name of the module: `my_guard`."""
    cls: str
    """Name of the class: `MyGuard`."""


def names_of(name: str) -> SchedulerNames:
    """Derive the names from one; raise ConfigError if it is not allowed or clashes."""
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        close = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")[:MAX_NAME].strip("-")
        hint = f"; did you mean {close}?" if _NAME.fullmatch(close) else ""
        raise ConfigError(
            f"NAME: {name!r}: must be 1 to {MAX_NAME} lower-case letters and digits, a letter first, "
            f"words joined by '-' or '_'{hint}"
        )
    module = name.replace("-", "_")
    cls = "".join(part.capitalize() for part in re.split("[-_]", name))
    clash = _clash(name, module, cls)
    if clash:
        raise ConfigError(f"NAME: {name} is {clash}: choose another")
    return SchedulerNames(name, module, cls)


def _clash(name: str, module: str, cls: str) -> str | None:
    if name in {entry.name for entry in entry_points(group=GROUP)}:
        return "the name of an installed scheduler"
    with suppress(PackageNotFoundError):
        if version(name):
            return "the name of an installed package"
    if keyword.iskeyword(module) or keyword.issoftkeyword(module):
        return "a keyword of Python"
    if cls in _TAKEN:
        return f"not possible, since its class {cls} would have the name of one that it uses"
    found = importlib.util.find_spec(module)
    if module in sys.stdlib_module_names or (found is not None and found.origin):  # no origin: a bare folder
        return f"not possible, since there is a module {module} already"
    return None


def contents(names: SchedulerNames, description: str) -> dict[str, str]:
    """Return the text of each file, by its path in the package; raise ConfigError for a bad description."""
    if not description.strip() or len(description) > MAX_DESCRIPTION or not description.isprintable():
        raise ConfigError(f"--description: must be one line of 1 to {MAX_DESCRIPTION} characters")
    fields = {
        "name": names.name,
        "module": names.module,
        "cls": names.cls,
        "version": ".".join(version("toolgate-bus").split(".")[:2]),
        "description": description,
        "description_toml": json.dumps(description, ensure_ascii=False),
        "description_py": description.replace("\\", "\\\\").replace('"', '\\"'),
    }
    folder = files("toolgate_schedulers.commands") / "templates"
    return {
        path.format(module=names.module): Template(
            (folder / f"{template}.tmpl").read_text(encoding="utf-8")
        ).substitute(fields)
        for path, template in _TEMPLATES.items()
    }
