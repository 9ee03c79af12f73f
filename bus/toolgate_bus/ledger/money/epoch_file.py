"""A replica's memory of a ledger, for the next process of the same user: small files (0600).

A server that was emptied cannot say so, and neither can a process that begins after it. For each ledger
there is one file with the memory. Each process has one more, written over in place, with the number of
changes that were confirmed to it. Not here: the memory itself (`epoch`), and the times of writing.
"""

import hashlib
import os
import secrets
import stat
import struct
import time
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from anyio import to_thread

from toolgate_bus.errors import CodecError
from toolgate_bus.ledger.money.epoch import IDLE_S, KeptNumber
from toolgate_bus.protocol.packing import pack, unpack
from toolgate_bus.server.guard import GUARD_SOCKET
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.redis.asking.fact_spill import check_private, find_state, make_private

MAX_BYTES: Final = 256 * 1024
MAX_FILES: Final = 64
"""Maximum number of ledgers of one user that are remembered: the ones seen last."""
MAX_NUMBERS: Final = 256
"""Maximum number of processes of one user whose numbers are kept: the ones that changed something last."""
AGAIN_S: Final = 10.0
"""Seconds until Toolgate tries again to keep a number that could not be kept."""
NUMBER: Final = struct.Struct("<64sQQ")
"""Format of the file of a number: epoch, number of decisions by a person, number of changes."""
_log = get_logger("toolgate.ledger")


def find_epoch_file(url: str, namespace: str, book: str) -> "EpochFile | None":
    """Return the file of a ledger; None on an embedded server, whose data is to end with it."""
    parts = urlsplit(url)
    if parts.scheme == "unix" and (Path(unquote(parts.path)).parent / GUARD_SOCKET).exists():
        return None
    return EpochFile(url, namespace, book)


class EpochFile:
    """The files of one ledger and of one process. Their names tell neither address nor namespace."""

    def __init__(self, url: str, namespace: str, book: str) -> None:
        self._name = hashlib.sha256(f"{url}\0{namespace}\0{book}".encode()).hexdigest()[:24]
        self._number: FileIO | None = None
        self._counted_at = 0.0
        self._again_at = 0.0

    async def read(self) -> tuple[Any, list[KeptNumber]]:
        """Return the memory that was kept, and the numbers of each process.

        The memory is None if there is no file that can be trusted.
        """
        return await to_thread.run_sync(lambda: (self._read_kept(), self._read_numbers()))

    def _read_kept(self) -> Any:
        try:
            return unpack(_read(_find_ledgers() / self._name, MAX_BYTES)[0], MAX_BYTES)
        except (OSError, RuntimeError, CodecError):
            return None

    def _read_numbers(self) -> list[KeptNumber]:
        found = []
        with suppress(OSError, RuntimeError):
            for place in sorted(_find_ledgers().glob(f"{self._name}-*"))[:MAX_NUMBERS]:
                with suppress(OSError, struct.error, UnicodeDecodeError):
                    packed, age_s = _read(place, NUMBER.size)
                    epoch, decided, number = NUMBER.unpack(packed)
                    writer = place.name.rpartition("-")[2][:64]
                    epoch = epoch.rstrip(b"\0").decode("ascii")
                    found.append(KeptNumber(writer, epoch, decided, number, age_s))
        return found

    async def write(self, kept: Any) -> None:
        """Replace the memory on disk. A failure is logged."""
        await to_thread.run_sync(self._write, kept)

    def _write(self, kept: Any) -> None:
        try:
            packed = pack(kept)
            directory = make_private(_find_ledgers())
            beside = directory / f"{self._name}.{secrets.token_hex(4)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(beside, flags, 0o600), "wb") as file:
                file.write(packed[: MAX_BYTES + 1])
            beside.rename(directory / self._name)
            _remove_oldest(directory)
        except (OSError, RuntimeError, CodecError) as error:
            _log.warning("the memory of the ledger cannot be kept for the next process", error=str(error))

    def count(self, writer: str, epoch: str, decided: int, number: int) -> None:
        """Keep the number of confirmed changes of this process: 80 bytes, without waiting for the disk.

        A failure is logged, and tried again later.
        """
        if (now := time.monotonic()) < self._again_at:
            return
        try:
            if self._number is None or now - self._counted_at > IDLE_S:  # others remove idle files
                self.close()
                self._number = _open(make_private(_find_ledgers()) / f"{self._name}-{writer}")
            self._counted_at = now
            packed = NUMBER.pack(epoch.encode("ascii", "replace"), decided, number)
            os.pwrite(self._number.fileno(), packed, 0)
        except (OSError, RuntimeError, struct.error) as error:
            self._again_at = now + AGAIN_S
            _log.warning("confirmed changes of the ledger cannot be counted in a file", error=str(error))

    def close(self) -> None:
        """Close the file of the number, and leave it for the next process."""
        if self._number is not None:
            self._number.close()
            self._number = None


def _find_ledgers() -> Path:
    return find_state().parent / "ledgers"


def _open(place: Path) -> FileIO:
    """Open the file to write over it. Raises OSError, also if it is not this user's alone."""
    file = FileIO(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "w")
    try:
        check_private(os.fstat(file.fileno()), stat.S_ISREG)
    except OSError:
        file.close()
        raise
    return file


def _read(place: Path, most: int) -> tuple[bytes, float]:
    """Return the content of a file of this user alone, and its age in seconds. Raises OSError."""
    check_private(place.parent.lstat(), stat.S_ISDIR)
    with os.fdopen(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        check_private(found, stat.S_ISREG)
        return file.read(most), time.time() - found.st_mtime


def _remove_oldest(directory: Path) -> None:
    """Remove the oldest files, except those of the ledgers seen last and of numbers that may still count."""
    changed = {}
    for place in directory.iterdir():
        with suppress(OSError):
            changed[place] = place.stat().st_mtime
    oldest = sorted(changed, key=changed.__getitem__)
    numbers = [place for place in oldest if "-" in place.name]
    stale = [place for place in numbers if time.time() - changed[place] > 2 * IDLE_S]
    others = [place for place in oldest if "-" not in place.name]
    for place in {*stale, *numbers[:-MAX_NUMBERS], *others[:-MAX_FILES]}:
        with suppress(OSError):
            place.unlink()
