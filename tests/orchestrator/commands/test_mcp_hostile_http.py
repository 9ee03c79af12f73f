"""Servers of MCP over HTTP that misbehave: each call gets a clear error in time, and the next one is
answered."""

import asyncio
import contextlib
import gzip
import json

import pytest
from mcp_sessions import MODERN, Front, call, opened, still_works
from toolgate_orchestrator.commands.mcp import http_client, sdk

TOOLS = ("page", "broken", "cut", "cut_event", "long", "long_event", "bomb", "ends", "other_id", "never")
JSON, EVENTS = "application/json", "text/event-stream"


class HostileSite:
    """A server that answers `initialize`, lists of tools and `echo`, and everything else as the tool is
    called."""

    def __init__(self):
        self.asked, self.end, self.serving = [], asyncio.Event(), set()

    async def serve(self, reader, writer):
        self.serving.add(asyncio.current_task())
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._answer(reader, writer):
                pass
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _answer(self, reader, writer):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        if not head.startswith("post"):
            writer.write(b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n")
            return True
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        message = json.loads(await reader.readexactly(length))
        self.asked.append(message)
        return await self._say(writer, message)

    async def _say(self, writer, message):
        params = message.get("params") or {}
        match message["method"], params.get("name"):
            case "initialize", _:
                able = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}}
                return say(writer, result(message, {**able, "serverInfo": {"name": "site", "version": "1"}}))
            case "tools/list", _:
                tools = [{"name": name, "inputSchema": {"type": "object"}} for name in (*TOOLS, "echo")]
                return say(writer, result(message, {"tools": tools, "resultType": "complete"}))
            case "tools/call", "echo":
                text = {"type": "text", "text": json.dumps(params["arguments"])}
                return say(writer, result(message, {"content": [text]}))
            case "tools/call", "page":
                return say(writer, b"<html>Welcome</html>", "text/html")
            case "tools/call", "broken":
                return say(writer, b'{"jsonrpc": "2.0", "id"')
            case "tools/call", "cut":
                return say(writer, b"{", promised=99)
            case "tools/call", "cut_event":
                return say(writer, b"data: {", EVENTS, promised=99)
            case "tools/call", "bomb":
                return say(writer, gzip.compress(b" " * (64 << 20)), encoding="gzip")
            case "tools/call", "long":
                return say(writer, result(message, {"content": [], "x": "x" * (9 << 20)}))
            case "tools/call", "long_event":
                return say(writer, b"data: " + b"x" * (9 << 20) + b"\n\n", EVENTS)
            case "tools/call", "ends":
                return say(writer, b": nothing\n\n", EVENTS)
            case "tools/call", "other_id":
                return say(writer, result({**message, "id": "toolgate-999"}, {"content": []}))
            case "tools/call", "never":
                return await self.end.wait() and False
        if message["method"] == "notifications/deaf":
            return await self.end.wait() and False
        writer.write(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
        return True


def result(message, value):
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": value}).encode()


def say(writer, body, kind=JSON, *, promised=None, encoding="identity"):
    """An answer; the connection stays, unless more was promised than is said."""
    head = f"content-type: {kind}\r\ncontent-encoding: {encoding}\r\ncontent-length: {promised or len(body)}"
    writer.write(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode() + body)
    return promised is None


@pytest.fixture
async def site():
    """Gives its address, and itself."""
    hostile = HostileSite()
    server = await asyncio.start_server(hostile.serve, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", hostile
    server.close()
    hostile.end.set()
    await asyncio.wait(hostile.serving, timeout=10)


@pytest.mark.parametrize("meta", [None, MODERN], ids=["legacy", "modern"])
async def test_whatever_a_server_answers_over_http_its_call_ends_in_time_and_the_next_one_is_answered(
    site, tmp_path, server_url, namespace, meta
):
    url, hostile = site
    settings = {"servers": {"site": {"url": url}}, "call_timeout_s": 1.5}
    async with opened(tmp_path, server_url, namespace, **settings) as session:
        for tool in TOOLS:
            with pytest.raises(sdk.MCPError) as told:
                await asyncio.wait_for(call(session, tool, meta=meta), 20)
            assert told.value.error.message, tool
            print(tool, told.value.error.message[:200])
            await still_works(session)
    assert len([one for one in hostile.asked if (one.get("params") or {}).get("name") == "never"]) == 1


async def test_a_notification_that_a_server_takes_no_note_of_holds_up_no_call(
    site, tmp_path, server_url, namespace, monkeypatch
):
    url, hostile = site
    monkeypatch.setattr(http_client, "NOTICE_S", 0.3)
    async with opened(tmp_path, server_url, namespace, servers={"site": {"url": url}}) as session:
        await session.on_notify(Front(None), "notifications/deaf", {})
        await asyncio.wait_for(still_works(session), 20)
    assert [one["method"] for one in hostile.asked].count("notifications/deaf") == 1


@pytest.mark.parametrize("arguments", [{"a": "\ud800"}, {"\udfff": 1}, {"a": [["x" * 70_000 + "\ud800"]]}])
async def test_half_a_character_is_an_error_of_its_call_to_a_server_over_http(
    site, tmp_path, server_url, namespace, arguments
):
    """Nobody rules here, so that the call would run; the SDK would end the connection over it."""
    url, hostile = site
    async with opened(tmp_path, server_url, namespace, servers={"site": {"url": url}}) as session:
        with pytest.raises(sdk.MCPError, match="half a character"):
            await asyncio.wait_for(call(session, "echo", **arguments), 20)
        await still_works(session)
    assert [one["method"] for one in hostile.asked].count("tools/call") == 1
