"""The config of goal pursuit: who judges, what the judge is shown, and when a run counts as stuck."""

from typing import Annotated, Any

from pydantic import Field
from toolgate_bus.config.check import StrictModel


class GoalPreference(StrictModel):
    """A model that may judge."""

    provider: Annotated[str, Field(min_length=1)]
    """Mount name, with or without `provider-`."""
    model: Annotated[str, Field(min_length=1)]
    """A name, or a pattern of which the newest model that the provider lists is taken."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Options of the request."""

    def __hash__(self) -> int:
        """What has one, pydantic gives to all configs as their default, instead of a copy to each."""
        return hash((self.provider, self.model))


DEFAULT_PREFERENCES = tuple(
    GoalPreference(provider=provider, model=model)
    for provider, model in (
        ("anthropic", "claude-haiku-*"),
        ("openai", "gpt-?.?-luna*"),
        ("openai", "gpt-?.?-mini*"),
        ("gemini", "gemini-*-flash-preview"),
        ("github-copilot", "claude-haiku-4.5"),
        ("github-copilot", "gpt-5.4-mini"),
        ("ollama", "*"),
    )
)
"""Small and fast ones: a goal is judged after every turn."""


class GoalConfig(StrictModel):
    """What a loop can be told about goals (`session_state["goal"]`)."""

    goal_model_role: str = "fast"
    """Role of the model that judges, for the host's `model_role_resolver`."""
    goal_provider_preferences: tuple[GoalPreference, ...] = DEFAULT_PREFERENCES
    """Who judges where no role resolves: `provider`, `model`, `config`; the first that is mounted and has the
    model, by default a small one of anthropic, openai, gemini, github-copilot or ollama; else the session's
    own."""
    goal_max_transcript_messages: Annotated[int, Field(ge=1, le=10_000)] = 40
    """So many of the latest messages the judge is shown."""
    goal_tool_content_clip_chars: Annotated[int, Field(le=1_000_000)] = 2_000
    """Longest result, and longest arguments of a call, that it is shown; the middle is left out; 0 is no
    limit."""
    goal_transcript_char_budget: Annotated[int, Field(le=10_000_000)] = 20_000
    """Longest transcript, the oldest messages are left out first; 0 is no limit."""
    goal_stall_threshold: Annotated[int, Field(ge=1, le=1_000)] = 3
    """After so many turns in a row without a call it is judged whether the run is stuck."""
    goal_busy_stall_window: Annotated[int, Field(ge=0, le=1_000)] = 3
    """The same where so many turns in a row lacked the same; below 2: never."""
    goal_busy_stall_min_overlap: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of words from which on two reasons say the same."""
    goal_summary_max_reasons: Annotated[int, Field(le=10_000)] = 20
    """So many of the latest reasons are summed up at the end; 0 is all."""
