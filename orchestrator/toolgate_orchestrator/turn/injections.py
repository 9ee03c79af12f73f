"""What hooks inject into the conversation: for the next request only, or to be stored.

An ephemeral injection appears in the next LLM request and nowhere else. A stored one is held until
every tool call of the current assistant message has its result: providers refuse a message between
a call and its result. Storing goes through the kernel, which limits, audits and marks it.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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


class Injections:
    """What one turn has been given and has not used yet."""

    def __init__(self) -> None:
        self._next_request: list[Injection] = []
        self._to_store: list[Injection] = []

    def take(self, result: HookResult, event: str) -> None:
        """Keep what a hook's answer injects."""
        for injection in read_injections(result, event):
            (self._next_request if injection.ephemeral else self._to_store).append(injection)

    def remind(self, text: str) -> None:
        """Add a reminder of the orchestrator's own to the next request."""
        self._next_request.append(Injection(text, role="user", ephemeral=True))

    @property
    def has_pending(self) -> bool:
        """Whether something waits to be stored."""
        return bool(self._to_store)

    def into(self, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages of a request with the ephemeral injections; they are used up."""
        used, self._next_request = self._next_request, []
        return with_injections(messages, used)

    async def store(self, context: Any, coordinator: Any | None) -> None:
        """Write the held ones into the context, in the order in which they came."""
        held, self._to_store = self._to_store, []
        for injection in held:
            try:
                await _store(injection, context, coordinator)
            except Exception as error:  # noqa: BLE001 - too large for the session's limit, say; the turn goes on
                logger.warning("injection of hook %s was not stored: %s", injection.hook_name, where(error))


def read_injections(result: HookResult, event: str) -> list[Injection]:
    """The injections of one answer: the lossless list if there is one, else the single fields."""
    listed = getattr(result, "context_injections", None)
    if isinstance(listed, list) and listed:
        return [
            Injection(
                item.content,
                item.role,
                item.ephemeral,
                item.append_to_last_tool_result,
                item.hook_name,
                event,
            )
            for item in listed
            if item.content
        ]
    if not result.context_injection:
        return []
    return [
        Injection(
            result.context_injection,
            result.context_injection_role,
            result.ephemeral,
            result.append_to_last_tool_result,
            event=event,
        )
    ]


def with_injections(
    messages: Sequence[dict[str, Any]], injections: Iterable[Injection]
) -> list[dict[str, Any]]:
    """A copy of the messages with the injections; the given ones are not touched."""
    result = list(messages)
    for injection in injections:
        text = injection.content
        if injection.append_to_last_tool_result and result and result[-1].get("role") == "tool":
            content = result[-1].get("content", "")
            blocks = [*content, {"type": "text", "text": text}] if isinstance(content, list) else None
            result[-1] = {**result[-1], "content": f"{content}\n\n{text}" if blocks is None else blocks}
        else:
            result.append({"role": injection.role, "content": text})
    return result


async def _store(injection: Injection, context: Any, coordinator: Any | None) -> None:
    if coordinator is None:
        await context.add_message({"role": injection.role, "content": injection.content})
        return
    result = HookResult(
        action="inject_context",
        context_injection=injection.content,
        context_injection_role=injection.role,
    )
    await coordinator.process_hook_result(result, injection.event, injection.hook_name)
