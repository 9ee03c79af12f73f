"""What a tool gave is ruled on before anybody sees it, from wherever a guard is called; on a real server."""

import asyncio
import contextlib
import gc
import signal
import threading
import traceback
from concurrent import futures
from typing import NamedTuple

import pytest
from toolgate_bus.errors import ToolgateError, TurnStop
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call, CallDenial, Guard
from toolgate_orchestrator.guard import results

pytestmark = [pytest.mark.acceptance]
KEY = "key-12345678"
TEXT = f"the key is {KEY} now"
MASKED = "the key is [withheld: key] now"
WITHHELD = "The tool ran, but its result is withheld: it is classified"
GIVEN = {TEXT: MASKED, "it is classified": WITHHELD, "old news": "fresh news", "harmless": "harmless"}


class Odd(Exception):  # noqa: N818 - as a library may have it
    """An error that cannot be made of a text."""

    def __init__(self, code, *, text):
        super().__init__(code, text)


@pytest.fixture
async def read_by(schedulers):
    """`read_by(**fields)`: a guard on whose bus `reader` and `listener` rule."""
    await schedulers.start("reader:reader")
    await schedulers.start("reader:listener")
    with contextlib.ExitStack() as stack:

        def make(**fields):
            where = {"redis": schedulers.url, "namespace": schedulers.namespace, "agent": "clerk"}
            given = {"required": ["reader", "listener"], "patience_ms": 20_000}
            return stack.enter_context(Guard(**where | given | fields))

        yield make


def forms(guard):
    """One tool in all forms that a program may give it; each is called in code that is not async."""

    @guard.tool
    def plain(text):
        return text

    @guard.tool
    async def later(text):
        return text

    @guard.tool
    def pieces(text):
        yield text[:15]
        yield text[15:]

    @guard.tool
    async def later_pieces(text):
        yield text[:15]
        yield text[15:]

    @guard.tool
    @contextlib.contextmanager
    def block(text):
        yield text

    @guard.tool
    def promised(text):
        with futures.ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: text)

    async def gather(text):
        return "".join([one async for one in later_pieces(text)])

    def enter(text):
        with block(text) as found:
            return found

    return {
        "plain": plain,
        "later": lambda text: asyncio.run(later(text)),
        "pieces": lambda text: "".join(pieces(text)),
        "later_pieces": lambda text: asyncio.run(gather(text)),
        "block": enter,
        "promised": lambda text: promised(text).result(),
    }


async def test_a_tool_of_any_form_gives_what_may_be_seen(read_by):
    def see():
        return {
            form: {text: tool(text) for text in GIVEN} for form, tool in forms(read_by(notice=True)).items()
        }

    seen = await asyncio.to_thread(see)
    assert seen == dict.fromkeys(seen, GIVEN)


async def test_values_are_masked_where_the_mask_says_and_an_unchanged_result_is_the_very_same(read_by):
    guard = read_by()
    plain, secret = {"items": [{"text": "fine"}]}, {"items": [{"text": TEXT, "n": 1}], "also": KEY}

    async def run(result):
        return await guard.run(Call("look", {}), lambda *_: result, denied=str)

    assert await run(plain) is plain
    assert await run(secret) == {"items": [{"text": MASKED, "n": 1}], "also": "[withheld: key]"}
    assert secret["also"] == KEY


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (ValueError(TEXT), ValueError, MASKED),
        (KeyError(TEXT), KeyError, repr(MASKED)),
        (ValueError("it is classified"), ValueError, WITHHELD),
        (Odd(7, text="it is classified"), ToolgateError, WITHHELD),
        (ValueError("harmless"), ValueError, "harmless"),
    ],
    ids=["masked", "key", "withheld", "odd", "released"],
)
async def test_an_error_is_a_result_and_bears_nothing_of_what_was_hidden(read_by, error, kind, text):
    guard = read_by()
    error.add_note(TEXT) if kind is KeyError else None

    def fail(*_):
        try:
            raise RuntimeError(f"below: {KEY}" if text != "harmless" else "below")
        except RuntimeError as cause:
            raise error from cause

    with pytest.raises(kind) as seen:
        await guard.run(Call("look", {}), fail, denied=str)
    assert seen.value.args == (text,)
    assert (seen.value is error) == (text == "harmless")
    if text != "harmless":
        assert (seen.value.__cause__, seen.value.__context__, vars(seen.value)) == (None, None, {})
    with pytest.raises(kind) as seen:
        await asyncio.to_thread(guard.run_sync, Call("look", {}), fail, denied=str)
    assert seen.value.args == (text,)
    handed = await guard.run(Call("look", {}), fail, denied=str, failed=lambda error, ruling: error)
    assert handed.args == (text,)


def noted(error, note):
    error.add_note(note)
    return error


def chained(depth, last):
    error = RuntimeError(last)
    for _ in range(depth):
        above = RuntimeError("above")
        above.__cause__ = error
        error = above
    return error


@pytest.mark.parametrize(
    "error",
    [
        noted(ValueError("fine"), TEXT),
        ExceptionGroup("fine", [ValueError("a"), KeyError(TEXT)]),
        ExceptionGroup("fine", [noted(ValueError("a"), TEXT)]),
        chained(12, TEXT),
    ],
    ids=["note", "member", "note of a member", "deep cause"],
)
async def test_what_an_error_bears_besides_its_words_is_ruled_on(read_by, error):
    guard = read_by()

    async def fail(*_):
        raise error

    with pytest.raises(Exception) as seen:  # noqa: PT011 - of which type it is depends on the error
        await guard.run(Call("look", {}), fail, denied=str)
    assert seen.value is not error
    assert KEY not in "".join(traceback.format_exception(seen.value))
    assert "cut off here" not in str(seen.value)


async def test_of_an_error_that_is_cut_nothing_unseen_is_given_and_the_cut_is_told(read_by):
    guard = read_by(result_bytes=1024)
    long = noted(noted(ValueError("fine"), "x" * 1000), TEXT)
    shown = await (await guard.rule(Call("look", {}))).fail(long)
    assert KEY not in "".join(traceback.format_exception(shown))
    assert type(shown) is ValueError
    assert str(shown).startswith("fine\n[cut off here: ")


async def test_what_a_block_raises_when_its_reader_failed_is_ruled_on_and_the_readers_own_error_is_not(
    read_by,
):
    guard, own = read_by(), ValueError(TEXT)

    @guard.tool
    @contextlib.contextmanager
    def block(fails):
        try:
            yield "a piece"
        except ValueError:
            if fails:
                raise RuntimeError(TEXT) from None
            raise

    @guard.tool
    @contextlib.asynccontextmanager
    async def later_block(fails):
        with block.__wrapped__(fails) as piece:
            yield piece

    def enter(fails):
        with block(fails):
            raise own

    async def enter_later(fails):
        async with later_block(fails):
            raise own

    for run in (lambda fails: asyncio.to_thread(enter, fails), enter_later):
        with pytest.raises(RuntimeError) as seen:
            await run(fails=True)
        assert str(seen.value) == MASKED
        with pytest.raises(ValueError, match=KEY) as seen:
            await run(fails=False)
        assert seen.value is own


class Leave(BaseException):
    """What an `ask` function raises to leave the program's call."""


async def test_whatever_ends_the_ruling_on_an_error_bears_nothing_of_that_error(read_by):
    def ask(question, call):
        raise Leave

    guard, secret = read_by(ask=ask), ValueError(f"ask me: {KEY}")

    def fail(*_):
        raise secret

    async def fail_later(*_):
        raise secret

    @guard.tool
    async def pieces():
        yield await fail_later()

    @guard.tool
    def sync_pieces():
        yield fail()

    @guard.tool
    @contextlib.contextmanager
    def block():
        yield fail()

    @guard.tool
    @contextlib.asynccontextmanager
    async def later_block():
        yield await fail_later()

    ruling = await guard.rule(Call("look", {}))
    ways = [
        lambda: guard.run(Call("look", {}), fail, denied=str),
        lambda: guard.run(Call("look", {}), fail, denied=str, failed=lambda *_: None),
        guard.tool(fail_later),
        lambda: asyncio.to_thread(guard.tool(fail)),
        lambda: asyncio.to_thread(guard.run_sync, Call("look", {}), fail, denied=str),
        lambda: guard.run_sync(Call("look", {}), fail_later, denied=str),
        lambda: anext(pieces()),
        lambda: asyncio.to_thread(lambda: list(sync_pieces())),
        lambda: asyncio.to_thread(lambda: block().__enter__()),
        lambda: later_block().__aenter__(),
        lambda: results.run_tool(ruling, fail_later),
        lambda: asyncio.to_thread(results.run_tool_sync, ruling, fail),
    ]
    for number, way in enumerate(ways):
        with pytest.raises(Leave) as seen:
            await way()
        assert KEY not in "".join(traceback.format_exception(seen.value)), number
        assert seen.value.__context__ is None, number


async def test_a_cancellation_while_an_error_is_ruled_on_bears_nothing_of_it(read_by):
    asked = asyncio.Event()

    async def ask(question, call):
        asked.set()
        await asyncio.Event().wait()

    guard = read_by(ask=ask)

    @guard.tool
    async def look():
        raise ValueError(f"ask me: {KEY}")

    async def see():
        try:
            await look()
        except asyncio.CancelledError as error:
            return error.__context__

    task = asyncio.create_task(see())
    await asked.wait()
    task.cancel()
    assert await task is None


async def test_an_error_that_is_released_keeps_its_context_whatever_its_caller_handles(read_by):
    guard, below = read_by(), LookupError("below")

    async def fail(*_):
        try:
            raise below
        except LookupError:
            raise ValueError("harmless")  # noqa: B904 - what it has is a context

    try:
        raise LookupError("the caller's")
    except LookupError:
        with pytest.raises(ValueError, match="harmless") as seen:
            await guard.run(Call("look", {}), fail, denied=str)
        assert seen.value.__context__ is below
        with pytest.raises(ValueError, match="withheld") as seen:
            await guard.tool(fail_with)(ValueError(TEXT))
        assert seen.value.__context__ is None


async def fail_with(error):
    raise error


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (SystemExit(TEXT), SystemExit, MASKED),
        (SystemExit(3), SystemExit, "3"),
        (BaseExceptionGroup("some", [ValueError(TEXT), asyncio.CancelledError()]), ToolgateError, "some"),
    ],
    ids=["exit", "code", "group"],
)
async def test_an_exit_of_a_tool_and_a_group_with_a_cancellation_are_results(read_by, error, kind, text):
    guard = read_by()
    with pytest.raises(kind) as seen:
        await guard.tool(fail_with)(error)
    assert str(seen.value).startswith(text)
    assert (seen.value is error) == (text == "3")
    assert KEY not in "".join(traceback.format_exception(seen.value))


async def test_cancellations_and_stops_pass_as_they_are(read_by):
    guard = read_by()
    own = SystemExit(TEXT)

    def end(*_):
        raise own

    async def be_ended(error):
        signal.raise_signal(signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, end)
    try:
        for fail, error in (
            (fail_with, asyncio.CancelledError(TEXT)),
            (fail_with, KeyboardInterrupt(TEXT)),
            (fail_with, GeneratorExit(TEXT)),
            (fail_with, TurnStop(TEXT)),
            (be_ended, own),
        ):
            with pytest.raises(type(error)) as seen:
                await guard.tool(fail)(error)
            assert seen.value is error
    finally:
        signal.signal(signal.SIGUSR1, before)


def add_note(error):
    error.add_note(TEXT)
    raise error


def change_words(error):
    error.args = (TEXT,)
    raise error


def give_cause(error):
    raise error from OSError(TEXT)


def meet_another(error):
    try:
        raise OSError(TEXT)
    except OSError:
        raise error  # noqa: B904 - the other one is its context


def raise_another(error):
    error.args = (TEXT,)
    raise RuntimeError(TEXT)


@pytest.mark.parametrize("change", [add_note, change_words, give_cause, meet_another, raise_another])
async def test_a_readers_error_that_a_block_changes_is_ruled_on_as_the_blocks(read_by, change):
    guard = read_by()

    @guard.tool
    @contextlib.contextmanager
    def block():
        try:
            yield
        except ValueError as error:
            change(error)

    @guard.tool
    @contextlib.asynccontextmanager
    async def later_block():
        try:
            yield
        except ValueError as error:
            change(error)

    def enter():
        with block():
            raise ValueError("mine")

    async def enter_later():
        async with later_block():
            raise ValueError("mine")

    for run in (lambda: asyncio.to_thread(enter), enter_later):
        with pytest.raises((ValueError, RuntimeError)) as seen:
            await run()
        assert KEY not in "".join(traceback.format_exception(seen.value))
        assert (seen.value.__cause__, seen.value.__context__) == (None, None)


class InputError(ValueError):
    """An error of a library."""


@pytest.mark.parametrize("base", [Exception, ValueError, InputError])
async def test_the_name_of_an_errors_class_tells_nothing_of_what_was_hidden(read_by, base):
    guard = read_by()
    kind = type(f"Of {KEY}", (base,), {})
    built_in = ValueError if base is InputError else base
    with pytest.raises(built_in) as seen:
        await guard.tool(fail_with)(kind("fine"))
    assert (type(seen.value), str(seen.value)) == (built_in, "Of [withheld: key]: fine")
    outer = type("Plain", (base,), {"__qualname__": f"where.{KEY}.Plain"})
    with pytest.raises(built_in) as seen:
        await guard.tool(fail_with)(outer(TEXT))
    assert (type(seen.value), str(seen.value)) == (built_in, MASKED)


async def test_by_hand_it_is_awaited_in_any_loop_or_waited_for_in_any_thread(read_by, schedulers):
    guard = read_by()

    async def give(result):
        ruling = await guard.rule(Call("look", {}))
        return await ruling.succeed(result), await ruling.fail(ValueError("it is classified"))

    def wait(result):
        return guard.rule_sync(Call("look", {})).succeed(result).wait()

    given, error = await give(TEXT)
    assert (given, type(error), str(error)) == (MASKED, ValueError, WITHHELD)
    assert (await asyncio.to_thread(asyncio.run, give(TEXT)))[0] == MASKED
    assert await asyncio.to_thread(wait, TEXT) == MASKED
    where = {"redis": schedulers.url, "namespace": schedulers.namespace}
    async with Guard(required=["reader"], patience_ms=20_000, **where) as here:
        ruling = await here.rule(Call("look", {}))
        assert await ruling.succeed(TEXT) == MASKED
        given = await ruling.succeed(TEXT).given()
        assert (given.outcome, given.clean({"copy": [KEY]})) == ("masked", {"copy": ["[withheld]"]})
        with pytest.raises(ToolgateError, match="would block the event loop"):
            (await here.rule(Call("look", {}))).succeed(TEXT).wait()

        async def numbers(*_):
            return (one for one in (KEY, "2"))

        (piece,) = await here.run(Call("look", {}), numbers, denied=str)
        assert "read without await" in piece
        assert KEY not in piece


async def test_whoever_reads_it_twice_is_given_the_same_twice(read_by):
    guard = read_by()

    def read_late():
        report = guard.rule_sync(Call("look", {})).succeed(TEXT)
        return report.wait(), report.wait(), report.given_now().value

    report = (await guard.rule(Call("look", {}))).succeed(TEXT)
    assert [await report, await report, (await report.given()).value] == [MASKED] * 3
    assert await asyncio.to_thread(read_late) == (MASKED,) * 3
    report = (await guard.rule(Call("look", {}))).succeed(TEXT)
    assert await asyncio.gather(report.given(), report.given()) == [await report.given()] * 2
    report = (await guard.rule(Call("look", {}))).succeed(TEXT)
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(report.given(), 0)
    assert await report == MASKED
    error = (await guard.rule(Call("look", {}))).fail(ValueError(TEXT))
    assert [str(await error), str(await error)] == [MASKED] * 2


async def test_who_does_not_await_it_is_told_once_what_to_write(read_by, schedulers, caplog, monkeypatch):
    monkeypatch.setattr(results, "_told", set())
    guard = read_by()
    unread = Guard(agent="clerk", redis=schedulers.url, namespace=f"{schedulers.namespace}-empty")

    def end(ruling):
        ruling.succeed(TEXT)
        gc.collect()

    end(await unread.rule(Call("look", {})))
    assert "await ruling.succeed(result)" not in caplog.text
    end(await guard.rule(Call("look", {})))
    end(await guard.rule(Call("look", {})))
    assert caplog.text.count("await ruling.succeed(result)") == 1
    assert KEY not in caplog.text
    await unread.aclose()


async def test_an_error_that_leaves_the_block_of_a_ruling_is_told_of_too(read_by, caplog, monkeypatch):
    monkeypatch.setattr(results, "_told", set())
    guard = read_by()
    with pytest.raises(ZeroDivisionError), await guard.rule(Call("look", {})):
        raise ZeroDivisionError
    assert "await ruling.succeed(result)" in caplog.text


async def test_where_nobody_rules_on_results_pieces_are_given_as_they_come(schedulers):
    read = threading.Event()
    with Guard(agent="clerk", redis=schedulers.url, namespace=schedulers.namespace) as guard:

        @guard.tool
        def pieces():
            yield "one"
            read.wait(0)
            yield "two" if read.is_set() else "gathered"

        def see():
            found = pieces()
            first = next(found)
            read.set()
            return first, list(found)

        assert await asyncio.to_thread(see) == ("one", ["two"])
        result = object()
        assert await guard.run(Call("look", {}), lambda *_: result, denied=str) is result


async def test_pieces_of_which_the_rest_would_be_too_long_are_not_read_further(read_by):
    guard = read_by(result_bytes=1024)
    read = []

    @guard.tool
    async def endless():
        while True:
            read.append(1)
            yield "x" * 100

    found = [one async for one in endless()]
    assert len(found) == 1
    assert found[0].startswith("x" * 1024)
    assert "which no rule has seen" in found[0]
    assert len(read) == 11


class Row(NamedTuple):
    """A piece that is no JSON."""

    text: str


@pytest.mark.parametrize(
    ("piece", "count"),
    [
        ("", 1025),
        (b"", 1025),
        (7, 1025),
        ("é" * 100, 6),
        ({"row": "x" * 200}, 5),
        ([{"row": "x" * 5000}], 1),
        (Row("x" * 200), 5),
    ],
    ids=["empty", "no bytes", "number", "beyond ASCII", "map", "long", "tuple"],
)
async def test_pieces_of_any_kind_are_read_up_to_the_bytes_that_they_take(read_by, piece, count):
    guard, read = read_by(result_bytes=1024), []

    @guard.tool
    async def endless():
        while len(read) < 5000:
            read.append(1)
            yield piece

    assert [one async for one in endless()]
    assert len(read) == count


class Word(str):
    """A text of a library's own kind."""

    __slots__ = ()


BEGIN, END = TEXT[:15], TEXT[15:]
SPLIT = {
    "bytes": ([BEGIN.encode(), END.encode()], [MASKED.encode()]),
    "bytes that can be changed": ([bytearray(BEGIN.encode()), memoryview(END.encode())], [MASKED.encode()]),
    "bytes and texts": ([BEGIN, END.encode()], [MASKED.encode()]),
    "texts of another kind": ([Word(BEGIN), Word(END)], [MASKED]),
    "texts and nothing": ([BEGIN, None, END, None], [MASKED]),
    "texts between other pieces": ([{"n": 1}, BEGIN, END, {"n": 2}], [{"n": 1}, MASKED, {"n": 2}]),
    "bytes between other pieces": ([1, BEGIN.encode(), END.encode()], [1, MASKED.encode()]),
    "half a character": ([f"é {TEXT}".encode()[:1], f"é {TEXT}".encode()[1:]], [f"é {MASKED}".encode()]),
    "bytes that are withheld": ([b"it is clas", b"sified"], [WITHHELD.encode()]),
}


async def test_what_is_split_over_pieces_of_any_kind_is_seen_as_its_reader_sees_it(read_by):
    guard = read_by()

    @guard.tool
    def pieces(case):
        yield from SPLIT[case][0]

    @guard.tool
    async def later_pieces(case):
        for piece in SPLIT[case][0]:
            yield piece

    for case, (_, wanted) in SPLIT.items():
        assert await asyncio.to_thread(lambda case=case: list(pieces(case))) == wanted, case
        assert [one async for one in later_pieces(case)] == wanted, case


async def test_pieces_of_which_nothing_is_hidden_are_given_as_they_were(read_by):
    guard, own = read_by(), [b"a", b"b", Word("c"), None, "d", {"n": 1}, "", None]

    @guard.tool
    def pieces():
        yield from own
        return Word("the end")

    def see():
        def read():
            end = yield from pieces()
            assert type(end) is Word

        return list(read())

    seen = await asyncio.to_thread(see)
    assert [id(one) for one in seen] == [id(one) for one in own]


async def test_a_buffer_that_is_filled_anew_for_each_piece_gives_each_piece(read_by):
    guard = read_by()

    @guard.tool
    async def pieces(case):
        buffer = bytearray(2)
        for text in (b"ab", b"cd"):
            buffer[:] = text
            yield case(buffer)

    for case in (bytearray, memoryview, lambda buffer: buffer):
        assert [bytes(one) async for one in pieces(case)] == [b"ab", b"cd"]


async def test_what_a_generator_returns_is_apart_from_its_pieces_unless_it_goes_on_with_them(read_by):
    guard = read_by()

    @guard.tool
    def pieces(end, *given):
        yield from given
        return end

    def see(*case):
        def read():
            ends.append((yield from pieces(*case)))

        ends = []
        return list(read()), ends.pop()

    for case, wanted in (
        (({"usage": 1}, BEGIN, END), ([MASKED], {"usage": 1})),
        (({"usage": KEY}, "a", "b"), (["ab"], {"usage": "[withheld: key]"})),
        ((END, BEGIN), ([MASKED], None)),
        ((TEXT,), ([], MASKED)),
        ((TEXT.encode(),), ([], MASKED.encode())),
        ((TEXT, None), ([None], MASKED)),
        ((TEXT, {"n": 1}), ([{"n": 1}], MASKED)),
        (({"usage": 1}, "it is clas", "sified"), ([WITHHELD], None)),
        (({"usage": 1}, BEGIN, END, {"n": 1}), ([MASKED, {"n": 1}], {"usage": 1})),
    ):
        assert await asyncio.to_thread(see, *case) == wanted, case


async def test_no_word_of_what_was_hidden_is_in_a_fact_or_in_the_log(read_by, schedulers, caplog):
    guard = read_by()

    def fail(*_):
        error = ValueError(TEXT)
        error.code, error.retry_after = KEY, 7
        raise error

    await guard.run(Call("look", {}), lambda *_: TEXT, denied=str)
    await guard.run(Call("look", {}), fail, denied=str, failed=lambda *_: None)
    ruling = await guard.rule(Call("look", {}))
    assert await ruling.fail(TEXT) == MASKED
    await (await guard.rule(Call("look", {}))).fail("hunter2")
    await guard.flush()
    commands = RedisCommands(schedulers.url, "test-guard-results")
    facts = await FactsReader(commands, schedulers.namespace).read_all()
    await commands.aclose()
    ends = [one for one in facts if one["event"] in ("tool:post", "tool:error")]
    assert [one["event"] for one in ends] == ["tool:post", *["tool:error"] * 3]
    assert [one.get("error") for one in ends] == [None, "ValueError", "ToolError", "ToolError"]
    assert (ends[1].get("signal"), ends[1]["retry_after"]) == (None, 7)
    assert "digest" not in ends[0]
    assert len([one for one in facts if one["event"] == "tool:result"]) == 4
    assert KEY not in str(facts)
    assert KEY not in caplog.text


async def test_a_person_who_is_asked_about_a_result_releases_or_keeps_it(read_by):
    asked = []

    def ask(question, call):
        asked.append((question.prompt, call.tool_name, threading.current_thread()))
        return len(asked) == 1

    guard = read_by(ask=ask)

    def run():
        return guard.run_sync(Call("look", {}), lambda *_: "ask me", denied=str)

    assert run() == "ask me"
    assert "refused" in run()
    assert asked[0] == ("May it be seen?", "look", threading.current_thread())
    later = read_by(ask="defer")
    nobody = await later.run(Call("look", {}), lambda *_: "ask me", denied=str)
    assert "nobody to ask" in nobody


async def test_what_a_closed_guard_can_no_longer_rule_on_is_withheld(read_by):
    guard = read_by()
    ruling = await guard.rule(Call("look", {}))
    await guard.aclose()
    assert "its result is withheld" in await ruling.succeed(TEXT)
    error = ruling.fail(ValueError(TEXT))
    assert KEY not in str(await asyncio.to_thread(error.wait))
    freely = read_by(on_fault="continue")
    ruling = await freely.rule(Call("look", {}))
    await freely.aclose()
    assert await ruling.succeed(TEXT) == TEXT


async def test_texts_of_a_turn_are_used_changed_or_refused(read_by, schedulers):
    guard = read_by()
    assert await guard.turn_input("be rude") == "be kind"
    assert await asyncio.to_thread(guard.turn_output_sync, "a rude answer") == "a kind answer"
    with pytest.raises(CallDenial, match="The turn was not begun: that is not talked about"):
        await guard.turn_input("something forbidden")
    with pytest.raises(CallDenial, match="The answer is withheld: that is not talked about"):
        await asyncio.to_thread(guard.turn_output_sync, "something forbidden")
    await guard.flush()
    commands = RedisCommands(schedulers.url, "test-guard-points")
    facts = await FactsReader(commands, schedulers.namespace).read_all()
    await commands.aclose()
    told = [(one["event"], one["tool"]) for one in facts if one["event"].startswith("tool:")]
    passed = [("tool:selected", point) for point in ("turn:input", "turn:output")]
    assert sorted(told) == sorted([*passed, ("tool:post", "turn:input"), ("tool:post", "turn:output")])
    where = {"redis": schedulers.url, "namespace": f"{schedulers.namespace}-empty"}
    async with Guard(**where) as nobody:
        text = "something forbidden"
        assert await nobody.turn_input(text) is text
