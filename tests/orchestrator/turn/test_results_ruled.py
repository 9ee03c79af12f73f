"""What a tool gave is ruled on before the LLM, the conversation, a hook, a fact or a log has any of it."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from amplifier_core import ToolResult
from amplifier_core.message_models import ImageBlock, TextBlock
from four_loops import LOOPS, begin_turn, causes_of, sent_results
from ruled_bus import SECRET, RuledBus, mask_secret
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Mask, MaskedPart, Replace
from toolgate_orchestrator.turn.values import jsonable
from toolgate_orchestrator.turn.values.foreign_code import name_of

pytestmark = pytest.mark.pure

GAVE: dict[str, Any] = {
    "a text": f"the key is {SECRET}.",
    "a map": {"user": {"name": "Ann", "keys": ["x", SECRET]}, "n": 1},
    "a failing result": ToolResult(success=False, error={"message": f"no: {SECRET}", "code": SECRET}),
    "an output and an error": ToolResult(
        success=False, output={"log": SECRET}, error={"message": f"no {SECRET}"}
    ),
    "an error beside an output": ToolResult(
        success=False, output={"log": "fine"}, error={"message": f"no {SECRET}"}
    ),
    "blocks": ToolResult(output={"a": SECRET}, content=[TextBlock(text=f"see {SECRET}")]),
    "an error": ValueError(f"bad {SECRET}"),
    "an exit": SystemExit(SECRET),
}


@pytest.fixture
async def bus() -> AsyncIterator[RuledBus]:
    async with AsyncExitStack() as stack:
        yield RuledBus(stack)


def giving(tool: Any, what: Any, name: str = "look") -> Any:
    def answer(arguments: dict[str, Any]) -> Any:
        if isinstance(what, BaseException):
            raise what
        return what

    return tool(name, answer)


def handing(tool: Any, what: Any, name: str = "look") -> Any:
    """A tool that gives this very object."""
    made = giving(tool, what, name)

    async def execute(arguments: dict[str, Any]) -> Any:
        return made.answer(arguments)

    made.execute = execute
    return made


async def everything_seen(a: Any, bus: RuledBus, caplog: Any) -> str:
    """All that anybody got to see, as one text."""
    seen = [str(await a.messages()), str(a.requests), str(a.events), str(bus.facts())]
    seen += [record.getMessage() + str(record.exc_info) for record in caplog.records]
    data = getattr(a.session.coordinator.get("orchestrator"), "data", None)
    return "\n".join([*seen, str(data and data.state)])


@pytest.mark.parametrize("what", GAVE)
@pytest.mark.parametrize("loop", LOOPS)
async def test_what_a_mask_hides_is_seen_by_nobody(
    agent: Any, tool: Any, llm: Any, wants: Any, bus: RuledBus, caplog: Any, loop: str, what: str
) -> None:
    caplog.set_level(logging.DEBUG)
    await bus.scheduler(mask_secret)
    path = {"_outputPath": "†state.seen"} if loop == "loop-reactive" else {}
    model = llm([wants("c1", "look", path)])
    async with agent(llm=model, tools=[giving(tool, GAVE[what])]) as a:
        await bus.listens(a, loop)
        assert await a.ask() == "done"
        assert SECRET not in await everything_seen(a, bus, caplog)
        told = a.told("tool:post") + a.told("tool:error")
        if what != "an error beside an output":  # only loop-reactive tells that to the LLM
            assert "[withheld: key]" in str(sent_results(a.requests[-1]))
        assert told
        assert all("[withheld" in str(one) for one in told)
    assert [fact["outcome"] for fact in bus.facts("tool:result")] == ["masked"]


@pytest.mark.parametrize("what", GAVE)
@pytest.mark.parametrize("loop", LOOPS)
async def test_a_denied_result_is_withheld_and_the_llm_is_told_that_the_tool_ran(
    agent: Any, tool: Any, llm: Any, wants: Any, bus: RuledBus, caplog: Any, loop: str, what: str
) -> None:
    caplog.set_level(logging.DEBUG)
    await bus.scheduler(Deny(reason="it is secret"))
    async with agent(llm=llm([wants("c1", "look")]), tools=[giving(tool, GAVE[what])]) as a:
        await bus.listens(a, loop)
        assert await a.ask() == "done"
        assert SECRET not in await everything_seen(a, bus, caplog)
        (result,) = sent_results(a.requests[-1])
        assert "The tool ran, but its result is withheld: it is secret" in result


@pytest.mark.parametrize("is_ruled", [True, False], ids=["ruled", "unruled"])
@pytest.mark.parametrize("loop", LOOPS)
async def test_a_result_that_holds_one_value_many_times_over_ends_at_some_length(
    agent: Any,
    tool: Any,
    llm: Any,
    wants: Any,
    bus: RuledBus,
    monkeypatch: Any,
    loop: str,
    is_ruled: bool,
) -> None:
    monkeypatch.setattr(jsonable, "MAX_VALUES", 30_000)
    value: Any = "lol"
    for _ in range(7):
        value = [value] * 6
    if is_ruled:
        await bus.scheduler(Continue())
    async with agent(llm=llm([wants("c1", "look")]), tools=[giving(tool, {"all": (value,)})]) as a:
        await bus.listens(a, loop)
        assert await a.ask() == "done"
        (result,) = sent_results(a.requests[-1])
        assert 60_000 < len(result) < 4_000_000
        assert ("[cut off here" if is_ruled else "more was left out") in result


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_replaced_result_is_the_one_that_everybody_sees(
    agent: Any, tool: Any, llm: Any, wants: Any, bus: RuledBus, caplog: Any, loop: str
) -> None:
    await bus.scheduler(lambda call: Continue() if call.result == "other" else Replace(result="other"))
    async with agent(llm=llm([wants("c1", "look")]), tools=[giving(tool, GAVE["a map"])]) as a:
        await bus.listens(a, loop)
        await a.ask()
        assert sent_results(a.requests[-1]) == ["other"]
        assert a.told("tool:post")[0]["result"]["output"] == "other"
        assert SECRET not in await everything_seen(a, bus, caplog)


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_result_that_all_agree_with_is_given_as_it_is(
    agent: Any, tool: Any, llm: Any, wants: Any, bus: RuledBus, loop: str
) -> None:
    await bus.scheduler(Continue())
    gave = ToolResult(output={"a": 1, "b": 1.5}, content=[TextBlock(text="more")])
    async with agent(llm=llm([wants("c1", "look")]), tools=[giving(tool, gave)]) as a:
        await a.ask()
        plain = await a.results(), a.told("tool:post")[0]["result"]
    async with agent(llm=llm([wants("c1", "look")]), tools=[giving(tool, gave)]) as a:
        await bus.listens(a, loop)
        await a.ask()
        assert (await a.results(), a.told("tool:post")[0]["result"]) == plain
    assert len(bus.seen) == 1


@pytest.mark.parametrize("loop", LOOPS)
async def test_where_nobody_rules_on_results_nothing_is_read_of_them_or_asked(
    agent: Any, tool: Any, llm: Any, wants: Any, bus: RuledBus, monkeypatch: Any, loop: str
) -> None:
    await bus.scheduler(Continue(), phases=("select",))

    def never(*args: Any) -> Any:
        raise AssertionError("a result was copied")

    monkeypatch.setattr("toolgate_orchestrator.turn.calls.tool_call.send_output", never)
    monkeypatch.setattr("toolgate_orchestrator.decision.gate.Gate.rule_on_result", never)
    async with agent(llm=llm([wants("c1", "look")]), tools=[giving(tool, "fine")]) as a:
        await bus.listens(a, loop)
        assert await a.ask() == "done"
        assert await a.results() == ["fine"]
    assert [call.phase for call in bus.seen] == ["select"]


@pytest.mark.parametrize("loop", LOOPS)
async def test_cost_and_signals_are_those_of_the_real_result(
    agent: Any, tool: Any, llm: Any, wants: Any, bus: RuledBus, loop: str
) -> None:
    await bus.scheduler(Deny(reason="no"))
    gave = [
        ToolResult(output={"cost_usd": 0.25, "key": SECRET}),
        ToolResult(success=False, error={"message": SECRET, "code": 429, "retry_after": 3}),
        ToolResult(success=False, error={"message": "no", "code": SECRET}),
    ]
    model = llm([wants("c1", "look")], [wants("c2", "look")], [wants("c3", "look")])
    async with agent(llm=model, tools=[tool("look", lambda arguments: gave.pop(0))]) as a:
        await bus.listens(a, loop)
        await a.ask()
    paid, busy, other = bus.facts("tool:post")
    assert (paid["cost"], paid["success"]) == (250_000, True)
    assert (busy["signal"], busy["retry_after"], busy["success"]) == ("429", 3, False)
    assert "signal" not in other


@pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming", "loop-reactive"])
async def test_calls_side_by_side_are_ruled_on_one_by_one(
    agent: Any, tool: Any, llm: Any, wants: Any, bus: RuledBus, caplog: Any, loop: str
) -> None:
    await bus.scheduler(mask_secret)
    model = llm([wants("c1", "look"), wants("c2", "look"), wants("c3", "ok")])
    tools = [giving(tool, GAVE["a text"]), giving(tool, "fine", "ok")]
    async with agent(llm=model, tools=tools) as a:
        await bus.listens(a, loop)
        await a.ask()
        text = "the key is [withheld: key]."
        assert await a.results() == [text, text, "fine"]
        assert SECRET not in await everything_seen(a, bus, caplog)


async def test_a_value_that_later_calls_refer_to_is_the_ruled_one(
    agent: Any, tool: Any, llm: Any, wants: Any, bus: RuledBus
) -> None:
    await bus.scheduler(lambda call: mask_secret(call) if call.tool_name == "look" else Continue())
    model = llm(
        [wants("c1", "look", {"_outputPath": "†state.seen"}), wants("c2", "use", {"it": "†state.seen"})]
    )
    async with agent(llm=model, tools=[giving(tool, GAVE["a map"]), tool("use")]) as a:
        await bus.listens(a, "loop-reactive")
        await a.ask()
        (used,) = a.tools["use"].calls
        assert used["it"]["user"] == {"name": "Ann", "keys": ["x", "[withheld: key]"]}


async def test_a_call_that_needs_a_withheld_value_does_not_run(
    agent: Any, tool: Any, llm: Any, wants: Any, bus: RuledBus
) -> None:
    await bus.scheduler(Deny(reason="no"), tools=("look",))
    model = llm(
        [wants("c1", "look", {"_outputPath": "†state.seen"}), wants("c2", "use", {"it": "†state.seen"})]
    )
    async with agent(llm=model, tools=[giving(tool, GAVE["a map"]), tool("use")]) as a:
        loop = await bus.listens(a, "loop-reactive")
        await a.ask()
        assert (a.tools["use"].calls, loop.data.state) == ([], {})


async def test_a_required_scheduler_that_is_gone_withholds(
    agent: Any, tool: Any, llm: Any, wants: Any, bus: RuledBus
) -> None:
    asked = {
        "required": ["away"],
        "patience_ms": 50,
        "schedulers": {"away": {"results": True, "tools": ["look"]}},
    }
    await bus.scheduler(Continue(), phases=("select",), name="away2")
    async with agent(llm=llm([wants("c1", "look")]), tools=[giving(tool, GAVE["a text"])]) as a:
        await bus.listens(a, "loop-basic", asked=asked)
        await a.ask()
        assert SECRET not in str(await a.messages())


async def test_a_person_who_says_no_keeps_the_result(
    agent: Any, tool: Any, llm: Any, wants: Any, bus: RuledBus, caplog: Any
) -> None:
    class Person:
        asked: list[str] = []  # noqa: RUF012 - of this test alone

        async def request_approval(self, prompt: str, *args: Any) -> str:
            self.asked.append(prompt)
            return "Deny"

    person = Person()
    await bus.scheduler(AskUser(prompt="may it be shown?"))
    async with agent(
        llm=llm([wants("c1", "look")]), tools=[giving(tool, GAVE["a text"])], approvals=person
    ) as a:
        await bus.listens(a, "loop-basic")
        await a.ask()
        assert SECRET not in await everything_seen(a, bus, caplog)
    assert "may it be shown?" in person.asked[0]
    assert f'result: "the key is {SECRET}."' in person.asked[0]


@pytest.mark.parametrize("now", [True, False])
async def test_a_session_that_is_cancelled_does_not_wait_for_a_ruling_on_a_result(
    agent: Any, tool: Any, llm: Any, wants: Any, bus: RuledBus, caplog: Any, now: bool
) -> None:
    asked = asyncio.Event()

    async def hold(call: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    worker = await bus.scheduler(hold)
    assert worker is not None
    async with agent(llm=llm([wants("c1", "look")]), tools=[giving(tool, GAVE["a text"])]) as a:
        await bus.listens(a, "loop-basic", asked={"patience_ms": 60_000, "required": ["judge"]})
        turn = asyncio.ensure_future(a.ask())
        await asyncio.wait_for(asked.wait(), 5)
        await a.session.coordinator.request_cancel(now)
        await asyncio.wait_for(turn, 5)
        assert SECRET not in await everything_seen(a, bus, caplog)
    assert [fact["success"] for fact in bus.facts("tool:post")] == [True]


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_result_that_its_tool_changes_while_it_is_ruled_on_is_given_as_it_was(
    agent: Any, tool: Any, llm: Any, wants: Any, bus: RuledBus, caplog: Any, loop: str
) -> None:
    held = ["fine"]

    def change(call: Any) -> Any:
        if call.tool_name == "look":
            held.append(SECRET)
        return Continue()

    await bus.scheduler(change)
    path = {"_outputPath": "†state.seen"} if loop == "loop-reactive" else {}
    model = llm([wants("c1", "look", path)], [wants("c2", "use", {"it": "†state.seen"})])
    tools = [handing(tool, ToolResult(output=held)), tool("use")]
    async with agent(llm=model, tools=tools) as a:
        await bus.listens(a, loop)
        await a.ask()
        assert SECRET not in await everything_seen(a, bus, caplog)
        assert a.tools["use"].calls == [{"it": ["fine"] if path else "†state.seen"}]
    assert held == ["fine", SECRET]


class Unreadable:
    """A result that raises when it is read."""

    @property
    def success(self) -> bool:
        raise ValueError(SECRET)

    def get_serialized_output(self) -> str:
        return "fine"


@pytest.mark.parametrize("gives", [ValueError(SECRET), SystemExit(SECRET), Unreadable()], ids=name_of)
@pytest.mark.parametrize("loop", ["loop-basic", "loop-events"])
async def test_a_cancellation_while_a_failure_is_ruled_on_does_not_bear_it(
    agent: Any, tool: Any, llm: Any, wants: Any, bus: RuledBus, loop: str, gives: Any
) -> None:
    asked = asyncio.Event()

    async def hold(call: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    await bus.scheduler(hold)
    async with agent(llm=llm([wants("c1", "look")]), tools=[handing(tool, gives)]) as a:
        turn = begin_turn(a, await bus.listens(a, loop, asked={"patience_ms": 60_000, "required": ["judge"]}))
        await asyncio.wait_for(asked.wait(), 5)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError) as raised:
            await turn
    assert SECRET not in str(causes_of(raised.value))


async def test_a_tool_that_answers_a_cancellation_by_another_error_does_not_show_it(
    agent: Any, tool: Any, llm: Any, wants: Any, bus: RuledBus
) -> None:
    running = asyncio.Event()

    class Slow(tool):  # type: ignore[misc]
        async def execute(self, arguments: Any) -> Any:
            running.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise SystemExit(SECRET) from None

    await bus.scheduler(mask_secret)
    async with agent(llm=llm([wants("c1", "look")]), tools=[Slow("look")]) as a:
        turn = begin_turn(a, await bus.listens(a, "loop-events"))
        await asyncio.wait_for(running.wait(), 5)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError) as raised:
            await turn
    assert SECRET not in str(causes_of(raised.value))


class Given:
    """A result that is no ToolResult of the kernel."""

    success, error = True, None

    def __init__(self, output: Any, *content: Any) -> None:
        self.output, self.content = output, list(content)

    def get_serialized_output(self) -> Any:
        return self.output


def image(data: Any, media_type: str = "image/png", **more: Any) -> ImageBlock:
    return ImageBlock(source={"type": "base64", "media_type": media_type, "data": data}, **more)


BASE64 = "QUJD" * 50


@pytest.mark.parametrize(
    "block",
    [
        image(f"it is {SECRET}"),
        image(f"it is {SECRET}", "text/plain"),
        image([f"it is {SECRET}"]),
        image(BASE64, alt=f"it is {SECRET}"),
        ImageBlock(source={"type": "url", "url": f"http://x/{SECRET}"}),
    ],
)
@pytest.mark.parametrize("output", ["fine", f"it is {SECRET}"])
async def test_what_is_no_data_of_an_image_is_shown_to_rules(
    agent: Any, tool: Any, llm: Any, wants: Any, bus: RuledBus, caplog: Any, block: Any, output: str
) -> None:
    await bus.scheduler(mask_secret)
    async with agent(llm=llm([wants("c1", "look")]), tools=[handing(tool, Given(output, block))]) as a:
        await bus.listens(a, "loop-basic")
        assert await a.ask() == "done"
        assert SECRET not in await everything_seen(a, bus, caplog)
        assert "[withheld: key]" in str(await a.results())


@pytest.mark.parametrize("output", ["fine", f"it is {SECRET}"])
async def test_the_data_of_an_image_are_sent_as_type_and_size_and_given_whole(
    agent: Any, tool: Any, llm: Any, wants: Any, bus: RuledBus, output: str
) -> None:
    await bus.scheduler(mask_secret)
    gives = Given(output, image(BASE64))
    async with agent(llm=llm([wants("c1", "look")]), tools=[handing(tool, gives)]) as a:
        await bus.listens(a, "loop-basic")
        await a.ask()
        (given,) = await a.results()
        assert given[1]["source"]["data"] == BASE64
    (shown,) = bus.seen[0].result["content"]
    assert shown["source"]["data"] == "[image/png, 150 bytes, not shown to rules]"


async def test_an_image_in_whose_data_a_hidden_text_stands_is_not_given(
    agent: Any, tool: Any, llm: Any, wants: Any, bus: RuledBus
) -> None:
    await bus.scheduler(Mask(parts=[MaskedPart("/output", 0, 8, "key")], reason="a key"))
    gives = Given("QUJDQUJD is it", image(BASE64))
    async with agent(llm=llm([wants("c1", "look")]), tools=[handing(tool, gives)]) as a:
        await bus.listens(a, "loop-basic")
        await a.ask()
        assert "QUJDQUJD" not in str(await a.messages())
