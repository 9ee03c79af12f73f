"""Config of goal pursuit: the models that judge, the transcript they get, and the limits of a stuck run."""

from typing import Annotated, Any

from pydantic import Field
from toolgate_bus.config.check import StrictModel


class GoalPreference(StrictModel):
    """A model that may judge."""

    provider: Annotated[str, Field(min_length=1)]
    """Mount name of the provider, with or without `provider-`."""
    model: Annotated[str, Field(min_length=1)]
    """Name of the model, or a pattern: then the newest matching model that the provider lists."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Options of the request."""

    def __hash__(self) -> int:
        """Return a hash. pydantic shares hashable defaults between configs, and copies all others."""
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
"""Small and fast models, since a goal is judged after every turn."""


class GoalConfig(StrictModel):
    """Settings of a loop for goals (`session_state["goal"]`)."""

    goal_model_role: str = "fast"
    """Role of the model that judges, for the host's `model_role_resolver`."""
    goal_provider_preferences: tuple[GoalPreference, ...] = DEFAULT_PREFERENCES
    """Models that judge if no role resolves, each with `provider`, `model` and `config`. The first that is
    mounted and has the model is used. Default: small models of anthropic, openai, gemini, github-copilot and
    ollama; else the session's own model."""
    goal_max_transcript_messages: Annotated[int, Field(ge=1, le=10_000)] = 40
    """Maximum number of messages that the judge gets, the latest ones."""
    goal_tool_content_clip_chars: Annotated[int, Field(le=1_000_000)] = 2_000
    """Maximum length, in characters, of a result and of a call's arguments in the transcript. The middle is
    left out. 0 means no limit."""
    goal_transcript_char_budget: Annotated[int, Field(le=10_000_000)] = 20_000
    """Maximum length of the transcript, in characters. The oldest messages are left out first. 0 means no
    limit."""
    goal_stall_threshold: Annotated[int, Field(ge=1, le=1_000)] = 3
    """Number of consecutive turns without a call after which a judge is asked whether the run is stuck."""
    goal_busy_stall_window: Annotated[int, Field(ge=0, le=1_000)] = 3
    """Number of consecutive turns with the same missing item after which a judge is asked. Below 2: never."""
    goal_busy_stall_min_overlap: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of common words, from 0 to 1, from which two reasons count as the same."""
    goal_summary_max_reasons: Annotated[int, Field(le=10_000)] = 20
    """Maximum number of reasons in the summary at the end, the latest ones. 0 means all."""
