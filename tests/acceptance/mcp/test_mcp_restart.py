"""`toolgate mcp` when something goes away: the proxy that asked, the client that waits; and many calls at
once, as a client that does not care sends them."""

import asyncio
import json
import socket
from urllib.parse import urlsplit

import mcp_types as types
import pytest
from mcp_world import (
    PROXY,
    SERVER,
    ask,
    client,
    decisions,
    notes,
    proxy_over_http,
    raw,
    rules,
    say,
    words_of,
)

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(180)]

ASK = {"action": "ask_user", "prompt": "may it?", "timeout_s": 600}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "ide", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}
ACCEPT = {"toolgate": {"action": "accept", "content": {}}}


@pytest.fixture
def options(server_url, namespace, tmp_path):
    on_bus = ("--agent", "tester", "--redis", server_url, "--namespace", namespace)
    return (*on_bus, "--required", "gamma", "--pin", tmp_path / "pins.json")


def called(arguments, **again):
    return {"name": "search", "arguments": arguments, "_meta": META, **again}


async def test_an_answer_goes_on_with_the_decision_of_a_proxy_that_was_killed_over_stdio(
    options, schedulers, server_url, namespace, tmp_path
):
    await schedulers.start("obedient:gamma")
    command = [*PROXY, *options, "--", *SERVER, tmp_path]
    first, asked_for = await raw(command, tmp_path / "err"), {"query": "x", **rules(gamma=ASK)}
    asked = (await ask(first, 1, "tools/call", called(asked_for)))["result"]
    assert asked["resultType"] == "input_required"
    first.kill()
    await first.wait()
    second = await raw(command, tmp_path / "err")
    again = {"requestState": asked["requestState"], "inputResponses": ACCEPT}
    other = await ask(second, 2, "tools/call", called({**asked_for, "query": "y"}, **again))
    assert "not the call that a person was asked about" in other["result"]["content"][0]["text"]
    answered = await ask(second, 3, "tools/call", called(asked_for, **again))
    assert answered["result"]["content"][0]["text"] == "search {'query': 'x'}"
    once_more = await ask(second, 4, "tools/call", called(asked_for, **again))
    assert "allowed already by the user of ide" in once_more["result"]["content"][0]["text"]
    second.stdin.close()
    assert await second.wait() == 0
    assert len(notes(tmp_path, "call search")) == 1
    assert len(schedulers.lines("decided", tool="search")) == 1
    told = [one["outcome"] for one in decisions(server_url, namespace)]
    assert (told.count("continue"), set(told)) == (1, {"continue", "deny"})


async def test_an_answer_goes_on_with_the_decision_of_a_proxy_that_was_killed_over_http(
    options, schedulers, tmp_path
):
    await schedulers.start("obedient:gamma")
    command = (*options, "--", *SERVER, tmp_path)
    arguments = {"query": "x", **rules(gamma=ASK)}
    person = types.ElicitResult(action="accept", content={})

    async def no_person(context, params):
        raise AssertionError("the SDK is not to answer by itself here")

    with proxy_over_http(tmp_path / "first", *command) as (url, program):
        async with client(url, "modern", person=no_person) as connected:
            asked = await connected.session.call_tool("search", arguments, allow_input_required=True)
            program.popen.kill()
            program.popen.wait()
    with proxy_over_http(tmp_path / "second", *command) as (url, _):
        async with client(url, "modern", person=no_person) as connected:
            for said in ("search {'query': 'x'}", "allowed already"):
                result = await connected.session.call_tool(
                    "search",
                    arguments,
                    input_responses={"toolgate": person},
                    request_state=asked.request_state,
                )
                assert said in words_of(result)[0]
    assert len(notes(tmp_path, "call search")) == 1


async def test_a_client_that_closes_its_connection_cancels_the_call_behind(options, tmp_path, wait_until):
    with proxy_over_http(tmp_path / "proxy", *options[:-4], *options[-2:], "--", *SERVER, tmp_path) as (
        url,
        _,
    ):
        params = {"name": "slow", "arguments": {}, "_meta": META}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
        where = urlsplit(url)
        head = (
            f"POST /mcp HTTP/1.1\r\nhost: {where.netloc}\r\ncontent-type: application/json\r\n"
            "accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n"
            f"mcp-method: tools/call\r\nmcp-name: slow\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        with socket.create_connection((where.hostname, where.port)) as connection:
            connection.sendall(head.encode() + body)
            await wait_until(lambda: notes(tmp_path, "waits"), timeout=60)
        await wait_until(lambda: notes(tmp_path, "cancelled"))


async def test_a_thousand_calls_of_one_client_are_each_answered_under_their_own_id(options, tmp_path):
    """Nobody rules; ids are numbers and texts, and every tenth call is cancelled at once."""
    command = [*PROXY, *options[:-4], *options[-2:], "--", *SERVER, tmp_path]
    process = await raw(command, tmp_path / "err")
    opening = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    await ask(process, "init", "initialize", opening)
    say(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    waiting = {}

    async def send():
        for number in range(1_000):
            id_ = number if number % 2 else f"call-{number}"
            params = {"name": "search", "arguments": {"query": str(number)}}
            say(process, {"jsonrpc": "2.0", "id": id_, "method": "tools/call", "params": params})
            waiting[id_] = number
            if number % 10 == 0:
                gone = {"requestId": id_, "reason": "not needed"}
                say(process, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": gone})
            await process.stdin.drain()

    sending, answered = asyncio.create_task(send()), {}
    while not sending.done() or any(number % 10 and id_ not in answered for id_, number in waiting.items()):
        told = json.loads(await asyncio.wait_for(process.stdout.readline(), 60))
        assert told["id"] not in answered
        answered[told["id"]] = told["result"]["content"][0]["text"]
    assert all(said == f"search {{'query': '{waiting[id_]}'}}" for id_, said in answered.items())
    process.stdin.close()
    assert await process.wait() == 0
