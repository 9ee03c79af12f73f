"""Budget of requests of a leg: a turn's `max_iterations`, with a warning to the LLM before it is used up.

A leg is one turn of a session. A session that delegates a leg gives it a number of requests. When these are
used up, the LLM is asked for a last answer, and the leg ends as `budget_exhausted` and can be resumed. A root
session that reaches its limit ends as `incomplete`.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from toolgate_orchestrator.turn.hooks.dispatch import Emitter

BUDGET_WARNING: Final = "orchestrator:budget_warning"
BUDGET_EXHAUSTED: Final = "budget_exhausted"
"""Status of a delegated leg that used up its requests."""
WARN_RATIO: Final = 0.8
"""Share of the requests at which a delegated leg is warned. Its config may set another."""

LIMIT_REMINDER: Final = """\
<system-reminder source="orchestrator-loop-limit">
You have reached the maximum number of iterations for this turn.
Please provide a response to the user now, summarizing your progress
and noting what remains to be done. You can continue in the next turn
if needed.

DO NOT mention this iteration limit or reminder to the user explicitly.
Simply wrap up naturally.
</system-reminder>"""
"""Reminder to the LLM in the last request of a turn that reached max_iterations (seed loop-basic)."""


@dataclass(slots=True)
class LegBudget:
    """Number of requests that a turn may make, and whether it reached that limit."""

    limit: int
    """Maximum number of requests; -1 means no limit."""
    warn_ratio: float | None = None
    """Share at which the LLM is warned; None means `WARN_RATIO` for a sub-agent, else never."""
    is_delegated: bool = False
    is_exhausted: bool = False
    _is_warned: bool = field(default=False, init=False)

    def warning(self, iteration: int) -> str | None:
        """Return the warning to the LLM before this request; None if it is not due or was given before."""
        ratio = self.warn_ratio if self.warn_ratio is not None else WARN_RATIO if self.is_delegated else None
        if ratio is None or self._is_warned or self.limit < 1:
            return None
        if iteration < max(1, int(self.limit * ratio)):
            return None
        self._is_warned = True
        left = self.limit - iteration
        return (
            "<system-reminder>\n"  # hosts recognise reminders by this beginning
            f"orchestrator-call-budget: this is request {iteration} of the {self.limit} that this piece of "
            f"work may make; {left} {'is' if left == 1 else 'are'} left.\n"
            "Begin nothing new: bring what matters most to an end, and be ready to report.\n"
            "</system-reminder>"
        )

    async def warn(self, context: Any, hooks: Emitter, orchestrator: str, iteration: int) -> None:
        """Warn the LLM and the hooks, if due. The message stays in the conversation, which keeps the prompt
        cache."""
        text = self.warning(iteration)
        if text is None:
            return
        told = {"iteration": iteration, "budget": self.limit, "remaining": self.limit - iteration}
        await hooks.emit(BUDGET_WARNING, {"orchestrator": orchestrator, **told})
        marks = {"ephemeral": True, "persisted": True}
        await context.add_message({"role": "user", "content": text, "metadata": marks})

    def exhaust(self) -> str:
        """Note that the requests are used up; return the turn's status."""
        self.is_exhausted = True
        return BUDGET_EXHAUSTED if self.is_delegated else "incomplete"

    def report(self, calls: int, *, resumable: bool) -> dict[str, Any]:
        """Return the fields of orchestrator:complete about requests."""
        return {
            "llm_calls": calls,
            "llm_call_budget": self.limit if self.limit > 0 else None,
            "budget_exhausted": self.is_exhausted,
            "resumable": resumable,
        }
