"""Every mutation of `make mutants` can still be made, and the tests that are to notice it are there."""

from pathlib import Path

import pytest
from mutants import IGNORED, MUTANTS, Mutant
from mutation import path_of

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.source


@pytest.mark.parametrize("mutant", [*MUTANTS, IGNORED[0]], ids=lambda one: one.name)
def test_a_mutation_finds_what_it_changes_and_names_tests_that_there_are(mutant: Mutant) -> None:
    assert mutant.old in (ROOT / mutant.file).read_text(encoding="utf-8")
    file, _, test = mutant.tests.partition("::")
    tests = (ROOT / path_of(file)).read_text(encoding="utf-8")
    assert f"def {test.partition('[')[0]}(" in tests or not test
