"""What hooks inject into the conversation: for the next request only, or to be stored.

An ephemeral injection appears in the next LLM request and nowhere else: behind everything that will be
sent again, and marked `metadata.ephemeral`, so that a provider's prompt cache ends before it. A stored
one is held until every tool call of the current assistant message has its result: providers refuse a
message between a call and its result. Storing goes through the kernel, which limits, audits and marks it.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from amplifier_core import HookResult
from toolgate_bus.telemetry.logging import where

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Injection:
    """One text that one hook wants the LLM to read."""

    content: str
    role: str = "system"
    ephemeral: bool = False
    append_to_last_tool_result: bool = False
    hook_name: str = "hook"
    event: str = ""


def ephemeral_message(role: str, content: Any) -> dict[str, Any]:
    """A message of one request only, marked as such for the provider."""
    return {"role": role, "content": content, "metadata": {"ephemeral": True}}


@dataclass(slots=True)
class Injections:
    """What one turn has been given and has not used yet."""

    _next_request: list[Injection] = field(default_factory=list)
    _to_store: list[Injection] = field(default_factory=list)

    def take(self, result: HookResult, event: str) -> None:
        """Keep what a hook's answer injects: the lossless list if there is one, else the single fields."""
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
        """Whether something waits to be stored."""
        return bool(self._to_store)

    def into(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """A copy of a request's messages with the ephemeral injections, which are used up."""
        return self.overlay()(messages)

    def overlay(
        self, *, before_prompt: bool = False
    ) -> Callable[[Sequence[dict[str, Any]]], list[dict[str, Any]]]:
        """Lays the ephemeral injections, which are used up, over whichever view of the messages is sent."""
        used, self._next_request = self._next_request, []
        return partial(_lay_over, used, before_prompt)

    def take_reminders(self) -> list[str]:
        """The texts that hooks meant as messages of the next request, which are used up."""
        taken = [one for one in self._next_request if one.event and not one.append_to_last_tool_result]
        self._next_request = [one for one in self._next_request if one not in taken]
        return [one.content for one in taken]

    async def store(self, context: Any, coordinator: Any | None) -> None:
        """Write the held ones into the context, in the order in which they came."""
        held, self._to_store = self._to_store, []
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
            except Exception as error:  # noqa: BLE001 - too large for the session's limit, say; the turn goes on
                logger.warning("injection of hook %s was not stored: %s", injection.hook_name, where(error))


def _lay_over(
    used: Sequence[Injection], before_prompt: bool, messages: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    sent = list(messages)
    last_word = sent.pop() if before_prompt and sent and sent[-1].get("role") == "user" else None
    for injection in used:
        text = injection.content
        if injection.append_to_last_tool_result and sent and sent[-1].get("role") == "tool":
            content = sent[-1].get("content", "")
            blocks = [*content, {"type": "text", "text": text}] if isinstance(content, list) else None
            sent[-1] = {**sent[-1], "content": f"{content}\n\n{text}" if blocks is None else blocks}
        else:
            sent.append(ephemeral_message(injection.role, text))
    return sent if last_word is None else [*sent, last_word]
