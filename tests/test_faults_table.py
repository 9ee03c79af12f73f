"""The table of faults in tests/README.md: all 25, and each test that it names is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure

HERE = Path(__file__).parent
FAULTS = 25
NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")


def rows() -> list[list[str]]:
    """Its rows: number, fault, tests, how far."""
    section = (HERE / "README.md").read_text().partition("## Faults\n")[2].partition("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in section.splitlines() if re.match(r"\| \d", line)]
    return [[cell.strip() for cell in row] for row in cells]


@cache
def names_in(file: str) -> frozenset[str]:
    """The tests of a file, wherever it is."""
    found = [ast.walk(ast.parse(path.read_text())) for path in HERE.rglob(file)]
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for nodes in found for node in nodes if isinstance(node, kinds))


def test_all_faults_stand_in_the_table_in_order_and_each_says_how_far_it_is_shown():
    assert [row[0] for row in rows()] == [str(number) for number in range(1, FAULTS + 1)]
    assert all(len(row) == 4 and row[3] for row in rows())


def test_each_fault_names_a_test_that_there_is():
    for number, fault, shown, _ in rows():
        named = NAMED.findall(shown)
        assert named, f"{number}, {fault}: no test"
        assert [one for one in named if one[1] not in names_in(one[0])] == []
