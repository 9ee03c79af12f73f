"""What the judge of a goal is shown, who judges, and which model that is."""

from types import SimpleNamespace
from typing import Any

import pytest
from toolgate_orchestrator.turn.goals.config import GoalConfig, GoalPreference
from toolgate_orchestrator.turn.goals.judges import read_evaluation, read_stall, summary_question
from toolgate_orchestrator.turn.goals.rules import (
    MAX_TURNS,
    cap_of,
    clip_middle,
    join_repeats,
    transcript_of,
)
from toolgate_orchestrator.turn.llm.side_request import SideRequests

pytestmark = pytest.mark.pure

CONVERSATION: list[dict[str, Any]] = [
    {"role": "user", "content": "go"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "secret"},
            {"type": "text", "text": "I look"},
            {"type": "tool_call", "id": "c1", "name": "read", "input": {"path": "a"}},
        ],
    },
    {"role": "assistant", "content": "", "tool_calls": ["no call", {"tool": "look", "arguments": {}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "x" * 500 + "exit status 1"},
]


def test_the_judge_sees_texts_calls_and_results_and_no_thinking() -> None:
    text, cut = transcript_of(CONVERSATION, GoalConfig())
    begins = 'user: go\n\nassistant: I look\n[called tool: read args: {"path": "a"}]\n\n'
    assert text.startswith(f"{begins}assistant: [called tool: look]\n\ntool: xxx")
    assert ("secret" in text, cut) == (False, False)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ({"role": "tool", "content": {"status": 1}}, 'tool: {"status": 1}'),
        ({"role": "tool", "content": [{"type": "tool_result", "output": "red"}]}, "tool: red"),
        (
            {"role": "tool", "content": [{"type": "tool_result", "content": [{"text": "red"}]}]},
            'tool: [{"text": "red"}]',
        ),
        ({"role": "assistant", "content": [{"type": "tool_call"}]}, "assistant: [called tool: ?]"),
        ({"role": "assistant", "content": None}, ""),
    ],
)
def test_the_judge_sees_results_in_whatever_form_a_context_keeps_them(
    message: dict[str, Any], shown: str
) -> None:
    assert transcript_of([message], GoalConfig())[0] == shown


def test_a_long_result_keeps_its_beginning_and_its_end() -> None:
    text, _ = transcript_of(CONVERSATION, GoalConfig(goal_tool_content_clip_chars=150))
    assert "tool: xxx" in text
    assert "chars truncated]" in text
    assert text.endswith("exit status 1")
    assert len(clip_middle("y" * 9_999, 150)) <= 150
    assert len(transcript_of(CONVERSATION, GoalConfig(goal_tool_content_clip_chars=0))[0]) > 500


@pytest.mark.parametrize(
    "config", [{"goal_max_transcript_messages": 1}, {"goal_transcript_char_budget": 100}]
)
def test_of_a_long_conversation_the_latest_is_shown_and_that_is_said(config: dict[str, Any]) -> None:
    text, cut = transcript_of(CONVERSATION, GoalConfig(**config))
    assert (text[:8], cut) == ("tool: xx", True)


def test_reasons_that_repeat_are_counted() -> None:
    assert join_repeats(["A b", "a  B", "c", "A b"]) == ["A b (repeated 2x)", "c", "A b"]


@pytest.mark.parametrize(("cap", "turns"), [(None, MAX_TURNS), (0, MAX_TURNS), ("many", MAX_TURNS), (7, 7)])
def test_a_goal_without_a_cap_of_its_own_is_bounded_all_the_same(cap: Any, turns: int) -> None:
    assert cap_of({"cap": cap}) == turns


def test_verdicts_are_read_as_they_are_written() -> None:
    assert read_evaluation("\n**YES**\n\nall pass\n") == (True, "all pass")
    assert read_evaluation("No") == (False, "no reason was given")
    assert read_stall("History-Locked:\nit was said before") == ("history-locked", "it was said before")
    with pytest.raises(ValueError, match="no known verdict"):
        read_stall("MAYBE\nwho knows")


def test_the_summary_is_of_the_latest_reasons() -> None:
    goal = {"condition": "c", "continuations": 3, "reasons": ["one", "two", "three"]}
    _, user = summary_question(goal, "cap_hit", None, GoalConfig(goal_summary_max_reasons=2))
    assert "(the first 1 are left out)\n1. two\n2. three" in user


class Listed:
    """A provider that lists models."""

    def __init__(self, *models: str) -> None:
        self.models = models

    async def list_models(self) -> list[Any]:
        if not self.models:
            raise OSError("offline")
        return [SimpleNamespace(id=model) for model in self.models]


class Resolver:
    """A host's capability that knows roles."""

    def __init__(self, *found: Any) -> None:
        self.found = found

    async def resolve(self, role: str) -> list[Any]:
        return [each for each in self.found if each.role == role]


def host(*found: Any) -> Any:
    return SimpleNamespace(
        get_capability=lambda name: Resolver(*found) if name == "model_role_resolver" else None
    )


async def chosen(
    coordinator: Any, providers: dict[str, Any], *preferences: GoalPreference, role: str = "fast"
) -> tuple[str, str | None]:
    found = await SideRequests(coordinator, providers, role, preferences)._choose()
    return found.name, found.model


SONNETS = Listed("claude-sonnet-4")
HAIKUS = Listed("claude-haiku-4-7", "claude-haiku-4-10-20260101", "claude-haiku-4-10", "claude-haiku-4-9")
FAST = SimpleNamespace(role="fast", provider="anthropic", model="claude-haiku-4-9", config={"effort": "low"})


async def test_the_hosts_role_comes_first() -> None:
    preference = GoalPreference(provider="openai", model="gpt-x")
    providers = {"openai": Listed("gpt-x"), "provider-anthropic": HAIKUS}
    assert await chosen(host(FAST), providers, preference) == ("provider-anthropic", "claude-haiku-4-9")
    assert await chosen(host(FAST), providers, preference, role="slow") == ("openai", "gpt-x")


async def test_of_a_pattern_the_newest_model_is_taken_and_an_alias_before_its_snapshot() -> None:
    preference = GoalPreference(provider="anthropic", model="claude-haiku-*")
    assert await chosen(host(), {"anthropic": HAIKUS}, preference) == ("anthropic", "claude-haiku-4-10")


async def test_a_preference_that_cannot_be_had_is_passed_over() -> None:
    preferences = (
        GoalPreference(provider="nowhere", model="m"),
        GoalPreference(provider="mute", model="m*"),
        GoalPreference(provider="anthropic", model="claude-haiku-*"),
        GoalPreference(provider="mute", model="exact"),
    )
    providers = {"mute": Listed(), "anthropic": SONNETS}
    assert await chosen(host(), providers, *preferences) == ("mute", "exact")


@pytest.mark.parametrize(
    ("coordinator", "why"),
    [
        (None, "no model_role_resolver capability is registered"),
        (host(), "resolved it to no candidates"),
        (host(FAST), "a model of anthropic, which is not mounted"),
        (host(SimpleNamespace(role="fast")), "model_role_resolver failed"),
    ],
)
async def test_without_any_the_sessions_own_provider_judges_and_it_is_said_why(
    coordinator: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert await chosen(coordinator, {"own": SONNETS}) == ("own", None)
    assert why in caplog.text
