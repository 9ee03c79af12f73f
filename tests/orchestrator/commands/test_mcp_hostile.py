"""Servers of MCP that misbehave: each fault is a clear error for the client, and the proxy goes on or ends
cleanly."""

import asyncio
from pathlib import Path

import pytest
from mcp_sessions import MODERN, OPENING, Front, call, noted, opened, still_works, words_of
from toolgate_orchestrator.commands.mcp import child as child_room
from toolgate_orchestrator.commands.mcp import sdk
from toolgate_orchestrator.commands.mcp.catalog import MAX_TOOLS
from toolgate_orchestrator.commands.mcp.messages import CAPABILITIES

pytestmark = pytest.mark.system


@pytest.fixture
def open_session(tmp_path, server_url, namespace):
    return lambda *kinds, **settings: opened(tmp_path, server_url, namespace, *kinds, **settings)


async def test_a_server_that_lists_too_many_tools_is_refused(open_session):
    async with open_session("many", max_message_mb=64) as session:
        for _ in range(2):
            with pytest.raises(
                sdk.MCPError, match=r"lists more tools than the proxy accepts|more than 10000"
            ):
                await call(session, "echo")
        with pytest.raises(sdk.MCPError, match=f"more than {MAX_TOOLS} tools"):
            await session.on_request(Front(), "tools/list", {})


async def test_a_list_that_does_not_end_is_refused(open_session):
    async with open_session("endless") as session:
        with pytest.raises(sdk.MCPError, match="lists more tools than the proxy accepts"):
            await call(session, "echo")


async def test_tools_whose_names_steer_are_left_out(open_session):
    async with open_session("names") as session:
        listed = await session.on_request(Front(), "tools/list", {})
        assert [one["name"] for one in listed["tools"]] == ["echo"]
        await still_works(session)
        with pytest.raises(sdk.MCPError, match="no tool can be named"):
            await call(session, "a\x1b[2Jb")


async def test_a_tool_that_stands_in_the_list_twice_is_there_once(open_session, tmp_path):
    async with open_session("twice") as session:
        listed = await session.on_request(Front(), "tools/list", {})
        assert listed["tools"] == [{"name": "echo", "inputSchema": {"type": "object"}}]


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
        with pytest.raises(sdk.MCPError, match="was dropped: the proxy accepts 4194304"):
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
    [
        None,
        {},
        {"name": 7},
        {"name": "echo", "arguments": [1]},
        {"name": "echo", "arguments": "text"},
        {"name": "echo", "_meta": 5},
        {"name": "echo", "_meta": [["a", 1]]},
    ],
)
async def test_a_call_of_another_form_is_refused_and_reaches_no_server(open_session, tmp_path, params):
    async with open_session("plain") as session:
        with pytest.raises(sdk.MCPError, match=r"arguments as an object|_meta must be an object"):
            await session.on_request(Front(), "tools/call", params)
        await still_works(session)
    assert noted(tmp_path, "call") == ["echo"]


@pytest.mark.parametrize("method", ["Tools/Call", " tools/call", "tools//call", "TOOLS.CALL", "tools/call\n"])
async def test_no_other_spelling_of_a_call_reaches_a_server(open_session, tmp_path, method):
    async with open_session("plain") as session:
        with pytest.raises(sdk.MCPError, match="the proxy does not pass on"):
            await session.on_request(Front(), method, {"name": "echo", "arguments": {}})
    assert noted(tmp_path, "call") == []


@pytest.mark.parametrize("method", ["tasks/get", "tasks/result", "tools/run", "unknown/method"])
async def test_a_request_that_the_proxy_does_not_know_reaches_no_server(open_session, method):
    async with open_session("plain") as session:
        with pytest.raises(sdk.MCPError, match=f"the proxy does not pass on {method}") as refused:
            await session.on_request(Front(), method, {"taskId": "t1"})
        assert refused.value.code == sdk.METHOD_NOT_FOUND
        await still_works(session)


async def test_no_client_is_offered_tasks_and_a_call_that_wants_one_is_a_plain_call(open_session):
    async with open_session("plain") as session:
        told = await session.on_request(Front(), "initialize", OPENING)
        assert told["capabilities"] == {"tools": {}}
        discovered = await session.on_request(Front(), "server/discover", {"_meta": MODERN})
        assert discovered["capabilities"] == {"tools": {}, "extensions": {"a/b": {}}}
        assert words_of(await call(session, "echo", again={"task": {"ttl": 1}}, a=1)) == '{"a": 1}'


async def test_no_server_learns_of_a_client_that_takes_tasks(open_session):
    able = {"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}, "a/b": {}}}
    async with open_session("plain") as session:
        result = await call(session, "meta", meta={**MODERN, CAPABILITIES: able})
    assert result["structuredContent"][CAPABILITIES] == {"elicitation": {}, "extensions": {"a/b": {}}}


async def test_of_a_line_that_is_no_message_its_length_alone_is_logged(open_session, caplog):
    async with open_session("plain") as session:
        assert (await call(session, "odd_line"))["content"] == []
    assert "a line is not an MCP message and is skipped (peer='plain', bytes=21)" in caplog.text
    assert "key-abc123" not in caplog.text


@pytest.mark.parametrize("method", ["tools/call", "Tools/Call", "initialize", ""])
async def test_a_request_without_an_id_reaches_no_server(open_session, tmp_path, method):
    async with open_session("plain") as session:
        await session.on_notify(Front(None), method, {"name": "other", "arguments": {}})
        await still_works(session)
    assert noted(tmp_path, "call") == ["echo"]


class Deaf(Front):
    """A client that never takes what it is told, and never answers."""

    async def notify(self, method, params, opts=None):
        await asyncio.Event().wait()

    async def send_raw_request(self, method, params, opts=None):
        await asyncio.Event().wait()


@pytest.mark.parametrize("tool", ["flood", "ask_much"])
async def test_who_talks_to_a_client_that_does_not_listen_fills_no_memory(open_session, tmp_path, tool):
    async with open_session("plain") as session:
        session.front = Deaf()
        assert (await call(session, tool, front=Deaf(9)))["content"] == []
        await still_works(session)
        doing = [task for task in asyncio.all_tasks() if not task.done()]
        assert len(doing) < 1_200
    if tool == "ask_much":
        refused = noted(tmp_path, "error")
        assert refused.count("1000 requests are still open") >= 2_000


async def test_a_server_that_writes_much_to_stderr_is_heard_as_before(open_session, capfd):
    async with open_session("plain") as session:
        assert (await call(session, "shout"))["content"] == []
        await still_works(session)
    assert len(capfd.readouterr().err) > 5_000_000


async def test_a_server_that_never_lists_its_tools_is_an_error_of_its_own_calls_alone(open_session):
    async with open_session("plain", "never_lists") as session:
        deaf = (await session.backends()).servers[1]
        deaf._config = deaf._config.model_copy(update={"start_timeout_s": 0.2})
        result = await call(session, "plain__echo", a=1)
        assert words_of(result) == '{"a": 1}'
        with pytest.raises(sdk.MCPError, match=r"never_lists did not answer in 0\.2 s"):
            await call(session, "never_lists__echo")
        listed = await session.on_request(Front(), "tools/list", {})
        assert [one["name"] for one in listed["tools"]] == ["plain__echo", "plain__other", "plain__whole"]


async def test_what_two_clients_are_told_and_answered_stays_apart(open_session):
    """They are served by one server, and give the same ids and tokens."""
    async with open_session("plain", shared=True) as session:
        fronts = [Front(7) for _ in range(20)]
        results = await asyncio.gather(
            *(
                call(session, "backwards", meta={"progressToken": 1}, front=front, number=number, of=20)
                for number, front in enumerate(fronts)
            )
        )
        assert [one["structuredContent"]["number"] for one in results] == list(range(20))
        for number, front in enumerate(fronts):
            told = [params for method, params in front.told if method == "notifications/progress"]
            assert told == [{"progressToken": 1, "progress": number}]


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
