"""The host saves once the results of a response are stored, before the LLM is asked again."""

from typing import Any

import pytest
from four_loops import LOOPS

pytestmark = pytest.mark.pure


def offer(a: Any, save: Any) -> None:
    a.session.coordinator.register_capability("session.durable_checkpoint", save)


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_settled_batch_is_saved_before_the_next_request(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    saved: list[tuple[int, int]] = []

    async def save() -> None:
        saved.append((len(a.requests), len(await a.results())))

    async with agent([calls("a", "b"), {"text": "ok"}], tools=[tool("a"), tool("b")], loop=loop) as a:
        offer(a, save)
        assert await a.ask() == "ok"
    assert saved == [(1, 2)]


async def test_a_turn_without_calls_has_no_batch_to_save(agent: Any) -> None:
    async with agent([{"text": "ok"}]) as a:
        offer(a, lambda: pytest.fail("there is nothing to save"))
        assert await a.ask() == "ok"


def broken() -> None:
    raise OSError("disk unavailable")


@pytest.mark.parametrize(
    "save", [broken, lambda: False, "no function"], ids=["raises", "False", "no function"]
)
async def test_what_could_not_be_saved_ends_the_turn_before_another_request(
    agent: Any, tool: Any, calls: Any, save: Any
) -> None:
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")]) as a:
        offer(a, save)
        with pytest.raises(RuntimeError, match="CheckpointFailure: Durable session checkpoint failed"):
            await a.ask()
        assert len(a.requests) == 1
        assert await a.results() == ["done"]
