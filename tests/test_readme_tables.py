"""Tables of tests/README.md: no fault and no sentence of the seeds is missing, nor a test that they name."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.source

HERE = Path(__file__).parent
FAULTS = 25
NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")


SENTENCES = {
    "agent-loop": 30,
    "contract-short": 21,
    "loop-basic": 46,
    "loop-events": 50,
    "orchestrator-contract": 54,
}
"""Number of sentences of each document."""


def rows_of(section: str, first: str) -> list[list[str]]:
    """The rows of a section whose first cell fits a pattern, cell by cell."""
    text = (HERE / "README.md").read_text().partition(f"## {section}\n")[2].partition("\n## ")[0]
    cells = [
        line.strip("| ").split(" | ") for line in text.splitlines() if re.match(rf"\| ({first}) \|", line)
    ]
    return [[cell.strip() for cell in row] for row in cells]


def rows() -> list[list[str]]:
    """Faults: number, fault, tests, how far."""
    return rows_of("Faults", r"\d+")


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


def test_no_sentence_of_the_published_documents_is_missing():
    found = rows_of("Sentences of the seeds", "|".join(SENTENCES))
    assert Counter(row[0] for row in found) == SENTENCES
    assert [words for words, count in Counter(tuple(row[:2]) for row in found).items() if count > 1] == []


def test_each_sentence_names_tests_that_there_are_or_says_why_there_are_none():
    for seed, sentence, shown, *loops in rows_of("Sentences of the seeds", "|".join(SENTENCES)):
        named = NAMED.findall(shown)
        assert named or not loops, f"{seed}, {sentence}: no test"
        assert [one for one in named if one[1] not in names_in(one[0])] == []
