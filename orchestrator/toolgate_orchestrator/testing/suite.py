"""The kit as tests of pytest: one for each column."""

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
"""For one check; a shared machine may be slow."""


class AdapterSuite:
    """Derive a test class from it, and give it a harness."""

    harness: ClassVar[Harness]

    @pytest.fixture(scope="class")
    @classmethod
    def world(cls) -> Iterator[World]:
        """A server and schedulers, for all tests of the class."""
        with open_world() as world:
            yield world

    @pytest.fixture(scope="class")
    @classmethod
    def results(cls, world: World) -> Iterator[ColumnResults]:
        """What was seen; at the end it is measured and written where TOOLGATE_CONFORMANCE names a folder."""
        results = ColumnResults(cls.harness)
        yield results
        if results.folder:
            results.overhead = run_to_end(measure(cls.harness, world), TIMEOUT_S)
            results.write()

    @pytest.mark.parametrize("column", COLUMNS, ids=[one.name for one in COLUMNS])
    def test_column(self, column: Column, world: World, results: ColumnResults) -> None:
        """Hold the adapter to one column; skipped, with its reason, where its framework cannot do it."""
        if (reason := self.harness.cannot.get(column.name)) is not None:
            results.note(column, "cannot", reason)
            pytest.skip(f"{self.harness.framework}: {reason}")
        results.note(column, "broken", "")
        stage = Stage(self.harness, world)
        said = [run_to_end(check(stage), TIMEOUT_S) for check in column.checks]
        results.note(column, "kept", "; ".join(filter(None, said)))
