"""What a run of the kit saw, as JSON that the table of `docs/frameworks.md` is made of."""

import json
import os
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, Literal

from toolgate_orchestrator.testing.column import Column
from toolgate_orchestrator.testing.harness import Harness

FOLDER: Final = "TOOLGATE_CONFORMANCE"
"""The environment variable that names where results are written."""
Kind = Literal["kept", "broken", "cannot"]


class ColumnResults:
    """Of one harness."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.columns: dict[str, dict[str, str]] = {}
        self.overhead: dict[str, Any] = {}
        """As `overhead.measure` gives it."""

    def note(self, column: Column, kind: Kind, words: str) -> None:
        """What was seen of a column; a later note takes the place of an earlier one."""
        self.columns[column.name] = {"seen": kind, **({"words": words} if words else {})}

    def record(self) -> dict[str, Any]:
        """As JSON."""
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
        """Where they are written; empty: nowhere."""
        return os.environ.get(FOLDER, "")

    def write(self) -> None:
        """Into that folder, if there is one: a file named as the adapter's module."""
        if folder := self.folder:
            file = Path(folder) / f"{self.harness.adapter.rpartition('.')[2]}.json"
            file.write_text(json.dumps(self.record(), indent=2) + "\n", encoding="utf-8")
