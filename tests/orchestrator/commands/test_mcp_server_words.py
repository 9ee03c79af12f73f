"""What a server says by itself through the proxy: no way around the rules on its results."""

import contextlib
import json

import pytest
from mcp_sessions import MODERN, Front, call, noted, opened, ruling
from toolgate_bus.telemetry import metrics
from toolgate_orchestrator.commands.mcp.messages import WITHHELD
from toolgate_schedulers import Continue, Deny

SECRET = "key-abc123"
ASKED = ("elicitation/create", "sampling/createMessage")


class Client(Front):
    """One that answers what it is asked."""

    async def send_raw_request(self, method, params, opts=None):
        self.told.append((method, params))
        return {"roots": []}


@pytest.fixture
def open_session(tmp_path, server_url, namespace):
    """`open_session(phases=("result",))`: with a required scheduler of these phases; gives both."""

    @contextlib.asynccontextmanager
    async def open_(phases=("result",), tools=("*",), required=("ruler",)):
        gate = {"required": list(required), "patience_ms": 10_000, "agent": "tester"}
        async with (
            ruling(server_url, namespace, phases=phases, tools=tools) as ruler,
            opened(tmp_path, server_url, namespace, "plain", gate=gate) as session,
        ):
            session.front = Client()
            yield session, ruler

    return open_


async def chatter(session, wait_until):
    """What a client is told while a server says a secret in every way that it has."""
    await session.on_request(Front(5), "resources/read", {"uri": "note://one"})
    front = Client()
    await call(session, "chatter", meta={"progressToken": "p"}, front=front, words=SECRET)
    told = front.told
    await wait_until(lambda: any("prompts" in method for method, _ in session.front.told))
    return told + session.front.told


async def test_no_word_that_a_server_says_by_itself_passes_while_results_of_it_are_ruled_on(
    open_session, wait_until
):
    async with open_session() as (session, _):
        before = metrics.MCP_WITHHELD_WORDS.series.copy()
        told = await chatter(session, wait_until)
    assert SECRET not in json.dumps(told)
    assert sorted(told, key=lambda one: one[0]) == [
        ("notifications/message", {"level": "warning", "data": WITHHELD}),
        ("notifications/message", {"level": "info", "data": WITHHELD}),
        ("notifications/progress", {"progressToken": "p", "progress": 1, "total": 2}),
        ("notifications/progress", {"progressToken": "p", "progress": 2.5}),
        ("notifications/prompts/list_changed", {}),
        ("notifications/resources/updated", {"uri": "note://one"}),
        (
            "notifications/subscriptions/acknowledged",
            {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["note://one"]}},
        ),
        ("notifications/tools/list_changed", {}),
    ]
    counted = {
        kind: count - before.get((kind,), 0)
        for (kind,), count in metrics.MCP_WITHHELD_WORDS.series.items()
        if count > before.get((kind,), 0)
    }
    assert counted == {"progress": 2, "log": 2, "other": 5}


async def test_nobody_who_rules_on_results_and_every_word_passes_as_it_is(open_session, wait_until):
    async with open_session(phases=("select",)) as (session, _):
        told = await chatter(session, wait_until)
    assert len(told) == 10
    assert json.dumps(told).count(SECRET) >= 10


async def test_a_ruler_of_other_tools_alone_withholds_no_words(open_session, wait_until):
    async with open_session(tools=("of_another_server",), required=()) as (session, _):
        assert SECRET in json.dumps(await chatter(session, wait_until))


async def test_a_server_that_asks_is_ruled_on_as_a_result_of_its_call(open_session, tmp_path):
    async with open_session() as (session, ruler):
        client = Client()
        ruler.answer = lambda asked: Deny(reason="no") if SECRET in str(asked.result) else Continue()
        await call(session, "asks", front=client, words=SECRET)
        assert client.told == [("roots/list", {})]
        said = sorted(noted(tmp_path, "error"))
        assert said == ["", *["the words of this request are withheld from the client"] * 2]
        questions = [one for one in ruler.asked if SECRET in str(one.result)]
        assert {one.tool_name for one in questions} == {"asks"}
        assert sorted(next(iter(one.result)) for one in questions) == sorted(ASKED)
        await call(session, "asks", 8, front=client, words="your name?")
        assert sorted(method for method, _ in client.told[1:]) == sorted([*ASKED, "roots/list"])


async def test_a_server_that_asks_without_a_call_is_not_heard(open_session):
    async with open_session() as (session, _):
        server = (await session.backends()).servers[0]
        with pytest.raises(Exception, match="are withheld"):
            await session.answer(server, "elicitation/create", {"message": SECRET})
        assert session.front.told == []


@pytest.mark.parametrize("denied", [True, False])
async def test_what_a_tool_asks_for_before_it_runs_is_ruled_on_as_its_result(open_session, denied):
    async with open_session() as (session, ruler):
        ruler.answer = lambda asked: Deny(reason="not that") if denied else Continue()
        result = await call(session, "needs_input", meta=MODERN, words=SECRET)
        (asked,) = ruler.asked
        assert asked.result == {
            "inputRequests": {"q": {"method": "elicitation/create", "params": {"message": SECRET}}}
        }
        assert (SECRET in json.dumps(result)) is not denied
        if denied:
            assert result["isError"]
            assert result["content"][0]["text"].endswith("its question is withheld: not that")
        else:
            assert result["requestState"] == "s"
            session._calls._questions.end()  # the client never calls again
