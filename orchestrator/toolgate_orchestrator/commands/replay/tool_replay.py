"""Amplifier tool module `tool-replay`: every tool of a recorded run, with the recorded results.

Each name in the file becomes one tool with an open schema. A call that a scheduler rerouted returns the
result recorded for that tool and those arguments, anywhere in the run, else in the file. If there is none, it
returns the original's result, marked `unrecorded` (`playback` counts these). A result with a cost (`cost_usd`
in a JSON object) reports it again, so budgets and estimates count it.
"""

import json
from typing import Any

from amplifier_core import HookResult, ToolResult

from toolgate_orchestrator.commands.replay.playback import Playback, ReplayConfig, playback_of
from toolgate_orchestrator.turn.calls.tool_call import current_call

__amplifier_module_type__ = "tool"
config_model = ReplayConfig


class ReplayTool:
    """Tool that stands for one recorded tool."""

    def __init__(self, name: str, playback: Playback) -> None:
        self.name = name
        self.description = f"Returns what {name} returned when the run was recorded."
        self.input_schema = {"type": "object"}
        """Open schema: the record does not tell what the tool accepted."""
        self._playback = playback

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the Tool protocol's name
        """Return the recorded result, as the text that the LLM got then."""
        call = current_call()
        served = self._playback.serve(self.name, input, call.id if call is not None else None)
        priced = _parse_priced(served.text)
        if priced is not None:
            return PricedResult(output=priced, text=served.text)
        return ToolResult(output=served.text)


class PricedResult(ToolResult):
    """Result object with a cost; the LLM gets the recorded text."""

    text: str

    def get_serialized_output(self) -> str:
        """Return the recorded text unchanged."""
        return self.text


def _parse_priced(text: str) -> dict[str, Any] | None:
    """Return the recorded object if it has a cost; else None."""
    if "cost_usd" not in text:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and "cost_usd" in found else None


async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
    """Mount one tool for each recorded name, and note the call that is about to run."""
    playback, parsed = playback_of(coordinator, "tool-replay", config)

    async def note_start(event: str, data: dict[str, Any]) -> HookResult:
        tool, arguments = data.get("tool"), data.get("tool_input")
        if isinstance(tool, str) and isinstance(arguments, dict):
            playback.begin_call(str(data.get("tool_call_id")), tool, arguments)
        return HookResult(action="continue")

    # Not tool:pre: there a loop may take a hook's copy of the arguments for changed ones.
    coordinator.hooks.register("tool:selected", note_start, name="tool-replay")
    for name in dict.fromkeys((*playback.recording.tools, *parsed.also)):
        await coordinator.mount("tools", ReplayTool(name, playback), name=name)
