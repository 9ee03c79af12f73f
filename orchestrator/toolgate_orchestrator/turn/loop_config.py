"""The config that all loops share."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from toolgate_orchestrator.decision.config import ToolgateConfig
from toolgate_orchestrator.turn.goals.config import GoalConfig
from toolgate_orchestrator.turn.hooks.reminders import InjectionMode, Placement


class LoopConfig(GoalConfig):
    """What every loop can be told in its mount plan."""

    max_iterations: int = -1
    """Requests to the LLM with tools in one turn; -1 is unlimited."""
    default_provider: str | None = None
    """Mount name of the provider, unless the request names one; without it, the one with the lowest priority
    number."""
    extended_thinking: bool = False
    """Passed on to the provider."""
    reasoning_effort: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """How hard the LLM is to think, on each request of a turn, the last one too: such as low, medium or
    high."""
    min_delay_between_calls_ms: Annotated[float, Field(ge=0, le=600_000)] = 0
    """Least time between an answer of the LLM and the next request of the turn, in milliseconds."""
    stream_delay: Annotated[float, Field(ge=0, le=10)] = 0.0
    """Pause after each word of text as it is told, in seconds."""
    budget_warn_ratio: Annotated[float, Field(gt=0, le=1)] | None = None
    """Share of `max_iterations` at which the LLM is told to come to an end; without it, 0.8 for a sub-agent,
    and no warning for others."""
    prompt_complete: Literal["loop", "host"] = "loop"
    """Who emits `prompt:complete`; `host` is for one that acts on what hooks answer. Told twice, it is heard
    once."""
    ephemeral_injection_mode: InjectionMode = "tail"
    """What hooks inject ephemerally is in one request only (tail), or stored once for each new wording
    (persist): then every request begins with all of the last one, which prompt caches want."""
    reminder_placement: Placement = "tail"
    """Where it stands in the first request of a turn: behind the user's prompt (tail), or before it
    (pre_user)."""
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


def split_unknown(model: type[LoopConfig], config: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What of a config a loop knows and is told something, and the names of what it does not know.

    A sub-agent's loop may be another than its parent's, and is given keys that were meant for that one.
    """
    known = {key: value for key, value in config.items() if key in model.model_fields and value is not None}
    return known, [str(key) for key in config if key not in model.model_fields]
