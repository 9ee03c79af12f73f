"""Results through the proxy, with a scheduler that rules on them: no client gets what was hidden."""

import asyncio
import contextlib
import json

import pytest
from hostile_mcp import DATA, WHOLE
from mcp_sessions import MODERN, Front, call, noted, opened, ruling, words_of
from toolgate_orchestrator.commands.mcp import sdk
from toolgate_schedulers import AskUser, Continue, Deny, Hold, Mask, MaskedPart, Replace

SECRET = "key-abc123"
WITHHELD = "The tool ran, but its result is withheld: not yours"


@pytest.fixture
def open_session(tmp_path, server_url, namespace):
    """`open_session("plain")`: with a required scheduler of results alone; gives both."""

    @contextlib.asynccontextmanager
    async def open_(*kinds, **settings):
        gate = {"required": ["ruler"], "patience_ms": 10_000, "agent": "tester", **settings.pop("gate", {})}
        async with (
            ruling(server_url, namespace, phases=("result",), **settings.pop("scheduler", {})) as ruler,
            opened(tmp_path, server_url, namespace, *kinds, gate=gate, **settings) as session,
        ):
            yield session, ruler

    return open_


def hide(asked):
    """The mask of all of the first text."""
    return Mask(parts=(MaskedPart("/content/0/text", name="key"),))


async def test_a_scheduler_of_results_sees_content_and_structure_of_what_ran_and_data_by_size(open_session):
    async with open_session("plain") as (session, ruler):
        assert await call(session, "whole") == WHOLE  # to the last field
        (asked,) = ruler.asked
        assert (asked.phase, asked.tool_name, asked.success) == ("result", "whole", True)
        assert asked.result["structuredContent"] == WHOLE["structuredContent"]
        assert asked.result["later"] == WHOLE["later"]
        assert DATA not in json.dumps(asked.result)
        assert asked.result["content"][0]["data"] == "[image/png, 120 bytes, not shown to rules]"


@pytest.mark.parametrize("meta", [None, MODERN], ids=["legacy", "modern"])
async def test_what_is_withheld_reaches_no_client(open_session, meta):
    async with open_session("plain") as (session, ruler):
        ruler.answer = lambda asked: Deny(reason="not yours")
        result = await call(session, "echo", meta=meta, secret=SECRET)
        assert SECRET not in json.dumps(result)
        assert words_of(result) == WITHHELD
        assert "isError" not in result  # the tool told no failure
        assert result["_meta"]["toolgate/decision"]


async def test_a_resource_is_ruled_on_as_the_result_of_a_tool_of_the_methods_name(open_session):
    async with open_session("plain") as (session, ruler):
        params = {"uri": "note://one"}
        read = await session.on_request(Front(3), "resources/read", params)
        (asked,) = ruler.asked
        assert (asked.phase, asked.tool_name, asked.tool_input) == ("result", "resources/read", params)
        assert asked.session == session.name
        ruler.answer = lambda asked: Deny(reason="not yours")
        withheld = await session.on_request(Front(4), "resources/read", params)
        assert [one["text"] for one in withheld["contents"]] == [WITHHELD]
        assert read["contents"] != withheld["contents"]
        with pytest.raises(sdk.MCPError, match="its result is withheld: not yours"):
            await session.on_request(Front(5), "prompts/get", {"name": "none"})


async def test_a_masked_and_a_replaced_result(open_session):
    async with open_session("plain") as (session, ruler):
        ruler.answer = hide
        assert words_of(await call(session, "echo", secret=SECRET)) == "[withheld: key]"
        ruler.answer = lambda asked: Continue() if asked.again else Replace(result={"other": 1})
        assert words_of(await call(session, "echo", secret=SECRET)) == '{"other": 1}'


async def test_a_required_scheduler_of_results_that_is_silent_withholds(open_session):
    async with open_session("plain", gate={"patience_ms": 300}) as (session, ruler):

        async def never(asked):
            await asyncio.Event().wait()

        ruler.answer = never
        result = await call(session, "echo", secret=SECRET)
        assert SECRET not in json.dumps(result)
        assert "ruler gave no valid answer" in words_of(result)


async def test_an_error_of_the_server_is_a_result_too(open_session):
    async with open_session("plain") as (session, ruler):
        ruler.answer = lambda asked: Deny(reason="not yours")
        with pytest.raises(sdk.MCPError) as refusal:
            await call(session, "nothing")
        assert (refusal.value.code, refusal.value.message) == (-32602, WITHHELD)
        assert ruler.asked[-1].result == {"error": {"message": "no such tool"}}
        assert refusal.value.__context__ is None  # it would have the server's own words
        assert ruler.asked[-1].success is False
        ruler.answer = lambda asked: Continue()
        with pytest.raises(sdk.MCPError, match="no such tool"):
            await call(session, "nothing")


async def test_a_result_that_is_none_of_the_protocol_is_ruled_on_as_it_is(open_session):
    async with open_session("plain") as (session, ruler):
        ruler.answer = lambda asked: Deny(reason="not yours")
        result = await call(session, "strange_result")
        assert words_of(result) == WITHHELD
        assert result["isError"] is False


@pytest.mark.parametrize("tool", ["as_task", "odd_type"])
async def test_a_task_and_a_kind_of_result_that_nobody_asked_for_are_ruled_on(open_session, tool):
    async with open_session("plain") as (session, ruler):
        ruler.answer = lambda asked: Deny(reason="not yours") if SECRET in str(asked.result) else Continue()
        result = await call(session, tool)
        assert words_of(result) == WITHHELD
        assert SECRET not in json.dumps(result)


async def test_a_client_that_cancels_while_its_result_is_ruled_on_gets_nothing(open_session):
    asked = asyncio.Event()

    async def never(_):
        asked.set()
        await asyncio.Event().wait()

    async with open_session("plain") as (session, ruler):
        ruler.answer = never
        calling = asyncio.create_task(call(session, "echo", secret=SECRET))
        await asyncio.wait_for(asked.wait(), 10)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        ruler.answer = hide
        assert words_of(await call(session, "echo", 8)) == "[withheld: key]"


async def test_a_second_answer_to_the_same_call_and_one_that_is_late_reach_no_client(open_session, tmp_path):
    async with open_session("plain", call_timeout_s=0.3) as (session, ruler):
        ruler.answer = lambda asked: Deny(reason="not yours")
        front = Front()
        assert words_of(await call(session, "twice", front=front)) == WITHHELD
        with pytest.raises(sdk.MCPError, match="did not answer"):
            await call(session, "never", 8, front=front)
        await call(session, "garbage", 9, front=front)  # it answers a call that nobody made
        assert front.told == session.front.told == []
        assert noted(tmp_path, "call") == ["twice", "never", "garbage"]


async def test_a_person_is_asked_about_a_result_in_the_client_if_that_can_be(open_session):
    class Person(Front):
        action = "accept"

        async def send_raw_request(self, method, params, opts=None):
            assert method == "elicitation/create"
            return {"action": self.action}

    async with open_session("plain") as (session, ruler):
        ruler.answer = lambda asked: AskUser(prompt="May it see that?")
        assert "nobody to ask" in words_of(await call(session, "echo", secret=SECRET))
        session._calls.elicits = True
        front = Person()
        assert SECRET in words_of(await call(session, "echo", secret=SECRET, front=front))
        front.action = "decline"
        assert "a person was asked" in words_of(await call(session, "echo", secret=SECRET, front=front))


async def test_a_held_result_tells_the_client_that_it_waits(open_session, monkeypatch):
    monkeypatch.setattr("toolgate_orchestrator.commands.mcp.calls.PROGRESS_S", 0.05)
    told = asyncio.Event()

    class Patient(Front):
        async def notify(self, method, params, opts=None):
            self.told.append((method, params))
            told.set()

    async def decide(asked):
        yield Hold(seconds=30)
        await told.wait()
        yield hide(asked)

    async with open_session("plain", scheduler={"decide": decide, "streams": True}) as (session, _):
        front = Patient()
        result = await call(session, "echo", meta={"progressToken": "p"}, front=front, secret=SECRET)
        assert words_of(result) == "[withheld: key]"
        assert {params["message"] for _, params in front.told} <= {
            "waiting for ruler",
            "waiting for a ruling",
        }


async def test_nobody_who_rules_on_results_is_no_question(tmp_path, server_url, namespace):
    async with (
        ruling(server_url, namespace) as ruler,
        opened(tmp_path, server_url, namespace, "plain", gate={"required": ["ruler"]}) as session,
    ):
        assert await call(session, "whole") == WHOLE
        assert [one.phase for one in ruler.asked] == ["select"]
