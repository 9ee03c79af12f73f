"""Suggest the `module:attribute` to write instead of a Python file's name.

People first try `my.py`, `rules/my.py:route`, or a bare `my` beside `my.py`. The file is parsed, never run.
At most `MAX_BYTES` are read, and only after the call was found wrong.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

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
