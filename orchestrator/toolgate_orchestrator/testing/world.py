"""Run the real parts for tests of an adapter: a server of its own, and four scheduler processes."""

import asyncio
import json
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from anyio.from_thread import start_blocking_portal
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.server.embedded import private_server
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.redis.client.connection import RedisCommands

from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.testing import reader
from toolgate_orchestrator.testing.toolbox import cost_of

SECRETS: Final = "secrets stay here"
NOT_OUTSIDE: Final = "the lead sends nothing outside"
NOT_INSIDE: Final = "helpers send nothing inside"
CHEAPER: Final = "the index is cheaper"
QUESTION: Final = "Write to the boss?"
SCHEDULERS: Final[dict[str, dict[str, Any]]] = {
    "policy": {
        "rules": [
            {"tools": "delete", "when": {"path": "secret*"}, "action": "deny", "reason": SECRETS},
            {
                "tools": "send",
                "when": {"to": "outside*"},
                "agents": "lead",
                "action": "deny",
                "reason": NOT_OUTSIDE,
            },
            {
                "tools": "send",
                "when": {"to": "inside*"},
                "agents": "helper",
                "action": "deny",
                "reason": NOT_INSIDE,
            },
            {"tools": "send", "when": {"to": "boss*"}, "action": "ask", "prompt": QUESTION},
            {"tools": "format_disk", "action": "deny"},
        ]
    },
    "router": {
        "routes": [
            {
                "from": "search",
                "to": "cheap_search",
                "when": {"query": "*paper*"},
                "arguments": {"q": "$.query"},
                "reason": CHEAPER,
            },
            {
                "from": "search",
                "to": "search",
                "when": {"query": "*loud*"},
                "arguments": {"query": {"value": "quiet"}},
            },
        ]
    },
    "cost-aware": {
        "tools": {"spend": {"cost": 0.40}},
        "budgets": [{"name": "each", "level": "session", "limit": 1.00}],
        "learn": False,
    },
}
"""Schedulers with their configurations; `Toolbox` lists the verdicts by tool. Results have `reader`."""
PATIENCE_MS: Final = 20_000
"""Patience in milliseconds: a shared machine may be slow, and no scheduler is silent on purpose here."""


@dataclass(frozen=True, slots=True)
class World:
    """Bus with running schedulers."""

    url: str
    namespace: str

    def guard(self, **fields: Any) -> Guard:
        """Make a guard that requires the three that rule on calls; its agent is `lead`."""
        where = {"redis": self.url, "namespace": self.namespace, "agent": "lead"}
        given = {"required": list(SCHEDULERS), "patience_ms": PATIENCE_MS, "cost": cost_of}
        return Guard(**{**where, **given, **fields})

    async def facts(self, session: str) -> list[dict[str, Any]]:
        """Return the facts so far of this session, and of those below it."""
        commands = RedisCommands(self.url, "conformance")
        try:
            told = await FactsReader(commands, self.namespace).read_all()
        finally:
            await commands.aclose()
        return [dict(one) for one in told if one.get("root_session", one.get("session")) == session]


@contextmanager
def open_world() -> Iterator[World]:
    """Open a world, and remove all of it at the end. Takes some seconds.

    Raise NoServer if there is no server program, ToolgateError if a scheduler does not start.
    """
    with ExitStack() as stack:
        server = stack.enter_context(private_server())
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tg-")))
        bus = BusSettings(redis=server.url, namespace=f"kit-{secrets.token_hex(4)}")
        specs = []
        for name, config in SCHEDULERS.items():
            file = directory / f"{name}.yaml"
            file.write_text(json.dumps(config), encoding="utf-8")  # JSON is YAML
            specs.append(SchedulerSpec(name, file))
        (directory / "kit_results.py").write_text(reader.SOURCE, encoding="utf-8")
        specs.append(SchedulerSpec("kit_results:results", directory=directory))
        portal = stack.enter_context(start_blocking_portal())
        stack.enter_context(portal.wrap_async_context_manager(scheduler_processes(specs, bus)))
        yield World(server.url, bus.namespace)


def run_to_end(work: Any, timeout_s: float) -> Any:
    """Return the result of a coroutine, run in an event loop of its own; raise TimeoutError."""

    async def wait() -> Any:
        async with asyncio.timeout(timeout_s):
            return await work

    return asyncio.run(wait())
