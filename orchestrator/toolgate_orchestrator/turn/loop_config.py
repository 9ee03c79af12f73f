"""The config that all loops share."""

from pydantic import field_validator
from toolgate_bus.config.check import StrictModel

from toolgate_orchestrator.gate.config import ToolgateConfig


class LoopConfig(StrictModel):
    """What every loop can be told in its mount plan."""

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
