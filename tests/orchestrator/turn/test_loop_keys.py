"""Each key of Amplifier's own orchestrators does under every loop what it does there."""

import time
from typing import Any

import pytest
from amplifier_core import HookResult
from four_loops import LOOPS
from steps import without_waiting
from toolgate_orchestrator.turn.hooks.dispatch import Emitter
from toolgate_orchestrator.turn.llm.pace import RequestPace, slow_down

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("loop", LOOPS)
async def test_reasoning_effort_is_on_each_request_the_last_one_too(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    config = {"reasoning_effort": "high", "max_iterations": 1}
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")], loop=loop, config=config) as a:
        await a.ask()
        assert [request.reasoning_effort for request in a.requests] == ["high", "high"]


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_tool_of_the_providers_own_reaches_it_as_it_is_in_every_request(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    screen = tool("computer")
    screen.native_tool_spec = {"type": "computer_20251124", "name": "computer", "display_width_px": 1024}
    config = {"max_iterations": 1}
    async with agent([calls("computer"), {"text": "ok"}], tools=[screen], loop=loop, config=config) as a:
        await a.ask()
        for request in a.requests:
            sent = next(spec.model_dump() for spec in request.tools if spec.name == "computer")
            assert sent == sent | screen.native_tool_spec
        assert len(a.requests) == 2


async def test_without_the_key_no_effort_is_asked_for(agent: Any) -> None:
    async with agent([{"text": "ok"}]) as a:
        await a.ask()
        assert a.requests[0].reasoning_effort is None


@pytest.mark.parametrize("loop", LOOPS)
async def test_requests_keep_their_distance_and_the_wait_is_told(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    told: list[dict[str, Any]] = []

    async def hear(event: str, data: dict[str, Any]) -> HookResult:
        told.append(data)
        return HookResult()

    config = {"min_delay_between_calls_ms": 1000}
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")], loop=loop, config=config) as a:
        a.hooks.register("orchestrator:rate_limit_delay", hear, name="test")
        started = time.monotonic()
        await a.ask()
        assert time.monotonic() - started > 0.9
    (wait,) = told
    assert (wait["iteration"], wait["configured_ms"]) == (2, 1000)
    assert wait["delay_ms"] + wait["elapsed_ms"] == pytest.approx(1000)


class Deaf:
    """A registry without a listener."""

    def list_handlers(self, event: str) -> dict[str, list[str]]:
        return {}


async def test_who_took_long_enough_does_not_wait_again() -> None:
    now = iter([10.0, 10.5])
    pace = RequestPace(400, Emitter(Deaf()), clock=lambda: next(now))
    await pace.wait(1)
    pace.note_answer()
    await without_waiting(pace.wait(2))


async def test_a_cancelled_session_waits_for_no_request() -> None:
    pace = RequestPace(60_000, Emitter(Deaf()), stopping=lambda: True)
    pace.note_answer()
    await without_waiting(pace.wait(2))


@pytest.mark.parametrize("loop", LOOPS)
async def test_text_is_told_word_by_word_with_the_pause_between(agent: Any, loop: str) -> None:
    async with agent([{"text": "one two three"}], loop=loop, config={"stream_delay": 0.01}) as a:
        get, started = a.session.coordinator.get, time.monotonic()
        parts = (get("context"), get("providers"), get("tools"), a.hooks)
        said = [piece async for piece in get("orchestrator").stream("hello", *parts)]
        assert time.monotonic() - started >= 0.03
        assert [piece for piece in said if piece.strip()] == ["one", "two", "three"]
        assert "".join(said) == "one two three"


async def test_without_a_pause_nothing_is_split() -> None:
    async def tell(text: str) -> None: ...

    assert slow_down(tell, 0.0) is tell


@pytest.mark.parametrize(
    "config",
    [
        {"min_delay_between_calls_ms": -1},
        {"stream_delay": "slow"},
        {"budget_warn_ratio": 2},
        {"reasoning_effort": 7},
    ],
)
async def test_a_wrong_value_is_refused_by_name(agent: Any, config: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match=next(iter(config))):
        async with agent(config=config):
            pass


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_sub_agent_passes_over_keys_of_another_loop_and_a_root_session_refuses_them(
    agent: Any, loop: str
) -> None:
    config = {"summary_style": "short", "max_iterations": 3}
    with pytest.raises(RuntimeError, match="summary_style: unknown key"):
        async with agent(loop=loop, config=config):
            pass
    handed_on = {**config, "extended_thinking": None, "goal_stall_threshold": None}
    async with agent([{"text": "ok"}], loop=loop, config=handed_on, parent_id="root") as a:
        assert a.session.coordinator.get("orchestrator").settings.max_iterations == 3
        assert await a.ask() == "ok"


async def test_a_sub_agents_own_section_of_toolgate_is_as_strict_as_ever(agent: Any) -> None:
    with pytest.raises(RuntimeError, match=r"toolgate\.patience"):
        async with agent(config={"toolgate": {"patience": 3}}, parent_id="root"):
            pass
