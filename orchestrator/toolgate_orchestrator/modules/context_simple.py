"""`context-simple`: keeps the conversation in memory and fits each request into the model's window.

The stored history stays unchanged, with the time of each message in `metadata.timestamp`. A request that
does not fit is compacted to half of the room (`compaction`). The next ones begin with what was sent then, as
long as they fit: prompt caches need that, and thoughts that servers hold to what stands before them. With
`keep_history: false` a compacted request replaces the history. A host's factory of system prompts is asked
for each request: its prompt stands before the conversation, in place of all stored system messages except
those of hooks.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

from amplifier_core.events import CONTEXT_COMPACTION, CONTEXT_POST_COMPACT, CONTEXT_PRE_COMPACT
from pydantic import Field
from toolgate_bus.config.check import StrictModel, check

from toolgate_orchestrator.modules.compaction import (
    compact,
    drop_loose_thoughts,
    drop_thought,
    estimate_tokens,
)
from toolgate_orchestrator.turn.hooks.dispatch import Emitter
from toolgate_orchestrator.turn.hooks.reminders import thinks

__amplifier_module_type__ = "context"

logger = logging.getLogger(__name__)

PromptFactory = Callable[[], Awaitable[str]]
"""Function that makes the system prompt of one request."""

_FALLBACK_TOKENS = 100_000
_MARGIN_TOKENS = 1_000


class ContextConfig(StrictModel):
    """Configuration of `context-simple`."""

    max_tokens: Annotated[int, Field(ge=100)] | None = None
    """Largest request in tokens. Default: the model's window, or 100 000 if it is not known."""
    compact_threshold: Annotated[float, Field(gt=0, le=1)] = 0.92
    """Share of the budget that a request may take, as tokens are only estimated."""
    auto_compact: bool = True
    keep_history: bool = True
    """False to replace the stored history, too, when a request is compacted."""


config_model = ContextConfig


@dataclass(slots=True)
class CompactedView:
    """What was sent of the beginning of the conversation."""

    messages: list[dict[str, Any]]
    count: int
    """Number of stored messages for which they stand."""
    loose: dict[str, Any] | None
    """The one among them whose thought goes with the next answer."""

    def continue_with(self, stored: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the conversation that begins so; `stored` is all of it."""
        later = stored[self.count :]
        if self.loose is not None and any(one.get("role") == "assistant" for one in later):
            self.messages = [drop_thought(one) if one is self.loose else one for one in self.messages]
            self.loose = None
        return deepcopy([*self.messages, *later])


class ContextSimple:
    """The kernel's ContextManager protocol, in memory."""

    def __init__(self, config: Mapping[str, Any] | ContextConfig | None = None, hooks: Any = None) -> None:
        given = config if isinstance(config, ContextConfig) else None
        self.config = given or check(ContextConfig, config or {}, "context-simple")
        self._emitter = Emitter(hooks) if hooks is not None else None
        self._messages: list[dict[str, Any]] = []
        self._view: CompactedView | None = None
        self._system_prompt_factory: PromptFactory | None = None  # hooks wrap it under this name

    async def add_message(self, message: dict[str, Any]) -> None:
        """Append one message, with the present time unless it has one; it must have a role."""
        if not isinstance(message.get("role"), str):
            raise ValueError("a message needs a role: system, developer, user, assistant or tool")
        self._messages.append(_stamp(message))

    async def set_system_prompt_factory(self, factory: PromptFactory | None) -> None:
        """Ask this factory for the system prompt of each request from now on; None ends that."""
        self._system_prompt_factory, self._view = factory, None

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any | None = None
    ) -> list[dict[str, Any]]:
        """Return the messages of the next request, compacted if they would not fit."""
        budget = int(
            budget_of(token_budget, provider, self.config.max_tokens) * self.config.compact_threshold
        )
        factory = self._system_prompt_factory
        prompt = None if factory is None else _read_prompt(await factory())
        messages = _with_prompt(deepcopy(self._messages), prompt)
        fits = not self.config.auto_compact or estimate_tokens(messages) <= budget
        if (view := self._view) is not None:
            begun = _with_prompt(view.continue_with(self._messages), prompt)
            if estimate_tokens(begun) <= budget and (not fits or thinks(begun)):
                messages, fits = begun, True
        if not fits:
            messages, loose = await self._compact_messages(messages, budget)
            sent = messages[1:] if prompt else messages
            self._view = CompactedView(sent, len(self._messages), loose)
            messages = deepcopy(messages)
        return list(map(without_timestamp, messages))

    async def get_messages(self) -> list[dict[str, Any]]:
        """Return the stored history, unchanged."""
        return deepcopy(self._messages)

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        """Replace the history (a session is resumed)."""
        self._messages, self._view = deepcopy(list(messages)), None

    async def clear(self) -> None:
        """Forget everything."""
        self._messages, self._view = [], None

    async def _compact_messages(
        self, messages: list[dict[str, Any]], budget: int
    ) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        before = _counts(messages)
        await self._emit(CONTEXT_PRE_COMPACT, {**before, "budget": budget})
        sent, loose = drop_loose_thoughts(messages, compact(messages, budget, budget // 2))
        if not self.config.keep_history:
            self._messages = deepcopy([drop_thought(one) if one is loose else one for one in sent])
        after = _counts(sent)
        told = {
            **after,
            "budget": budget,
            "before": before,
            "after": after,
            "removed": before["message_count"] - after["message_count"],
        }
        await self._emit(CONTEXT_POST_COMPACT, told)
        await self._emit(CONTEXT_COMPACTION, told)
        logger.info("compacted %s to %s messages", before["message_count"], after["message_count"])
        return sent, loose

    async def _emit(self, event: str, payload: dict[str, Any]) -> None:
        if self._emitter is not None:
            await self._emitter.emit(event, payload)


def budget_of(token_budget: int | None, provider: Any | None, max_tokens: int | None) -> int:
    """Return the tokens that a request may take: as asked, else the model's room, else as configured."""
    if token_budget is not None:
        return max(0, token_budget)
    window = _window(provider)
    known = [limit for limit in (window, max_tokens) if limit is not None]
    return min(known, default=_FALLBACK_TOKENS)


def _window(provider: Any | None) -> int | None:
    """Return the model's window less its longest answer and a margin; None if the provider does not tell
    it."""
    get_info = getattr(provider, "get_info", None)
    try:
        info = get_info() if callable(get_info) else None
    except Exception as error:  # noqa: BLE001 - a provider's fault; the fallback serves
        logger.debug("the provider gives no information about itself: %s", error)
        return None
    defaults = getattr(info, "defaults", None)
    if not isinstance(defaults, Mapping):
        return None
    window, answer = defaults.get("context_window"), defaults.get("max_output_tokens", 0)
    if not isinstance(window, int) or not isinstance(answer, int) or window <= answer + _MARGIN_TOKENS:
        return None
    return window - answer - _MARGIN_TOKENS


def _stamp(message: dict[str, Any]) -> dict[str, Any]:
    metadata = message.get("metadata")
    known = metadata if isinstance(metadata, Mapping) else {}
    if "timestamp" in known:
        return message
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {**message, "metadata": {**known, "timestamp": now}}


def without_timestamp(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message in the form to send: the LLM gets no time of storage."""
    metadata = message.get("metadata")
    if not isinstance(metadata, dict) or "timestamp" not in metadata:
        return message
    left = {key: value for key, value in metadata.items() if key != "timestamp"}
    rest = {key: value for key, value in message.items() if key != "metadata"}
    return {**rest, "metadata": left} if left else rest


def _read_prompt(prompt: Any) -> str:
    if not isinstance(prompt, str):
        raise ValueError(f"the factory of system prompts gave {type(prompt).__name__} instead of a text")
    return prompt


def _with_prompt(messages: list[dict[str, Any]], prompt: str | None) -> list[dict[str, Any]]:
    """Return the conversation after a fresh system prompt; of stored system messages only those of hooks
    stay. None: there is no such prompt."""
    if prompt is None:
        return messages
    kept = [each for each in messages if each.get("role") != "system" or _is_hooks(each)]
    return [{"role": "system", "content": prompt}, *kept] if prompt else kept


def _is_hooks(message: Mapping[str, Any]) -> bool:
    metadata = message.get("metadata")
    return isinstance(metadata, Mapping) and metadata.get("source") == "hook"


def _counts(messages: Sequence[dict[str, Any]]) -> dict[str, int]:
    return {"message_count": len(messages), "tokens": estimate_tokens(messages)}


async def mount(
    coordinator: Any, config: Mapping[str, Any] | None = None
) -> Callable[[], Awaitable[None]] | None:
    """Mount `context-simple` into a session (entry point `amplifier.modules`)."""
    hooks = getattr(coordinator, "hooks", None)
    await coordinator.mount("context", ContextSimple(config, hooks))
    return None
