"""What a line of the logs says, and what it never does."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

import pytest
import structlog
from opentelemetry.sdk.trace import TracerProvider
from structlog.contextvars import get_contextvars
from toolgate_bus.telemetry import log_line, tracing
from toolgate_bus.telemetry import logging as logs
from toolgate_bus.telemetry.loggers import get_logger

pytestmark = pytest.mark.pure

ID = "0" * 31 + "a"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
SECRET = "hunter2-canary"


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Logging is one for the whole process, and so is what is hidden."""
    monkeypatch.setattr(log_line, "_hiding", WeakSet())
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    talkative = {name: logging.getLogger(name).level for name in ("openai", "httpcore")}
    yield
    root.handlers = handlers
    root.setLevel(level)
    for name, was in talkative.items():
        logging.getLogger(name).setLevel(was)
    structlog.reset_defaults()


class Said:
    """Logging as the commands have it, and what was logged since one last looked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, form: logs.LogFormat) -> None:
        self._stderr = io.StringIO()
        monkeypatch.setattr("sys.stderr", self._stderr)
        logs.configure_logging("DEBUG", form)
        self._handlers = logging.getLogger().handlers[:]

    @property
    def ours(self) -> Any:
        logging.getLogger().handlers = self._handlers[:]  # pytest's cannot write all that is tried
        return structlog.get_logger("ours")

    @property
    def theirs(self) -> logging.Logger:
        logging.getLogger().handlers = self._handlers[:]
        return logging.getLogger("theirs")

    @property
    def text(self) -> str:
        text = self._stderr.getvalue()
        self._stderr.seek(0)
        self._stderr.truncate()
        return text

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Said:
    """One JSON object a line."""
    return Said(monkeypatch, "json")


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Said:
    """Lines for people."""
    return Said(monkeypatch, "text")


class Secrets:
    def hide(self, text: str) -> str:
        return text.replace(SECRET, "…")


# ---------------------------------------------------------------------- what it belongs to


def test_both_kinds_of_loggers_say_which_decision_and_trace_a_line_belongs_to(said):
    with logs.about(session="s-1"), logs.about(decision=ID, trace=PARENT):
        said.ours.info("one")
        said.theirs.info("two")
    said.ours.info("after")
    one, two, after = said.lines
    for line in (one, two):
        assert (line["decision"], line["session"], line["trace_id"]) == (ID, "s-1", TRACE)
    assert not {"decision", "session", "trace_id", "span_id"} & after.keys()


def test_the_current_span_counts_before_the_trace_of_a_message(said):
    with tracing.use(TracerProvider(shutdown_on_exit=False)), tracing.span("a"):
        carried = tracing.headers()["traceparent"].split("-")
        with logs.about(trace=PARENT):
            said.theirs.info("inside")
    (line,) = said.lines
    assert (line["trace_id"], line["span_id"]) == (carried[1], carried[2])


def test_a_session_within_a_decision_begins_without_one(said):
    with logs.about(session="parent"), logs.about(decision=ID):
        with logs.about(session="child"):
            said.ours.info("the child's")
        said.ours.info("the parent's")
    child, parent = said.lines
    assert (child["session"], child.get("decision")) == ("child", None)
    assert (parent["session"], parent["decision"]) == ("parent", ID)


async def test_decisions_side_by_side_keep_their_lines_apart(said):
    async def decide(number: int) -> None:
        with logs.about(decision=f"{number:032x}"):
            await asyncio.sleep(0)
            said.theirs.info("%d", number)

    await asyncio.gather(*map(decide, range(5)))
    lines = [line for line in said.lines if line["logger"] == "theirs"]
    assert {int(line["event"]): int(line["decision"], 16) for line in lines} == {n: n for n in range(5)}


def test_a_malformed_trace_is_left_out(said):
    with logs.about(decision=ID, trace={"traceparent": "00-nonsense"}):
        said.ours.info("x")
    assert "trace_id" not in said.lines[0]


# ---------------------------------------------------------------------- what it never says


def fails(given: str) -> None:
    secret = given
    raise KeyError(secret)


@pytest.mark.parametrize("kind", ["ours", "theirs"])
@pytest.mark.parametrize("form", ["said", "words"])
def test_a_traceback_shows_no_values_of_variables(request, form, kind):
    said = request.getfixturevalue(form)
    try:
        fails(SECRET)
    except KeyError as error:
        if kind == "ours":
            said.ours.error("it raised", exc_info=error)
        else:
            said.theirs.error("it raised", exc_info=error)
    text = said.text
    assert "in fails" in text
    assert text.count(SECRET) == 1  # the words of the exception, which nobody asked to hide


@pytest.mark.parametrize("form", ["said", "words"])
def test_with_secrets_in_the_process_exceptions_have_no_words_and_lines_no_secrets(request, form):
    said, secrets = request.getfixturevalue(form), Secrets()
    logs.hide_in_logs(secrets)
    try:
        try:
            fails("a word")
        except KeyError as error:
            raise ExceptionGroup("a word", [ValueError("a word"), OSError("a word")]) from error
    except ExceptionGroup:
        said.theirs.exception(f"it raised for {SECRET}", extra={"also": {"deep": [SECRET]}})
    text = said.text
    assert all(name in text for name in ("KeyError", "ExceptionGroup", "ValueError", "OSError", "in fails"))
    assert SECRET not in text
    assert "a word (" not in text.replace('"a word"', "")
    assert text.count("a word") == text.count('\\"a word\\"') + text.count('"a word"')  # in lines of source
    del secrets
    said.theirs.info(SECRET)
    assert SECRET in said.text


def test_who_repeats_exceptions_is_cut_short_where_there_are_secrets(said):
    told = "Hook handler error for event 'tool:pre' (handler 'x'): KeyError: a word"
    lost = "Task exception was never retrieved\nfuture: <Task exception=KeyError('a word')>"
    secrets = Secrets()
    logs.hide_in_logs(secrets)
    for name, text in (("amplifier_core.hooks", told), ("asyncio", lost), ("_engine", "plain")):
        logging.getLogger(name).error(text)
    del secrets
    logging.getLogger("asyncio").error(told)
    lines = [line["event"] for line in said.lines if line["level"] == "error"]
    assert lines == [told.partition(": ")[0], "Task exception was never retrieved", "plain", told]


def test_an_exception_can_be_told_without_its_words():
    with pytest.raises(KeyError) as raised:
        fails(SECRET)
    told = logs.where(raised.value)
    assert told.startswith("KeyError at test_logs.py:")
    assert told.endswith(" in fails")
    assert logs.where(ValueError(SECRET)) == "ValueError"


def test_long_deep_and_odd_values_are_cut(said):
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError

    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    said.ours.info(
        "x" * 10_000, text="y" * 10_000, many=list(range(1000)), deep=deep, big=10**5000, odd=Odd(), raw=b"z"
    )
    (line,) = said.lines
    assert len(line["event"]) < 2100
    assert len(line["text"]) < 2100
    assert len(line["many"]) == 32
    assert (line["big"], line["odd"], line["raw"]) == ("…", "<Odd>", "b'z'")
    assert len(json.dumps(line)) < 20_000


def test_nobody_makes_lines_of_their_own_or_steers_the_terminal(words):
    words.theirs.info("one\n2026-01-01 [info] forged \x1b[2J")
    words.ours.info("two", tool="a\r\nb\u2028c")
    lines = words.text.splitlines()
    assert len(lines) == 2
    assert "\x1b" not in "".join(lines)
    assert "forged" in lines[0]


def test_libraries_that_log_whole_requests_do_not_at_debug(said):
    logging.getLogger("openai._base_client").debug("Request options: %s", {"messages": [SECRET]})
    logging.getLogger("openai").info("kept")
    assert [line["event"] for line in said.lines] == ["kept"]


def test_a_wrong_level_changes_nothing(said):
    with pytest.raises(ValueError, match="LOUDLY"):
        logs.configure_logging("loudly")
    said.ours.debug("still json")
    assert said.lines[0]["event"] == "still json"


def test_the_context_of_a_line_is_one_that_structlog_knows():
    with logs.about(session="s", decision=ID, trace=PARENT):
        assert get_contextvars() == {"session": "s", "decision": ID, "trace_id": TRACE}


def test_a_line_of_ours_is_the_same_by_either_way(said):
    def say() -> None:
        try:
            fails("a word")
        except KeyError:
            get_logger("ours").exception("it raised: 100 %", tool="t", text="y" * 10_000, many=[1] * 100)

    with logs.about(decision=ID, session="s-1", trace=PARENT):
        said.theirs.info("here, and by structlog from now on")
        say()
        structlog.reset_defaults()  # as before anybody has loaded it
        say()
    _, *lines = said.lines
    by_structlog, by_logging = [{**line, "timestamp": ""} for line in lines]
    assert list(by_logging.items()) == list(by_structlog.items())
    assert "in fails" in by_logging["exception"]
