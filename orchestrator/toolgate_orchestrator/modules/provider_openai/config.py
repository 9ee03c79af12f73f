"""The config of `provider-openai-compatible`: which server, which model, what it costs. Pure.

Secrets (the key, the values of extra headers) are never shown: not in a repr, not in an error.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.errors import ConfigError

MODULE = "provider-openai-compatible"
NO_KEY = "no-key"
"""Sent where a server needs no key: the SDK insists on one."""
_OFFICIAL = "api.openai.com"

Price = Annotated[Decimal, Field(ge=0, le=1_000_000)]


class TokenPrices(StrictModel):
    """US dollars for a million tokens of the configured model."""

    input_per_million: Price
    """Of input tokens."""
    output_per_million: Price
    """Of output tokens."""
    cached_input_per_million: Price | None = None
    """Of input that the server had in its cache; without it, as other input."""


class OpenAIConfig(StrictModel):
    """Everything that the provider can be told in a mount plan."""

    model: str = Field(default="", validate_default=True)
    """As the server's list of models has it; required."""
    base_url: str | None = None
    """Up to and including `/v1`; without it, `OPENAI_BASE_URL`, else OpenAI itself."""
    api_key: SecretStr | None = None
    """Without it, `OPENAI_API_KEY`, else a placeholder. Never shown in logs or errors; sent to whatever
    `base_url` names."""
    name: Annotated[str, Field(min_length=1)] = "openai-compatible"
    """Under which the provider is mounted."""
    priority: int = 100
    """Of several providers the one with the lowest number is chosen first."""
    context_window: Annotated[int, Field(gt=0)] = 128_000
    """Tokens that the model takes: contexts compact to it."""
    max_output_tokens: Annotated[int, Field(gt=0)] | None = None
    """Longest answer; without it, the server's."""
    temperature: Annotated[float, Field(ge=0)] | None = None
    """Without it, the server's."""
    reasoning_effort: str = "medium"
    """Asked for where the loop wants `extended_thinking`."""
    timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """Longest silence of the server, in seconds."""
    max_retries: Annotated[int, Field(ge=0, le=20)] = 2
    """The SDK's retries before the first byte of an answer: connection, 408, 409, 429, 5xx."""
    extra_headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Headers of every request."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Fields of the request that only this server knows."""
    prices: TokenPrices | None = None
    """In US dollars for a million tokens: `input_per_million`, `output_per_million`,
    `cached_input_per_million`. By these a request is charged where the server tells no cost."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = None
    """How the longest answer is asked for; without it, `max_completion_tokens` for OpenAI itself,
    `max_tokens` for any other server."""
    developer_role: Literal["system", "developer", "user"] = "system"
    """What messages of the role developer are sent as: few servers know that role."""
    reasoning_field: Literal["reasoning_content", "reasoning"] | None = None
    """Where earlier thinking is sent back: `reasoning_content` or `reasoning`; without it, it is kept here,
    as most servers want."""

    @field_validator("model")
    @classmethod
    def _names_a_model(cls, model: str) -> str:
        if not model.strip():
            raise ValueError("name the model to use, as the server's list of models has it")
        return model

    @field_validator("base_url")
    @classmethod
    def _is_http(cls, url: str | None) -> str | None:
        if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
            raise ValueError("must be an http:// or https:// URL, mostly one that ends in /v1")
        return url

    @field_validator("api_key")
    @classmethod
    def _is_one_word(cls, key: SecretStr | None) -> SecretStr | None:
        if key is not None and not _sendable(key.get_secret_value().strip()):
            raise ValueError("must be one line of printable ASCII")
        return key

    @field_validator("extra_headers")
    @classmethod
    def _are_headers(cls, headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, value in headers.items():
            if not _sendable(name) or not _sendable(value.get_secret_value()):
                raise ValueError(f"{name!r}: name and value must be one line of printable ASCII")
        return headers

    def server(self, environment: Mapping[str, str]) -> str | None:
        """URL of the server; None is OpenAI itself."""
        return self.base_url or environment.get("OPENAI_BASE_URL") or None

    def key(self, environment: Mapping[str, str]) -> str:
        """The key to send; raises ConfigError where OpenAI itself would be asked without one."""
        given = self.api_key.get_secret_value().strip() if self.api_key else ""
        key = given or environment.get("OPENAI_API_KEY", "").strip()
        if not _sendable(key):
            raise ConfigError(f"{MODULE}: OPENAI_API_KEY: must be one line of printable ASCII")
        if not key and is_official(self.server(environment)):
            raise ConfigError(
                f"{MODULE}: api_key: none given; set OPENAI_API_KEY, or base_url to another server"
            )
        return key or NO_KEY

    def secrets(self, environment: Mapping[str, str]) -> tuple[str, ...]:
        """What must not be seen in any message."""
        values = [self.key(environment), *(value.get_secret_value() for value in self.extra_headers.values())]
        return tuple(value for value in values if len(value) >= 4 and value != NO_KEY)

    def length_field(self, environment: Mapping[str, str]) -> str:
        """The request's field for the longest answer."""
        official = is_official(self.server(environment))
        return self.max_tokens_field or ("max_completion_tokens" if official else "max_tokens")


def _sendable(text: str) -> bool:
    """Whether a header can hold it; libraries quote what they refuse, secret or not."""
    return text.isascii() and text.isprintable()


def is_official(server: str | None) -> bool:
    """Whether a URL is that of OpenAI itself."""
    return server is None or urlsplit(server).hostname == _OFFICIAL
