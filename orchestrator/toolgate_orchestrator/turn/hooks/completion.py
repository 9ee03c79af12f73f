"""Tells hooks once that a turn is complete, also where the host tells it again.

The contract has an orchestrator emit `prompt:complete`; some hosts emit it themselves once `execute` has
returned. What runs at the end of a turn (a `Stop` hook that runs tests, say) would run twice: so of one turn
the first `prompt:complete` is heard, and another one is answered with a denial before any other hook sees it.
A host that acts on what hooks answer says `prompt_complete: host`, and is the only one to tell.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from amplifier_core import HookResult
from amplifier_core.events import PROMPT_COMPLETE

from toolgate_orchestrator.turn.hooks.dispatch import Emitter

_PREVIEW: Final = 200
"""Characters."""
_NAME: Final = "toolgate-completion"
_EARLY: Final = -(2**31) + 1
"""Behind a log, which may well show that it was told twice."""
_REASON: Final = "the hooks have heard of this turn's prompt:complete: its loop told them"


def describe_answer(prompt: str, answer: str) -> dict[str, Any]:
    """A turn's answer as hooks hear of it."""
    return {
        "prompt": prompt,
        "response": answer,
        "response_preview": answer[:_PREVIEW],
        "length": len(answer),
    }


class Completion:
    """The `prompt:complete` of one session's turns."""

    def __init__(self, by_host: bool = False) -> None:
        self._by_host = by_host
        self._told = self._telling = False

    def begin_turn(self) -> None:
        """From here on it may be told once more."""
        self._told = False

    async def tell(self, hooks: Emitter, payload: Callable[[], Mapping[str, Any]]) -> None:
        """Emit it, unless the host does or nobody but this listens."""
        if self._by_host or hooks.handlers(PROMPT_COMPLETE, besides=_NAME) == 0:
            return
        self._telling = self._told = True
        try:
            await hooks.emit(PROMPT_COMPLETE, payload)
        finally:
            self._telling = False

    def listen(self, hooks: Any) -> None:
        """Hear it before the other hooks of a session do."""
        hooks.register(PROMPT_COMPLETE, self._hear, priority=_EARLY, name=_NAME)

    async def _hear(self, _event: str, _data: dict[str, Any]) -> HookResult:
        if self._told and not self._telling:
            return HookResult(action="deny", reason=_REASON)
        return HookResult()
