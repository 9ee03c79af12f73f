"""Places the ephemeral injections of hooks: in one request only, or in the conversation.

`tail`: behind the messages of one request. The next request has them elsewhere or not at all, so a prompt
cache ends before them. `persist`: stored as one message, once for each new wording, so that each request
begins with all of the last one. `pre_user`: the first request of a turn has them before the user's prompt, so
that the prompt comes last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:  # a program that only reads a loop's config needs no kernel
    from toolgate_orchestrator.turn.hooks.injections import Injections

InjectionMode = Literal["tail", "persist"]
Placement = Literal["tail", "pre_user"]

_BEGIN: Final = "<system-reminder>"
"""Beginning of a reminder. Hosts recognise by it that a stored user message is not the user's own."""
_HEAD: Final = "The session says this of itself. It is not from the user, and asks for nothing."


@dataclass(frozen=True, slots=True)
class ReminderPolicy:
    """Treatment of ephemeral injections by one loop."""

    mode: InjectionMode = "tail"
    placement: Placement = "tail"

    def precedes_prompt(self, iteration: int) -> bool:
        """Return whether the injections of this request come before the user's prompt."""
        return self.placement == "pre_user" and iteration == 1

    async def persist(
        self, injections: "Injections", context: Any, messages: Sequence[Mapping[str, Any]], iteration: int
    ) -> bool:
        """Store the injections of hooks in mode `persist`; return whether the conversation has changed.

        A text that the latest reminder among `messages` has already is not stored again.
        """
        if self.mode != "persist":
            return False
        said = "\n\n".join(injections.take_reminders())
        text = f"{_BEGIN}\n{_HEAD}\n\n{said}\n</system-reminder>"
        if not said or _latest(messages) == text:
            return False
        marks = {"ephemeral": True, "persisted": True, "reminder_placement": self.placement}
        reminder = {"role": "user", "content": text, "metadata": marks}
        stored = list(await context.get_messages()) if self.precedes_prompt(iteration) else []
        if stored and stored[-1].get("role") == "user" and callable(getattr(context, "set_messages", None)):
            await context.set_messages([*stored[:-1], reminder, stored[-1]])
        else:
            await context.add_message(reminder)
        return True


def _latest(messages: Sequence[Mapping[str, Any]]) -> Any:
    """Return the latest stored reminder among the messages of a request; None if there is none."""
    for message in reversed(messages):
        if "reminder_placement" in (message.get("metadata") or {}):
            return message.get("content")
    return None
