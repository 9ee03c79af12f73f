"""Record the results of the kit as JSON, for the table of `docs/frameworks.md`."""

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal

from toolgate_orchestrator.testing.column import Column
from toolgate_orchestrator.testing.harness import Harness

FOLDER: Final = "TOOLGATE_CONFORMANCE"
"""Environment variable that names the folder for results."""
Kind = Literal["kept", "broken", "cannot"]


class ColumnResults:
    """Results of one harness."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.columns: dict[str, dict[str, str]] = {}
        self.overhead: dict[str, Any] = {}
        """Result of `overhead.measure`."""

    def note(self, column: Column, kind: Kind, words: str) -> None:
        """Note the result of a column; a later note replaces an earlier one."""
        self.columns[column.name] = {"seen": kind, **({"words": words} if words else {})}

    def record(self) -> dict[str, Any]:
        """Return the results for JSON."""
        return {
            "framework": self.harness.framework,
            "adapter": self.harness.adapter,
            "versions": {name: version(name) for name in self.harness.packages},
            "python": platform.python_version(),
            "columns": self.columns,
            **({"overhead": self.overhead} if self.overhead else {}),
        }

    @property
    def folder(self) -> str:
        """Folder that results are written to; empty: none."""
        return os.environ.get(FOLDER, "")

    def write(self) -> None:
        """Write the results to that folder, if there is one, into a file named after the adapter's module."""
        if folder := self.folder:
            file = Path(folder) / f"{self.harness.adapter.rpartition('.')[2]}.json"
            file.write_text(json.dumps(self.record(), indent=2) + "\n", encoding="utf-8")
