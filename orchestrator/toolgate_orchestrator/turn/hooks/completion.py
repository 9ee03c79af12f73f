"""Reports once to hooks that a turn is complete, even if the host reports it again.

By its contract an orchestrator emits `prompt:complete`; some hosts emit it, too, once `execute` has returned.
Work at the end of a turn (such as a `Stop` hook that runs tests) would then run twice. So only the first
`prompt:complete` of a turn is passed on. A second one gets a denial before any other hook sees it. A host
that acts on the hooks' answers sets `prompt_complete: host`, and is then the only one to emit it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from amplifier_core import HookResult
from amplifier_core.events import PROMPT_COMPLETE

from toolgate_orchestrator.turn.hooks.dispatch import Emitter

_PREVIEW: Final = 200
"""Maximum number of characters of the preview."""
_NAME: Final = "toolgate-completion"
_EARLY: Final = -(2**31) + 1
"""Priority behind log hooks, which may record both events."""
_REASON: Final = "the hooks have heard of this turn's prompt:complete: its loop told them"


def describe_answer(prompt: str, answer: str) -> dict[str, Any]:
    """Return the payload about a turn's answer."""
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
        """Allow one more `prompt:complete`."""
        self._told = False

    async def tell(self, hooks: Emitter, payload: Callable[[], Mapping[str, Any]]) -> None:
        """Emit `prompt:complete`, unless the host does, or only this module listens."""
        if self._by_host or hooks.handlers(PROMPT_COMPLETE, besides=_NAME) == 0:
            return
        self._telling = self._told = True
        try:
            await hooks.emit(PROMPT_COMPLETE, payload)
        finally:
            self._telling = False

    def listen(self, hooks: Any) -> None:
        """Register before the session's other hooks."""
        hooks.register(PROMPT_COMPLETE, self._hear, priority=_EARLY, name=_NAME)

    async def _hear(self, _event: str, _data: dict[str, Any]) -> HookResult:
        if self._told and not self._telling:
            return HookResult(action="deny", reason=_REASON)
        return HookResult()
