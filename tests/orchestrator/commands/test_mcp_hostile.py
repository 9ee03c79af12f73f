"""Servers of MCP that misbehave: each fault is a clear error for the client, and the proxy goes on or ends
cleanly."""

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import pytest
from toolgate_orchestrator.commands.mcp import child as child_room
from toolgate_orchestrator.commands.mcp import sdk
from toolgate_orchestrator.commands.mcp.catalog import MAX_TOOLS
from toolgate_orchestrator.commands.mcp.config import McpConfig
from toolgate_orchestrator.commands.mcp.pins import Pins
from toolgate_orchestrator.commands.mcp.questions import Questions
from toolgate_orchestrator.commands.mcp.session import ProxySession
from toolgate_orchestrator.guard.guard import Guard

HOSTILE = str(Path(__file__).with_name("hostile_mcp.py"))
OPENING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


class Front:
    """A client's request, and the way back: what it is told is kept."""

    def __init__(self, request_id=1):
        self.request_id, self.can_send_request, self.told = request_id, True, []

    async def notify(self, method, params, opts=None):
        self.told.append((method, params))

    async def send_raw_request(self, method, params, opts=None):
        raise sdk.MCPError(sdk.METHOD_NOT_FOUND, "a plain client")


@contextlib.asynccontextmanager
async def opened(tmp_path, server_url, namespace, *kinds, **settings):
    """A session with these servers behind it, initialized; nobody rules."""
    servers = {kind: {"command": [sys.executable, "-S", HOSTILE, kind]} for kind in kinds}
    gate = {"redis": server_url, "namespace": namespace}
    told = {"servers": servers, "toolgate": gate, "max_message_mb": 4, **settings}
    config = McpConfig.model_validate(told)
    async with Guard(config.toolgate) as guard:
        session = ProxySession(config, guard, Pins(tmp_path / "pins.json"), Questions(), "s1")
        session.front = Front()
        living = asyncio.create_task(session.live())
        try:
            if "silent" not in kinds:
                await session.on_request(Front("init"), "initialize", OPENING)
            yield session
        finally:
            session.close()
            await living


@pytest.fixture
def open_session(tmp_path, server_url, namespace):
    os.umask(0o077)
    return lambda *kinds, **settings: opened(tmp_path, server_url, namespace, *kinds, **settings)


async def call(session, name, id_=7, **arguments):
    return await session.on_request(Front(id_), "tools/call", {"name": name, "arguments": arguments})


async def still_works(session):
    result = await call(session, "echo", 8, a=1)
    assert result["content"][0]["text"] == '{"a": 1}'


async def test_a_server_that_lists_too_many_tools_is_refused(open_session):
    async with open_session("many", max_message_mb=64) as session:
        for _ in range(2):
            with pytest.raises(sdk.MCPError, match=r"lists more tools than the proxy takes|more than 10000"):
                await call(session, "echo")
        with pytest.raises(sdk.MCPError, match=f"more than {MAX_TOOLS} tools"):
            await session.on_request(Front(), "tools/list", {})


async def test_a_list_that_does_not_end_is_refused(open_session):
    async with open_session("endless") as session:
        with pytest.raises(sdk.MCPError, match="lists more tools than the proxy takes"):
            await call(session, "echo")


async def test_tools_whose_names_steer_are_left_out(open_session):
    async with open_session("names") as session:
        listed = await session.on_request(Front(), "tools/list", {})
        assert [one["name"] for one in listed["tools"]] == ["echo"]
        await still_works(session)


async def test_a_list_of_another_form_ends_nothing(open_session):
    async with open_session("no_list") as session:
        await session.on_request(Front(), "tools/list", {})
        await still_works(session)


async def test_a_message_that_is_nested_too_deep_is_an_error_of_who_waits_for_it(open_session):
    async with open_session("deep") as session:
        with pytest.raises(sdk.MCPError, match="nested too deep"):
            await session.on_request(Front(), "tools/list", {})


@pytest.mark.parametrize("tool", ["big", "big_backwards"])
async def test_a_result_that_is_too_long_is_an_error_of_that_call(open_session, tool):
    async with open_session("plain") as session:
        with pytest.raises(sdk.MCPError, match="was dropped: the proxy takes 4194304"):
            await call(session, tool)
        await still_works(session)


async def test_a_message_that_is_too_long_and_of_nobody_ends_the_connection_with_words(open_session):
    async with open_session("plain") as session:
        with pytest.raises(sdk.MCPError, match="the MCP server plain has ended: it closed its output"):
            await call(session, "big_without_an_end")
        await asyncio.wait_for(session.closed.wait(), 10)


async def test_a_server_that_dies_in_the_middle_says_how_to_each_who_waits(open_session):
    async with open_session("plain") as session:
        waiting = asyncio.create_task(call(session, "never", 9))
        with pytest.raises(sdk.MCPError, match="the MCP server plain has ended: exit code 3"):
            await call(session, "die")
        with pytest.raises(sdk.MCPError, match="exit code 3"):
            await waiting
        await asyncio.wait_for(session.closed.wait(), 10)
        with pytest.raises(sdk.MCPError, match="exit code 3"):
            await call(session, "echo")


async def test_a_server_that_never_answers_is_an_error_in_time(open_session):
    async with open_session("plain", call_timeout_s=0.3) as session:
        with pytest.raises(sdk.MCPError, match=r"did not answer in 0\.3 s"):
            await call(session, "never")
        await still_works(session)


async def test_a_server_that_never_begins_is_an_error_in_time(open_session):
    async with open_session("silent", start_timeout_s=0.3) as session:
        with pytest.raises(sdk.MCPError, match=r"did not answer in 0\.3 s"):
            await session.on_request(Front(), "initialize", OPENING)


@pytest.mark.parametrize("tool", ["garbage", "flood", "twice"])
async def test_lines_that_nobody_asked_for_are_passed_over(open_session, tool):
    async with open_session("plain") as session:
        assert (await call(session, tool))["content"] == []
        await still_works(session)


async def test_a_result_of_another_form_is_the_clients(open_session):
    async with open_session("plain") as session:
        assert (await call(session, "strange_result"))["content"] == "no list"


@pytest.mark.parametrize(
    "params",
    [{}, {"name": 7}, {"name": "echo", "arguments": [1]}, {"name": "echo", "arguments": "text"}],
)
async def test_a_call_of_another_form_is_refused(open_session, params):
    async with open_session("plain") as session:
        with pytest.raises(sdk.MCPError, match="arguments as an object"):
            await session.on_request(Front(), "tools/call", params)


async def test_a_program_that_does_not_end_is_killed_with_all_it_started(
    open_session, monkeypatch, capfd, wait_until
):
    monkeypatch.setattr(child_room, "GRACE_S", 0.2)
    async with open_session("stays", "leaves_a_child"):
        pass
    left = int(next(line for line in capfd.readouterr().err.splitlines() if line.isdigit()))
    await wait_until(lambda: not is_running(left))


def is_running(pid):
    """Whether a process runs; one that is dead and not yet collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_program_that_cannot_be_started_says_so(open_session, tmp_path):
    with pytest.raises(sdk.MCPError, match="no-such-program cannot be started: No such file"):
        async with open_session("plain", servers={"x": {"command": ["no-such-program"]}}):
            pass
