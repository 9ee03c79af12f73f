"""Stores one request in the conversation, once all its calls are done: nothing before, all together.

The response with its calls; then one result each, successes first, Error Messages after them, both
in stream order. Hooks are told of the calls that were refused before any hook saw them.
"""

from amplifier_core.events import TOOL_ERROR

from toolgate_orchestrator.loops.reactive_engine.errors import (
    data_message,
    error_message,
    reason,
    text_for_llm,
)
from toolgate_orchestrator.loops.reactive_engine.output import FinalOutput
from toolgate_orchestrator.loops.reactive_engine.tick import CallFeedback, Tick
from toolgate_orchestrator.turn.messages import assistant_message
from toolgate_orchestrator.turn.provider_stream import Reply
from toolgate_orchestrator.turn.tool_call import payload_of
from toolgate_orchestrator.turn.turn import Turn


def settle(tick: Tick, output: FinalOutput, broken: str = "") -> None:
    """Give the calls of the output tool their results; `broken` says why they were not looked at."""
    for call in tick.finals:
        error = (
            reason("cancelled", "cancelled", f"it was not looked at: {broken}") if broken else output.error
        )
        if not broken and call is not tick.finals[-1]:
            message = data_message(None) | {"note": "a later output in the same response replaced this one"}
            tick.came[call.id] = CallFeedback(text_for_llm(message))
        elif error is not None:
            tick.came[call.id] = CallFeedback(text_for_llm(error_message(call, error)), error)
        else:
            tick.came[call.id] = CallFeedback(text_for_llm(data_message(output.value)))


async def store(turn: Turn, tick: Tick, reply: Reply | None) -> None:
    """Write the response, and what came of each of its calls; None for a response that broke off."""
    calls = tick.calls
    if reply is None and not calls:
        return
    message = assistant_message(reply.response if reply else None, calls)
    if reply is not None and reply.stopped:
        message["metadata"] = {**message.get("metadata", {}), "incomplete": True}
    if calls:
        failed = [call for call in tick.calls if tick.came[call.id].error is not None]
        ordered = [call for call in tick.calls if tick.came[call.id].error is None] + failed
        async with turn.collect_results(ordered, message) as results:
            for call in ordered:
                await results.give(call, tick.came[call.id].content)
            for call in failed:
                error = tick.came[call.id].error or {}
                if error.get("phase") != "structural":
                    continue  # what ran, or was denied, has been told already
                told = payload_of(call) | {"error": {"type": error["type"], "msg": error["message"]}}
                await turn.hooks.consult(TOOL_ERROR, told, call.name)
    elif message["content"] or not (reply and reply.stopped):
        await turn.context.add_message(message)
