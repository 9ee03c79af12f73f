"""One request to the LLM: built from the context, announced, sent, its answer announced.

`Llm` is the provider of one turn. A provider's exception becomes provider:error and `LlmFailed`;
what becomes of that is the loop's affair. It stores nothing in the context.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from amplifier_core.events import PROVIDER_ERROR, PROVIDER_REQUEST, PROVIDER_RESPONSE
from pydantic import BaseModel

from toolgate_orchestrator.turn.consult import Hooks
from toolgate_orchestrator.turn.interruption import being_cancelled
from toolgate_orchestrator.turn.jsonable import jsonable
from toolgate_orchestrator.turn.messages import chat_request, text_of, tool_specs
from toolgate_orchestrator.turn.provider_choice import model_of
from toolgate_orchestrator.turn.tool_call import Note

__all__ = ["Llm", "LlmFailed", "RequestDenied"]


class LlmFailed(Exception):  # noqa: N818 - control flow inside the turn engine, caught by it
    """The provider could not answer; the text is fit for the user."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"The language model could not answer: {type(error).__name__}: {error}")
        self.error = error


class RequestDenied(Exception):  # noqa: N818 - as above
    """A hook on provider:request said no."""


class Llm:
    """The provider that answers one turn, and what it has used so far."""

    def __init__(
        self,
        name: str,
        provider: Any,
        context: Any,
        hooks: Hooks,
        *,
        thinking: bool = False,
        note: Note | None = None,
    ) -> None:
        self.name = name
        self.provider = provider
        self.iterations = 0
        """Requests sent in this turn."""
        self.tokens = 0
        self._context = context
        self._hooks = hooks
        self._options: dict[str, Any] = {"extended_thinking": True} if thinking else {}
        self._note = note

    async def ask(self, tools: Mapping[str, Any]) -> tuple[Any, list[Any]]:
        """The response to the conversation and its raw tool calls; raises LlmFailed, RequestDenied."""
        self.iterations += 1
        messages = await self._messages()
        consulted = await self._hooks.consult(PROVIDER_REQUEST, lambda: self._announced(messages, tools))
        if consulted.denied is not None:
            raise RequestDenied(consulted.denied)
        if self._hooks.injections.held:
            await self._hooks.injections.store(self._context, self._hooks.coordinator)
            messages = await self._messages()
        request = chat_request(self._hooks.injections.into(messages), tool_specs(tools))
        try:
            response = await self._complete(request)
            calls = self._calls_of(response)
        except Exception as error:
            await self._failed(error)
            raise LlmFailed(error) from error
        await self._answered(response, bool(calls))
        return response, calls

    async def _complete(self, request: Any) -> Any:
        try:
            return await self.provider.complete(request, **self._options)
        except asyncio.CancelledError:
            if being_cancelled():
                raise
            raise RuntimeError("the provider cancelled its own request") from None

    def _calls_of(self, response: Any) -> list[Any]:
        """The raw tool calls of a response: as the provider parses them, else as they lie in it."""
        parse = getattr(self.provider, "parse_tool_calls", None)
        parsed = parse(response) if callable(parse) else None
        if isinstance(parsed, list | tuple) and parsed:
            return list(parsed)
        listed = getattr(response, "tool_calls", None)
        return list(listed) if isinstance(listed, list | tuple) else []

    async def _messages(self) -> list[dict[str, Any]]:
        return list(await self._context.get_messages_for_request(provider=self.provider))

    def _announced(self, messages: list[dict[str, Any]], tools: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "provider": self.name,
            "model": model_of(self.provider),
            "iteration": self.iterations,
            "messages": messages,
            "message_count": len(messages),
            "tools": list(tools),
        }

    async def _answered(self, response: Any, calls: bool) -> None:
        usage = usage_of(response)
        self.tokens += _count(usage, "total_tokens")
        if self._note is not None and usage:
            self._note("usage", {"provider": self.name, "iteration": self.iterations, **usage})
        await self._hooks.consult(PROVIDER_RESPONSE, lambda: self._told(response, usage, calls))

    def _told(self, response: Any, usage: dict[str, Any] | None, calls: bool) -> dict[str, Any]:
        return {
            "provider": self.name,
            "model": model_of(self.provider),
            "iteration": self.iterations,
            "response": response if isinstance(response, BaseModel) else {"content": text_of(response)},
            "usage": usage,
            "tool_calls": calls,
        }

    async def _failed(self, error: Exception) -> None:
        retryable = getattr(error, "retryable", False)
        await self._hooks.consult(
            PROVIDER_ERROR,
            {
                "provider": self.name,
                "model": model_of(self.provider),
                "iteration": self.iterations,
                "error": {"type": type(error).__name__, "msg": str(error)},
                "retryable": retryable is True,
                "status_code": getattr(error, "status_code", None),
            },
        )


def usage_of(response: Any) -> dict[str, Any] | None:
    """The usage of a response as exact JSON; None where the provider tells none."""
    usage = getattr(response, "usage", None)
    if isinstance(usage, BaseModel | Mapping):
        told: dict[str, Any] = jsonable(usage)
        return told
    return None


def _count(usage: dict[str, Any] | None, field: str) -> int:
    value = (usage or {}).get(field)
    return value if isinstance(value, int) else 0
