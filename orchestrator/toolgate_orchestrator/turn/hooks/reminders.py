"""Where the ephemeral injections of hooks go: into one request only, or into the conversation.

`tail`: behind the messages of one request; in the next one they stand elsewhere, or nowhere, so that a
prompt cache ends before them. `persist`: stored as one message, once for each new wording, so that every
request begins with all of the last one. `pre_user`: the first request of a turn has them before the user's
prompt, so that the prompt is the last word.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:  # whoever only reads a loop's config does without the kernel
    from toolgate_orchestrator.turn.hooks.injections import Injections

InjectionMode = Literal["tail", "persist"]
Placement = Literal["tail", "pre_user"]

_BEGIN: Final = "<system-reminder>"
"""By this very beginning hosts tell what is stored as the user's message from what the user said."""
_HEAD: Final = "The session says this of itself. It is not from the user, and asks for nothing."


@dataclass(frozen=True, slots=True)
class ReminderPolicy:
    """How one loop treats them."""

    mode: InjectionMode = "tail"
    placement: Placement = "tail"

    def precedes_prompt(self, iteration: int) -> bool:
        """Whether those of this request come before the user's prompt."""
        return self.placement == "pre_user" and iteration == 1

    async def persist(
        self, injections: "Injections", context: Any, messages: Sequence[Mapping[str, Any]], iteration: int
    ) -> bool:
        """Store what hooks inject, where that is the mode; whether the conversation is another now.

        What the latest reminder among `messages` says already is not said again.
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
    """The latest stored reminder that a request would hold."""
    for message in reversed(messages):
        if "reminder_placement" in (message.get("metadata") or {}):
            return message.get("content")
    return None
