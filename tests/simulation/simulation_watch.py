"""What surrounds a simulated world: its keys, and those who watch what the product says of itself.

What it logs with a traceback, and what its gate counts as a fault of its own, is a defect.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import FieldLogger

Blame = Callable[[str], None]
KEY = b"k" * 32
NAMES = ("cost-aware", "rules", "router", "keeper", "desk", "watcher", "policy")


@contextmanager
def without_logs(blame: Blame) -> Iterator[None]:
    """Write no log; a traceback in one is blamed."""

    def write(_self: Any, _level: int, what: str, fields: dict[str, Any]) -> None:
        if fields.get("exc_info") is True:  # of an exception that is handled
            blame(f"logged: {what} {fields} {sys.exc_info()[1]!r}")

    with patch.object(FieldLogger, "_log", write):
        yield


@contextmanager
def watch_gate(blame: Blame) -> Iterator[None]:
    """Blame what a gate counts as a fault of its own."""

    class Watched(dict[Any, float]):
        def __setitem__(self, labels: Any, value: float) -> None:
            blame(f"the gate failed ({labels}): {sys.exc_info()[1]!r}")
            super().__setitem__(labels, value)

    with patch.object(metrics.GATE_FAULTS, "series", Watched()):
        yield


_made_keys: list[Any] = []


def keys_file() -> str:
    """The keys of all schedulers, in a file that lives as long as this process."""
    if not _made_keys:
        directory = tempfile.TemporaryDirectory(prefix="tg-simulated-")
        path = Path(directory.name) / "keys.yaml"
        path.touch(mode=0o600)
        path.write_text("".join(f"{name}: {KEY.hex()}\n" for name in NAMES))
        _made_keys.extend((directory, str(path)))
    return str(_made_keys[1])


def remove_keys() -> None:
    """Remove that file before the process ends: workers of a test run end without cleaning up."""
    if _made_keys:
        _made_keys[0].cleanup()
        _made_keys.clear()
