"""The file of hooks-logging: whole lines, in order, none lost without a word, and nobody waits for it."""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from amplifier_core import HookRegistry, HookResult
from hypothesis import given
from hypothesis import strategies as st
from toolgate_orchestrator.modules.hooks_logging import file as hooks_logging_file
from toolgate_orchestrator.modules.hooks_logging.file import (
    EventFile,
    LostLines,
    NumberedLine,
    file_name,
    last_seq,
)
from toolgate_orchestrator.modules.hooks_logging.line import Shape, redactor
from toolgate_orchestrator.modules.hooks_logging.module import Recorder

pytestmark = pytest.mark.pure


def line(seq: int, size: int = 60) -> NumberedLine:
    head = f'{{"schema":1,"seq":{seq},"event":"e","x":"'
    return NumberedLine(seq, f'{head}{"y" * (size - len(head) - 3)}"}}\n'.encode())


def lost_line(lost: LostLines) -> bytes:
    fields = {"schema": 1, "seq": lost.seq, "lines": lost.lines, "why": lost.why}
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"


def numbers(path: Path) -> list[int]:
    return [json.loads(each)["seq"] for each in path.read_bytes().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "s-1.jsonl"


@pytest.fixture
def file(path: Path) -> Iterator[EventFile]:
    opened = EventFile(path, None, lost_line)
    yield opened
    opened.close()


# ---------------------------------------------------------------- names


@given(st.text(st.characters()))
def test_a_file_name_is_one_plain_name(session: str) -> None:
    name = file_name(session)
    assert Path(name).name == name
    assert not name.startswith((".", "-"))
    assert name.isascii()
    assert name.isprintable()
    assert len(name) <= 140


@given(st.lists(st.text(st.sampled_from("aA-_.1~/")), min_size=2, max_size=30, unique=True))
def test_no_two_sessions_share_a_file_or_its_older_one(sessions: list[str]) -> None:
    files = [Path(file_name(session)) for session in sessions]
    kept = [str(name).lower() for file in files for name in (file, file.with_suffix(".1.jsonl"))]
    assert len(set(kept)) == len(kept)


def test_an_ordinary_session_id_is_the_files_name() -> None:
    assert file_name("0f8fad5b-d9cb-469f-a165-70867728950e") == "0f8fad5b-d9cb-469f-a165-70867728950e.jsonl"


# ---------------------------------------------------------------- writing


def test_lines_of_many_threads_are_whole_and_counted(path: Path) -> None:
    recorder = Recorder("s-1", None, Shape(1_000, 8_192, redactor()), path, None)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: recorder.write_event("e", {"n": n, "text": "y" * 300}), range(2_000)))
    recorder.file.close()
    assert numbers(path) == list(range(1, 2_001))


def test_a_line_after_the_end_is_written_all_the_same(path: Path, file: EventFile) -> None:
    file.write(line(1))
    file.close()
    file.write(line(2))
    file.close()
    assert numbers(path) == [1, 2]


def test_nothing_is_made_before_there_is_something_to_write(path: Path, file: EventFile) -> None:
    file.close()
    assert not path.parent.exists()


def test_a_full_file_becomes_the_older_one(path: Path) -> None:
    file = EventFile(path, 600, lost_line)
    for seq in range(1, 26):
        file.write(line(seq))
    file.close()
    older = path.with_name("s-1.1.jsonl")
    assert numbers(older) + numbers(path) == list(range(11, 26))
    assert max(path.stat().st_size, older.stat().st_size) <= 600
    assert sorted(path.parent.iterdir()) == [older, path]


def test_a_line_that_is_longer_than_the_file_may_be_is_alone_in_it(path: Path) -> None:
    file = EventFile(path, 600, lost_line)
    for seq, size in ((1, 60), (2, 2_000), (3, 60)):
        file.write(line(seq, size))
    file.close()
    assert numbers(path.with_name("s-1.1.jsonl")) == [2]
    assert numbers(path) == [3]


def test_a_line_that_a_crash_left_unfinished_does_not_spoil_the_next(path: Path, file: EventFile) -> None:
    path.parent.mkdir()
    path.write_bytes(line(1).line + line(2).line[:20])
    file.write(line(3))
    file.close()
    first, torn, last = path.read_bytes().splitlines(keepends=True)
    assert (first, torn, last) == (line(1).line, line(2).line[:20] + b"\n", line(3).line)
    assert last_seq(path) == 3


def test_the_last_number_is_found_behind_a_long_line_and_in_the_older_file(path: Path) -> None:
    assert last_seq(path) == 0
    path.parent.mkdir()
    path.with_name("s-1.1.jsonl").write_bytes(line(4).line)
    assert last_seq(path) == 4
    path.write_bytes(line(5).line + line(6, hooks_logging_file.MAX_LINE).line + b'{"schema":1,"seq":7,"torn')
    assert last_seq(path) == 6
    path.write_bytes(b"not ours")
    assert last_seq(path) == 4


async def test_a_file_that_was_moved_away_is_begun_anew(path: Path, file: EventFile, wait_until: Any) -> None:
    file.write(line(1))
    await wait_until(lambda: path.exists() and path.stat().st_size == 60)
    path.rename(path.with_name("rotated"))
    file.write(line(2))
    file.close()
    assert (numbers(path.with_name("rotated")), numbers(path)) == ([1], [2])


# ---------------------------------------------------------------- what the disk does


async def test_lines_that_are_lost_are_counted_in_their_place(
    path: Path, file: EventFile, wait_until: Any, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.write_text("in the way")
    for seq in (1, 2, 3):
        file.write(line(seq))
        await wait_until(lambda seq=seq: file._unwritten and file._unwritten.lines == seq)
    path.parent.unlink()
    file.write(line(4))
    file.close()
    marker, kept = map(json.loads, path.read_bytes().splitlines())
    assert (marker["seq"], marker["lines"], kept["seq"]) == (1, 3, 4)
    assert marker["why"] in ("File exists", "Not a directory")
    assert len(caplog.records) == 1


def test_a_file_that_never_could_be_written_is_reported_at_the_end(
    path: Path, file: EventFile, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.write_text("in the way")
    file.write(line(1))
    file.write(line(2))
    file.close()
    assert caplog.messages[-1] == f"hooks-logging: 2 lines are missing from {path}"


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/etc/hostname")])
def test_what_is_no_file_is_not_written_to(path: Path, file: EventFile, make: Any) -> None:
    path.parent.mkdir()
    make(path)
    assert last_seq(path) == 0
    file.write(line(1))
    file.close(5)
    assert file._unwritten is not None
    assert file._unwritten.lines == 1


def taken_by_the_thread(file: EventFile) -> None:
    """Wait until the thread has what waits: what comes then stays in the queue, in one piece."""
    until = time.monotonic() + 20
    while file._waiting:
        assert time.monotonic() < until
        time.sleep(0.001)


def test_a_disk_that_hangs_holds_up_nobody(
    path: Path, file: EventFile, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hooks_logging_file, "_MAX_WAITING", 600)
    with file._disk:  # the thread cannot write
        file.write(line(1))
        taken_by_the_thread(file)
        for seq in range(2, 101):
            file.write(line(seq))
        with caplog.at_level(logging.WARNING):
            thread = file._thread
            file.close(0.01)
        assert "takes too long" in caplog.text
    assert thread is not None
    thread.join(30)
    *kept, marker = [json.loads(each) for each in path.read_bytes().splitlines()]
    assert [each["seq"] for each in kept] == list(range(1, marker["seq"]))
    assert marker["lines"] == 100 - len(kept)
    assert marker["why"] == "the disk is too slow"


def test_lines_come_again_after_a_disk_that_hung(
    path: Path, file: EventFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks_logging_file, "_MAX_WAITING", 600)
    written = threading.Event()
    with file._disk:
        for seq in range(1, 101):
            file.write(line(seq))
    while not written.wait(0.005):
        with file._changed:
            if not file._waiting:
                written.set()
    file.write(line(101))
    file.close()
    logged = [json.loads(each) for each in path.read_bytes().splitlines()]
    told = 0
    for each in logged:  # nothing twice, nothing out of order, every gap told in its place
        assert each["seq"] == told + 1
        told += each.get("lines", 1)
    assert (told, logged[-1]["seq"]) == (101, 101)
    assert any("lines" in each for each in logged)


# ---------------------------------------------------------------- processes

WRITER = """
import resource, sys, time
sys.path.insert(0, {tests!r})
from pathlib import Path
from toolgate_orchestrator.modules.hooks_logging.file import EventFile
from test_hooks_logging_file import line, lost_line
file = EventFile(Path({path!r}), None, lost_line)
"""


def program(path: Path, then: str) -> str:
    return WRITER.format(tests=str(Path(__file__).parent), path=str(path)) + then


@pytest.mark.acceptance
def test_a_program_that_ends_without_closing_loses_nothing(path: Path, process: Any) -> None:
    writer = process("python", "-c", program(path, "for n in range(1, 5001): file.write(line(n))"))
    assert writer.wait() == 0, writer.stderr
    assert numbers(path) == list(range(1, 5001))


@pytest.mark.acceptance
async def test_what_a_killed_program_had_written_is_there(path: Path, process: Any, wait_until: Any) -> None:
    writer = process(
        "python", "-c", program(path, "file.write(line(1)); file.write(line(2)); time.sleep(60)")
    )
    await wait_until(lambda: path.exists() and path.stat().st_size == 120, timeout=30)
    writer.popen.kill()
    writer.wait()
    assert numbers(path) == [1, 2]


@pytest.mark.acceptance
def test_a_full_disk_leaves_whole_lines_and_says_what_is_missing(path: Path, process: Any) -> None:
    full = """
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
for n in range(1, 51):
    file.write(line(n))
deadline = time.monotonic() + 20
while file._unwritten is None and time.monotonic() < deadline:
    time.sleep(0.01)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
file.write(line(51))
file.close()
"""
    writer = process("python", "-c", program(path, full))
    assert writer.wait() == 0, writer.stderr
    logged = [json.loads(each) for each in path.read_bytes().splitlines()]
    assert sum(each.get("lines", 1) for each in logged) == 51
    assert [each["why"] for each in logged if "why" in each] == ["File too large"]
    assert logged[-1]["seq"] == 51


# ---------------------------------------------------------------- one event, one line


async def test_an_event_whose_hooks_are_asked_once_more_is_one_line(path: Path) -> None:
    recorder = Recorder("s-1", None, Shape(1_000, 8_192, redactor()), path, None)
    registry = HookRegistry()
    for number, note in ((-9, recorder.write_event), (9, recorder.write_change)):

        def hook(event: str, data: dict[str, Any], note: Any = note) -> HookResult:
            note(event, data)
            return HookResult()

        registry.register("tool:selecting", hook, priority=number)
    for decision, phase in (("d1", "select"), ("d1", "verify"), ("d2", "select")):
        question = {"decision_id": decision, "phase": phase, "n": 1}
        await registry.emit("tool:selecting", question)
        await registry.emit_and_collect("tool:selecting", question, 1.0)
    for _ in range(2):  # of another engine, which does not say which question it is
        await registry.emit("tool:selecting", {"n": 1})
    recorder.file.close()
    assert [json.loads(each)["event"] for each in path.read_bytes().splitlines()] == ["tool:selecting"] * 5


@pytest.fixture
def recorded(path: Path) -> Iterator[tuple[Recorder, Callable[[], list[Any]]]]:
    """A recorder, and a function that closes it and gives the `of` of each change in its file."""
    recorder = Recorder("s-1", None, Shape(1_000, 8_192, redactor()), path, None)

    def changes() -> list[Any]:
        recorder.file.close()
        lines = [json.loads(each) for each in path.read_bytes().splitlines()]
        return [each["data"]["of"] for each in lines if each["event"] == "hooks-logging:changed"]

    yield recorder, changes
    recorder.file.close()


@pytest.mark.parametrize("known", [True, False])
def test_a_change_names_the_line_it_changes_where_that_can_be_told(recorded: Any, known: bool) -> None:
    recorder, changes = recorded
    for call in ("c1", "c2"):
        recorder.write_event("tool:pre", {"tool_call_id": call, "n": 1})
    recorder.write_change("tool:pre", {"n": 2, **({"tool_call_id": "c2"} if known else {})})
    recorder.write_change("tool:pre", {"tool_call_id": "c1", "n": 1})
    assert changes() == [2 if known else None]


def test_a_change_into_what_an_earlier_event_was_is_a_change(recorded: Any) -> None:
    recorder, changes = recorded
    for prompt in ("yes", "Yes"):
        recorder.write_event("prompt:submit", {"prompt": prompt})
        recorder.write_change("prompt:submit", {"prompt": "yes"})
    assert changes() == [2]


def test_events_that_were_refused_are_forgotten_when_the_turn_ends(recorded: Any) -> None:
    recorder, changes = recorded
    recorder.write_event("tool:pre", {"n": 1})
    recorder.write_event("execution:end", {})
    recorder.write_event("tool:pre", {"n": 2})
    recorder.write_change("tool:pre", {"n": 3})
    assert changes() == [3]
