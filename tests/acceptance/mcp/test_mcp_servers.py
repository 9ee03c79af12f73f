"""`toolgate mcp` as a whole: changed tools, budgets, several servers, who may come over HTTP, and how it
ends."""

import asyncio
import contextlib
import json
import signal
import socket
from urllib.parse import urlsplit

import pytest
from mcp.shared.exceptions import MCPError
from mcp_world import (
    PROXY,
    SERVER,
    Heard,
    ask,
    client,
    notes,
    parameters,
    proxy_over_http,
    raw,
    rules,
    say,
    server_over_http,
    status,
    stdio,
    words_of,
)
from nursery import NURSERY

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(180)]

CHANGED = """
default: allow
rules:
  - {name: changed-tools, tools: "*", labels: {mcp_tool_changed: "true"}, action: deny, reason: it is new}
"""
BUDGET = """
tools: {priced: {cost: 0.30}}
budgets:
  - {name: all, level: session, limit: 1.00}
"""


@pytest.fixture
def on_bus(server_url, namespace):
    return ("--agent", "tester", "--redis", server_url, "--namespace", namespace)


async def test_a_tool_that_says_something_else_is_told_to_schedulers_until_it_is_accepted(
    on_bus, schedulers, tmp_path, wait_until
):
    (tmp_path / "rules.yaml").write_text(CHANGED)
    await schedulers.start("policy", "--config", tmp_path / "rules.yaml")
    command = [*PROXY, *on_bus, "--required", "policy", "--pin", tmp_path / "pins.json"]
    server = ["--", *SERVER, tmp_path]
    heard = Heard()
    async with stdio([*command, *server], tmp_path / "err", heard=heard) as connected:
        await connected.list_tools()
        assert not (await connected.call_tool("search", {"query": "x"})).is_error
        await connected.call_tool("change", {})
        await wait_until(lambda: any("list_changed" in str(one) for one in heard.messages))
        result = await connected.call_tool("search", {"query": "x"})
        assert words_of(result) == ["The tool call was denied: it is new (changed-tools)"]
        assert not (await connected.call_tool("fast_search", {"query": "x"})).is_error
    assert "the description of a tool has changed" in (tmp_path / "err").read_text()
    assert oct((tmp_path / "pins.json").stat().st_mode & 0o777) == "0o600"
    async with stdio([*command, *server], tmp_path / "err") as connected:  # it is remembered
        assert (await connected.call_tool("search", {"query": "x"})).is_error
    async with stdio([*command, "--accept", *server], tmp_path / "err") as connected:
        assert not (await connected.call_tool("search", {"query": "x"})).is_error
    async with stdio([*command, *server], tmp_path / "err") as connected:
        assert not (await connected.call_tool("search", {"query": "x"})).is_error


async def test_costs_that_a_server_tells_settle_the_budget(on_bus, schedulers, tmp_path, wait_until):
    (tmp_path / "budget.yaml").write_text(BUDGET)
    await schedulers.start("cost-aware", "--config", tmp_path / "budget.yaml")
    told = {
        "servers": {"tests": {"command": [*SERVER, str(tmp_path)]}},
        "cost_meta": "example/cost",
        "pin": str(tmp_path / "pins.json"),
        "toolgate": {"required": ["cost-aware"], "patience_ms": 5000},
    }
    (tmp_path / "mcp.json").write_text(json.dumps(told))
    command = [*PROXY, *on_bus, "--config", tmp_path / "mcp.json"]
    async with stdio(command, tmp_path / "err") as connected:
        for _ in range(3):
            assert words_of(await connected.call_tool("priced", {})) == ["paid"]
        assert not (await connected.call_tool("search", {"query": "x"})).is_error

        where = ("--redis", on_bus[3], "--namespace", on_bus[5])

        async def settled():
            _, out, _ = await NURSERY.run("budget", "list", "--json", *where)
            rows = [json.loads(line) for line in out.splitlines()]
            return [(one["spent"], one["reserved"]) for one in rows] == [(750_000, 0)]

        await wait_until(settled, timeout=60)
        assert (await connected.call_tool("priced", {})).is_error  # 0.75, and 0.30 are estimated


@pytest.fixture
def several(tmp_path, server_url, namespace):
    """Two servers, one a program and one over HTTP, by a configuration; gives the proxy's command."""
    with server_over_http(tmp_path / "far") as url:
        (tmp_path / "near").mkdir()
        told = {
            "servers": {"near": {"command": [*SERVER, str(tmp_path / "near")]}, "far": {"url": url}},
            "pin": str(tmp_path / "pins.json"),
            "toolgate": {"patience_ms": 10_000, "agent": "tester", "required": ["alpha"]},
        }
        (tmp_path / "mcp.json").write_text(json.dumps(told))
        yield [*PROXY, "--redis", server_url, "--namespace", namespace, "--config", tmp_path / "mcp.json"]


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_several_servers_are_one_and_a_call_moves_between_them(several, schedulers, tmp_path, era):
    await schedulers.start("obedient:alpha")
    async with stdio(several, tmp_path / "err", era) as connected:
        names = [one.name for one in (await connected.list_tools()).tools]
        assert {"near__search", "far__search"} <= {*names}
        assert len(names) == len({*names}) == 32
        assert words_of(await connected.call_tool("near__search", {"query": "x"})) == [
            "search {'query': 'x'}"
        ]
        moved = {"action": "modify", "tool": "far__fast_search", "arguments": {"query": "y"}}
        notice, text = words_of(
            await connected.call_tool("near__search", {"query": "x", **rules(alpha=moved)})
        )
        assert text == "fast_search {'query': 'y'}"
        assert "far__fast_search ran in place of near__search" in notice
        assert notes(tmp_path / "far", "call fast_search")
        assert not notes(tmp_path / "near", "call fast_search")
        assert len((await connected.list_prompts()).prompts) == 2
        greeting = await connected.get_prompt("far__greet", {"who": "ann"})
        assert "greet" in greeting.messages[0].content.text
        assert (await connected.read_resource("note://one")).contents[0].text == "a note"
        with pytest.raises(MCPError, match="there is no tool"):
            await connected.call_tool("search", {"query": "x"})
        with pytest.raises(MCPError, match="near has ended: exit code 3"):
            await connected.call_tool("near__die", {})
        assert words_of(await connected.call_tool("far__search", {"query": "x"})) == ["search {'query': 'x'}"]
        assert (await connected.call_tool("near__search", {"query": "x"})).is_error


async def test_over_http_only_who_has_the_token_is_heard(on_bus, tmp_path):
    with proxy_over_http(
        tmp_path / "proxy",
        *on_bus,
        "--pin",
        tmp_path / "pins.json",
        "--",
        *SERVER,
        tmp_path,
        TOOLGATE_MCP_TOKEN="0123456789abcdef",
    ) as (url, program):
        slow = socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=30)
        slow.sendall(b"POST /mcp HTTP/1.1\r\n")
        assert status(url) == 401
        assert status(url, Authorization="Bearer 0123456789abcdeX") == 401
        good = {"Authorization": "Bearer 0123456789abcdef"}
        assert status(url, **good) == 400  # heard, and no message of a session
        assert status(url, Host="evil.example", **good) == 421
        assert status(url, Origin="https://evil.example", **good) == 403
        assert status(url.replace("/mcp", "/other"), **good) == 404
        assert status(url.replace("/mcp", "/healthz")) == 200
        assert "0123456789abcdef" not in program.said
        assert not notes(tmp_path, "started")
        with slow, contextlib.suppress(ConnectionResetError):  # it never came to the point
            assert slow.recv(1) == b""
        assert program.end() in (0, 143)


async def test_it_ends_with_1_and_says_why_where_the_server_ends_first(on_bus, tmp_path):
    errors = tmp_path / "err"
    process = await raw([*PROXY, *on_bus, "--pin", tmp_path / "pins.json", "--", *SERVER, tmp_path], errors)
    opening = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    }
    assert (await ask(process, 1, "initialize", opening))["result"]["serverInfo"]["name"] == "for-tests"
    say(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    died = await ask(process, 2, "tools/call", {"name": "die", "arguments": {}})
    assert "has ended: exit code 3" in died["error"]["message"]
    assert await process.stdout.read() == b""
    assert await process.wait() == 1
    assert "has ended: exit code 3" in errors.read_text()


async def test_a_signal_ends_it_and_its_server(on_bus, tmp_path, wait_until):
    command = [*PROXY, *on_bus, "--pin", tmp_path / "pins.json", "--", *SERVER, tmp_path]
    process = await raw(command, tmp_path / "err")
    await wait_until(lambda: notes(tmp_path, "started"), timeout=60)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 143
    await wait_until(lambda: notes(tmp_path, "ended"))


async def test_whatever_a_client_writes_only_messages_are_on_stdout(on_bus, tmp_path):
    process = await raw(
        [*PROXY, *on_bus, "--pin", tmp_path / "pins.json", "--", *SERVER, tmp_path], tmp_path / "err"
    )
    process.stdin.write(b"\n\nhello\n[]\n{\n\xff\xfe\n")
    process.stdin.write(
        b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":"' + b"x" * (17 << 20) + b'"}\n'
    )
    process.stdin.write(b'{"jsonrpc":"2.0","id":"q' + b"x" * (17 << 20) + b'"}\n')  # nobody knows whose
    told = [json.loads(await process.stdout.readline()) for _ in range(6)]
    assert [one["id"] for one in told] == [None, None, None, None, 5, None]
    assert all("error" in one for one in told)
    assert await process.stdout.read() == b""
    process.stdin.close()
    assert await process.wait() in (0, 1)


async def test_two_hundred_calls_at_once_are_each_ruled_on_and_answered(on_bus, schedulers, tmp_path):
    await schedulers.start("obedient:alpha", "--concurrency", 2000)
    deny = {"action": "deny", "reason": "no"}
    with server_over_http(tmp_path / "server") as address:
        (tmp_path / "mcp.json").write_text(
            json.dumps(
                {
                    "servers": {"tests": {"url": address}},
                    "pin": str(tmp_path / "pins.json"),
                    "toolgate": {"patience_ms": 60_000, "required": ["alpha"]},
                }
            )
        )
        command = [*PROXY, *on_bus, "--config", tmp_path / "mcp.json"]
        for era in ("legacy", "modern"):
            async with stdio(command, tmp_path / "err", era) as connected:
                answers = await asyncio.gather(
                    *(
                        connected.call_tool("wait", rules(alpha=deny) if number % 4 == 0 else {})
                        for number in range(200)
                    )
                )
            assert [one.is_error for one in answers] == [number % 4 == 0 for number in range(200)]
    assert len(notes(tmp_path / "server", "call wait")) == 2 * 150
    assert len(schedulers.lines("decided", tool="wait")) == 2 * 200


async def test_the_servers_environment_knows_nothing_of_the_bus(on_bus, tmp_path):
    command = [*PROXY, *on_bus, "--pin", tmp_path / "pins.json", "--", *SERVER, tmp_path]
    told = parameters(command, TOOLGATE_REDIS_PASSWORD_FILE="/nowhere", TOOLGATE_MCP_TOKEN="0123456789abcdef")
    assert "TOOLGATE_MCP_TOKEN" in told.env
    async with client(told, "legacy") as connected:
        assert words_of(await connected.call_tool("env", {})) == ["none"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "name the server"),
        (("--", "no-such-program"), "no-such-program cannot be started"),
        (("ftp://x",), "ftp://x cannot be started"),
        (("http://user:secret@x/mcp",), "holds a password"),
        (("--http", "0", "--address", "0.0.0.0", "http://127.0.0.1:1/mcp"), "set TOOLGATE_MCP_TOKEN"),
        (("--config", "nowhere.yaml"), "cannot be read"),
    ],
)
async def test_what_cannot_work_is_said_on_stderr_with_exit_code_2(on_bus, tmp_path, words, said):
    errors = tmp_path / "err"
    pin = ("--pin", tmp_path / "pins.json")
    process = await raw([*PROXY, *on_bus, *pin, *words], errors)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), 60)
    assert process.returncode == 2, errors.read_text()
    assert said in errors.read_text().replace("\n", " ")
    assert "secret" not in errors.read_text()
    assert await process.stdout.read() == b""
