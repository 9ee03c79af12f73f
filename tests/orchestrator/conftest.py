"""What tests of the loops use: a real AmplifierSession with a scripted LLM, and its events."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from loop_agent import Agent, FakeTool, Llm, open_agent

MakeAgent = Callable[..., AbstractAsyncContextManager[Agent]]


@pytest.fixture
def llm() -> type[Llm]:
    """`llm([{"type": "text.delta", …}, …], …)`: a provider to mount with `agent(llm=…)`."""
    return Llm


@pytest.fixture
def says() -> Callable[[str], dict[str, Any]]:
    """`says("text")`: a piece of text in a stream."""
    return lambda text: {"type": "text.delta", "text": text}


@pytest.fixture
def wants() -> Callable[..., dict[str, Any]]:
    """`wants("c1", "add", {…})`: a complete tool call in a stream."""

    def call(call_id: str, name: str, arguments: Any = None) -> dict[str, Any]:
        return {"type": "tool_call.end", "id": call_id, "name": name, "arguments": arguments or {}}

    return call


@pytest.fixture
def agent() -> MakeAgent:
    """`async with agent([turn, …], tools=[FakeTool(…)]) as a:` an initialized session, see `open_agent`."""
    return open_agent


@pytest.fixture
def tool() -> type[FakeTool]:
    """`tool("name", lambda arguments: …)`: a tool for an agent."""
    return FakeTool


@pytest.fixture
def calls() -> Callable[..., dict[str, Any]]:
    """`calls(("name", {…}), …)`: a turn of the LLM that calls these tools."""

    def turn(*wanted: tuple[str, dict[str, Any]] | str, text: str = "") -> dict[str, Any]:
        pairs = [(each, {}) if isinstance(each, str) else each for each in wanted]
        return {
            "text": text,
            "tool_calls": [
                {"id": f"c{index}", "name": name, "arguments": arguments}
                for index, (name, arguments) in enumerate(pairs, 1)
            ],
        }

    return turn


@pytest.fixture
def fresh_lines(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """No line about calls without rulings was said yet; what is said from now on, by subject."""
    told: dict[str, str] = {}
    monkeypatch.setattr("toolgate_orchestrator.decision.vacancy._told", told)
    return told
