"""The config that all loops share, and the errors that name what is wrong in it."""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.gate.config import ToolgateConfig, explain

__all__ = ["AskingConfig", "LoopConfig", "ParallelConfig", "read_config"]

Model = TypeVar("Model", bound=BaseModel)


class LoopConfig(BaseModel):
    """What every loop can be told in its mount plan."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    max_iterations: int = -1
    """Requests to the LLM with tools in one turn; -1 is unlimited."""
    default_provider: str | None = None
    """Mount name of the provider, unless the request names one; without it, the one with the lowest priority
    number."""
    extended_thinking: bool = False
    """Passed on to the provider."""
    toolgate: ToolgateConfig | None = None
    """The section below. Without it loop-basic and loop-streaming ask nobody."""

    @field_validator("max_iterations")
    @classmethod
    def _is_a_limit(cls, value: int) -> int:
        if value != -1 and value < 1:
            raise ValueError("must be -1 (unlimited) or at least 1")
        return value


class ParallelConfig(LoopConfig):
    """The config of the loops that can run calls side by side."""

    parallel_tools: bool = True
    """Whether the calls of one response run side by side. loop-events takes only false, loop-reactive only
    true."""


class AskingConfig(LoopConfig):
    """The config of the loops that ask before every call, with or without a bus."""

    toolgate: ToolgateConfig = ToolgateConfig()


def read_config(model: type[Model], config: Mapping[str, Any] | None, where: str) -> Model:
    """Validate a module's config; raises ConfigError that names each wrong field and the allowed keys."""
    values = dict(config or {})
    if unknown := sorted(str(key) for key in values if key not in model.model_fields):
        raise ConfigError(f"{where}: unknown {', '.join(unknown)}; allowed: {', '.join(model.model_fields)}")
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise explain(error, where) from None
