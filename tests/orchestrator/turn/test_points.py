"""The points of a turn: who may begin it with what words, what the LLM answered, what the user gets."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from amplifier_core import ChatResponse, LLMError
from amplifier_core.message_models import TextBlock, ThinkingBlock, ToolCallBlock
from four_loops import LOOPS
from goal_judges import judging, progress_of, set_goal
from ruled_bus import SECRET, RuledBus, mask_secret
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Modify, Replace
from toolgate_bus.protocol.placeholders import hides

pytestmark = pytest.mark.pure

SELECT: tuple[Any, ...] = ("select",)


@pytest.fixture
async def bus() -> AsyncIterator[RuledBus]:
    async with AsyncExitStack() as stack:
        yield RuledBus(stack)


async def everything_seen(a: Any, caplog: Any) -> str:
    seen = [str(await a.messages()), str([name for name in a.events if name[0] != "execution:start"])]
    return "\n".join([*seen, *(record.getMessage() for record in caplog.records)])


# ---------------------------------------------------------------------- what the user says


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_turn_whose_words_are_denied_does_not_begin(
    agent: Any, llm: Any, says: Any, bus: RuledBus, loop: str
) -> None:
    await bus.scheduler(Deny(reason="not that"), phases=SELECT, tools=("turn:input",))
    async with agent(llm=llm([says("fine")])) as a:
        await bus.listens(a, loop)
        assert await a.ask("do it") == "Operation denied: not that"
        assert a.requests == []
        assert await a.messages() == []
        assert a.told("orchestrator:complete")[0]["status"] == "incomplete"
        after = a.events[a.names().index("prompt:submit") + 1 :]
        assert "do it" not in str(after)
    assert [call.tool_input for call in bus.seen] == [{"text": "do it"}]


@pytest.mark.parametrize("loop", LOOPS)
async def test_the_words_that_a_scheduler_changes_are_the_prompt(
    agent: Any, llm: Any, says: Any, bus: RuledBus, loop: str
) -> None:
    changed = Modify(tool="turn:input", arguments={"text": "do it [withheld]"})
    await bus.scheduler(
        lambda call: changed if SECRET in str(call.tool_input) else Continue(),
        phases=("select", "verify"),
        tools=("turn:input",),
    )
    async with agent(llm=llm([says("fine")])) as a:
        await bus.listens(a, loop)
        assert await a.ask(f"do it {SECRET}") == "fine"
        assert [fact["tool"] for fact in bus.facts("tool:post")] == ["turn:input"]
        assert (await a.messages())[0]["content"] == "do it [withheld]"
        assert SECRET not in str(a.requests)


async def test_a_text_to_the_working_agent_is_ruled_on_too(
    agent: Any, llm: Any, says: Any, wants: Any, tool: Any, bus: RuledBus
) -> None:
    await bus.scheduler(
        lambda call: Deny(reason="no") if "stop" in call.tool_input["text"] else Continue(),
        phases=SELECT,
        tools=("turn:input",),
    )
    async with agent(llm=llm([wants("c1", "a")], [says("fine")]), tools=[tool("a")]) as a:
        loop = await bus.listens(a, "loop-basic")

        def steer(arguments: dict[str, Any]) -> str:
            loop.steer("stop it")
            loop.steer("be quick")
            return "done"

        a.tools["a"].answer = steer
        assert await a.ask() == "fine"
        said = [one["content"] for one in await a.messages() if one["role"] == "user"]
        assert said == ["hello", "be quick"]


# ---------------------------------------------------------------------- the session


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_session_is_asked_about_once_and_a_denied_one_runs_no_turn(
    agent: Any, llm: Any, says: Any, tool: Any, bus: RuledBus, loop: str
) -> None:
    await bus.scheduler(Deny(reason="not today"), phases=SELECT, tools=("session:start",))
    async with agent(llm=llm([says("fine")]), tools=[tool("a")]) as a:
        await bus.listens(a, loop)
        for _ in range(2):
            assert await a.ask() == "Operation denied: not today"
        assert (a.requests, await a.messages()) == ([], [])
    assert [(call.tool_name, call.tool_input) for call in bus.seen] == [("session:start", {"tools": ["a"]})]


async def test_a_session_that_may_begin_is_not_asked_about_again(
    agent: Any, llm: Any, says: Any, bus: RuledBus
) -> None:
    await bus.scheduler(Continue(), phases=SELECT, tools=("session:start",))
    async with agent(llm=llm([says("one")], [says("two")])) as a:
        await bus.listens(a, "loop-streaming")
        assert [await a.ask(), await a.ask()] == ["one", "two"]
    assert len(bus.seen) == 1


# ---------------------------------------------------------------------- what the user gets


@pytest.mark.parametrize("loop", LOOPS)
async def test_an_answer_that_is_denied_is_neither_shown_nor_stored(
    agent: Any, llm: Any, says: Any, bus: RuledBus, caplog: Any, loop: str
) -> None:
    caplog.set_level(logging.INFO)
    await bus.scheduler(Deny(reason="it has a key"), phases=SELECT, tools=("turn:output",))
    async with agent(llm=llm([says("the key "), says(f"is {SECRET}")])) as a:
        made = await bus.listens(a, loop)
        get = a.session.coordinator.get
        parts = (get("context"), get("providers"), get("tools"), a.hooks)
        stream = made.stream("hello", *parts, coordinator=a.session.coordinator)
        shown = "".join([piece async for piece in stream])
        assert shown == "The language model's answer is withheld: it has a key"
        assert (await a.messages())[-1]["content"] in (shown, [{"type": "text", "text": shown}])
        assert SECRET not in await everything_seen(a, caplog)
        assert a.told("orchestrator:complete")[0]["status"] == "incomplete"
    told = [one.getMessage() for one in caplog.records if "piece by piece" in one.getMessage()]
    assert len(told) == (loop != "loop-basic")


@pytest.mark.parametrize("loop", LOOPS)
async def test_an_answer_that_is_changed_is_shown_as_changed(
    agent: Any, llm: Any, says: Any, bus: RuledBus, caplog: Any, loop: str
) -> None:
    def hide(call: Any) -> Any:
        text = call.tool_input["text"]
        clean = Modify(tool="turn:output", arguments={"text": text.replace(SECRET, "[withheld]")})
        return clean if SECRET in text else Continue()

    await bus.scheduler(hide, phases=("select", "verify"), tools=("turn:output",))
    async with agent(llm=llm([says(f"it is {SECRET}")])) as a:
        await bus.listens(a, loop)
        assert await a.ask() == "it is [withheld]"
        assert SECRET not in await everything_seen(a, caplog)
        assert a.told("orchestrator:complete")[0]["status"] == "success"


@pytest.mark.parametrize("text", ["json", "call"])
async def test_an_output_that_fits_a_schema_is_an_answer_as_well(
    agent: Any, llm: Any, says: Any, wants: Any, bus: RuledBus, text: str
) -> None:
    await bus.scheduler(Deny(reason="no"), phases=SELECT, tools=("turn:output",))
    output = {"key": SECRET}
    given = (
        says(f'{{"key": "{SECRET}"}}') if text == "json" else wants("c1", "final_output", {"output": output})
    )
    async with agent(llm=llm([given])) as a:
        loop = await bus.listens(a, "loop-reactive", output_schema={"type": "object"})
        assert await a.ask() == "The language model's answer is withheld: no"
        assert SECRET not in str(await a.messages())
        assert SECRET not in str(loop.last_output)


async def test_where_nobody_names_the_points_answers_are_shown_as_they_come(
    agent: Any, llm: Any, says: Any, bus: RuledBus
) -> None:
    await bus.scheduler(Deny(reason="no"), phases=SELECT, tools=("*",))
    async with agent(llm=llm([says("one "), says("two")])) as a:
        made = await bus.listens(a, "loop-streaming")
        get = a.session.coordinator.get
        parts = (get("context"), get("providers"), get("tools"), a.hooks)
        stream = made.stream("hello", *parts, coordinator=a.session.coordinator)
        assert [piece async for piece in stream] == ["one ", "two"]
    assert bus.seen == []


@pytest.mark.parametrize(("loop", "limit"), [("loop-events", -1), *((loop, 1) for loop in LOOPS)])
async def test_an_error_that_becomes_the_answer_is_ruled_on_as_one(
    agent: Any, llm: Any, wants: Any, tool: Any, bus: RuledBus, loop: str, limit: int
) -> None:
    await bus.scheduler(
        lambda call: Deny(reason="a key") if SECRET in call.tool_input["text"] else Continue(),
        phases=SELECT,
        tools=("turn:output",),
    )
    model = llm([wants("c1", "a")], [LLMError(f"bad request: {SECRET}")])
    async with agent(llm=model, tools=[tool("a")]) as a:
        await bus.listens(a, loop, max_iterations=limit)
        assert await a.ask() == "The language model's answer is withheld: a key"
        assert SECRET not in str(await a.messages())


def hide_in_text(call: Any) -> Any:
    text = call.tool_input["text"].replace(SECRET, "[withheld]")
    return Modify(tool="turn:output", arguments={"text": text}) if "[" in text else Continue()


def failing_with_the_secret() -> LLMError:
    error = LLMError(f"bad key {SECRET}", status_code=401, provider=SECRET)
    error.__cause__ = ValueError(SECRET)
    error.add_note(SECRET)
    return error


async def run_turn(a: Any, made: Any) -> Any:
    """Return the answer of a turn, or what the loop raises: a session raises another error with its words."""
    get = a.session.coordinator.get
    parts = (get("context"), get("providers"), get("tools"), a.hooks)
    try:
        return await made.execute("hello", *parts, coordinator=a.session.coordinator)
    except LLMError as error:
        return error


@pytest.mark.parametrize(
    ("point", "answer", "shown"),
    [
        ("turn:output", hide_in_text, "bad key [withheld]"),
        ("turn:output", Deny(reason="no"), "The language model's answer is withheld: no"),
        ("llm:request", mask_secret, "bad key [withheld: key]"),
        ("llm:request", Deny(reason="no"), "its error is withheld: no"),
        ("llm:request", Replace(result="ask later"), "ask later"),
    ],
)
@pytest.mark.parametrize("loop", LOOPS)
async def test_what_is_hidden_of_a_providers_error_is_seen_by_nobody(
    agent: Any, llm: Any, bus: RuledBus, caplog: Any, loop: str, point: str, answer: Any, shown: str
) -> None:
    phases: tuple[Any, ...] = ("result",) if point == "llm:request" else SELECT
    await bus.scheduler(answer, phases=phases, tools=(point,))
    async with agent(llm=llm([failing_with_the_secret()])) as a:
        ended = await run_turn(a, await bus.listens(a, loop))
        if loop == "loop-events":
            assert ended.endswith(shown)
        else:
            assert (type(ended), str(ended)) == (LLMError, shown)
        (told,) = a.told("provider:error")
        assert told["error"] == {"type": "LLMError", "msg": shown}
        assert told["status_code"] == 401
        assert SECRET not in await everything_seen(a, caplog)
    (fact,) = bus.facts("provider:error")
    assert (fact["error"], fact["signal"]) == ("LLMError", "401")
    assert SECRET not in str(bus.facts())
    left, seen = [ended], list[Any]()
    while left:
        one = left.pop()
        if isinstance(one, BaseException) and one not in seen:
            seen.append(one)
            left += [one.__cause__, one.__context__]
    assert SECRET not in str([(repr(one), vars(one)) for one in seen])


@pytest.mark.parametrize("status", [4111222233334444, 99, 600])
async def test_a_number_that_is_no_status_is_not_told_of_an_error_that_was_masked(
    agent: Any, llm: Any, bus: RuledBus, status: int
) -> None:
    await bus.scheduler(mask_secret, tools=("llm:request",))
    async with agent(llm=llm([LLMError(f"bad {SECRET}", status_code=status)])) as a:
        await run_turn(a, await bus.listens(a, "loop-basic"))
        (told,) = a.told("provider:error")
        assert told["status_code"] is None


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_providers_error_of_which_nothing_is_hidden_is_the_providers_own(
    agent: Any, llm: Any, bus: RuledBus, loop: str
) -> None:
    await bus.scheduler(mask_secret, tools=("llm:request",))
    await bus.scheduler(Continue(), phases=SELECT, tools=("turn:output",), name="other")
    lost = LLMError("lost", status_code=503, provider="far", retryable=True)
    async with agent(llm=llm([lost])) as a:
        ended = await run_turn(a, await bus.listens(a, loop))
        assert ended is lost or (loop, ended) == (
            "loop-events",
            "The language model could not answer: LLMError: lost",
        )
        (told,) = a.told("provider:error")
        assert (told["error"]["msg"], told["retryable"], told["status_code"]) == ("lost", True, 503)
    assert [call.result for call in bus.seen if call.phase == "result"] == ["LLMError: lost"]


async def test_the_time_that_a_ruling_on_an_error_takes_is_no_time_of_the_request(
    agent: Any, llm: Any, bus: RuledBus
) -> None:
    asked = list[float]()

    async def think_as_long_as_the_request_took(_: Any) -> Any:
        asked.append(time.monotonic())
        while time.monotonic() < 2 * asked[0] - began:
            await asyncio.sleep(0)
        return Continue()

    await bus.scheduler(think_as_long_as_the_request_took, tools=("llm:request",))
    async with agent(llm=llm([LLMError("lost")])) as a:
        made = await bus.listens(a, "loop-basic")
        began = time.monotonic()
        await run_turn(a, made)
    (fact,) = bus.facts("provider:error")
    assert fact["seconds"] < asked[0] - began


@pytest.mark.parametrize("point", ["turn:output", "llm:request"])
async def test_what_is_hidden_of_a_judges_error_is_no_reason_that_anybody_reads(
    agent: Any, llm: Any, says: Any, bus: RuledBus, caplog: Any, point: str
) -> None:
    is_result = point == "llm:request"
    phases: tuple[Any, ...] = ("result",) if is_result else SELECT
    await bus.scheduler(mask_secret if is_result else hide_in_text, phases=phases, tools=(point,))
    model = judging(llm, [[says("one")]], [failing_with_the_secret()])
    async with agent(llm=model) as a:
        heard = progress_of(a)
        set_goal(a)
        await bus.listens(a, "loop-events")
        assert await a.ask() == "one"
        (ended,) = heard
        assert ended["state"] == "error"
        assert ended["reason"] == ("bad key [withheld: key]" if is_result else "bad key [withheld]")
        assert SECRET not in await everything_seen(a, caplog)
        assert SECRET not in str([request for _, request, _ in model.judged])


@pytest.mark.parametrize("loop", LOOPS)
async def test_the_words_of_a_goals_judge_are_texts_for_the_user(
    agent: Any, llm: Any, says: Any, bus: RuledBus, loop: str
) -> None:
    await bus.scheduler(hide_in_text, phases=SELECT, tools=("turn:output",))
    model = judging(llm, [[says("one")], [says("two")]], [f"NO\nit is {SECRET}", f"YES\n{SECRET}"])
    async with agent(llm=model) as a:
        heard = progress_of(a)
        set_goal(a)
        await bus.listens(a, loop)
        assert await a.ask() == "two"
        assert [event["reason"] for event in heard] == ["it is [withheld]", "[withheld]"]
        assert SECRET not in str(await a.messages())


@pytest.mark.parametrize("point", ["turn:input", "turn:output"])
@pytest.mark.parametrize("loop", LOOPS)
async def test_a_required_scheduler_that_once_ruled_on_a_point_is_missed_while_it_is_away(
    agent: Any, llm: Any, says: Any, bus: RuledBus, loop: str, point: str
) -> None:
    judge = await bus.scheduler(Continue(), phases=SELECT, tools=(point,))
    async with agent(llm=llm([says("one")], [says("two")])) as a:
        await bus.listens(a, loop, asked={"required": ["judge"], "patience_ms": 200})
        assert await a.ask() == "one"
        await judge.drain()
        assert "judge is not alive" in await a.ask("again")
        assert "two" not in str(await a.messages())


class Person:
    """An approval system whose person says no."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def request_approval(self, prompt: str, *_: Any) -> str:
        self.asked.append(prompt)
        return "Deny"


@pytest.mark.parametrize(
    ("phase", "asked_about"),
    [("result", "a"), ("result", "llm:request"), ("select", "turn:output"), ("select", "turn:input")],
)
async def test_what_a_person_is_asked_about_is_in_no_log_and_in_no_hooks_payload(
    agent: Any,
    llm: Any,
    says: Any,
    wants: Any,
    tool: Any,
    bus: RuledBus,
    caplog: Any,
    phase: Any,
    asked_about: str,
) -> None:
    caplog.set_level(logging.INFO)
    await bus.scheduler(AskUser(prompt="may it?"), phases=(phase,), tools=(asked_about,))
    first = [wants("c1", "a")] if asked_about == "a" else [says(SECRET)]
    person, tools = Person(), [tool("a", lambda _: SECRET)]
    async with agent(llm=llm(first, [says("bye")]), tools=tools, approvals=person) as a:
        await bus.listens(a, "loop-basic")
        await a.ask(SECRET if asked_about == "turn:input" else "hello")
        assert [SECRET in one for one in person.asked] == [True]
        assert SECRET not in caplog.text
        told = [one for name in ("approval:required", "approval:denied") for one in a.told(name)]
        assert len(told) == 2
        assert SECRET not in str(told)


# ---------------------------------------------------------------------- the record


@pytest.mark.parametrize("point", ["turn:input", "turn:output"])
@pytest.mark.parametrize(
    "ruled",
    [Deny(reason="it has a key"), Modify(tool="", arguments={"text": "it is [withheld]"}, priority=9)],
    ids=["denied", "changed"],
)
async def test_the_record_has_the_words_that_were_given_and_no_others(
    agent: Any, llm: Any, says: Any, bus: RuledBus, ruled: Any, point: str
) -> None:
    def change(words: Any) -> Any:
        return words.model_copy(update={"tool": point}) if isinstance(words, Modify) else words

    def rule_by(words: Any) -> Any:
        return lambda call: change(words) if SECRET in call.tool_input["text"] else Continue()

    about: dict[str, Any] = {"phases": ("select", "verify"), "tools": (point,)}
    other = Modify(tool=point, arguments={"text": f"{SECRET}, in other words"})
    await bus.scheduler(rule_by(ruled), **about)
    await bus.scheduler(rule_by(other), name="other", **about)
    await bus.scheduler(rule_by(other), name="trial", shadow=True, **about)
    async with agent(llm=llm([says(f"it is {SECRET}")])) as a:
        await bus.listens(a, "loop-basic")
        await a.ask(f"it is {SECRET}" if point == "turn:input" else "hello")
    (decided,) = bus.facts("decision")
    assert decided["outcome"] in ("deny", "modify")
    assert SECRET not in str(bus.facts())
    if isinstance(ruled, Modify):
        assert decided["final_input"] == ruled.arguments
        assert {"judge", "other"} <= {one["scheduler"] for one in decided["verdicts"]}
    assert hides(decided["tool_input"]["text"])


# ---------------------------------------------------------------------- what the LLM answered


@pytest.mark.parametrize("loop", LOOPS)
async def test_what_a_mask_hides_of_an_answer_is_seen_by_nobody(
    agent: Any, llm: Any, says: Any, bus: RuledBus, caplog: Any, loop: str
) -> None:
    await bus.scheduler(mask_secret, tools=("llm:request",))
    async with agent(llm=llm([says("it "), says(f"is {SECRET}")])) as a:
        await bus.listens(a, loop)
        assert await a.ask() == "it is [withheld: key]"
        assert SECRET not in await everything_seen(a, caplog)
        assert SECRET not in str(bus.facts())
    assert [(call.tool_name, call.result) for call in bus.seen] == [
        ("llm:request", {"text": f"it is {SECRET}", "tool_calls": []})
    ]


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_withheld_answer_ends_the_turn_with_the_reason_and_its_calls_do_not_run(
    agent: Any, llm: Any, says: Any, wants: Any, tool: Any, bus: RuledBus, caplog: Any, loop: str
) -> None:
    await bus.scheduler(Deny(reason="it has a key"), tools=("llm:request",))
    async with agent(llm=llm([says(SECRET), wants("c1", "a")]), tools=[tool("a")]) as a:
        await bus.listens(a, loop)
        assert await a.ask() == "The language model's answer is withheld: it has a key"
        assert a.tools["a"].calls == []
        assert SECRET not in await everything_seen(a, caplog)
        assert a.told("orchestrator:complete")[0]["status"] == "incomplete"
    (used,) = bus.facts("usage")
    assert used["iteration"] == 1


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_call_with_a_hidden_argument_does_not_run_and_the_others_do(
    agent: Any, llm: Any, says: Any, wants: Any, tool: Any, bus: RuledBus, caplog: Any, loop: str
) -> None:
    await bus.scheduler(mask_secret, tools=("llm:request",))
    first = [says("I call"), wants("c1", "a", {"key": SECRET}), wants("c2", "a", {"key": "other"})]
    async with agent(llm=llm(first, [says("ok")]), tools=[tool("a")]) as a:
        await bus.listens(a, loop)
        assert await a.ask() == "ok"
        assert a.tools["a"].calls == [{"key": "other"}]
        assert SECRET not in await everything_seen(a, caplog)
        assert SECRET not in str(a.requests)


async def test_an_answer_that_is_replaced_runs_no_call(
    agent: Any, llm: Any, says: Any, wants: Any, tool: Any, bus: RuledBus
) -> None:
    await bus.scheduler(
        lambda call: Continue() if call.result == "I may not" else Replace(result="I may not"),
        tools=("llm:request",),
    )
    async with agent(llm=llm([says("x"), wants("c1", "a")]), tools=[tool("a")]) as a:
        await bus.listens(a, "loop-streaming")
        assert await a.ask() == "I may not"
        assert a.tools["a"].calls == []


class Thinker:
    """A provider whose answer holds thinking and state of its own."""

    name = "llm"
    model = "llm-1"

    def __init__(self, *content: Any, **metadata: Any) -> None:
        self.content, self.metadata, self.requests = list(content), metadata, list[Any]()

    async def complete(self, request: Any, **options: Any) -> ChatResponse:
        self.requests.append(request)
        if len(self.requests) > 1:
            return ChatResponse(content=[TextBlock(text="bye")])
        return ChatResponse(content=self.content, metadata=self.metadata)

    def parse_tool_calls(self, response: Any) -> list[Any]:
        calls = (block for block in response.content if block.type == "tool_call")
        return [{"id": one.id, "name": one.name, "arguments": one.input} for one in calls]


async def test_thinking_and_state_with_a_hidden_text_are_dropped_and_other_thinking_stays(
    agent: Any, bus: RuledBus, caplog: Any
) -> None:
    await bus.scheduler(mask_secret, tools=("llm:request",))
    thought = [
        ThinkingBlock(thinking=f"say {SECRET}", signature="s1"),
        ThinkingBlock(thinking="ok", signature="s2"),
    ]
    provider = Thinker(*thought, TextBlock(text=f"it is {SECRET}"), state=f"x{SECRET}")
    async with agent(llm=provider) as a:
        await bus.listens(a, "loop-basic")
        assert await a.ask() == "it is [withheld: key]"
        assert SECRET not in await everything_seen(a, caplog)
        stored = (await a.messages())[-1]
        assert [block["type"] for block in stored["content"]] == ["thinking", "text"]
        assert stored["thinking_block"]["signature"] == "s2"


@pytest.mark.parametrize("loop", LOOPS)
async def test_thinking_and_state_with_a_word_that_is_gone_from_a_text_are_dropped(
    agent: Any, tool: Any, bus: RuledBus, caplog: Any, loop: str
) -> None:
    clean = Modify(tool="turn:output", arguments={"text": "it is [withheld]"})
    await bus.scheduler(
        lambda call: clean if SECRET in str(call.tool_input) else Continue(),
        phases=("select", "verify"),
        tools=("turn:output",),
    )
    call = ToolCallBlock(id="c1", name="a", input={})
    thought = [ThinkingBlock(thinking=say, signature=say) for say in (f"say {SECRET}", "it is easy")]
    provider = Thinker(*thought, TextBlock(text=f"it is {SECRET}"), call, state=f"x{SECRET}")
    async with agent(llm=provider, tools=[tool("a")]) as a:
        await bus.listens(a, loop)
        assert await a.ask() == "bye"
        assert a.tools["a"].calls == [{}]
        assert SECRET not in await everything_seen(a, caplog)
        assert SECRET not in str(a.requests)
        assert "it is easy" in str(a.requests[1])


@pytest.mark.parametrize("verdict", ["denied", "changed"])
async def test_of_an_output_that_may_not_be_given_no_thinking_and_no_state_is_kept(
    agent: Any, bus: RuledBus, verdict: str
) -> None:
    clean = Modify(tool="turn:output", arguments={"text": '{"key": "none"}'})
    objection = Deny(reason="no") if verdict == "denied" else clean
    await bus.scheduler(
        lambda call: objection if SECRET in str(call.tool_input) else Continue(),
        phases=("select", "verify"),
        tools=("turn:output",),
    )
    call = ToolCallBlock(id="c1", name="final_output", input={"output": {"key": SECRET}})
    provider = Thinker(ThinkingBlock(thinking=f"say {SECRET}", signature="s1"), call, state=f"x{SECRET}")
    async with agent(llm=provider) as a:
        await bus.listens(a, "loop-reactive", output_schema={"type": "object"})
        assert SECRET not in await a.ask()
        assert SECRET not in str(await a.messages())


@pytest.mark.parametrize("point", ["turn:output", "llm:request"])
async def test_a_part_of_an_answer_that_breaks_off_is_used_nowhere(
    agent: Any, llm: Any, says: Any, bus: RuledBus, caplog: Any, point: str
) -> None:
    phases: tuple[Any, ...] = ("result",) if point == "llm:request" else SELECT
    await bus.scheduler(Continue(), phases=phases, tools=(point,))
    async with agent(llm=llm([says(SECRET), RuntimeError("gone")])) as a:
        await bus.listens(a, "loop-streaming")
        with pytest.raises(RuntimeError, match="gone"):
            await a.ask()
        assert SECRET not in await everything_seen(a, caplog)
