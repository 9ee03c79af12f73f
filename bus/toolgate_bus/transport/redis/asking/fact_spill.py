"""Keeps facts that the server did not take in a file, so that they outlive their process.

The next process of the same user on the same bus writes them, under the name of the orchestrator that left
them. The file is the user's alone (0600, in a directory of 0700) and bounded. Its content is checked as if it
came off a wire. What a killed process had not written yet is lost, and shows as a gap in its numbers.
"""

import contextlib
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

from toolgate_bus.errors import CodecError, Refusal
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Arg, Commands
from toolgate_bus.transport.redis.asking.fact_retention import keep_commands

MAX_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of one file in bytes; facts beyond it are dropped and counted."""
MAX_FILES: Final = 32
"""Maximum number of files kept for one bus, and read at a time."""
PART: Final = 64
"""Number of frames written at a time."""
_log = get_logger("toolgate.bus")


def find_state() -> Path:
    """Return the directory where this user's facts outlast its processes, in `$XDG_STATE_HOME`."""
    base = Path(os.environ.get("XDG_STATE_HOME") or "-")
    return (base if base.is_absolute() else Path.home() / ".local" / "state") / "toolgate" / "facts"


class FactSpill:
    """The files of one bus; a file's name reveals neither address nor namespace."""

    def __init__(self, url: str, namespace: str) -> None:
        self._keys = Keys(namespace)
        self._bus = hashlib.sha256(f"{url}\0{namespace}".encode()).hexdigest()[:16]
        self._due = True

    def keep(self, orchestrator: str, frames: Sequence[bytes]) -> bool:
        """Leave these frames to the next process. Return False if they cannot be kept."""
        try:
            packed = packing.pack([orchestrator, list(frames)])
            directory = make_private(find_state())
            if len(packed) > MAX_BYTES or len(list(directory.glob(f"{self._bus}-*"))) >= MAX_FILES:
                return False
            place = directory / f"{self._bus}-{secrets.token_hex(8)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(place.with_suffix(".part"), flags, 0o600), "wb") as file:
                file.write(packed)
            place.with_suffix(".part").rename(place)
        except (OSError, RuntimeError, CodecError) as error:
            _log.warning("facts cannot be kept for the next process", error=str(error))
            return False
        _log.warning("the server did not take facts: the next process writes them", frames=len(frames))
        return True

    async def write(self, commands: Commands, server_ms: int) -> None:
        """Write once the facts that other processes left; what the server refuses stays.

        Raises BusDown or OutcomeUnknown if the server does not answer: the next call writes the rest.
        """
        if not self._due:
            return
        for place in self._list():
            with contextlib.suppress(OSError, Refusal), _open(place) as file:
                if await self._write_one(commands, server_ms, place, file):
                    place.unlink()
        self._due = False

    async def _write_one(self, commands: Commands, server_ms: int, place: Path, file: BinaryIO) -> bool:
        """Write one file. Return whether the server has all of it now."""
        try:
            orchestrator, frames = _read(file.read(MAX_BYTES + 1))
        except CodecError as error:
            _log.error("a file of facts cannot be read: it stays as it is", file=str(place), error=str(error))
            return False
        key = self._keys.facts(orchestrator)
        adds: list[Sequence[Arg]] = [("XADD", key, "*", "event", "facts", "frame", frame) for frame in frames]
        for at in range(0, len(adds), PART):
            told = [*adds[at : at + PART], *keep_commands(self._keys, orchestrator, server_ms)]
            if any(isinstance(one, Exception) for one in await commands.pipeline(told)):
                return False  # the next call writes all of it: readers know a fact by its number
        _log.info("facts of an earlier process were written", orchestrator=orchestrator, frames=len(frames))
        return True

    def _list(self) -> list[Path]:
        try:
            directory = find_state()
            check_private(directory.lstat(), stat.S_ISDIR)
            return sorted(one for one in directory.glob(f"{self._bus}-*") if not one.suffix)[:MAX_FILES]
        except (OSError, RuntimeError):
            return []


def make_private(directory: Path) -> Path:
    """Create a directory for this user alone. Raises PermissionError if it is open to others."""
    make_folders(directory)
    try:
        check_private(directory.lstat(), stat.S_ISDIR)
    except PermissionError as error:
        raise PermissionError(f"the folder {directory}: {error} (chmod 700)") from None
    return directory


def make_folders(directory: Path) -> None:
    """Create a directory and the missing ones above it, each closed to all other users."""
    for one in (*reversed(directory.parents), directory):  # `parents=True` would leave them open to others
        if not one.exists():
            one.mkdir(mode=0o700, exist_ok=True)


def check_private(found: os.stat_result, is_kind: Any) -> None:
    """Raise PermissionError for a path that is not this user's alone."""
    if not is_kind(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError("it must be yours, and closed to all other users")


@contextlib.contextmanager
def _open(place: Path) -> Iterator[BinaryIO]:
    """Open the file for this process alone. Raises OSError if another has it, or it is not to be trusted."""
    with os.fdopen(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        check_private(os.fstat(file.fileno()), stat.S_ISREG)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.fstat(file.fileno()).st_nlink:
            raise FileNotFoundError("another process has written it meanwhile")
        yield file


def _read(raw: bytes) -> tuple[str, list[bytes]]:
    """Return the orchestrator that left the file, and its frames. Raises CodecError if it is malformed."""
    found = packing.unpack(raw, MAX_BYTES)
    if not isinstance(found, list) or len(found) != 2:
        raise CodecError("malformed", "it is not a pair")
    orchestrator, frames = found
    if not isinstance(orchestrator, str) or not orchestrator.isalnum() or len(orchestrator) > 64:
        raise CodecError("malformed", "it has no orchestrator")
    if not isinstance(frames, list) or not all(type(one) is bytes for one in frames):
        raise CodecError("malformed", "it has no frames")
    for frame in frames:
        for item in packing.items(frame):
            if isinstance(item, CodecError):
                raise item
    return orchestrator, frames
