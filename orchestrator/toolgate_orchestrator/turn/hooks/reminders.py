"""Places the ephemeral injections of hooks: in one request only, or in the conversation.

`tail`: behind the messages of one request. The next request has them elsewhere or not at all, so a prompt
cache ends before them, and a server that holds thinking to the exact conversation refuses it. `persist`:
stored as one message, once for each new wording, so that each request begins with all of the last one.
`auto`: `persist` as soon as the LLM thinks, else `tail`. Then also what the loop itself adds to a request
stays. `pre_user`: the first request of a turn has them before the user's prompt, so that the prompt comes
last.

    hooks' injections, the loop's notes ─▶ stored, and sent from then on          (persist; the LLM thinks)
                                        └▶ laid over one request ─▶ an answer with thinking: stored as sent
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:  # a program that only reads a loop's config needs no kernel
    from toolgate_orchestrator.turn.hooks.injections import Injections, Overlay

InjectionMode = Literal["auto", "tail", "persist"]
Placement = Literal["tail", "pre_user"]

_BEGIN: Final = "<system-reminders>"
"""Beginning of reminders. Hosts recognise by it that a stored user message is not the user's own."""
_END: Final = "</system-reminders>"
_BEFORE: Final = (
    "The session says this of itself. It is not from the user, and asks for nothing. "
    "The user's request is the message that follows."
)
_BEHIND: Final = (
    "The session says this of itself. It is not from the user, and asks for nothing. "
    "The user's request stands before it."
)
_THINKING: Final = frozenset(("thinking", "redacted_thinking"))
_PLACED: Final = "reminder_placement"
_NOTE: Final = "loop_note"


def wrap(body: str, header: str = "") -> str:
    """Return reminders in their envelope."""
    return f"{_BEGIN}\n{header}\n\n{body}\n{_END}" if header else f"{_BEGIN}\n{body}\n{_END}"


def thinks(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a conversation holds thinking, which a server may hold to what stands before it."""
    return any(
        message.get("role") == "assistant"
        and (message.get("thinking_block") is not None or holds_thinking(message.get("content")))
        for message in messages
    )


def holds_thinking(content: Any) -> bool:
    """Return whether the content of a message has a block of thinking."""
    if not isinstance(content, list | tuple):
        return False
    return any(
        (block.get("type") if isinstance(block, Mapping) else getattr(block, "type", None)) in _THINKING
        for block in content
    )


@dataclass(slots=True)
class ReminderPolicy:
    """Treatment of ephemeral injections in one turn of a loop."""

    mode: InjectionMode = "auto"
    placement: Placement = "tail"
    expects_thinking: bool = False
    """True if the LLM is asked to think."""
    required: list[str] = field(default_factory=list)
    """Contents of the stored reminders that the present request must have."""
    _has_header: bool = False
    """True if the turn has an envelope with the explanation; the others go without."""

    def precedes_prompt(self, iteration: int) -> bool:
        """Return whether the injections of this request come before the user's prompt."""
        return self.placement == "pre_user" and iteration == 1

    def must_stay(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether all that the LLM has seen must stay as it was, as it thinks."""
        return self.mode != "tail" and (self.expects_thinking or thinks(messages))

    async def persist(
        self,
        injections: "Injections",
        context: Any,
        messages: Sequence[Mapping[str, Any]],
        iteration: int,
        notes: Sequence[Mapping[str, Any]] = (),
        *,
        stays: bool,
    ) -> bool:
        """Store the injections of hooks if they are to be; return whether the conversation has changed.

        If `stays`, all that the loop adds to this request is stored as well: its own reminders, and `notes`.
        A text that the latest reminder among `messages` has already is not stored again.
        """
        self.required = []
        if self.mode != "persist" and not stays:
            return False
        said = "\n\n".join(injections.take_reminders())
        changed = bool(said) and await self._store(said, context, messages, iteration)
        for own in injections.take_own_reminders() if stays else ():
            await self._add(wrap(own), context)
            changed = True
        for note in notes if stays else ():
            changed = await self._store_note(note, context, messages) or changed
        return changed

    async def _store(
        self, said: str, context: Any, messages: Sequence[Mapping[str, Any]], iteration: int
    ) -> bool:
        latest = next((one for one in reversed(messages) if _PLACED in _marks(one)), None)
        if latest is not None and _body_of(latest.get("content")) == said:
            self.required.append(str(latest.get("content")))
            return False
        header = "" if self._has_header else _BEFORE if self.precedes_prompt(iteration) else _BEHIND
        self._has_header = True
        text = wrap(said, header)
        self.required.append(text)
        await self._add(text, context, **{_PLACED: self.placement})
        return True

    async def _store_note(
        self, note: Mapping[str, Any], context: Any, messages: Sequence[Mapping[str, Any]]
    ) -> bool:
        kind = note.get("kind", note["role"])
        # The session's own words stand in an envelope; data of tools and users do not.
        text = wrap(note["content"]) if note["role"] == "system" else note["content"]
        latest = next((one for one in reversed(messages) if _marks(one).get(_NOTE) == kind), None)
        if latest is not None and latest.get("content") in (text, note["content"]):
            return False
        await self._add(text, context, **{_NOTE: kind})
        return True

    @staticmethod
    async def _add(text: str, context: Any, **marks: Any) -> None:
        metadata = {"ephemeral": True, "persisted": True, **marks}
        await context.add_message({"role": "user", "content": text, "metadata": metadata})

    async def keep(self, overlay: "Overlay", context: Any, content: Any) -> None:
        """Store what was laid over a request as it was sent, if the answer with this content has thinking."""
        if self.mode == "tail" or overlay.is_empty or not holds_thinking(content):
            return
        await overlay.store(context, {_PLACED: self.placement})


def _marks(message: Mapping[str, Any]) -> Mapping[str, Any]:
    marks = message.get("metadata")
    return marks if isinstance(marks, Mapping) else {}


def _body_of(content: Any) -> str:
    """Return the reminders in an envelope, without its explanation."""
    text = content if isinstance(content, str) else ""
    body = text.removeprefix(f"{_BEGIN}\n").removesuffix(f"\n{_END}")
    for header in (_BEFORE, _BEHIND):
        body = body.removeprefix(f"{header}\n\n")
    return body
