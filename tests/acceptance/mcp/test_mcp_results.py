"""Results through `toolgate mcp`, ruled on by a scheduler process: both eras, over stdio and HTTP."""

import asyncio
import json
import sys

import pytest
from mcp.shared.exceptions import MCPError
from mcp_world import (
    HOSTILE,
    PROXY,
    SERVER,
    Heard,
    Person,
    ask,
    client,
    proxy_over_http,
    raw,
    say,
    server_over_http,
    stdio,
    words_of,
)

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(120)]

SECRET = "key-abc123"
OPENING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
BOTH = pytest.mark.parametrize("era", ["legacy", "modern"])


@pytest.fixture
async def options(schedulers, server_url, namespace, tmp_path):
    """Those of a proxy behind which a required scheduler rules on results."""
    await schedulers.start("by_result:by_result")
    where = ("--redis", server_url, "--namespace", namespace, "--pin", tmp_path / "pins.json")
    return (*where, "--agent", "tester", "--required", "by_result")


@pytest.fixture
def proxy(options, tmp_path):
    with (
        server_over_http(tmp_path / "server") as server,
        proxy_over_http(tmp_path / "proxy", *options, server) as (url, _),
    ):
        yield url


@BOTH
async def test_results_are_released_masked_withheld_and_replaced(proxy, era):
    async with client(proxy, era) as connected:
        plain = await connected.call_tool("search", {"query": "hello"})
        assert words_of(plain) == ["search {'query': 'hello'}"]
        masked = await connected.call_tool("search", {"query": SECRET})
        assert words_of(masked) == ["search {'query': '[withheld: a key]'}"]
        withheld = await connected.call_tool("search", {"query": f"withhold-me {SECRET}"})
        assert SECRET not in str(withheld)
        assert words_of(withheld) == ["The tool ran, but its result is withheld: that leaves nobody's house"]
        assert not withheld.is_error
        replaced = await connected.call_tool("search", {"query": f"replace-me {SECRET}"})
        assert words_of(replaced) == ["something else"]


@BOTH
async def test_a_result_of_a_promised_form_and_one_with_data_pass_untouched(proxy, era):
    async with client(proxy, era) as connected:
        await connected.list_tools()
        structured = await connected.call_tool("structured", {})
        assert structured.structured_content == {"sum": 3}
        picture = await connected.call_tool("picture", {})
        assert picture.content[0].data == "aGk="


@BOTH
async def test_words_that_a_server_says_by_itself_are_withheld_and_its_progress_and_questions_live_on(
    proxy, era, wait_until
):
    heard, person = Heard(), Person("accept", {"name": "ann"})
    async with client(proxy, era, person, heard) as connected:
        await connected.call_tool("tell", {})
        await wait_until(lambda: heard.logs)
        assert heard.logs == ["[withheld: words of the server, which no rule has seen]"]
        calling = asyncio.create_task(connected.call_tool("slow", {}, progress_callback=heard.note))
        await wait_until(lambda: len(heard.progress) == 2)
        assert heard.progress == [(1, 2, None), (2, 2, None)]
        calling.cancel()
        confirmed = await connected.call_tool("confirm", {})
        assert words_of(confirmed)[0].startswith("hello ann")
        assert person.asked == ["your name?"]


async def test_a_resource_of_which_nothing_is_hidden_passes_untouched(proxy):
    async with client(proxy, "legacy") as connected:
        read = await connected.read_resource("note://one")
        assert read.contents[0].text == "a note"
        with pytest.raises(MCPError, match="no such note"):
            await connected.read_resource("note://none")


async def test_a_task_is_no_way_around_the_rules(options, tmp_path):
    command = [*PROXY, *options, "--", sys.executable, "-S", HOSTILE, "plain"]
    process = await raw(command, tmp_path / "err")
    opened = await ask(process, 1, "initialize", OPENING)
    assert opened["result"]["capabilities"] == {"tools": {}}
    say(process, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    wanted = {"name": "echo", "arguments": {"a": SECRET}, "task": {"ttl": 1000}}
    called = await ask(process, 2, "tools/call", wanted)
    assert called["result"]["content"][0]["text"] == '{"a": "[withheld: a key]"}'
    for id_, method in enumerate(("tasks/result", "tasks/get", "tools/run"), 3):
        refused = await ask(process, id_, method, {"taskId": "t1"})
        assert refused["error"] == {"code": -32601, "message": f"the proxy does not pass on {method}"}
    process.stdin.close()
    assert await process.wait() == 0


async def test_a_long_result_is_cut_where_no_rule_has_seen_it(options, tmp_path):
    command = [*PROXY, *options, "--", *SERVER]
    async with stdio(command, tmp_path / "err") as connected:
        result = await connected.call_tool("big", {"size": 200_000})
        first, mark = words_of(result)
        assert set(first) == {"x"}
        assert 60_000 < len(first) < 66_000
        assert "which no rule has seen" in mark
        assert json.loads(json.dumps(result.meta))["toolgate/decision"]
