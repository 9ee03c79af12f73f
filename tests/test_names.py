"""One class name means one thing, and bounds are named alike: counted over all packages."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.source

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("bus/toolgate_bus", "orchestrator/toolgate_orchestrator", "schedulers/toolgate_schedulers")


@cache
def trees() -> list[tuple[str, ast.Module]]:
    """Return each file of the product by path, parsed."""
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    return [(str(file.relative_to(ROOT)), ast.parse(file.read_text(encoding="utf-8"))) for file in files]


def test_no_class_name_means_two_things():
    count = Counter(
        node.name for _, tree in trees() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, times in count.items() if times > 1] == []


def test_bounds_are_named_max_and_min():
    odd = re.compile(r"_?(MOST|LONGEST|LARGEST|DEEPEST|FEWEST|SHORTEST|SMALLEST)(_\w+)?")
    found = [
        (node.id, file)
        for file, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and odd.fullmatch(node.id)
    ]
    assert found == []
