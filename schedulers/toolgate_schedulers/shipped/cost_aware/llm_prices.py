"""What requests to an LLM cost: prices by model, what is reserved for one, what one has cost.

    reserved: (input tokens, corrected by what the model told) x price in + (answer, at most) x price out
    settled:  what the provider says it cost, else the tokens that it told x prices, else what was reserved

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
    """What a million tokens of a model cost, in the currency."""

    input: Money
    """Of the request."""
    output: Money
    """Of the answer, thinking included."""
    cache_read: Money | None = None
    """Of the request, read from the provider's cache; without it, as `input`."""
    cache_write: Money | None = None
    """Of the request, written to that cache; without it, as `input`."""
    cache_in_input: bool = Field(default=False, strict=True)
    """Whether the provider counts what it read from its cache among the input tokens, too."""


class LlmConfig(StrictModel):
    """Requests to LLMs are asked about, reserved and settled like calls."""

    prices: Annotated[dict[Name, ModelPrice], Field(max_length=10_000)] = Field(default_factory=dict)
    """By provider and model, `openai/gpt-5`, or a glob of that: a name as it is written counts first, then
    the first glob that fits."""
    default: ModelPrice | None = None
    """Of models that are not listed; without it, what they told lately."""
    equivalents: Annotated[tuple[ModelGroup, ...], Field(max_length=1024)] = ()
    """Groups of models, each named as `openai/gpt-5`, of which one may answer in another's place."""
    max_output_tokens: Tokens = 4096
    """How long an answer may be, where a request does not say."""

    @field_validator("equivalents")
    @classmethod
    def _named_once(cls, groups: tuple[ModelGroup, ...]) -> tuple[ModelGroup, ...]:
        names = [name for group in groups for name in group]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"{twice[0]} stands there twice: models may stand in one group, once")
        return groups


def other_models(
    config: LlmConfig, asked: Mapping[str, Any], available: Iterable[str]
) -> list[dict[str, Any]]:
    """Requests to the other models of its group whose provider is there, in their order."""
    own = name_of_model(asked)
    group = next((group for group in config.equivalents if own in group), ())
    providers = {listed.partition("/")[0] for listed in available}
    parts = [name.partition("/") for name in group if name != own]
    return [{"provider": name, "model": model} for name, _, model in parts if name in providers]


def name_of_model(told: Mapping[str, Any]) -> str:
    """Provider and model of a request or a fact, as prices are listed by."""
    provider, model = told.get("provider"), told.get("model")
    return f"{provider if isinstance(provider, str) else ''}/{model if isinstance(model, str) else ''}"


def price_of(config: LlmConfig, model: str) -> ModelPrice | None:
    """The price of a model; None where there is none."""
    found = config.prices.get(model)
    if found is None:
        fitting = (price for glob, price in config.prices.items() if fnmatchcase(model, glob))
        found = next(fitting, config.default)
    return found


def cost_of_tokens(price: ModelPrice, used: Mapping[str, Any]) -> int | None:
    """What so many tokens cost in micro-units; None where none were told.

    Tokens from or for a cache are counted beside `input_tokens`, unless the price says otherwise.
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
    """What a request has cost by its fact, in micro-units; None where nobody can say."""
    told = micro(fact.get("cost_usd"))
    if told is not None or config is None:
        return told
    price = price_of(config, name_of_model(fact))
    return None if price is None else cost_of_tokens(price, fact)


def count_tokens(told: Mapping[str, Any], name: str) -> int:
    """Number of tokens that a request or a fact tells; 0 where it tells none."""
    value = told.get(name)
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else 0
