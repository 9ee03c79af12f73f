"""Tools for tests that write down what they were given, exactly, and talk too much about it.

`tools` names them; one whose name ends in `_fails` raises and tells why. Each call is one line of JSON
in `file`: name and arguments. `result` is told in every result.
"""

import json
import logging
from pathlib import Path

from amplifier_core import ToolResult

__amplifier_module_type__ = "tool"

log = logging.getLogger("vault")


class Vault:
    """One of the tools."""

    description = "keeps things"

    def __init__(self, name: str, file: Path, result: str) -> None:
        self.input_schema = {"type": "object"}
        self.name, self._file, self._result = name, file, result

    async def execute(self, arguments: dict) -> ToolResult:
        """Write it down."""
        with self._file.open("a") as file:
            file.write(json.dumps([self.name, arguments]) + "\n")
        if self.name.endswith("_fails"):
            raise RuntimeError(f"cannot open with {arguments}")
        if "text" in arguments:
            log.debug("was told %s", arguments["text"])
        log.info("one more is kept")
        return ToolResult(output={"kept": arguments, "password": self._result})


async def mount(coordinator, config=None) -> None:
    """Mount them all."""
    for name in config["tools"]:
        tool = Vault(name, Path(config["file"]), config["result"])
        await coordinator.mount("tools", tool, name=name)
