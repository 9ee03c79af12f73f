"""A session of the proxy in this process, with real servers behind it and real schedulers that rule."""

import asyncio
import contextlib
import inspect
import json
import sys
from pathlib import Path

from toolgate_bus.state.shared import connect_shared_state
from toolgate_bus.transport.redis.answering.scheduler import RedisSchedulerBus
from toolgate_orchestrator.commands.mcp import sdk
from toolgate_orchestrator.commands.mcp.config import McpConfig
from toolgate_orchestrator.commands.mcp.messages import CAPABILITIES, CLIENT, VERSION
from toolgate_orchestrator.commands.mcp.pins import Pins
from toolgate_orchestrator.commands.mcp.questions import Questions
from toolgate_orchestrator.commands.mcp.session import ProxySession
from toolgate_orchestrator.guard.guard import Guard
from toolgate_schedulers import Continue, Scheduler, Worker

HOSTILE = str(Path(__file__).with_name("hostile_mcp.py"))
OPENING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
MODERN = {VERSION: "2026-07-28", CAPABILITIES: {"elicitation": {}}, CLIENT: {"name": "ide", "version": "1"}}
"""The `_meta` of a client of the newer era that can ask its user."""


class Front:
    """A client's request, and the way back: what it is told is kept."""

    def __init__(self, request_id=1):
        self.request_id, self.can_send_request, self.told = request_id, True, []

    async def notify(self, method, params, opts=None):
        self.told.append((method, params))

    async def send_raw_request(self, method, params, opts=None):
        raise sdk.MCPError(sdk.METHOD_NOT_FOUND, "a plain client")


class Ruler:
    """A scheduler that answers as a test tells it, and remembers what it was asked."""

    def __init__(self):
        self.asked, self.answer = [], lambda call: Continue()

    async def decide(self, call):
        self.asked.append(call)
        said = self.answer(call)
        return await said if inspect.isawaitable(said) else said


@contextlib.asynccontextmanager
async def ruling(server_url, namespace, name="ruler", local_table=b"", **fields):
    """A scheduler at work on a real server."""
    ruler = Ruler()
    bus = RedisSchedulerBus(server_url, namespace)
    shared = connect_shared_state(server_url, bus.commands, namespace)
    made = Scheduler(**{"name": name, "decide": ruler.decide, "local_table": local_table, **fields})
    worker = Worker(made, bus, shared=shared)
    await worker.start()
    try:
        yield ruler
    finally:
        await bus.aclose()


@contextlib.asynccontextmanager
async def opened(tmp_path, server_url, namespace, *kinds, shared=False, name="s1", gate=None, **settings):
    """A session with these servers behind it, initialized; nobody rules but whom `gate` requires."""
    servers = {kind: server(kind, tmp_path) for kind in kinds}
    told = {
        "servers": servers,
        "toolgate": {"redis": server_url, "namespace": namespace, **(gate or {})},
        "max_message_mb": 4,
        **settings,
    }
    config = McpConfig.model_validate(told)
    async with Guard(config.toolgate, notice=config.notice) as guard:
        pins = Pins(tmp_path / "pins.json")
        session = ProxySession(config, guard, pins, Questions(), name, shared=shared)
        session.front = Front()
        living = asyncio.create_task(session.live())
        try:
            if "silent" not in kinds:
                await session.on_request(Front("init"), "initialize", OPENING)
            yield session
        finally:
            session.close()
            await living


def server(kind, tmp_path):
    """How a server of a kind is started; it notes what it is asked in `KIND.log`."""
    return {
        "command": [sys.executable, "-S", HOSTILE, kind],
        "env": {"HOSTILE_LOG": str(tmp_path / f"{kind}.log"), "HOSTILE_SAYS": str(tmp_path / "says")},
    }


def noted(tmp_path, word, kind="plain"):
    """What a server noted under a word, in order."""
    log = tmp_path / f"{kind}.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line)[1] for line in lines if json.loads(line)[0] == word]


async def call(session, name, id_=7, meta=None, *, front=None, again=None, **arguments):
    """The result of a call; `again` are the further parameters of one that was asked about."""
    params = {"name": name, "arguments": arguments, **(again or {})}
    if meta is not None:
        params["_meta"] = meta
    return await session.on_request(front or Front(id_), "tools/call", params)


async def still_works(session):
    result = await call(session, "echo", 8, a=1)
    assert result["content"][0]["text"] == '{"a": 1}'


def words_of(result):
    return " ".join(one["text"] for one in result["content"])
