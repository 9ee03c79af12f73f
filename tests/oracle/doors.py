"""The ways by which a program asks about a call. A door is what `Door` says; `DOORS` has them by name.

A door makes a call as its callers do, on a `Station` of its own, and the tool of the call says there what it
got. Over HTTP that is the call which the answer tells a client to run. Another door joins by one more class.
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec
from typing import Any, Protocol

from adapter_doors import LangChainDoor, PydanticAiDoor
from hook_doors import ClaudeDoor, CodexDoor, CopilotDoor, CursorDoor, GeminiDoor
from mcp_door import McpDoor
from meanings import Written
from python_doors import GateDoor, GuardRunDoor, GuardToolDoor
from readings import Call
from sidecar_doors import AuthzenDoor, DecideDoor
from station import Station

__all__ = ["ALL", "DOORS", "NAMES", "PYTHON", "Door"]


class Door(Protocol):
    """One way in. Made for one station, whose scheduler rules on the calls."""

    name: str
    can: frozenset[str]
    """What becomes of a ruling here: `ask` a person, run another `tool`. What cannot be done is a denial."""

    @staticmethod
    def carries(call: Call, written: Written) -> bool:
        """Whether such a call can be made here as it is: values that only Python has go to its doors."""

    @classmethod
    def open(cls, station: Station) -> AbstractAsyncContextManager["Door"]:
        """The door, for the length of a block."""

    async def make(self, call: Call) -> None:
        """Make a call, and run what is to run. Cancelled where the call is held, and nobody waits longer."""


_ALL: tuple[Any, ...] = (
    *(GateDoor, GuardRunDoor, GuardToolDoor, DecideDoor, AuthzenDoor, McpDoor),
    *(ClaudeDoor, CodexDoor, CopilotDoor, CursorDoor, GeminiDoor, LangChainDoor, PydanticAiDoor),
)
ALL: Mapping[str, Any] = {one.name: one for one in _ALL}
"""Those that there are, by name."""
NAMES = tuple(ALL)
PYTHON = (GateDoor.name, GuardRunDoor.name, GuardToolDoor.name)
"""Those that carry any value of Python."""
ADAPTERS: Mapping[str, str] = {LangChainDoor.name: "langgraph", PydanticAiDoor.name: "pydantic_ai"}
"""The package that each needs."""
DOORS: Mapping[str, Any] = {
    name: one for name, one in ALL.items() if name not in ADAPTERS or find_spec(ADAPTERS[name]) is not None
}
"""Those that can be opened here, by name."""
