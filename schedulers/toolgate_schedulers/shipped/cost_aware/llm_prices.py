"""Price requests to an LLM: prices by model, the amount to reserve, and the real cost.

    reserved: (input tokens, corrected by what the model told) x price in + (answer, at most) x price out
    settled:  the cost that the provider reports, else the reported tokens x prices, else the reservation

Prices are of a million tokens. Amounts are whole micro-units, rounded up.
"""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final

from pydantic import Field, field_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol.money import MAX_AMOUNT, UNIT, micro

from toolgate_schedulers.shipped.alternatives import Name
from toolgate_schedulers.shipped.cost_aware.amounts import Money

MAX_TOKENS: Final = 2**31
ModelName = Annotated[str, Field(pattern=r"^[^/]{1,128}/.{1,256}$")]
ModelGroup = Annotated[tuple[ModelName, ...], Field(min_length=2, max_length=64)]
Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS, strict=True)]


class ModelPrice(StrictModel):
    """Price of a million tokens of a model, in the currency."""

    input: Money
    """Price of the request's tokens."""
    output: Money
    """Price of the answer's tokens, thinking included."""
    cache_read: Money | None = None
    """Price of the request's tokens that the provider reads from its cache. Default: as `input`."""
    cache_write: Money | None = None
    """Price of the request's tokens that the provider writes to its cache. Default: as `input`."""
    cache_in_input: bool = Field(default=False, strict=True)
    """True if the provider also counts the tokens read from its cache among the input tokens."""


class LlmConfig(StrictModel):
    """Settings for requests to LLMs, which are asked about, reserved and settled like calls."""

    prices: Annotated[dict[Name, ModelPrice], Field(max_length=10_000)] = Field(default_factory=dict)
    """Prices by provider and model (`openai/gpt-5`) or by a glob of these. An exact name counts first, then
    the first glob that fits."""
    default: ModelPrice | None = None
    """Price of models that are not listed. Default: the costs that they reported lately."""
    equivalents: Annotated[tuple[ModelGroup, ...], Field(max_length=1024)] = ()
    """Groups of models that may answer in each other's place, each named as `openai/gpt-5`."""
    max_output_tokens: Tokens = 4096
    """Maximum number of tokens of an answer, if a request does not say."""

    @field_validator("equivalents")
    @classmethod
    def _named_once(cls, groups: tuple[ModelGroup, ...]) -> tuple[ModelGroup, ...]:
        names = [name for group in groups for name in group]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{twice[0]} is listed twice: list each model once, in one group")
        return groups


def other_models(
    config: LlmConfig, asked: Mapping[str, Any], available: Iterable[str]
) -> list[dict[str, Any]]:
    """Return requests to the other models of its group whose provider is available, in their order."""
    own = name_of_model(asked)
    group = next((group for group in config.equivalents if own in group), ())
    providers = {listed.partition("/")[0] for listed in available}
    parts = [name.partition("/") for name in group if name != own]
    return [{"provider": name, "model": model} for name, _, model in parts if name in providers]


def name_of_model(told: Mapping[str, Any]) -> str:
    """Return provider and model of a request or a fact, in the form of the price list."""
    provider, model = told.get("provider"), told.get("model")
    return f"{provider if isinstance(provider, str) else ''}/{model if isinstance(model, str) else ''}"


def price_of(config: LlmConfig, model: str) -> ModelPrice | None:
    """Return the price of a model; None if there is none."""
    found = config.prices.get(model)
    if found is None:
        fitting = (price for glob, price in config.prices.items() if fnmatchcase(model, glob))
        found = next(fitting, config.default)
    return found


def cost_of_tokens(price: ModelPrice, used: Mapping[str, Any]) -> int | None:
    """Return the cost of the used tokens in micro-units; None if none are reported.

    Tokens read from or written to a cache are counted beside `input_tokens`, unless the price says otherwise.
    """
    read, written = count_tokens(used, "cache_read_tokens"), count_tokens(used, "cache_write_tokens")
    sent, answered = count_tokens(used, "input_tokens"), count_tokens(used, "output_tokens")
    if not (read or written or sent or answered):
        return None
    if price.cache_in_input:
        sent = max(sent - read, 0)
    total = (
        sent * price.input
        + answered * price.output
        + read * (price.input if price.cache_read is None else price.cache_read)
        + written * (price.input if price.cache_write is None else price.cache_write)
    )
    return min(-(-total // UNIT), MAX_AMOUNT)


def cost_of_usage(config: LlmConfig | None, fact: Mapping[str, Any]) -> int | None:
    """Return the cost of a request from its fact, in micro-units; None if it is not known."""
    told = micro(fact.get("cost_usd"))
    if told is not None or config is None:
        return told
    price = price_of(config, name_of_model(fact))
    return None if price is None else cost_of_tokens(price, fact)


def count_tokens(told: Mapping[str, Any], name: str) -> int:
    """Return a number of tokens from a request or a fact; 0 if it is missing or malformed."""
    value = told.get(name)
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else 0
