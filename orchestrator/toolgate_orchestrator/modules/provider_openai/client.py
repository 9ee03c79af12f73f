"""Talk to the server through the official SDK; only this file imports the SDK, and only when it is needed.

Results are plain JSON values, and errors are the kernel's LLM errors.

    400, 422 InvalidRequest · context too long ContextLength · content filter ContentFilter
    401 Authentication · 403 AccessDenied · 404 NotFound · 408 and time-outs LLMTimeout
    413 ContextLength · 429 RateLimit, or QuotaExceeded · 5xx ProviderUnavailable
    no connection Network · broken off or garbled in mid-stream Stream

Messages repeat the server's message, bounded, and without any secret.
"""

import asyncio
import contextlib
import email.utils
import logging
import math
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from amplifier_core import llm_errors
from amplifier_core.llm_errors import LLMError
from toolgate_bus.errors import ConfigError
from toolgate_bus.installation import how_to_install

from toolgate_orchestrator.modules.provider_openai.config import MODULE, OpenAIConfig
from toolgate_orchestrator.modules.provider_openai.request import Ask
from toolgate_orchestrator.modules.provider_openai.stream import BadReply

logger = logging.getLogger(__name__)

_CONNECT_S = 10.0
_MAX_MODELS = 1_000
_MAX_MESSAGE = 2_000
_BY_STATUS: Mapping[int, type[LLMError]] = {
    401: llm_errors.AuthenticationError,
    403: llm_errors.AccessDeniedError,
    404: llm_errors.NotFoundError,
    408: llm_errors.LLMTimeoutError,
    413: llm_errors.ContextLengthError,
    429: llm_errors.RateLimitError,
}
_RETRYABLE = (408, 409, 425, 429)
_PAGE = re.compile(r"\s*<(?:!doctype|html)\b", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>([^<]{1,80})", re.IGNORECASE)
_TOO_LONG = re.compile(
    r"context[ _](length|window|size)|maximum context|(prompt|input) is too long|too many (input )?tokens",
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content[ _](filter|policy)|content management policy|safety system", re.IGNORECASE)
_QUOTA = re.compile(
    r"insufficient_quota|exceeded your current quota|billing|budget has been exceeded", re.IGNORECASE
)


class EndpointReply(NamedTuple):
    """Whole answer."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    retries: int


class Endpoint:
    """Server with one key; it must be closed."""

    def __init__(self, config: OpenAIConfig) -> None:
        openai = _sdk()
        server = config.server(os.environ)
        self._client = openai.AsyncOpenAI(
            api_key=config.key(os.environ),
            base_url=server,
            max_retries=config.max_retries,
            timeout=openai.Timeout(config.timeout_s, connect=min(_CONNECT_S, config.timeout_s)),
            default_headers={key: value.get_secret_value() for key, value in config.extra_headers.items()},
        )
        parts = urlsplit(server or "https://api.openai.com/v1")
        port = f":{parts.port}" if parts.port else ""
        address = f"{parts.scheme}://{parts.hostname}{port}{parts.path}"
        self.whose = ErrorSource(config.name, address, config.secrets(os.environ))
        self.length_field = config.length_field(os.environ)
        """Name of the server's field for the longest answer."""
        self._tells_usage = True
        """False once the server has refused `stream_options`."""

    async def whole(self, ask: Ask) -> EndpointReply:
        """Return the answer in one piece; raise LLMError."""
        try:
            async with asyncio.timeout(ask.timeout):
                raw = await self._client.chat.completions.with_raw_response.create(**ask.params)
                return EndpointReply(self._body(raw.parse(), ask), raw.headers, raw.retries_taken)
        except LLMError:
            raise
        except Exception as error:
            raise self.error(error, ask) from error

    async def chunks(self, ask: Ask) -> "Chunks":
        """Return the answer's chunks, once the server has begun; raise LLMError."""
        deadline = None if ask.timeout is None else asyncio.get_running_loop().time() + ask.timeout
        try:
            return await self._open_stream(ask, deadline)
        except llm_errors.InvalidRequestError as error:
            if not self._tells_usage or "stream_options" not in str(error):
                raise
            logger.info("%s does not take stream_options: the usage of streams is unknown", self.whose.server)
            self._tells_usage = False
            return await self._open_stream(ask, deadline)

    async def models(self) -> list[dict[str, Any]]:
        """Return the models that the server lists; raise LLMError."""
        listed: list[dict[str, Any]] = []
        try:
            async for model in self._client.models.list():
                listed.append(_plain(model))
                if len(listed) >= _MAX_MODELS:
                    break
        except Exception as error:
            raise translate_error(error, self.whose, None) from error
        return listed

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()

    def error(self, error: Exception, ask: Ask, *, streaming: bool = False) -> LLMError:
        """Return the kernel's error for one of the SDK's."""
        return translate_error(error, self.whose, ask.model, streaming=streaming)

    async def _open_stream(self, ask: Ask, deadline: float | None) -> "Chunks":
        options = {"stream_options": {"include_usage": True}} if self._tells_usage else {}
        create = self._client.chat.completions.with_raw_response.create
        try:
            async with asyncio.timeout_at(deadline):
                raw = await create(**ask.params, **options, stream=True)
        except Exception as error:
            raise self.error(error, ask) from error
        return Chunks(self, ask, raw, deadline)

    def _body(self, completion: Any, ask: Ask) -> dict[str, Any]:
        body = _plain(completion)
        if not isinstance(body.get("choices"), list):
            raise llm_errors.ConfigurationError(
                f"{self.whose.server} did not answer with a chat completion: is it the right base_url? "
                "Mostly it ends in /v1",
                provider=self.whose.provider,
                model=ask.model,
            )
        return body


class Chunks:
    """Chunks of one answer; read them one by one, and close them."""

    def __init__(self, endpoint: Endpoint, ask: Ask, raw: Any, deadline: float | None) -> None:
        self.headers: Mapping[str, str] = raw.headers
        self.retries: int = raw.retries_taken
        self._endpoint, self._ask, self._deadline = endpoint, ask, deadline
        self._source = raw.parse()

    async def aclose(self) -> None:
        """Close the connection."""
        with contextlib.suppress(Exception):  # the answer is complete, or has an error of its own
            await self._source.close()

    async def __anext__(self) -> dict[str, Any]:
        """Return the next chunk; raise LLMError if the stream breaks."""
        try:
            async with asyncio.timeout_at(self._deadline):
                return _plain(await anext(self._source))
        except StopAsyncIteration:
            raise
        except Exception as error:
            raise self._endpoint.error(error, self._ask, streaming=True) from error


def _plain(value: Any) -> dict[str, Any]:
    """Return an SDK value as the JSON that it was; an empty object for other values."""
    dump = getattr(value, "model_dump", None)
    if not callable(dump):
        return dict(value) if isinstance(value, Mapping) else {}
    plain: dict[str, Any] = dump(exclude_unset=True, warnings=False)
    return plain


def _sdk() -> Any:
    try:
        import openai
    except ImportError as error:
        raise ConfigError(
            f"{MODULE} needs the openai SDK, which cannot be imported ({error}): "
            f"run `{how_to_install('llm')}`"
        ) from None
    return openai


class ErrorSource(NamedTuple):
    """Source of an error: provider and server as they are shown, and the secrets that must not be."""

    provider: str
    server: str
    secrets: tuple[str, ...]


def translate_error(
    error: Exception, whose: ErrorSource, model: str | None, *, streaming: bool = False
) -> LLMError:
    """Return the kernel's error for any error of the SDK, which loses its secrets, too."""
    import openai

    if isinstance(error, LLMError):
        return error
    message = _message(error, whose)
    _scrub(error, whose.secrets)
    origin: dict[str, Any] = {"provider": whose.provider, "model": model}
    said = f"{getattr(error, 'code', None)} {getattr(error, 'type', None)} {message}"
    if (status := _status(error)) is not None:
        kind = _kind(status, said)
        retryable = kind is not llm_errors.QuotaExceededError and (status in _RETRYABLE or status >= 500)
        after = _retry_after(error)
        return kind(message, status_code=status, retryable=retryable, retry_after=after, **origin)
    # The SDK may let through an error of its HTTP library, which is httpx or httpx2 by its version.
    of_http = any(base.__name__ == "TimeoutException" for base in type(error).__mro__)
    if isinstance(error, openai.APITimeoutError | TimeoutError) or of_http:
        return llm_errors.LLMTimeoutError(message, **origin)
    if isinstance(error, BadReply):
        return llm_errors.StreamError(message, retryable=error.retryable, **origin)
    if streaming:  # an error of the server during the answer, or a broken connection
        return (_by_words(said) or llm_errors.StreamError)(message, **origin)
    if isinstance(error, openai.APIConnectionError | OSError):
        return llm_errors.NetworkError(message, **origin)
    return LLMError(message, **origin)


def _without_secrets(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    return text


def _kind(status: int, said: str) -> type[LLMError]:
    """Return the error class for a status; some errors show only by a code or by words."""
    if status == 429 and _QUOTA.search(said):
        return llm_errors.QuotaExceededError
    if status in (400, 422):
        return _by_words(said) or llm_errors.InvalidRequestError
    if status >= 500 or status == 409:
        return llm_errors.ProviderUnavailableError
    return _BY_STATUS.get(status, llm_errors.InvalidRequestError)


def _by_words(said: str) -> type[LLMError] | None:
    if _TOO_LONG.search(said):
        return llm_errors.ContextLengthError
    return llm_errors.ContentFilterError if _FILTERED.search(said) else None


def _status(error: Exception) -> int | None:
    """Return the HTTP status; also one that a server puts into a stream, as an error's `code`."""
    for value in (getattr(error, "status_code", None), getattr(error, "code", None)):
        text = str(value) if value is not None else ""
        if len(text) == 3 and text.isdecimal() and int(text) >= 400:
            return int(text)
    return None


def _message(error: Exception, whose: ErrorSource) -> str:
    """Return the server's message, else a description of the failure."""
    import openai

    if isinstance(error, openai.APITimeoutError | TimeoutError):
        text = f"no answer from {whose.server} in time"
    elif isinstance(error, openai.APIConnectionError):
        cause = error.__cause__
        text = f"the connection to {whose.server} failed" + (f": {cause}" if cause and str(cause) else "")
    else:
        text = _extract_message(getattr(error, "body", None)) or str(error) or type(error).__name__
        if _PAGE.match(text):  # of a proxy, or of a server that is no LLM's
            title = _TITLE.search(text)
            named = f" ({' '.join(title[1].split())})" if title else ""
            text = f"{whose.server} answers with HTTP {_status(error)} and a web page{named}, as no LLM does"
        if isinstance(error, ValueError):
            text = f"{whose.server} sent what is no JSON: {text}"
    return _without_secrets(text, whose.secrets)[:_MAX_MESSAGE]


def _extract_message(body: Any) -> str:
    """Return the message in an error's body, in the forms that servers use."""
    if isinstance(body, Mapping):
        for key in ("message", "error", "detail"):
            if body.get(key):
                return _extract_message(body[key])
        return str(dict(body)) if body else ""
    return str(body) if body else ""


def _scrub(error: BaseException, secrets: Sequence[str]) -> None:
    """Remove secrets from the SDK's error, too, which stays in the chain and in tracebacks."""
    seen: BaseException | None = error
    while seen is not None:
        if any(secret in repr((seen, getattr(seen, "body", None))) for secret in secrets):
            text = _without_secrets(str(seen), secrets)
            seen.args = (text,)
            for field in ("message", "body"):
                if hasattr(seen, field):
                    setattr(seen, field, text)
        seen = seen.__cause__ or seen.__context__


def _retry_after(error: Exception) -> float | None:
    """Return the seconds that the server asks to wait, given as milliseconds, seconds or a date."""
    headers = getattr(getattr(error, "response", None), "headers", None)
    if not isinstance(headers, Mapping):
        return None
    for field, divisor in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(field, "")) / divisor
        except ValueError:
            continue
        return seconds if math.isfinite(seconds) and seconds >= 0 else None
    try:
        parsed = email.utils.parsedate_to_datetime(headers.get("retry-after", ""))
    except (TypeError, ValueError):
        return None
    return max(0.0, parsed.timestamp() - time.time())
