"""`toolgate mcp` between clients and servers of the official SDK, ruled on by scheduler processes: each
answer kind.

Most of it over HTTP, where one proxy and one server serve all tests of the file; both eras of the protocol.
"""

import asyncio
import json

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError
from mcp_world import (
    PROXY,
    SERVER,
    Heard,
    Person,
    client,
    notes,
    proxy_over_http,
    rules,
    server_over_http,
    status,
    stdio,
    words_of,
)

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(120)]

DENY = {"action": "deny", "reason": "not today"}
ASK = {"action": "ask_user", "prompt": "may it?"}
BOTH = pytest.mark.parametrize("era", ["legacy", "modern"])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("mcp") / "server"


@pytest.fixture(scope="module")
def server_address(place):
    with server_over_http(place) as url:
        yield url


@pytest.fixture(scope="module")
def options(crew):
    return ("--agent", "tester", "--redis", crew.url, "--namespace", crew.namespace)


@pytest.fixture(scope="module")
def proxy(place, server_address, options):
    """The proxy's address; alpha, beta and gamma are asked about each call."""
    config = place.parent / "config.json"
    gate = {"patience_ms": 10_000, "required": ["alpha", "beta", "gamma"]}
    told = {
        "servers": {"tests": {"url": server_address}},
        "toolgate": gate,
        "pin": str(place.parent / "pins.json"),
    }
    config.write_text(json.dumps(told))
    with proxy_over_http(place.parent / "proxy", *options, "--config", config) as (url, _):
        yield url


def modify(tool, **arguments):
    return {"action": "modify", "tool": tool, "arguments": arguments, "reason": "it is better"}


async def call(proxy, era, tool, arguments, **options):
    async with client(proxy, era, **options) as connected:
        return await connected.call_tool(tool, arguments)


@BOTH
async def test_a_call_that_nobody_objects_to_passes_untouched(proxy, server_address, era):
    async with client(proxy, era) as through, client(server_address, era) as direct:
        for tool in ("search", "structured", "picture", "fail"):
            arguments = {"query": "x", **rules()}
            expected = await direct.call_tool(tool, arguments)
            assert await through.call_tool(tool, arguments) == expected
        assert (await through.list_tools()) == (await direct.list_tools())


@BOTH
async def test_a_denied_call_is_an_error_with_the_reason_and_never_reaches_the_server(proxy, place, era):
    before = len(notes(place, "call write"))
    result = await call(proxy, era, "write", {"path": "a", **rules(beta=DENY)})
    assert result.is_error
    assert words_of(result) == ["The tool call was denied: not today"]
    assert result.meta["toolgate/decision"]
    assert len(notes(place, "call write")) == before


@BOTH
async def test_other_arguments_are_sent_and_told(proxy, era):
    result = await call(proxy, era, "search", {"query": "x", **rules(alpha=modify("search", query="y"))})
    notice, text = words_of(result)
    assert text == "search {'query': 'y'}"
    assert "other arguments" in notice
    assert "it is better" in notice


@BOTH
async def test_another_tool_runs_in_its_place_and_that_is_told(proxy, era):
    changed = modify("fast_search", query="y")
    notice, text = words_of(await call(proxy, era, "search", {"query": "x", **rules(alpha=changed)}))
    assert text == "fast_search {'query': 'y'}"
    assert "fast_search ran in place of search" in notice


@BOTH
async def test_arguments_that_do_not_fit_the_other_tools_schema_are_not_sent(proxy, place, era):
    before = len(notes(place, "call write"))
    result = await call(proxy, era, "search", {"query": "x", **rules(alpha=modify("write", file="y"))})
    assert "alpha gave no valid answer" in words_of(result)[0]
    assert len(notes(place, "call write")) == before


@BOTH
async def test_a_tool_with_a_promised_form_is_not_replaced_by_one_of_another_form(proxy, era):
    result = await call(proxy, era, "structured", rules(alpha=modify("search", query="y")))
    assert "alpha gave no valid answer" in words_of(result)[0]


@BOTH
@pytest.mark.parametrize(("action", "runs"), [("accept", True), ("decline", False), ("cancel", False)])
async def test_a_person_is_asked_in_the_client(proxy, era, action, runs):
    person = Person(action)
    result = await call(proxy, era, "search", {"query": "x", **rules(gamma=ASK)}, person=person)
    assert len(person.asked) == 1
    assert "may it?" in person.asked[0]
    assert '"query": "x"' in person.asked[0]
    assert result.is_error is not runs
    assert (words_of(result) == ["search {'query': 'x'}"]) is runs


@BOTH
async def test_where_the_client_cannot_ask_the_call_is_denied(proxy, era):
    result = await call(proxy, era, "search", {"query": "x", **rules(gamma=ASK)})
    assert result.is_error
    assert words_of(result)[0].startswith("The tool call was denied: ")


@BOTH
async def test_a_person_who_says_nothing_in_time_is_asked_no_longer(proxy, era):
    person = Person()
    person.seconds = 1.0
    asked = {**ASK, "timeout_s": 0.3}
    result = await call(proxy, era, "search", {"query": "x", **rules(gamma=asked)}, person=person)
    assert result.is_error


@BOTH
async def test_a_held_call_waits_for_its_answer(proxy, era):
    hold = {"action": "hold", "seconds": 30, "then": {"action": "deny", "reason": "after all", "after": 0.2}}
    result = await call(proxy, era, "search", {"query": "x", **rules(gamma=hold)})
    assert words_of(result) == ["The tool call was denied: after all"]


@BOTH
async def test_a_client_that_gives_up_withdraws_the_question(proxy, era, crew, wait_until):
    hold = {"action": "hold", "seconds": 60, "then": {"action": "continue", "after": 60}}
    before = len(crew.lines("withdrawn", scheduler="gamma"))
    asked = len(crew.lines("decided", scheduler="gamma"))
    async with client(proxy, era) as connected:
        calling = asyncio.create_task(connected.call_tool("search", {"query": "x", **rules(gamma=hold)}))
        await wait_until(lambda: len(crew.lines("decided", scheduler="gamma")) > asked)
        calling.cancel()
        await wait_until(lambda: len(crew.lines("withdrawn", scheduler="gamma")) > before)


@BOTH
async def test_progress_passes_and_a_cancellation_reaches_the_server(proxy, place, era, wait_until):
    heard, before = Heard(), len(notes(place, "cancelled"))
    waiting = len(notes(place, "waits"))
    async with client(proxy, era) as connected:
        calling = asyncio.create_task(connected.call_tool("slow", rules(), progress_callback=heard.note))
        await wait_until(lambda: len(notes(place, "waits")) > waiting and len(heard.progress) == 2)
        assert heard.progress == [(1, 2, "step 1"), (2, 2, "step 2")]
        calling.cancel()
        await wait_until(lambda: len(notes(place, "cancelled")) > before)


async def test_what_a_server_asks_its_client_passes_in_the_older_era(proxy):
    heard, person = Heard(), Person(content={"name": "ann"})
    async with client(proxy, "legacy", person=person, heard=heard) as connected:
        assert words_of(await connected.call_tool("sample", rules())) == ["sampled file:///work"]
        assert words_of(await connected.call_tool("confirm", rules())) == ["hello ann"]


async def test_what_a_server_asks_for_in_the_newer_era_is_one_ruled_call(proxy, crew):
    person = Person(content={"name": "ann"})
    before = len(crew.lines("decided", scheduler="alpha", tool="confirm"))
    result = await call(proxy, "modern", "confirm", rules(), person=person)
    assert words_of(result) == ["hello ann round one"]
    assert person.asked == ["your name?"]
    assert len(crew.lines("decided", scheduler="alpha", tool="confirm")) == before + 1


async def test_our_question_and_the_servers_both_reach_the_person_in_the_newer_era(proxy):
    person = Person(content={"name": "ann"})
    result = await call(proxy, "modern", "confirm", rules(gamma=ASK), person=person)
    assert words_of(result) == ["hello ann round one"]
    assert len(person.asked) == 2


async def test_an_answer_counts_for_the_very_call_that_was_asked_about(proxy, place):
    async with client(proxy, "modern", person=Person()) as connected:
        session, first = connected.session, {"query": "x", **rules(gamma=ASK)}
        asked = await session.call_tool("search", first, allow_input_required=True)
        assert isinstance(asked, types.InputRequiredResult)
        said = {"toolgate": types.ElicitResult(action="accept", content={})}
        words = []
        for arguments in ({**first, "query": "other"}, first, first):
            result = await session.call_tool(
                "search", arguments, input_responses=said, request_state=asked.request_state
            )
            words.append(words_of(result)[0])
    other, first_time, second_time = words
    assert "not the call that a person was asked about" in other
    assert first_time == "search {'query': 'x'}"
    assert "allowed already" in second_time


@BOTH
async def test_logging_prompts_resources_and_completions_pass(proxy, era):
    heard = Heard()
    async with client(proxy, era, heard=heard) as connected:
        await connected.call_tool("tell", rules())
        assert heard.logs == ["a word"]
        assert [one.name for one in (await connected.list_prompts()).prompts] == ["greet"]
        assert "greet" in (await connected.get_prompt("greet", {"who": "ann"})).messages[0].content.text
        assert (await connected.read_resource("note://one")).contents[0].text == "a note"
        reference = types.PromptReference(name="greet")
        completed = await connected.complete(reference, {"name": "who", "value": "a"})
        assert completed.completion.values == ["ann", "anna"]


@BOTH
async def test_an_error_of_the_server_is_the_servers_error(proxy, server_address, era):
    async with client(proxy, era) as through, client(server_address, era) as direct:
        with pytest.raises(MCPError) as expected:
            await direct.read_resource("note://none")
        with pytest.raises(MCPError) as told:
            await through.read_resource("note://none")
        assert told.value.error == expected.value.error


@BOTH
async def test_over_stdio_it_is_the_same_and_everything_ends_with_the_client(
    options, tmp_path, era, wait_until
):
    command = [*PROXY, *options, "--pin", tmp_path / "pins.json", "--", *SERVER, tmp_path]
    person = Person(content={"name": "ann"})
    async with stdio(command, tmp_path / "err", era, person=person) as connected:
        assert words_of(await connected.call_tool("search", {"query": "x", **rules()})) == [
            "search {'query': 'x'}"
        ]
        assert (await connected.call_tool("search", rules(alpha=DENY))).is_error
        assert words_of(await connected.call_tool("search", {"query": "x", **rules(gamma=ASK)})) == [
            "search {'query': 'x'}"
        ]
        assert words_of(await connected.call_tool("confirm", rules()))[0].startswith("hello ann")
        changed = modify("fast_search", query="y")
        assert (
            words_of(await connected.call_tool("search", rules(alpha=changed)))[1]
            == "fast_search {'query': 'y'}"
        )
        assert words_of(await connected.call_tool("env", rules())) == ["none"]
    await wait_until(lambda: notes(tmp_path, "ended"))


@pytest.mark.parametrize(
    ("status_told", "headers"),
    [
        (421, {"Host": "evil.example"}),
        (421, {"Host": "127.0.0.1.evil.example:80"}),
        (421, {"Host": ""}),
        (403, {"Origin": "https://evil.example"}),
        (403, {"Origin": "null"}),
        (403, {"Origin": "http://127.0.0.1.evil.example"}),
        (415, {"content-type": "text/plain"}),
    ],
)
async def test_only_this_machine_and_its_own_pages_are_heard(proxy, place, status_told, headers):
    before = len(notes(place, "call"))
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "page", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "write", "arguments": {"path": "a"}, "_meta": meta}
    called = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    known = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "write"}
    body = json.dumps(called).encode()
    assert status(proxy, body=body, **known, **headers) in (status_told, 400)
    assert len(notes(place, "call")) == before
    assert status(proxy, body=body, **known) == 200  # it is heard without
    assert len(notes(place, "call")) == before + 1
