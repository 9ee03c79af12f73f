"""The structure of the packages: no import goes in a circle, no folder holds more than a reader can see."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.source

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {f"toolgate_{folder}": folder for folder in ("bus", "orchestrator", "schedulers")}
MAX_MODULES = 20
MAX_PARAMETERS = 10
COMMAND_LINES = (".commands.", "toolgate_hook")


def modules() -> dict[str, Path]:
    """Each module's file, by its dotted name."""
    found = {}
    for package, folder in PACKAGES.items():
        for file in (ROOT / folder / package).rglob("*.py"):
            parts = file.relative_to(ROOT / folder).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = file
    return found


def imports(tree: ast.AST, known: dict[str, Path], *, for_types: bool = False) -> Iterator[tuple[str, bool]]:
    """Each module of ours that a tree imports, and whether it does so for types alone."""
    for node in ast.iter_child_nodes(tree):
        types = for_types or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        if isinstance(node, ast.ImportFrom) and node.module in known:
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                yield (inner if inner in known else node.module), types
        elif isinstance(node, ast.Import):
            yield from ((name.name, types) for name in node.names if name.name in known)
        yield from imports(node, known, for_types=types)


def edges() -> dict[str, set[str]]:
    """What each module imports; what it imports for types alone counts where it lies in another folder."""
    known = modules()
    found = {}
    for name, file in known.items():
        told = imports(ast.parse(file.read_text()), known)
        folder = file.parent
        found[name] = {other for other, types in told if not types or known[other].parent != folder}
    return found


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules of which each leads to all others."""

    def reachable(start: str) -> set[str]:
        seen, left = set(), [start]
        while left:
            new = graph[left.pop()] - seen
            seen |= new
            left += new
        return seen

    leads = {name: reachable(name) for name in graph}
    rings = {frozenset(other for other in leads[name] if name in leads[other]) for name in graph}
    return sorted(sorted(ring) for ring in rings if ring)


def test_no_import_goes_in_a_circle():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]
    assert circles(edges()) == []


def test_no_folder_holds_more_modules_than_a_reader_can_see():
    held: dict[str, int] = {}
    for name, file in modules().items():
        if file.name != "__init__.py":
            folder = name.rpartition(".")[0]
            held[folder] = held.get(folder, 0) + 1
    assert {folder: count for folder, count in held.items() if count > MAX_MODULES} == {}


def test_no_function_takes_more_parameters_than_one_remembers():
    long = {}
    for name, file in modules().items():
        if any(part in f"{name}." for part in COMMAND_LINES):
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                arguments = node.args
                every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                count = len([one for one in every if one.arg not in ("self", "cls")])
                if count > MAX_PARAMETERS:
                    long[f"{name}.{node.name}"] = count
    assert long == {}
