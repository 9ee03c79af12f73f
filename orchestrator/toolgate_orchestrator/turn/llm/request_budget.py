"""Makes requests fit: asks a provider for a request's size before it is sent, and after it was too long.

    build ─▶ provider.request_budget ─ fits ─▶ send ─ ContextLengthError ─▶ provider.recover_context_overflow
      ▲             │ too long                                                      │ once
      └─ a smaller view of the conversation ◀───────────────────────────────────────┘

Both methods are optional. They return `estimated_input_tokens`, `input_limit_tokens`, `context_token_budget`
(room for the conversation) and perhaps `max_output_tokens`; None means unknown. Injections of hooks stay in
each view. A request that cannot be made to fit is not sent. A refused request is sent once more, and only if
no part of an answer came.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from amplifier_core import ChatRequest
from amplifier_core.llm_errors import ContextLengthError

from toolgate_orchestrator.turn.hooks.dispatch import Emitter
from toolgate_orchestrator.turn.values.jsonable import jsonable

PROVIDER_BUDGET: Final = "orchestrator:provider_budget"
"""Event: a provider measured a request, or could not."""
OVERFLOW_RECOVERY: Final = "orchestrator:provider_overflow_recovery"
"""Event: a provider refused a request as too long, and was asked for a shorter size."""
MAX_REBUILDS: Final = 2

CHARACTERS_PER_TOKEN: Final = 4
_FIELDS: Final = ("estimated_input_tokens", "input_limit_tokens", "context_token_budget")

Build = Callable[[int | None], Awaitable[ChatRequest]]
"""Makes a request with at most this many tokens of conversation; None leaves the size to the context."""


@dataclass(frozen=True, slots=True)
class RequestSize:
    """Size of one request by its provider, in tokens."""

    estimated: int
    limit: int
    context: int
    """Room for the conversation."""
    output: int | None = None
    """Longest answer; None if unknown."""

    @property
    def fits(self) -> bool:
        """True if the request can be sent."""
        return self.estimated <= self.limit


def read_size(said: Any) -> RequestSize:
    """Read a provider's answer about size. Raise ValueError if it makes no sense."""
    if not isinstance(said, Mapping):
        raise ValueError(f"it must be a mapping, not {type(said).__name__}")
    output = said.get("max_output_tokens")
    for name, value in [*((field, said.get(field)) for field in _FIELDS), ("max_output_tokens", output or 0)]:
        if type(value) is not int or value < 0:
            raise ValueError(f"{name} must be a number of tokens")
    estimated, limit, context = (said[field] for field in _FIELDS)
    return RequestSize(estimated, limit, context, output or None)


class RequestFitter:
    """Fits the requests of one turn to one provider."""

    def __init__(self, provider: Any, hooks: Emitter, options: Mapping[str, Any]) -> None:
        self._provider, self._hooks, self._options = provider, hooks, options
        self.estimated: int | None = None
        """Tokens of the latest request; None if the provider does not tell."""

    async def fit(self, build: Build) -> ChatRequest:
        """Return a request that the provider accepts, as far as it can tell. Raise ContextLengthError."""
        self.estimated, request = None, await build(None)
        measure = getattr(self._provider, "request_budget", None)
        if not callable(measure):
            return request
        before: int | None = None
        for attempt in range(MAX_REBUILDS + 1):
            said = await self._ask(measure, request)
            if said is None:
                await self._tell_unknown(attempt)
                if before is None:
                    return request
                raise ContextLengthError(
                    "the provider's budget is unavailable after reporting a concrete budget"
                )
            try:
                size = read_size(said)
            except ValueError as error:
                raise ContextLengthError(f"the provider gave an invalid budget decision: {error}") from None
            await self._tell(size, attempt)
            if size.fits:
                self.estimated = size.estimated
                request.max_output_tokens = size.output or request.max_output_tokens
                return request
            if size.context < 1:
                raise ContextLengthError(
                    "the request is too long, and cannot retain anything of the conversation"
                )
            if before is not None and size.context >= before:
                raise ContextLengthError("the request is too long, and a further rebuild would not reduce it")
            if attempt < MAX_REBUILDS:
                before, request = size.context, await build(size.context)
        raise ContextLengthError("the request is too long even after two context rebuilds")

    async def recover(self, error: Exception, request: ChatRequest, build: Build) -> ChatRequest | None:
        """Return a shorter request after a refused one; None if the provider does not help."""
        ask = getattr(self._provider, "recover_context_overflow", None)
        if not callable(ask):
            return None
        said = await self._ask(ask, request, error)
        if said is None:
            await self._hooks.emit(OVERFLOW_RECOVERY, {"result": "unavailable"})
            return None
        size = _read_recovery(said, request)
        if size is None:
            await self._hooks.emit(OVERFLOW_RECOVERY, {"result": "invalid"})
            return None
        shorter = await build(size.context)
        shorter.max_output_tokens = size.output or request.max_output_tokens
        told = {"result": "retry", "context_token_budget": size.context}
        await self._hooks.emit(OVERFLOW_RECOVERY, {**told, "max_output_tokens": shorter.max_output_tokens})
        return shorter

    async def _ask(self, method: Callable[..., Any], request: ChatRequest, *more: Any) -> Any:
        keywords: dict[str, Any] = {"context_estimate": estimate_tokens(request)}
        if _takes_options(method):
            keywords["request_options"] = dict(self._options)
        said = method(request, *more, **keywords)
        return await said if inspect.isawaitable(said) else said

    async def _tell(self, size: RequestSize, attempt: int) -> None:
        told = {"result": "fits" if size.fits else "oversized", "attempt": attempt}
        numbers = zip(_FIELDS, (size.estimated, size.limit, size.context), strict=True)
        await self._hooks.emit(PROVIDER_BUDGET, {**told, **dict(numbers), "max_output_tokens": size.output})

    async def _tell_unknown(self, attempt: int) -> None:
        mode = "post_concrete_failure" if attempt else "initial_fallback"
        told = {"result": "unavailable", "mode": mode, "reason": "no_decision", "attempt": attempt}
        await self._hooks.emit(PROVIDER_BUDGET, told)


def estimate_tokens(request: ChatRequest) -> int:
    """Return the approximate number of tokens in a request's messages."""
    told = (message.model_dump(exclude_none=True) for message in request.messages)
    return sum(len(json.dumps(jsonable(message))) for message in told) // CHARACTERS_PER_TOKEN


def _read_recovery(said: Any, request: ChatRequest) -> RequestSize | None:
    """Read a provider's advice on a request that was too long; None if it would not help."""
    try:
        size = read_size(said)
    except ValueError:
        return None
    shrinks = 0 < size.context < estimate_tokens(request) and size.estimated > size.limit > 0
    most = request.max_output_tokens
    return size if shrinks and (most is None or size.output is None or size.output <= most) else None


def _takes_options(method: Callable[..., Any]) -> bool:
    """Return whether a provider's method has a parameter `request_options`."""
    try:
        found = inspect.signature(method).parameters.get("request_options")
    except (TypeError, ValueError):
        return False
    return found is not None and found.kind in (found.KEYWORD_ONLY, found.POSITIONAL_OR_KEYWORD)
