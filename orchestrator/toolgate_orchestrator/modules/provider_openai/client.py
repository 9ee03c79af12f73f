"""The server, through the official SDK: the only file that imports it, and only when it is needed.

Gives plain JSON values; raises only the kernel's LLM errors. What the values mean is not its affair.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from amplifier_core.llm_errors import ConfigurationError, InvalidRequestError, LLMError
from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.modules.provider_openai.config import MODULE, OpenAIConfig
from toolgate_orchestrator.modules.provider_openai.errors import Whose, told
from toolgate_orchestrator.modules.provider_openai.request import Ask

__all__ = ["Answer", "Chunks", "Endpoint"]

logger = logging.getLogger(__name__)

_CONNECT_S = 10.0
_MAX_MODELS = 1_000


class Answer(NamedTuple):
    """A whole answer."""

    body: dict[str, Any]
    headers: Mapping[str, str]
    retries: int


class Endpoint:
    """One server with one key; close it."""

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
        self.whose = Whose(config.name, _shown(server), config.secrets(os.environ))
        self.length_field = config.length_field(os.environ)
        """The server's name for the longest answer."""
        self._tells_usage = True
        """False once the server has refused `stream_options`."""

    async def whole(self, ask: Ask) -> Answer:
        """The answer in one piece; raises LLMError."""
        try:
            async with asyncio.timeout(ask.timeout):
                raw = await self._client.chat.completions.with_raw_response.create(**ask.params)
                return Answer(self._body(raw.parse(), ask), raw.headers, raw.retries_taken)
        except LLMError:
            raise
        except Exception as error:
            raise self.error(error, ask) from error

    async def chunks(self, ask: Ask) -> "Chunks":
        """The answer chunk by chunk, once the server has begun; raises LLMError."""
        deadline = None if ask.timeout is None else asyncio.get_running_loop().time() + ask.timeout
        try:
            return await self._opened(ask, deadline)
        except InvalidRequestError as error:
            if not self._tells_usage or "stream_options" not in str(error):
                raise
            logger.info("%s does not take stream_options: usage of streams stays unknown", self.whose.server)
            self._tells_usage = False
            return await self._opened(ask, deadline)

    async def models(self) -> list[dict[str, Any]]:
        """What the server lists; raises LLMError."""
        listed: list[dict[str, Any]] = []
        try:
            async for model in self._client.models.list():
                listed.append(_plain(model))
                if len(listed) >= _MAX_MODELS:
                    break
        except Exception as error:
            raise told(error, self.whose, None) from error
        return listed

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()

    def error(self, error: Exception, ask: Ask, *, streaming: bool = False) -> LLMError:
        """The kernel's error for one of the SDK's."""
        return told(error, self.whose, ask.model, streaming=streaming)

    async def _opened(self, ask: Ask, deadline: float | None) -> "Chunks":
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
            raise ConfigurationError(
                f"{self.whose.server} did not answer with a chat completion: is it the right base_url? "
                "Mostly it ends in /v1",
                provider=self.whose.provider,
                model=ask.model,
            )
        return body


class Chunks:
    """The chunks of one answer: iterate over them, and close them (`async with`)."""

    def __init__(self, endpoint: Endpoint, ask: Ask, raw: Any, deadline: float | None) -> None:
        self.headers: Mapping[str, str] = raw.headers
        self.retries: int = raw.retries_taken
        self._endpoint, self._ask, self._deadline = endpoint, ask, deadline
        self._source = raw.parse()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(Exception):  # the answer is there, or its own error is on its way
            await self._source.close()

    def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        return self

    async def __anext__(self) -> dict[str, Any]:
        """The next chunk; raises LLMError where the stream breaks."""
        try:
            async with asyncio.timeout_at(self._deadline):
                return _plain(await anext(self._source))
        except StopAsyncIteration:
            raise
        except Exception as error:
            raise self._endpoint.error(error, self._ask, streaming=True) from error


def _plain(value: Any) -> dict[str, Any]:
    """An SDK value as the JSON that it was; an empty object where it was none."""
    dump = getattr(value, "model_dump", None)
    if not callable(dump):
        return dict(value) if isinstance(value, Mapping) else {}
    plain: dict[str, Any] = dump(exclude_unset=True, warnings=False)
    return plain


def _shown(server: str | None) -> str:
    """A server's address, fit for a message."""
    parts = urlsplit(server or "https://api.openai.com/v1")
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


def _sdk() -> Any:
    try:
        import openai
    except ImportError as error:
        raise ConfigError(
            f"{MODULE} needs the openai SDK, which cannot be imported ({error}): "
            'pip install "toolgate-bus[llm]"'
        ) from None
    return openai
