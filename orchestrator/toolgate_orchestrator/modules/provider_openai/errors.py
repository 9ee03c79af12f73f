"""What went wrong with a server, as the kernel's error classes.

    400, 422 InvalidRequest · context too long ContextLength · content filter ContentFilter
    401 Authentication · 403 AccessDenied · 404 NotFound · 408 and time-outs LLMTimeout
    413 ContextLength · 429 RateLimit, or QuotaExceeded · 5xx ProviderUnavailable
    no connection Network · broken off or garbled in mid-stream Stream

Messages say what the server said, bounded, and without any secret. The SDK's own classes are told
by name along their bases: this file does not need the SDK.
"""

import email.utils
import math
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from amplifier_core import llm_errors

from toolgate_orchestrator.modules.provider_openai.stream import BadReply

__all__ = ["Whose", "told", "without_secrets"]

_MAX_MESSAGE = 2_000
_BY_STATUS: Mapping[int, type[llm_errors.LLMError]] = {
    401: llm_errors.AuthenticationError,
    403: llm_errors.AccessDeniedError,
    404: llm_errors.NotFoundError,
    408: llm_errors.LLMTimeoutError,
    413: llm_errors.ContextLengthError,
    429: llm_errors.RateLimitError,
}
_RETRYABLE = (408, 409, 425, 429)
_TOO_LONG = re.compile(
    r"context[ _](length|window|size)|maximum context|(prompt|input) is too long|too many (input )?tokens",
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content[ _](filter|policy)|content management policy|safety system", re.IGNORECASE)
_QUOTA = re.compile(
    r"insufficient_quota|exceeded your current quota|billing|budget has been exceeded", re.IGNORECASE
)


class Whose:
    """Whose error it is: provider, model and server as they are shown, and what must not be."""

    def __init__(self, provider: str, server: str, secrets: Sequence[str]) -> None:
        self.provider = provider
        self.server = server
        self.secrets = tuple(secrets)


def told(
    error: Exception, whose: Whose, model: str | None, *, streaming: bool = False
) -> llm_errors.LLMError:
    """The kernel's error for whatever came out of the SDK; the SDK's is freed of secrets in passing."""
    if isinstance(error, llm_errors.LLMError):
        return error
    message = _message(error, whose)
    _scrub(error, whose.secrets)
    names = {base.__name__ for base in type(error).__mro__}
    status = _status(error)
    origin: dict[str, Any] = {"provider": whose.provider, "model": model}
    if status is not None:
        return _for_status(status, message, error, origin)
    if names & {"APITimeoutError", "TimeoutError", "TimeoutException"}:
        return llm_errors.LLMTimeoutError(message, **origin)
    if isinstance(error, BadReply):
        return llm_errors.StreamError(message, retryable=error.retryable, **origin)
    if streaming:
        return _in_stream(message, error, origin)
    if names & {"APIConnectionError", "TransportError", "OSError"}:
        return llm_errors.NetworkError(message, **origin)
    return llm_errors.LLMError(message, **origin)


def without_secrets(text: str, secrets: Sequence[str]) -> str:
    """A text in which each secret is replaced."""
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    return text


def _for_status(status: int, message: str, error: Exception, origin: dict[str, Any]) -> llm_errors.LLMError:
    kind = _kind(status, message, error)
    retryable = kind is not llm_errors.QuotaExceededError and (status in _RETRYABLE or status >= 500)
    after = _retry_after(error)
    return kind(message, status_code=status, retryable=retryable, retry_after=after, **origin)


def _kind(status: int, message: str, error: Exception) -> type[llm_errors.LLMError]:
    """The class for a status; some things are told only by a code or by words."""
    said = f"{getattr(error, 'code', None)} {getattr(error, 'type', None)} {message}"
    if status == 429:
        return llm_errors.QuotaExceededError if _QUOTA.search(said) else llm_errors.RateLimitError
    if status in (400, 422) and _TOO_LONG.search(said):
        return llm_errors.ContextLengthError
    if status in (400, 422) and _FILTERED.search(said):
        return llm_errors.ContentFilterError
    if status >= 500 or status == 409:
        return llm_errors.ProviderUnavailableError
    return _BY_STATUS.get(status, llm_errors.InvalidRequestError)


def _in_stream(message: str, error: Exception, origin: dict[str, Any]) -> llm_errors.LLMError:
    """An error after the answer had begun: told by the server, or a connection that broke."""
    said = f"{getattr(error, 'code', None)} {getattr(error, 'type', None)} {message}"
    for pattern, kind in (
        (_TOO_LONG, llm_errors.ContextLengthError),
        (_FILTERED, llm_errors.ContentFilterError),
    ):
        if pattern.search(said):
            return kind(message, **origin)
    return llm_errors.StreamError(message, **origin)


def _status(error: Exception) -> int | None:
    """The HTTP status; also one that a server tells inside a stream, as an error's `code`."""
    for value in (getattr(error, "status_code", None), getattr(error, "code", None)):
        text = str(value) if value is not None else ""
        if len(text) == 3 and text.isdecimal() and int(text) >= 400:
            return int(text)
    return None


def _message(error: Exception, whose: Whose) -> str:
    """What the server said, else what happened."""
    names = {base.__name__ for base in type(error).__mro__}
    if "APITimeoutError" in names or isinstance(error, TimeoutError):
        text = f"no answer from {whose.server} in time"
    elif "APIConnectionError" in names:
        cause = error.__cause__
        text = f"the connection to {whose.server} failed" + (f": {cause}" if cause and str(cause) else "")
    else:
        text = _said(getattr(error, "body", None)) or str(error) or type(error).__name__
        if isinstance(error, ValueError):
            text = f"{whose.server} sent what is no JSON: {text}"
    return without_secrets(text, whose.secrets)[:_MAX_MESSAGE]


def _said(body: Any) -> str:
    """The message in an error's body, in the forms that servers have."""
    if isinstance(body, Mapping):
        for key in ("message", "error", "detail"):
            if body.get(key):
                return _said(body[key])
        return str(dict(body)) if body else ""
    return str(body) if body else ""


def _scrub(error: BaseException, secrets: Sequence[str]) -> None:
    """Take secrets out of the SDK's error too, which stays in the chain and in tracebacks."""
    seen: BaseException | None = error
    while seen is not None:
        if any(secret in repr((seen, getattr(seen, "body", None))) for secret in secrets):
            text = without_secrets(str(seen), secrets)
            seen.args = (text,)
            for field in ("message", "body"):
                if hasattr(seen, field):
                    setattr(seen, field, text)
        seen = seen.__cause__ or seen.__context__


def _retry_after(error: Exception) -> float | None:
    """Seconds that the server asks to wait: milliseconds, seconds or a date."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    if not isinstance(headers, Mapping):
        return None
    for field, divisor in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(field, "")) / divisor
        except ValueError:
            continue
        return seconds if math.isfinite(seconds) and seconds >= 0 else None
    return _until(headers.get("retry-after"))


def _until(date: Any) -> float | None:
    try:
        parsed = email.utils.parsedate_to_datetime(date)
    except (TypeError, ValueError):
        return None
    return max(0.0, parsed.timestamp() - time.time())
