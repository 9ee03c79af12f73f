"""A server that holds thinking to the exact conversation before it refuses none of our requests.

Two turns with calls and thinking, under every loop, with reminders of every kind: before the prompt and
behind it, on results, in both spellings of a hook's answer, the loop's own.
"""

from typing import Any

import pytest
from amplifier_core import HookResult
from amplifier_core.models import ContextInjection
from four_loops import LOOPS
from openai_client import forget_environment
from strict_messages import BoundMessages
from strict_server import Says
from wire_world import open_wire

pytestmark = pytest.mark.system

SCRIPT = (
    Says("I look.", (("call_1", "look", {"at": "the door"}), ("call_2", "look", {})), thinking="A door."),
    Says("", (("call_3", "look", {"at": "the roof"}),), thinking="Higher up."),
    Says("Shut.", thinking="All shut."),
    Says("", (("call_4", "look", {"at": "the sky"}),), thinking="Higher still."),
    Says("Blue.", thinking="At last."),
)
KINDS = {
    "plain": {},
    "of the user": {"role": "user"},
    "on the last result": {"append_to_last_tool_result": True},
}


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_environment(monkeypatch)


def remind(a: Any, event: str, *, listed: bool, changes: bool, **fields: Any) -> None:
    """A hook that reminds at this event, in one of the two spellings; with another text each time, or not."""
    count = 0

    async def hook(_event: str, data: dict[str, Any]) -> HookResult:
        nonlocal count
        count += 1
        text = f"{event} says {count if changes else 'the same'}"
        if listed:
            one = ContextInjection(content=text, ephemeral=True, **fields)
            return HookResult(action="inject_context", context_injections=[one])
        role = {"context_injection_role": fields["role"]} if "role" in fields else {}
        rest = {key: value for key, value in fields.items() if key != "role"}
        return HookResult(action="inject_context", context_injection=text, ephemeral=True, **role, **rest)

    a.hooks.register(event, hook, name=f"reminder-{event}")


async def two_turns(agent: Any, tool: Any, loop: str, reminders: Any, **options: Any) -> list[Any]:
    """Run two turns against the server; return the bodies of the requests."""
    tools = [tool("look", lambda given: f"{given.get('at', 'it')} is shut")]
    script = options.pop("script", SCRIPT)
    speaks = BoundMessages()
    async with open_wire(
        agent, "anthropic", loop, script, thinks=True, tools=tools, speaks=speaks, **options
    ) as w:
        reminders(w.agent)
        await w.ask("Is the house shut?")
        await w.ask("And above?")
        return w.bodies


@pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("loop", LOOPS)
async def test_a_turn_without_reminders_is_accepted(agent: Any, tool: Any, loop: str, streams: bool) -> None:
    assert len(await two_turns(agent, tool, loop, lambda a: None, streams=streams)) == 5


@pytest.mark.parametrize("changes", [True, False], ids=["changing", "constant"])
@pytest.mark.parametrize("listed", [True, False], ids=["list", "single"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("loop", LOOPS)
async def test_reminders_of_every_kind_stay_where_the_llm_saw_them(
    agent: Any, tool: Any, loop: str, kind: str, listed: bool, changes: bool
) -> None:
    def reminders(a: Any) -> None:
        for event in ("prompt:submit", "provider:request", "tool:post"):
            remind(a, event, listed=listed, changes=changes, **KINDS[kind])

    bodies = await two_turns(agent, tool, loop, reminders, streams=listed)
    assert len(bodies) == 5
    for event in ("prompt:submit", "provider:request", "tool:post"):
        assert f"{event} says" in str(bodies[-1])


@pytest.mark.parametrize("mode", ["auto", "persist"])
@pytest.mark.parametrize("placement", ["tail", "pre_user"])
@pytest.mark.parametrize("loop", LOOPS)
async def test_they_stay_in_every_place(agent: Any, tool: Any, loop: str, mode: str, placement: str) -> None:
    config = {"ephemeral_injection_mode": mode, "reminder_placement": placement}

    def reminders(a: Any) -> None:
        remind(a, "provider:request", listed=False, changes=True)
        remind(a, "tool:post", listed=False, changes=True, append_to_last_tool_result=True)

    assert len(await two_turns(agent, tool, loop, reminders, streams=True, config=config)) == 5


@pytest.mark.parametrize("loop", LOOPS)
async def test_the_loops_own_reminder_at_the_limit_stays(agent: Any, tool: Any, loop: str) -> None:
    script = (SCRIPT[0], Says("Shut.", thinking="All shut."), SCRIPT[3], Says("Blue.", thinking="At last."))
    config = {"max_iterations": 1, "budget_warn_ratio": 0.5}
    bodies = await two_turns(agent, tool, loop, lambda a: None, script=script, config=config)
    assert str(bodies[-1]).count("orchestrator-loop-limit") == 2


async def test_the_same_reminder_is_not_sent_twice(agent: Any, tool: Any) -> None:
    bodies = await two_turns(
        agent, tool, "loop-streaming", lambda a: remind(a, "provider:request", listed=False, changes=False)
    )
    assert str(bodies[-1]).count("provider:request says the same") == 1


async def test_who_asks_for_one_request_only_is_refused_by_such_a_server(agent: Any, tool: Any) -> None:
    config = {"ephemeral_injection_mode": "tail"}
    with pytest.raises(Exception, match="is not what it was"):
        await two_turns(
            agent,
            tool,
            "loop-basic",
            lambda a: remind(a, "provider:request", listed=False, changes=True),
            config=config,
        )
