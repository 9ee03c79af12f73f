"""What a replica remembers of a ledger, for the next process of the same user: a small file (0600).

A server that was emptied cannot say so, and neither can a process that begins after it. Not here: what is
remembered (`epoch`), and when it is written.
"""

import hashlib
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol.packing import pack, unpack
from toolgate_bus.server.guard import GUARD_SOCKET
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.redis.fact_spill import check_private, find_state, make_private

MAX_BYTES: Final = 256 * 1024
MAX_FILES: Final = 64
"""Ledgers of one user that are remembered: those that were seen last."""
_log = get_logger("toolgate.ledger")


def find_epoch_file(url: str, namespace: str, book: str) -> "EpochFile | None":
    """The file of a ledger; None on an embedded server, whose data is to end with it."""
    parts = urlsplit(url)
    if parts.scheme == "unix" and (Path(unquote(parts.path)).parent / GUARD_SOCKET).exists():
        return None
    return EpochFile(url, namespace, book)


class EpochFile:
    """The file of one ledger; its name tells neither address nor namespace."""

    def __init__(self, url: str, namespace: str, book: str) -> None:
        self._name = hashlib.sha256(f"{url}\0{namespace}\0{book}".encode()).hexdigest()[:24]

    def read(self) -> Any:
        """What was kept; None where there is nothing that can be trusted."""
        try:
            place = find_state().parent / "ledgers" / self._name
            check_private(place.parent.lstat(), stat.S_ISDIR)
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with os.fdopen(os.open(place, flags), "rb") as file:
                check_private(os.fstat(file.fileno()), stat.S_ISREG)
                return unpack(file.read(MAX_BYTES), MAX_BYTES)
        except (OSError, RuntimeError, CodecError):
            return None

    def write(self, kept: Any) -> None:
        """Keep this in the place of what was there; says so where that cannot be done."""
        try:
            packed = pack(kept)
            directory = make_private(find_state().parent / "ledgers")
            beside = directory / f"{self._name}.{secrets.token_hex(4)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(beside, flags, 0o600), "wb") as file:
                file.write(packed[: MAX_BYTES + 1])
            beside.rename(directory / self._name)
            for old in sorted(directory.iterdir(), key=lambda one: one.stat().st_mtime)[:-MAX_FILES]:
                with suppress(OSError):
                    old.unlink()
        except (OSError, RuntimeError, CodecError) as error:
            _log.warning("what is known of the ledger cannot be kept for the next process", error=str(error))
