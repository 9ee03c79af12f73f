"""The ways out of a turn: what the LLM answers, and what then happens to the turn.

`WAYS` holds each of them with how it is to be reported; `test_ways_out.py` runs them under every
loop and checks what must hold at the end.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from amplifier_core import HookResult, LLMError
from toolgate_bus.errors import ConfigError
from turn_world import Held, World

__all__ = ["AT_THE_END", "PROVIDER_ERRORS", "UNTIL_THE_ANSWER", "WAYS", "Way"]


class Way(NamedTuple):
    """One way out: what happens, and how it is to be reported."""

    run: Callable[[World], Awaitable[None]]
    execution: str
    complete: str
    answered: bool
    """Whether the user gets an answer: only then there is a prompt:complete."""
    raises: type[BaseException] | None = None


WAYS: dict[str, Way] = {}
PROVIDER_ERRORS: set[str] = set()
"""Ways in which the provider fails: loop-events tells the user, the others raise."""


def way(
    execution: str, complete: str, answered: bool, raises: type[BaseException] | None = None
) -> Callable[[Callable[[World], Awaitable[None]]], Callable[[World], Awaitable[None]]]:
    """Register a way out; its name is the function's."""

    def register(run: Callable[[World], Awaitable[None]]) -> Callable[[World], Awaitable[None]]:
        WAYS[run.__name__] = Way(run, execution, complete, answered, raises)
        return run

    return register


def each_of(name: str, *values: Any) -> Callable[[Callable[..., Awaitable[None]]], None]:
    """Register the same way for several values, under `name`, with what is expected of it."""

    def register(run: Callable[..., Awaitable[None]]) -> None:
        for value, *expected in values:

            async def one(w: World, value: Any = value) -> None:
                await run(w, value)

            WAYS[f"{name} {value}"] = Way(one, *expected)

    return register


ENDED_WELL = ("completed", "success", True)
CANCELLED = ("cancelled", "cancelled", False)
BROKEN = ("error", "incomplete", False)
INCOMPLETE = ("completed", "incomplete", True)
TASK_CANCELLED = (*CANCELLED, asyncio.CancelledError)


# ---------------------------------------------------------------- answers, limits, errors, denials


@way(*ENDED_WELL)
async def answer(w: World) -> None:
    w.llm_answers([w.says("done")])
    w.begin()


@way(*ENDED_WELL)
async def answer_after_a_tool_error(w: World) -> None:
    w.llm_answers(w.calls("a", "bad", "nowhere", "a"), [w.says("done")])
    w.begin()


@way(*INCOMPLETE)
async def limit(w: World) -> None:
    w.limit(1)
    w.llm_answers(w.calls("a"), [w.says("so far"), *w.calls("a")])
    w.begin()


@way(*BROKEN, ConfigError)
async def no_such_provider(w: World) -> None:
    w.begin(request_options={"provider": "nobody"})


@each_of("context error on message", *[(number, *BROKEN, OSError) for number in (1, 2, 3, 4, 5)])
async def context_error(w: World, number: int) -> None:
    w.llm_answers(w.calls("a", "a"), [w.says("done")])
    w.context.fail_at("add", number)  # the prompt, the calls, two results, the answer
    w.begin()


@each_of("context error on request", *[(number, *BROKEN, OSError) for number in (1, 2)])
async def context_error_on_request(w: World, number: int) -> None:
    w.llm_answers(w.calls("a"), [w.says("done")])
    w.context.fail_at("get", number)
    w.begin()


@way(*INCOMPLETE)
async def denied_prompt(w: World) -> None:
    w.a.on("prompt:submit", HookResult(action="deny", reason="not now"))
    w.begin()


@each_of("denied request", *[(number, *INCOMPLETE) for number in (1, 2)])
async def denied_request(w: World, number: int) -> None:
    w.llm_answers(w.calls("a"), [w.says("never")])
    denied = HookResult(action="deny", reason="no budget")
    w.a.on("provider:request", *[HookResult()] * (number - 1), denied)
    w.begin()


# ---------------------------------------------------------------- the provider fails


def provider_fails(run: Callable[[World], Awaitable[None]]) -> None:
    PROVIDER_ERRORS.add(run.__name__)
    way(*BROKEN, LLMError)(run)


@provider_fails
async def provider_error(w: World) -> None:
    w.llm_answers([LLMError("overloaded")])
    w.begin()


@provider_fails
async def provider_error_after_calls(w: World) -> None:
    w.llm_answers(w.calls("a", "bad"), [LLMError("overloaded")])
    w.begin()


@way(*INCOMPLETE)
async def provider_error_at_the_limit(w: World) -> None:
    w.limit(1)
    w.llm_answers([w.says("I look."), *w.calls("a")], [LLMError("overloaded")])
    w.begin()


@provider_fails
async def provider_error_in_mid_stream_after_text(w: World) -> None:
    w.llm_answers([w.says("so far "), w.says("so good"), LLMError("connection lost")])
    w.begin()


@provider_fails
async def provider_error_in_mid_stream_after_a_complete_call(w: World) -> None:
    w.llm_answers([w.says("let me see"), *w.calls("a", "bad"), LLMError("connection lost")])
    w.begin()


@provider_fails
async def provider_error_while_a_call_out_of_the_stream_runs(w: World) -> None:
    held = w.hold_tool()
    if w.loop == "loop-reactive":  # the others run nothing before the response is whole
        w.llm_answers([*w.calls("a"), held.reached, {"type": "error", "error": {"message": "lost"}}])
        w.begin()
        await w.until(held)
        held.set()
    else:
        w.llm_answers([*w.calls("a"), {"type": "error", "error": {"message": "lost"}}])
        w.begin()


# ---------------------------------------------------------------- cancelled


def stop_gracefully(w: World) -> None:
    w.token().request_graceful()


def stop_at_once(w: World) -> None:
    w.token().request_immediate()


def cancel_the_task(w: World) -> None:
    w.turn.cancel()


HOW: list[tuple[str, Callable[[World], None], tuple[Any, ...]]] = [
    ("graceful cancellation", stop_gracefully, CANCELLED),
    ("immediate cancellation", stop_at_once, CANCELLED),
    ("task cancelled", cancel_the_task, TASK_CANCELLED),
]


def in_the_middle(where: str) -> Callable[[Callable[[World], Held]], None]:
    """Register three ways: the turn is held somewhere, and then ended in each of the manners."""

    def register(hold: Callable[[World], Held]) -> None:
        for how, stop, expected in HOW:

            async def one(w: World, stop: Any = stop) -> None:
                held = hold(w)
                w.begin()
                await w.until(held)
                stop(w)
                if stop is stop_gracefully:
                    held.set()

            WAYS[f"{how} {where}"] = Way(one, *expected)

    return register


@in_the_middle("before the LLM says anything")
def llm_thinks(w: World) -> Held:
    held = Held()
    w.llm_answers([held, *w.calls("a")])
    return held


@in_the_middle("while the LLM answers")
def llm_speaks(w: World) -> Held:
    held = Held()
    w.llm_answers([w.says("let me "), held, w.says("see"), *w.calls("a")])
    return held


@in_the_middle("while the LLM answers, after a complete call")
def llm_speaks_on(w: World) -> Held:
    held = Held()
    w.llm_answers([*w.calls("a", "bad"), held, w.says("and"), w.wants("c9", "a")])
    return held


@in_the_middle("while a tool runs")
def tool_runs(w: World) -> Held:
    held = w.hold_tool()
    w.llm_answers(w.calls("bad", "a", "a"), [w.says("never")])
    return held


@in_the_middle("while a verdict is awaited")
def verdict_awaited(w: World) -> Held:
    held = w.hold_hook("tool:selecting")
    w.llm_answers(w.calls("a", "a"), [w.says("never")])
    return held


@in_the_middle("while tool:pre is asked")
def tool_pre_asked(w: World) -> Held:
    held = w.hold_hook("tool:pre")
    w.llm_answers(w.calls("a", "a"), [w.says("never")])
    return held


@in_the_middle("while the second request is answered")
def second_request(w: World) -> Held:
    held = Held()
    w.llm_answers(w.calls("a"), [held, *w.calls("a")])
    return held


@each_of("task cancelled while the context stores message", *[(n, *TASK_CANCELLED) for n in (1, 2, 3, 4, 5)])
async def context_stores(w: World, number: int) -> None:
    """The prompt, the calls, two results, the answer: each is written, and then it takes a while."""
    held = w.context.waits[number] = Held()
    w.llm_answers(w.calls("a", "a"), [w.says("done")])
    w.begin()
    await w.until(held)
    cancel_the_task(w)
    held.set()


@way(*CANCELLED)
async def cancelled_before_it_began(w: World) -> None:
    stop_gracefully(w)
    w.begin()


@way(*CANCELLED)
async def its_reader_has_left(w: World) -> None:
    held = w.hold_tool()
    w.llm_answers([w.says("let me see"), *w.calls("a")])

    async def read_a_little() -> str:
        pieces = w.started("stream")
        first = await anext(pieces)
        if w.loop != "loop-basic":
            await w.until(held)
        await pieces.aclose()
        assert first == "let me see"
        return ""

    w.turn = asyncio.ensure_future(read_a_little())


# ---------------------------------------------------------------- hooks that fail, hooks that hang

UNTIL_THE_ANSWER = (
    "execution:start",
    "prompt:submit",
    "provider:request",
    "content_block:start",
    "content_block:delta",
    "content_block:end",
    "provider:response",
    "tool:selecting",
    "tool:selected",
    "tool:pre",
    "tool:post",
    "tool:error",
)
AT_THE_END = ("prompt:complete", "orchestrator:complete", "execution:end")


def talk(w: World) -> None:
    """A turn in which each of these events is emitted."""
    w.llm_answers([w.says("so"), *w.calls("a", "bad")], [w.says("done")])
    w.begin()


@each_of("exception in a hook on", *[(event, *ENDED_WELL) for event in UNTIL_THE_ANSWER + AT_THE_END])
async def hook_raises(w: World, event: str) -> None:
    w.break_hook(event)
    talk(w)


@provider_fails
async def exception_in_a_hook_on_the_providers_error(w: World) -> None:
    w.break_hook("provider:error")
    w.llm_answers([LLMError("overloaded")])
    w.begin()


@each_of("task cancelled while a hook hangs on", *[(event, *TASK_CANCELLED) for event in UNTIL_THE_ANSWER])
async def hook_hangs(w: World, event: str) -> None:
    held = w.hold_hook(event)
    talk(w)
    await w.until(held)
    cancel_the_task(w)


@each_of("immediate cancellation while a hook hangs on", *[(event, *CANCELLED) for event in UNTIL_THE_ANSWER])
async def hook_hangs_and_the_session_stops(w: World, event: str) -> None:
    held = w.hold_hook(event)
    talk(w)
    await w.until(held)
    stop_at_once(w)


@each_of(
    "task cancelled at its end, while a hook hangs on",
    *[(event, *ENDED_WELL, asyncio.CancelledError) for event in AT_THE_END],
)
async def hook_hangs_at_the_end(w: World, event: str) -> None:
    held = w.hold_hook(event)
    talk(w)
    await w.until(held)
    cancel_the_task(w)
