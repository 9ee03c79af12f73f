"""Injections of hooks into the conversation: for the next request only, or to be stored.

An ephemeral injection appears only in the next LLM request. It stands behind everything that will be sent
again and is marked `metadata.ephemeral`, so that a provider's prompt cache ends before it. A stored injection
waits until every tool call of the current assistant message has its result: providers refuse a message
between a call and its result. It is stored through the kernel, which limits, audits and marks it. Providers
send system messages before all others, so behind thinking, which is bound to what stands before it, one is
stored as a reminder of the user's role.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from amplifier_core import HookResult
from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.turn.hooks.reminders import thinks, wrap

logger = logging.getLogger(__name__)


LOOP_NOTE: Final = "loop_note"
"""Metadata of a note of the loop's own: its kind."""
_SYSTEM: Final = "system"


@dataclass(frozen=True, slots=True)
class Injection:
    """One text of one hook for the LLM."""

    content: str
    role: str = "system"
    ephemeral: bool = False
    append_to_last_tool_result: bool = False
    hook_name: str = "hook"
    event: str = ""


def ephemeral_message(role: str, content: Any) -> dict[str, Any]:
    """Return a message for one request only, marked as such for the provider."""
    return {"role": role, "content": content, "metadata": {"ephemeral": True}}


def ephemeral_note(note: Mapping[str, Any]) -> dict[str, Any]:
    """Return a note of the loop's own as a message for one request only."""
    message = ephemeral_message(note["role"], note["content"])
    message["metadata"][LOOP_NOTE] = note.get("kind", note["role"])
    return message


@dataclass(slots=True)
class Injections:
    """Injections of one turn that are not used yet."""

    keeps_seen: bool = True
    """True if what an LLM that thinks has seen must stay as it was."""
    _next_request: list[Injection] = field(default_factory=list)
    _to_store: list[Injection] = field(default_factory=list)

    def take(self, result: HookResult, event: str) -> None:
        """Keep the injections of a hook's answer: the full list if there is one, else the single fields."""
        listed = getattr(result, "context_injections", None)
        found = []
        if isinstance(listed, list) and listed:
            for item in listed:
                behind = item.append_to_last_tool_result
                one = Injection(item.content, item.role, item.ephemeral, behind, item.hook_name, event)
                found += [one] if item.content else []
        elif result.context_injection:
            text, role = result.context_injection, result.context_injection_role
            behind = result.append_to_last_tool_result
            found = [Injection(text, role, result.ephemeral, behind, event=event)]
        for injection in found:
            (self._next_request if injection.ephemeral else self._to_store).append(injection)

    def remind(self, text: str) -> None:
        """Add a reminder of the orchestrator's own to the next request."""
        self._next_request.append(Injection(text, role="user", ephemeral=True))

    @property
    def has_pending(self) -> bool:
        """True if an injection waits to be stored."""
        return bool(self._to_store)

    def into(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return a copy of a request's messages with the ephemeral injections, and use these up."""
        return self.overlay().lay_over(messages)

    def overlay(self, *, before_prompt: bool = False, notes: Sequence[dict[str, Any]] = ()) -> "Overlay":
        """Return the ephemeral injections and the loop's notes for one request, and use the former up."""
        used, self._next_request = self._next_request, []
        return Overlay(used, before_prompt, notes)

    def take_reminders(self) -> list[str]:
        """Return the texts that hooks meant for the next request, and use them up."""
        taken = [one.content for one in self._next_request if one.event]
        self._next_request = [one for one in self._next_request if not one.event]
        return taken

    def take_all(self) -> list[Injection]:
        """Return the injections for the next request, and use them up."""
        taken, self._next_request = self._next_request, []
        return taken

    def take_own_reminders(self) -> list[str]:
        """Return the orchestrator's own reminders for the next request, and use them up."""
        taken = [one.content for one in self._next_request if not one.event]
        self._next_request = [one for one in self._next_request if one.event]
        return taken

    async def store(self, context: Any, coordinator: Any | None) -> None:
        """Write the waiting injections into the context, in their order."""
        held, self._to_store = self._to_store, []
        is_bound = self.keeps_seen and any(one.role == _SYSTEM for one in held)
        if is_bound and thinks(await context.get_messages()):
            held = [_as_reminder(one) if one.role == _SYSTEM else one for one in held]
        for injection in held:
            try:
                if coordinator is None:
                    await context.add_message({"role": injection.role, "content": injection.content})
                    continue
                text, role = injection.content, injection.role
                given = HookResult(
                    action="inject_context", context_injection=text, context_injection_role=role
                )
                await coordinator.process_hook_result(given, injection.event, injection.hook_name)
            except Exception as error:  # noqa: BLE001 - such as one that is too large; the turn goes on
                logger.warning("injection of hook %s was not stored: %s", injection.hook_name, where(error))


def _as_reminder(injection: Injection) -> Injection:
    return replace(injection, role="user", content=wrap(injection.content))


@dataclass(frozen=True, slots=True)
class Overlay:
    """What one request has beside the stored conversation."""

    _used: Sequence[Injection]
    _before_prompt: bool
    _notes: Sequence[dict[str, Any]]

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to add."""
        return not self._used and not self._notes

    def lay_over(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return a copy of any view of the messages, with the additions."""
        sent = list(messages)
        last_word = sent.pop() if self._before_prompt and sent and sent[-1].get("role") == "user" else None
        for injection in self._used:
            text = injection.content
            if injection.append_to_last_tool_result and sent and sent[-1].get("role") == "tool":
                content = sent[-1].get("content", "")
                blocks = [*content, {"type": "text", "text": text}] if isinstance(content, list) else None
                sent[-1] = {**sent[-1], "content": f"{content}\n\n{text}" if blocks is None else blocks}
            else:
                sent.append(ephemeral_message(injection.role, text))
        return [*sent, *([] if last_word is None else [last_word]), *self._notes]

    async def store(self, context: Any, marks: Mapping[str, Any]) -> None:
        """Store the additions where they stood in the request. The new messages get these marks."""
        stored = list(await context.get_messages())
        laid, known = self.lay_over(stored), set(map(id, stored))
        added = [one if id(one) in known or one.get("role") == "tool" else _mark(one, marks) for one in laid]
        begins = len(laid) >= len(stored) and all(one is old for one, old in zip(laid, stored, strict=False))
        if begins or not callable(getattr(context, "set_messages", None)):
            for message in added[len(stored) :]:
                await context.add_message(message)
            return
        await context.set_messages(added)


def _mark(message: dict[str, Any], marks: Mapping[str, Any]) -> dict[str, Any]:
    own = message.get("metadata", {})
    return {**message, "metadata": {**own, **(marks if LOOP_NOTE not in own else {}), "persisted": True}}
