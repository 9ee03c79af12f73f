"""A tool for tests that runs until a file says that it may end, and tells by files how far it came.

`wait(name)`: writes NAME.began, waits for NAME.go or for `go`, writes NAME.ended; NAME.cancelled where it
was cancelled instead. With `seconds` it waits for so long, and for no file. It costs a cent. In NAME.began
stands what was given to its call.
"""

import asyncio
import json
from pathlib import Path

from amplifier_core import ToolResult
from toolgate_orchestrator import current_call

__amplifier_module_type__ = "tool"

LOOK_S = 0.01
LONGEST_S = 60.0


class Wait:
    """The tool."""

    name = "wait"
    description = "waits"

    def __init__(self, folder: Path) -> None:
        self.input_schema = {
            "type": "object",
            "properties": {"name": {"type": "string"}, "seconds": {"type": "number"}},
            "required": ["name"],
        }
        self._folder = folder

    async def execute(self, arguments: dict) -> ToolResult:
        """Wait."""
        name = arguments["name"]
        self._tell(name, "began", json.dumps(getattr(current_call(), "grants", {})))
        try:
            if "seconds" in arguments:
                await asyncio.sleep(arguments["seconds"])
            else:
                await self._wait_for(name)
        except asyncio.CancelledError:
            self._tell(name, "cancelled")
            raise
        self._tell(name, "ended")
        return ToolResult(output={"waited": name, "cost_usd": 0.01})

    async def _wait_for(self, name: str) -> None:
        async with asyncio.timeout(LONGEST_S):
            while not any((self._folder / go).exists() for go in ("go", f"{name}.go")):
                await asyncio.sleep(LOOK_S)

    def _tell(self, name: str, what: str, words: str = "") -> None:
        (self._folder / f"{name}.{what}").write_text(words)


async def mount(coordinator, config=None) -> None:
    """Mount it; `folder` is where its files are."""
    await coordinator.mount("tools", Wait(Path(config["folder"])), name="wait")
