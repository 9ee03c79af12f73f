"""An LLM that works by its script and judges by its verdicts, and what is told of a goal."""

from collections.abc import Sequence
from typing import Any

from amplifier_core import HookResult

__all__ = ["judging", "progress_of", "set_goal"]

JUDGES = {
    "You judge whether a goal": "reached",
    "You judge whether work": "stuck",
    "Write one line": "summary",
}


def judging(llm: Any, script: Sequence[Any], verdicts: Sequence[Any], stuck: Sequence[Any] = ()) -> Any:
    """An LLM that works by its script, and as the judge says these verdicts."""

    class Judging(llm):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(*script)
            self.left = {"reached": list(verdicts), "stuck": list(stuck), "summary": ["tests stay red"]}
            self.judged: list[tuple[str, Any, dict[str, Any]]] = []

        async def complete(self, request: Any, **options: Any) -> Any:
            asked = next((what for begin, what in JUDGES.items() if self._begins(request, begin)), None)
            if asked is None:
                return await super().complete(request, **options)
            self.judged.append((asked, request, options))
            said = self.left[asked].pop(0)
            if isinstance(said, BaseException):
                raise said
            self.answers.insert(0, [{"type": "text.delta", "text": said}])
            return await super().complete(request, **options)

        @staticmethod
        def _begins(request: Any, begin: str) -> bool:
            return str(request.messages[0].content).startswith(begin)

    return Judging()


def set_goal(a: Any, **more: Any) -> None:
    a.session.coordinator.session_state["goal"] = {
        "condition": "the tests pass",
        "turns_used": 0,
        "last_reason": None,
        "cap": None,
        **more,
    }


def progress_of(a: Any) -> list[dict[str, Any]]:
    heard: list[dict[str, Any]] = []

    async def hear(event: str, data: dict[str, Any]) -> HookResult:
        heard.append(data)
        return HookResult()

    a.hooks.register("orchestrator:goal_progress", hear, name="test")
    return heard
