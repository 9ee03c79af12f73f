"""A leg of delegated work has so many requests: it is warned, reports, and can be resumed."""

from typing import Any

import pytest
from amplifier_core import HookResult
from four_loops import LOOPS
from toolgate_orchestrator.turn.leg_budget import LegBudget

pytestmark = pytest.mark.pure


def heard_of(a: Any, event: str) -> list[dict[str, Any]]:
    heard: list[dict[str, Any]] = []

    async def hear(_event: str, data: dict[str, Any]) -> HookResult:
        heard.append(data)
        return HookResult()

    a.hooks.register(event, hear, name="test")
    return heard


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_sub_agent_that_used_its_requests_up_ends_as_budget_exhausted(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    turns = [*[calls("a")] * 5, {"text": "so far"}]
    keywords = {"loop": loop, "config": {"max_iterations": 5}, "parent_id": "root"}
    async with agent(turns, tools=[tool("a")], **keywords) as a:
        warnings = heard_of(a, "orchestrator:budget_warning")
        assert await a.ask() == "so far"
        (end,) = a.told("orchestrator:complete")
        assert end["status"] == "budget_exhausted"
        assert end["metadata"] == {
            "llm_calls": 6,
            "llm_call_budget": 5,
            "budget_exhausted": True,
            "resumable": True,
        }
        (warning,) = warnings
        assert (warning["orchestrator"], warning["iteration"]) == (loop, 4)
        assert (warning["budget"], warning["remaining"]) == (5, 1)
        told = [message for message in await a.messages() if "orchestrator-call-budget" in str(message)]
        assert [message["metadata"]["ephemeral"] for message in told] == [True]
        assert told[0]["content"].startswith("<system-reminder>")
        assert "orchestrator-call-budget" not in str(a.requests[2].messages)
        assert "1 is left" in str(a.requests[3].messages)


async def test_a_root_session_at_its_limit_is_incomplete_and_says_so_in_its_metadata(
    agent: Any, tool: Any, calls: Any
) -> None:
    async with agent([calls("a"), {"text": "so far"}], tools=[tool("a")], config={"max_iterations": 1}) as a:
        warnings = heard_of(a, "orchestrator:budget_warning")
        await a.ask()
        (end,) = a.told("orchestrator:complete")
        assert (end["status"], end["metadata"]["budget_exhausted"]) == ("incomplete", True)
        assert warnings == []


async def test_an_answer_within_the_budget_exhausts_nothing(agent: Any) -> None:
    async with agent([{"text": "ok"}], config={"max_iterations": 1}, parent_id="root") as a:
        await a.ask()
        (end,) = a.told("orchestrator:complete")
        assert (end["status"], end["metadata"]["llm_calls"]) == ("success", 1)
        assert end["metadata"]["budget_exhausted"] is False


@pytest.mark.parametrize(
    ("limit", "ratio", "delegated", "at"),
    [(5, None, True, 4), (5, None, False, 0), (10, 0.5, False, 5), (1, None, True, 1), (-1, 0.5, True, 0)],
)
def test_the_warning_comes_once_at_its_share_of_the_requests(
    limit: int, ratio: float | None, delegated: bool, at: int
) -> None:
    budget = LegBudget(limit, ratio, delegated)
    warned = [number for number in range(1, 12) if budget.warning(number)]
    assert warned == ([at] if at else [])
