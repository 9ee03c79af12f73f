"""Configure `provider-openai-compatible`: server, model and prices. Pure.

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
"""Key for servers that need none: the SDK requires one."""
_OFFICIAL = "api.openai.com"

Price = Annotated[Decimal, Field(ge=0, le=1_000_000)]


class TokenPrices(StrictModel):
    """Prices of the configured model, in US dollars for a million tokens."""

    input_per_million: Price
    """Price of input tokens."""
    output_per_million: Price
    """Price of output tokens."""
    cached_input_per_million: Price | None = None
    """Price of input that the server had in its cache. Default: as other input."""


class OpenAIConfig(StrictModel):
    """Configuration of the provider in a mount plan."""

    model: str = Field(default="", validate_default=True)
    """Name of the model, as in the server's list of models. Required."""
    base_url: str | None = None
    """URL of the server, up to and including `/v1`. Default: `OPENAI_BASE_URL`, else OpenAI itself."""
    api_key: SecretStr | None = None
    """API key. Default: `OPENAI_API_KEY`, else a placeholder. It is never shown in logs or errors, and is
    sent to the server that `base_url` names."""
    name: Annotated[str, Field(min_length=1)] = "openai-compatible"
    """Name under which the provider is mounted."""
    priority: int = 100
    """Priority; of several providers the one with the lowest number is chosen first."""
    context_window: Annotated[int, Field(gt=0)] = 128_000
    """Number of tokens that the model takes; contexts are compacted to it."""
    max_output_tokens: Annotated[int, Field(gt=0)] | None = None
    """Longest answer in tokens. Default: the server's."""
    temperature: Annotated[float, Field(ge=0)] | None = None
    """Sampling temperature. Default: the server's."""
    reasoning_effort: str = "medium"
    """Reasoning effort to ask for if the loop wants `extended_thinking`."""
    timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """Longest silence of the server, in seconds."""
    max_retries: Annotated[int, Field(ge=0, le=20)] = 2
    """Maximum number of the SDK's retries before the first byte of an answer: connection, 408, 409, 429,
    5xx."""
    extra_headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Headers to add to every request."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """Fields to add to the request, for this server only."""
    prices: TokenPrices | None = None
    """Prices in US dollars for a million tokens: `input_per_million`, `output_per_million`,
    `cached_input_per_million`. Toolgate charges a request by these if the server reports no cost."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = None
    """Name of the request's field for the longest answer. Default: `max_completion_tokens` for OpenAI itself,
    `max_tokens` for any other server."""
    developer_role: Literal["system", "developer", "user"] = "system"
    """Role for messages of the role developer, as few servers know that role."""
    reasoning_field: Literal["reasoning_content", "reasoning"] | None = None
    """Field in which earlier thinking is sent back: `reasoning_content` or `reasoning`. Default: it is not
    sent, as most servers want."""

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
        """Return the URL of the server; None is OpenAI itself."""
        return self.base_url or environment.get("OPENAI_BASE_URL") or None

    def key(self, environment: Mapping[str, str]) -> str:
        """Return the key to send; raise ConfigError if OpenAI itself would be asked without one."""
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
        """Return the values that no message may show."""
        values = [self.key(environment), *(value.get_secret_value() for value in self.extra_headers.values())]
        return tuple(value for value in values if len(value) >= 4 and value != NO_KEY)

    def length_field(self, environment: Mapping[str, str]) -> str:
        """Return the request's field for the longest answer."""
        official = is_official(self.server(environment))
        return self.max_tokens_field or ("max_completion_tokens" if official else "max_tokens")


def _sendable(text: str) -> bool:
    """Return whether a header can hold a text; libraries quote refused values, even secret ones."""
    return text.isascii() and text.isprintable()


def is_official(server: str | None) -> bool:
    """Return whether a URL is that of OpenAI itself."""
    return server is None or urlsplit(server).hostname == _OFFICIAL
