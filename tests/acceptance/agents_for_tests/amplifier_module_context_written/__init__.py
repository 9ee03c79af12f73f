"""`context-simple` for tests that also writes each message into a file: FOLDER/SESSION.context."""

import json
from pathlib import Path
from typing import Any

from toolgate_orchestrator.modules.context_simple import ContextSimple

__amplifier_module_type__ = "context"


class Written(ContextSimple):
    """The context; the file holds what was stored, in its order."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self._file = file

    async def add_message(self, message: dict[str, Any]) -> None:
        """Store it, here and there."""
        await super().add_message(message)
        with self._file.open("a") as file:
            file.write(json.dumps(message, default=repr) + "\n")


async def mount(coordinator, config=None) -> None:
    """Mount it; `folder` is where its files are."""
    await coordinator.mount("context", Written(Path(config["folder"]) / f"{coordinator.session_id}.context"))
