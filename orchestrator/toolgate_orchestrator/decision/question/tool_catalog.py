"""The tools of this process's agents, as each heartbeat tells operators of them.

`note` runs during a decision, so it only keeps a reference. The heartbeat reads the tools.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any, Final

from toolgate_bus.protocol.json_values import same_json
from toolgate_bus.protocol.tool_sets import (
    MAX_TOOLS,
    Schema,
    ToolSet,
    encode_tools,
    is_tool_name,
    merge_schemas,
    narrow,
)

from toolgate_orchestrator.decision.faults import note_fault
from toolgate_orchestrator.decision.question.call import UnnamedTools
from toolgate_orchestrator.decision.question.validation import Tools

MAX_WAITING: Final = 32
AT_ONCE: Final = 4
"""Number of tool sets that one heartbeat reads. The others wait for the next."""


class ToolCatalog:
    """All tools that were seen in this process."""

    def __init__(self) -> None:
        self._waiting: deque[Tools] = deque(maxlen=MAX_WAITING)
        self._last: Tools = ()
        self._count = 0
        self._written: dict[str, Any] = {}
        """Schema of each tool as it was last given: an unchanged one is not read again."""
        self._tools: dict[str, tuple[Schema, ...]] = {}
        self._whole = True
        self._encoded = b""

    def note(self, tools: Tools) -> None:
        """Note that these tools exist: names, or names with schemas."""
        if tools is not self._last or len(tools) != self._count:
            self._last, self._count = tools, len(tools)
            self._waiting.append(tools)

    def encode(self) -> bytes:
        """Return the announced set: the same object until it changes, empty while no tool is known."""
        changed = False
        for _ in range(min(AT_ONCE, len(self._waiting))):
            try:
                changed = self._take(self._waiting.popleft()) or changed
            except Exception as error:  # noqa: BLE001 - an app's objects must not stop the heartbeat
                note_fault("record", error)
                changed, self._whole = True, False
        if changed:
            self._encoded = encode_tools(ToolSet(self._tools, self._whole))
        return self._encoded

    def _take(self, tools: Tools) -> bool:
        """Read one waiting set. Return whether it tells anything new."""
        # One name alone is the call's own: its caller did not say which others there are.
        named = isinstance(tools, Mapping) or (len(tools) > 1 and not isinstance(tools, UnnamedTools))
        changed, self._whole = self._whole and not named, self._whole and named
        given: Mapping[Any, Any] = tools if isinstance(tools, Mapping) else dict.fromkeys(tools)
        for name, schema in given.items():
            if not is_tool_name(name) or (name in self._written and same_json(self._written[name], schema)):
                continue
            if name not in self._tools and len(self._tools) >= MAX_TOOLS:
                changed, self._whole = changed or self._whole, False
                continue
            self._written[name] = schema
            before = self._tools.get(name)
            now = () if schema is None else (narrow(schema),)
            self._tools[name] = now if before is None else merge_schemas(before, now)
            changed = changed or self._tools[name] != before
        return changed
