"""What the tests of approvals use: an agent whose calls wait, and people at terminals of their own.

A person is `toolgate approvals`, a process; the agent is a real session (or a `Gate`) in the test's process.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from amplifier_core import AmplifierSession, ToolResult
from nursery import NURSERY

BOUND_S = 20.0


class Said(NamedTuple):
    """What a command ended with and said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> list[dict[str, Any]]:
        """Its lines."""
        return [json.loads(line) for line in self.out.splitlines()]


class People:
    """`await people("approve", "1f2e")`: the command on one bus."""

    def __init__(self, url: str, namespace: str) -> None:
        self.url, self.namespace = url, namespace

    async def start(self, *words: object) -> asyncio.subprocess.Process:
        """The command, started."""
        where = ("--redis", self.url, "--namespace", self.namespace)
        return await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "toolgate_bus", "approvals", *map(str, words), *where),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | {"COLUMNS": "300"},
        )

    async def __call__(self, *words: object) -> Said:
        where = ("--redis", self.url, "--namespace", self.namespace)
        env = {"COLUMNS": "300"}
        return Said(*await NURSERY.run("approvals", *words, *where, env=env, timeout=BOUND_S))

    async def waiting(self, count: int = 1) -> list[dict[str, Any]]:
        """The calls that wait, once there are so many."""
        async with asyncio.timeout(BOUND_S):
            while len(found := (await self("list", "--json")).json) != count:
                pass
        return found


class Tool:
    """A tool that remembers its calls."""

    def __init__(self, name: str, schema: dict[str, Any] | None = None) -> None:
        self.name, self.description = name, name
        self.input_schema = schema or {"type": "object"}
        self.calls: list[dict[str, Any]] = []

    async def execute(self, arguments: dict[str, Any]) -> ToolResult:
        self.calls.append(dict(arguments))
        return ToolResult(success=True, output="done")


class Agent(NamedTuple):
    """A session of loop-events with a scripted LLM."""

    session: Any

    async def results(self) -> list[str]:
        """What the LLM was told of its calls."""
        messages = await self.session.coordinator.get("context").get_messages()
        return [message["content"] for message in messages if message["role"] == "tool"]


@asynccontextmanager
async def agent(
    people: People, calls: Sequence[tuple[str, dict[str, Any]]], tools: Sequence[Tool], **config: Any
) -> AsyncIterator[Agent]:
    """An agent that makes these calls one after the other, on the bus of these people."""
    bus = {"redis": people.url, "namespace": people.namespace, "patience_ms": 30_000, "agent": "teller"}
    turns = [
        {"tool_calls": [{"id": f"c{at}", "name": name, "arguments": arguments}]}
        for at, (name, arguments) in enumerate(calls)
    ]
    plan = {
        "session": {
            "orchestrator": {"module": "loop-events", "config": {"toolgate": {**bus, **config}}},
            "context": "context-simple",
        },
        "providers": [
            {"module": "provider-scripted", "config": {"turns": [*turns, {"text": "That is all."}]}}
        ],
    }
    async with AmplifierSession(plan, session_id="s-1") as session:
        for tool in tools:
            await session.coordinator.mount("tools", tool, name=tool.name)
        yield Agent(session)
