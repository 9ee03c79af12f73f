"""Run the kit as tests of pytest: one for each column."""

from collections.abc import Iterator
from typing import ClassVar

import pytest

from toolgate_orchestrator.testing.column import COLUMNS, Column
from toolgate_orchestrator.testing.harness import Harness
from toolgate_orchestrator.testing.overhead import measure
from toolgate_orchestrator.testing.results import ColumnResults
from toolgate_orchestrator.testing.stage import Stage
from toolgate_orchestrator.testing.world import World, open_world, run_to_end

TIMEOUT_S = 60.0
"""Longest time of one check, in seconds; a shared machine may be slow."""


class AdapterSuite:
    """Base of your test class; give it a harness."""

    harness: ClassVar[Harness]

    @pytest.fixture(scope="class")
    @classmethod
    def world(cls) -> Iterator[World]:
        """Run a server and schedulers for all tests of the class."""
        with open_world() as world:
            yield world

    @pytest.fixture(scope="class")
    @classmethod
    def results(cls, world: World) -> Iterator[ColumnResults]:
        """Collect the results; if TOOLGATE_CONFORMANCE names a folder, measure at the end and write them
        there."""
        results = ColumnResults(cls.harness)
        yield results
        if results.folder:
            results.overhead = run_to_end(measure(cls.harness, world), TIMEOUT_S)
            results.write()

    @pytest.mark.parametrize("column", COLUMNS, ids=[one.name for one in COLUMNS])
    def test_column(self, column: Column, world: World, results: ColumnResults) -> None:
        """Test the adapter on one column; skip, with the reason, a column that its framework cannot have."""
        if (reason := self.harness.cannot.get(column.name)) is not None:
            results.note(column, "cannot", reason)
            pytest.skip(f"{self.harness.framework}: {reason}")
        results.note(column, "broken", "")
        stage = Stage(self.harness, world)
        said = [run_to_end(check(stage), TIMEOUT_S) for check in column.checks]
        results.note(column, "kept", "; ".join(filter(None, said)))
