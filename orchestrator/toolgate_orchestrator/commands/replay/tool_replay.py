"""Amplifier tool module `tool-replay`: every tool of a recorded run, returning what was recorded.

One tool per name in the file, schemas open. A call that a scheduler rerouted returns the result
recorded for that tool and those arguments, anywhere in the run, else in the file; where there is
none, the original's, marked `unrecorded` (`playback` keeps account). A result that tells its cost
(`cost_usd` in a JSON object) tells it again: budgets and estimates count it.
"""

import json
from typing import Any

from amplifier_core import HookResult, ToolResult

from toolgate_orchestrator.commands.replay.playback import Playback, ReplayConfig, playback_of
from toolgate_orchestrator.turn.calls.tool_call import current_call

__amplifier_module_type__ = "tool"
config_model = ReplayConfig


class ReplayTool:
    """Stands for one recorded tool."""

    def __init__(self, name: str, playback: Playback) -> None:
        self.name = name
        self.description = f"Returns what {name} returned when the run was recorded."
        self.input_schema = {"type": "object"}
        """Open: the record does not say what the tool accepted."""
        self._playback = playback

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the Tool protocol's name
        """The recorded result, as the text the LLM got then."""
        call = current_call()
        served = self._playback.serve(self.name, input, call.id if call is not None else None)
        priced = _parse_priced(served.text)
        if priced is not None:
            return PricedResult(output=priced, text=served.text)
        return ToolResult(output=served.text)


class PricedResult(ToolResult):
    """An object that tells what the call cost; for the LLM the text that was recorded."""

    text: str

    def get_serialized_output(self) -> str:
        """The text, letter by letter."""
        return self.text


def _parse_priced(text: str) -> dict[str, Any] | None:
    """The recorded object, if it is one and tells a cost."""
    if "cost_usd" not in text:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and "cost_usd" in found else None


async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
    """Mount one tool per recorded name, and listen which call is about to run."""
    playback, parsed = playback_of(coordinator, "tool-replay", config)

    async def note_start(event: str, data: dict[str, Any]) -> HookResult:
        tool, arguments = data.get("tool"), data.get("tool_input")
        if isinstance(tool, str) and isinstance(arguments, dict):
            playback.begin_call(str(data.get("tool_call_id")), tool, arguments)
        return HookResult(action="continue")

    # Not tool:pre: a loop may take a hook's copy of the arguments there for a change of them.
    coordinator.hooks.register("tool:selected", note_start, name="tool-replay")
    for name in dict.fromkeys((*playback.recording.tools, *parsed.also)):
        await coordinator.mount("tools", ReplayTool(name, playback), name=name)
