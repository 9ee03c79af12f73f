"""Results of LangChain's tools, ruled on inside the tool, so that callbacks and traces see what may be seen.

Content and artifact, a message, or a command may come from a tool. All that stands in them twice is cleaned.
"""

import copy
import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command, Send

from toolgate_orchestrator.decision.results.given_result import GivenResult
from toolgate_orchestrator.guard.results import EndReport, raise_alone
from toolgate_orchestrator.guard.ruling import Ruling

MESSAGES: Final = "messages"
"""Key of the messages in a graph's state."""
_KEPT: Final = frozenset(("content", "type", "tool_call_id", "status"))
"""Fields of a message that are its own, whatever was hidden."""


class RuledPart(NamedTuple):
    """The part of a tool's result that the LLM reads, and the way back to a whole result."""

    value: Any
    rebuild: Callable[[GivenResult], Any]

    def show(self, result: Any, given: GivenResult) -> Any:
        """Return the result as it may be seen; the very same if nothing was hidden."""
        return self.rebuild(given) if given.changed else result


def rule_inside(tool: Any, ruling: Ruling) -> Any:
    """Return a copy of a tool that gives, and raises, what may be seen. The ruling is reported by it."""
    made = copy.copy(tool)
    has_artifact = tool.response_format == "content_and_artifact"

    @functools.wraps(tool._run)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            result = tool._run(*args, **kwargs)
        except GraphBubbleUp:  # no result: the tool leaves, and runs again
            raise
        except BaseException as error:  # noqa: BLE001 - raised below, as it may be seen
            ended = ruling.fail(error)
        else:
            part = split(result, has_artifact)
            return part.show(result, ruling.succeed(part.value).given_sync())
        return raise_alone(ended.wait())

    @functools.wraps(tool._arun)
    async def arun(*args: Any, **kwargs: Any) -> Any:
        try:
            result = await tool._arun(*args, **kwargs)
        except GraphBubbleUp:
            raise
        except BaseException as error:  # noqa: BLE001 - raised below, as it may be seen
            ended = ruling.fail(error)
        else:
            part = split(result, has_artifact)
            return part.show(result, await ruling.succeed(part.value).given())
        return raise_alone(await ended)

    for name, function in (("_run", run), ("_arun", arun)):
        object.__setattr__(made, name, function)  # a model of pydantic takes no other attributes
    return made


def end_late(result: Any, ruling: Ruling) -> tuple[RuledPart, EndReport]:
    """Report a result that LangChain has seen already: who rules on it came while the tool ran."""
    part, has_failed = split(result, has_artifact=False), getattr(result, "status", "") == "error"
    if has_failed:
        ruling.report_failure("ToolMessage")
    ruling.report(part.value, is_ruled_on=True)
    return part, EndReport(ruling, part.value, success=not has_failed)


def split(result: Any, has_artifact: bool) -> RuledPart:
    """Return the part of a result that is ruled on."""
    if has_artifact and isinstance(result, tuple) and len(result) == 2:
        content, artifact = result
        return RuledPart(content, lambda given: (given.value, given.clean(artifact)))
    if isinstance(result, ToolMessage):
        return RuledPart(result.content, lambda given: _show_message(result, given.value, given))
    if isinstance(result, Command) and isinstance(result.update, Mapping):
        return _split_command(result, dict(result.update))
    if isinstance(result, list) and any(isinstance(one, ToolMessage | Command) for one in result):
        parts = [split(one, has_artifact=False) for one in result]
        return RuledPart([one.value for one in parts], lambda given: _show_each(parts, given))
    return RuledPart(result, lambda given: given.value)


def _split_command(command: Any, update: dict[str, Any]) -> RuledPart:
    messages = update.get(MESSAGES)
    messages = [one for one in messages if isinstance(one, BaseMessage)] if isinstance(messages, list) else []
    only = len(messages) == 1 and len(update) == 1
    contents = [one.content for one in messages]
    value = contents[0] if only else {**update, MESSAGES: contents}

    def rebuild(given: GivenResult) -> Any:
        shown, rest = given.value, dict[str, Any]()
        if given.outcome == "masked" and not only and isinstance(shown, dict):
            rest = {name: one for name, one in shown.items() if name != MESSAGES}
            shown = shown.get(MESSAGES, "")
        if rest and isinstance(shown, list):
            made = [_show_message(*one, given) for one in zip(messages, shown, strict=True)]
        else:
            told = [one for one in messages if isinstance(one, ToolMessage)][:1]
            made = [_show_message(one, shown, given) for one in told]
        goto = _clean_jumps(command.goto, given)
        return Command(graph=command.graph, update={**rest, MESSAGES: made}, goto=goto)

    return RuledPart(value, rebuild)


def _show_each(parts: list[RuledPart], given: GivenResult) -> list[Any]:
    """Return several messages or commands, each with its part of the result; others are left out."""
    shown = given.value if isinstance(given.value, list) and given.outcome == "masked" else [given.value]
    return [part.rebuild(given._replace(value=one)) for part, one in zip(parts, shown, strict=False)]


def _show_message(message: Any, content: Any, given: GivenResult) -> Any:
    """Return a message with another content, and without what was hidden anywhere else in it."""
    is_content = isinstance(content, str) or (
        isinstance(content, list) and all(isinstance(one, str | dict) for one in content)
    )
    update = {"content": content if is_content else json.dumps(content, ensure_ascii=False)}
    fields = type(message).model_fields
    for name, found in message:
        if name not in _KEPT:
            cleaned = given.clean(found)
            is_left_out = cleaned is None and name in fields
            update[name] = fields[name].get_default(call_default_factory=True) if is_left_out else cleaned
    return message.model_copy(update=update)


def _clean_jumps(goto: Any, given: GivenResult) -> Any:
    """Return where a command goes on, without what was hidden in the states that it sends there.

    Such a state is left out as a copy is, and its jump with it.
    """
    if isinstance(goto, list | tuple):
        return [one for jump in goto if (one := _clean_jumps(jump, given)) != ()]
    if not isinstance(goto, Send):
        return goto
    if given.outcome != "masked" or given.is_cut:
        return ()
    made = copy.copy(goto)
    made.arg = _clean_state(goto.arg, given)
    return made


def _clean_state(value: Any, given: GivenResult) -> Any:
    if isinstance(value, BaseMessage):
        return _show_message(value, given.clean(value.content), given)
    if isinstance(value, list):
        return [_clean_state(one, given) for one in value]
    if isinstance(value, dict):
        return {given.clean(name): _clean_state(one, given) for name, one in value.items()}
    return given.clean(value)
