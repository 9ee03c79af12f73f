"""Write one session's events to a file: any thread gives lines, and one thread writes them.

    write(entry) ─▶ waiting (bounded) ─▶ thread: whole lines, one write a batch ─▶ SESSION.jsonl
                                                     full ─▶ SESSION.1.jsonl, replacing the last one

Callers never wait for the disk and never see its errors. Lines that could not be written are counted. As
soon as the disk takes lines again, one line in their place says how many are lost; the first time, a warning
is logged. Lines handed to the operating system survive a `kill -9` of the process; waiting lines are written
at `close` and at the end of the program. `line` makes the lines.
"""

import atexit
import errno
import hashlib
import logging
import os
import re
import stat
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from toolgate_bus.transport.redis.asking.fact_spill import make_folders

logger = logging.getLogger(__name__)

MAX_LINE: Final = 1 << 20
"""Largest size of a line in bytes."""
_MAX_WAITING: Final = 16 * MAX_LINE
_BATCH: Final = MAX_LINE
_CLOSING_S: Final = 5.0
_PLAIN: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,127}")
_OLDER: Final = ".1.jsonl"
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_SEQ: Final = re.compile(rb'^\{"schema":\d+,"seq":(\d{1,18}),.*\}$', re.MULTILINE)
_SAFELY: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Flags to open files: follow no link, and do not block if there is a pipe in the file's place."""


class NumberedLine(NamedTuple):
    """Line with its number; its bytes end in a line end."""

    seq: int
    line: bytes
    stands_for: int = 1
    """Number of lines that are lost if this one is."""


class LostLines(NamedTuple):
    """Lines that were not written: number of the first, how many, and the reason."""

    seq: int
    lines: int
    why: str


def file_name(session: str) -> str:
    """Return a file name that no two sessions share, on any file system, and that leads to no other
    folder."""
    if _PLAIN.fullmatch(session):
        return f"{session}.jsonl"
    digest = hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"{_UNSAFE.sub('-', session)[:60].strip('-')}~{digest}.jsonl"


def last_seq(path: Path) -> int:
    """Return the number of the last line of a session's file, so that a resumed session counts on; 0 for a
    new one."""
    for file in (path, path.with_suffix(_OLDER)):
        with suppress(OSError):
            fd = os.open(file, os.O_RDONLY | _SAFELY)
            try:
                tail = os.pread(fd, 2 * MAX_LINE, max(0, os.fstat(fd).st_size - 2 * MAX_LINE))
            finally:
                os.close(fd)
            if numbers := _SEQ.findall(tail):
                return int(numbers[-1])
    return 0


class EventFile:
    """File that lines are appended to; directory (0700) and file (0600) are made at the first line.

    At `max_bytes` the file becomes the older one, of which there is only one (None: never). `lost_line` makes
    the line that stands for lost ones.
    """

    def __init__(self, path: Path, max_bytes: int | None, lost_line: Callable[[LostLines], bytes]) -> None:
        self.path = path
        self._max_bytes, self._lost_line = max_bytes, lost_line
        self._changed = threading.Condition()
        self._waiting: deque[NumberedLine] = deque()
        self._waiting_bytes = 0
        self._overflown: LostLines | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._disk = threading.Lock()  # guards the fields below
        self._fd: int | None = None
        self._unwritten: LostLines | None = None
        self._warned = False

    def write(self, entry: NumberedLine) -> None:
        """Take one line and return at once; after `close`, write it before returning."""
        with self._changed:
            if not self._closed:
                self._enqueue(entry)
                return
        self._put([entry])

    def close(self, timeout_s: float = _CLOSING_S) -> None:
        """Write the waiting lines and close the file; wait no longer than this for a disk that hangs."""
        atexit.unregister(self.close)
        with self._changed:
            self._closed = True
            thread, self._thread = self._thread, None
            self._changed.notify()
        if thread is None:
            return
        thread.join(timeout_s)
        if thread.is_alive():
            logger.warning("hooks-logging: writing %s takes too long; its last lines may be lost", self.path)
        elif self._unwritten is not None:
            logger.warning("hooks-logging: %s lines are missing from %s", self._unwritten.lines, self.path)

    def _enqueue(self, entry: NumberedLine) -> None:
        if self._waiting_bytes + len(entry.line) > _MAX_WAITING:
            self._overflown = _more(self._overflown, [entry], "the disk is too slow")
            return
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="hooks-logging", daemon=True)
            thread.start()
            self._thread = thread
            atexit.register(self.close)
        if self._overflown is not None:
            self._wait(self._mark(self._overflown))
            self._overflown = None
        self._wait(entry)
        self._changed.notify()

    def _wait(self, entry: NumberedLine) -> None:
        self._waiting.append(entry)
        self._waiting_bytes += len(entry.line)

    def _mark(self, lost: LostLines) -> NumberedLine:
        return NumberedLine(lost.seq, self._lost_line(lost), lost.lines)

    # ------------------------------------------------------------------ in the thread

    def _run(self) -> None:
        while batch := self._next():
            self._put(batch)
        with self._disk:
            self._leave()

    def _next(self) -> list[NumberedLine]:
        """Return the lines to write next; none once the file is closed."""
        with self._changed:
            while not self._waiting and not self._closed:
                self._changed.wait()
            if not self._waiting and self._overflown is not None:
                self._wait(self._mark(self._overflown))
                self._overflown = None
            batch: list[NumberedLine] = []
            size = 0
            while self._waiting and size < _BATCH:
                batch.append(self._waiting.popleft())
                size += len(batch[-1].line)
            self._waiting_bytes -= size
            return batch

    def _put(self, entries: list[NumberedLine]) -> None:
        """Write lines; count those that the disk does not take as lost."""
        with self._disk:
            if self._unwritten is not None:
                entries = [self._mark(self._unwritten), *entries]
                self._unwritten = None
            try:
                while entries:
                    fitting = self._select_fitting(entries)
                    self._append(b"".join(entry.line for entry in fitting))
                    entries = entries[len(fitting) :]
            except OSError as error:
                self._leave()
                why = error.strerror or type(error).__name__
                self._unwritten = _more(None, entries, why)
                if not self._warned:
                    self._warned = True
                    logger.warning(
                        "hooks-logging: %s cannot be written (%s): its events are lost", self.path, why
                    )
            if self._closed and not self._waiting:
                self._leave()

    def _select_fitting(self, entries: list[NumberedLine]) -> list[NumberedLine]:
        """Return the first lines that fit into the file, after making room for at least one."""
        size = self._enter()
        if self._max_bytes is None:
            return entries
        if size and size + len(entries[0].line) > self._max_bytes:
            self.path.replace(self.path.with_suffix(_OLDER))
            size = self._enter()
        fitting = entries[:1]
        size += len(entries[0].line)
        for entry in entries[1:]:
            size += len(entry.line)
            if size > self._max_bytes:
                break
            fitting.append(entry)
        return fitting

    def _append(self, data: bytes) -> None:
        """Append all data or, if the disk refuses a part, nothing."""
        if self._fd is None:
            return
        before = os.fstat(self._fd).st_size
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, data[done:])
        except OSError:
            if done and os.fstat(self._fd).st_size == before + done:
                os.ftruncate(self._fd, before)
            raise

    def _enter(self) -> int:
        """Open the file of this name, again if it was moved away; return its size."""
        if self._fd is not None:
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(self._fd), os.lstat(self.path)):
                    return os.fstat(self._fd).st_size
            self._leave()
        make_folders(self.path.parent)
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | _SAFELY, 0o600)
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if status.st_size and os.pread(self._fd, 1, status.st_size - 1) != b"\n":
            os.write(self._fd, b"\n")  # the machine stopped in the middle of a line
        return os.fstat(self._fd).st_size

    def _leave(self) -> None:
        fd, self._fd = self._fd, None
        if fd is not None:
            with suppress(OSError):
                os.close(fd)


def _more(lost: LostLines | None, entries: Sequence[NumberedLine], why: str) -> LostLines:
    """Return the lost lines, with these added."""
    count = sum(entry.stands_for for entry in entries)
    return LostLines(entries[0].seq, count, why) if lost is None else lost._replace(lines=lost.lines + count)
