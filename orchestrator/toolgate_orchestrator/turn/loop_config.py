"""Config that all loops share."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from toolgate_orchestrator.decision.config import ToolgateConfig
from toolgate_orchestrator.turn.goals.config import GoalConfig
from toolgate_orchestrator.turn.hooks.reminders import InjectionMode, Placement


class LoopConfig(GoalConfig):
    """Settings of every loop in a mount plan."""

    max_iterations: int = -1
    """Maximum number of requests to the LLM with tools in one turn; -1 is unlimited."""
    default_provider: str | None = None
    """Mount name of the provider, unless the request names one. Default: the provider with the lowest
    priority number."""
    extended_thinking: bool = False
    """Extended thinking, passed on to the provider."""
    reasoning_effort: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Reasoning effort of the LLM, such as low, medium or high. It goes with each request of a turn,
    including the last."""
    min_delay_between_calls_ms: Annotated[float, Field(ge=0, le=600_000)] = 0
    """Minimum time between an answer of the LLM and the next request of the turn, in milliseconds."""
    stream_delay: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Pause after each word of streamed text, in seconds."""
    budget_warn_ratio: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of `max_iterations` at which the LLM is told to finish. Default: 0.8 for a sub-agent, no warning
    for others."""
    prompt_complete: Literal["loop", "host"] = "loop"
    """Emitter of `prompt:complete`. Use `host` for a host that acts on the hooks' answers. If both emit it,
    hooks get it once."""
    ephemeral_injection_mode: InjectionMode = "auto"
    """Place of ephemeral injections of hooks. `tail`: in one request only. `persist`: stored once for each
    new wording, so that every request begins with all of the last one, as prompt caches need. `auto`:
    `persist` as soon as the LLM thinks, as servers may hold thinking to the exact conversation; else
    `tail`."""
    reminder_placement: Placement = "tail"
    """Place of ephemeral injections in the first request of a turn: after the user's prompt (`tail`), or
    before it (`pre_user`)."""
    toolgate: ToolgateConfig | None = None
    """The section below. Without it, loop-basic and loop-streaming ask no scheduler."""

    @field_validator("max_iterations")
    @classmethod
    def _is_a_limit(cls, value: int) -> int:
        if value != -1 and value < 1:
            raise ValueError("must be -1 (unlimited) or at least 1")
        return value


class ParallelConfig(LoopConfig):
    """Config of the loops that can run calls concurrently."""

    parallel_tools: bool = True
    """Run the calls of one response concurrently. loop-events accepts only false, loop-reactive only true."""


class AskingConfig(LoopConfig):
    """Config of the loops that ask before every call, with or without a bus."""

    toolgate: ToolgateConfig = ToolgateConfig()


def split_unknown(model: type[LoopConfig], config: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the known keys of a config that have a value, and the names of the unknown keys.

    A sub-agent's loop may be another one than its parent's, and then gets keys that were meant for that loop.
    """
    known = {key: value for key, value in config.items() if key in model.model_fields and value is not None}
    return known, [str(key) for key in config if key not in model.model_fields]
