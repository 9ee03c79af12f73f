"""Texts at both ends of a turn: the user's words before the agent gets them, its answer before the user does.

with guard.turn(at):
    words = await guard.turn_input(words)
    return await guard.turn_output(await agent.run(words))
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from toolgate_bus.errors import CallDenial

from toolgate_orchestrator.calls.refusal import reason_of
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.guard.answer import AskHow
from toolgate_orchestrator.guard.callers import user_request

if TYPE_CHECKING:
    from toolgate_bus.protocol.events import Decision

INPUT: Final = "turn:input"
OUTPUT: Final = "turn:output"
_SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
_TOOLS: Final = {name: {name: _SCHEMA} for name in (INPUT, OUTPUT)}
_REFUSED: Final = {INPUT: "The turn was not begun: {}", OUTPUT: "The answer is withheld: {}"}


class TurnTexts(ABC):
    """The methods of a `Guard` for what a turn begins and ends with."""

    async def turn_input(self, text: str, at: Caller | None = None, *, ask: AskHow = None) -> str:
        """Return the words of the user as the agent may get them: the same, or what a scheduler made of them.

        Only schedulers that name `turn:input` are asked. `at` is the caller; default: as for `turn`. `ask`
        replaces the guard's `ask`. Raises CallDenial, with the reason, if the turn may not begin, and what
        `rule` raises.
        """
        return use_text(INPUT, text, await self._rule_point(_call(INPUT, text, at), ask))

    async def turn_output(self, text: str, at: Caller | None = None, *, ask: AskHow = None) -> str:
        """Return the agent's answer as the user may get it. Only schedulers that name `turn:output` rule.

        Parameters and exceptions are those of `turn_input`.
        """
        return use_text(OUTPUT, text, await self._rule_point(_call(OUTPUT, text, at), ask))

    def turn_input_sync(self, text: str, at: Caller | None = None, *, ask: AskHow = None) -> str:
        """Return what `turn_input` returns, for code that is not async."""
        return use_text(INPUT, text, self._rule_point_sync(_call(INPUT, text, at), ask))

    def turn_output_sync(self, text: str, at: Caller | None = None, *, ask: AskHow = None) -> str:
        """Return what `turn_output` returns, for code that is not async."""
        return use_text(OUTPUT, text, self._rule_point_sync(_call(OUTPUT, text, at), ask))

    @abstractmethod
    async def _rule_point(self, call: Call, ask: AskHow) -> "Decision | str | None": ...

    @abstractmethod
    def _rule_point_sync(self, call: Call, ask: AskHow) -> "Decision | str | None": ...


def _call(point: str, text: str, at: Caller | None) -> Call:
    request = text if point == INPUT else user_request()
    can = ("arguments", "ask")
    return Call(point, {"text": text}, _TOOLS[point], at, can=can, request=request, is_point=True)


def use_text(point: str, text: str, decision: "Decision | str | None") -> str:
    """Return the text that a decision lets through; a text in its place is the reason of a denial."""
    if decision is None:
        return text
    if isinstance(decision, str) or not decision.allowed:
        reason = decision if isinstance(decision, str) else reason_of(decision)
        raise CallDenial(_REFUSED[point].format(reason))
    return str(decision.tool_input["text"]) if decision.outcome == "modify" else text
