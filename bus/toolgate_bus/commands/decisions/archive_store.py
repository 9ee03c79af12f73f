"""Archive of facts in a directory: each fact once, whenever the process or the machine dies.

    append lines ─▶ sync the file ─▶ write archive.json beside, sync, rename over the old one, sync names
                                        └── from here on the lines count

`archive.json` says how far the streams were read (`ArchiveProgress`) and how long the last file is. Opening
the archive cuts that file there and removes later ones: their lines were read, but not committed, and are
read again. A closed file may be compressed, a piece with each commit: all of it is written beside, then
renamed, then the old one is removed. A fact goes to the file that is open when it is read: one for each hour
(UTC), or more.
"""

import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from toolgate_bus.commands.decisions.archive_disk import ArchiveDisk
from toolgate_bus.commands.decisions.archive_progress import ArchiveProgress
from toolgate_bus.errors import ConfigError

Fact = dict[str, Any]

COMMITTED: Final = "archive.json"
VERSION: Final = 1
STEP: Final = 4 << 20
"""Maximum number of bytes that one commit compresses, more than one writes: reading waits for it, and a whole
file would take much memory."""
PIECE: Final = 1 << 20
_DATA: Final = re.compile(r"facts-(\d{4}-\d\d-\d\dT\d\dZ)-(\d+)\.jsonl(\.gz)?")
_TEMPORARY: Final = ".tmp"


class ArchiveCheckpoint(NamedTuple):
    """State of an archive as it was committed."""

    namespace: str
    file: str | None
    size: int
    standing: ArchiveProgress


@dataclass(slots=True)
class _Compression:
    """A closed file that is being compressed, up to a place."""

    name: str
    at: int = 0
    packer: Any = field(default_factory=lambda: zlib.compressobj(6, wbits=31))  # gzip, without a time


class ArchiveStore:
    """The one writer of an archive. `standing` is its progress."""

    def __init__(
        self, disk: ArchiveDisk, namespace: str, *, compress: bool = True, max_bytes: int = 2**28
    ) -> None:
        """Open the archive, and repair it after a crash. Raise ConfigError if it is no archive of ours."""
        self._disk, self._namespace = disk, namespace
        self._compress, self._max_bytes = compress, max_bytes
        found = read_committed(disk)
        if found is None:
            if left := data_files(disk.names()):
                raise ConfigError(
                    f"{left[0]} exists, but no {COMMITTED}: use an empty directory, or put {COMMITTED} back"
                )
            found = ArchiveCheckpoint(namespace, None, 0, ArchiveProgress())
        if found.namespace != namespace:
            raise ConfigError(
                f"the archive is of namespace {found.namespace}, not {namespace}: use one directory for each"
            )
        self._file, self._size, self.standing = found.file, found.size, found.standing
        self._closed: list[_Compression] = []
        """Closed files that are not compressed yet, the oldest first."""
        self._recover()
        self.commit()

    def append(self, lines: Sequence[Fact], now_ms: int) -> None:
        """Append these lines, and commit them together with the progress. `now_ms` chooses the file."""
        if not lines:
            self.commit()
            self._compress_some()
            return
        before, self._file = self._file, self._file_at(now_ms)
        opened = self._file != before
        data = b"".join(line_of(line) for line in lines)
        self._disk.append(self._file, data)
        self._disk.sync(self._file)
        if opened:
            self._disk.sync_names()
        self._size = len(data) + (0 if opened else self._size)
        self.commit()
        if opened and before is not None:
            self._close(before)
        self._compress_some()

    def commit(self) -> None:
        """Commit the progress, and the length of the open file."""
        told = {
            "version": VERSION,
            "namespace": self._namespace,
            "file": self._file,
            "size": self._size,
            "standing": self.standing.as_json(),
        }
        beside = COMMITTED + _TEMPORARY
        self._disk.append(beside, json.dumps(told).encode())
        self._disk.sync(beside)
        self._disk.rename(beside, COMMITTED)
        self._disk.sync_names()

    def _recover(self) -> None:
        names = self._disk.names()
        for name in names:
            if name.endswith(_TEMPORARY) and (name.startswith(COMMITTED) or _DATA.match(name)):
                self._disk.remove(name)
        for name in data_files(names):
            if self._file is None or _place(name) > _place(self._file):
                self._disk.remove(name)
            elif name == self._file:
                self._cut(name)
            elif name.endswith(".gz") and name.removesuffix(".gz") in names:
                self._disk.remove(name.removesuffix(".gz"))
            elif not name.endswith(".gz") and f"{name}.gz" not in names:
                self._close(name)
        while self._closed:
            self._compress_some()
        if self._file is not None and self._file not in names and self._size:
            raise ConfigError(f"{self._file} is missing, the newest file by {COMMITTED}: put it back")

    def _cut(self, name: str) -> None:
        there = self._disk.size(name)
        if there < self._size:
            raise ConfigError(
                f"{name} has {there} bytes, but {COMMITTED} says {self._size}: it was changed; use a new "
                "directory"
            )
        if there > self._size:
            self._disk.truncate(name, self._size)
            self._disk.sync(name)

    def _close(self, name: str) -> None:
        """Have a file compressed that is complete."""
        if self._compress:
            self._closed.append(_Compression(name))

    def _compress_some(self) -> None:
        """Compress the next pieces of closed files."""
        left = STEP
        while self._closed and left > 0:
            one = self._closed[0]
            beside, piece = f"{one.name}.gz{_TEMPORARY}", self._disk.read_piece(one.name, one.at, PIECE)
            one.at, left = one.at + len(piece), left - len(piece)
            self._disk.append(beside, one.packer.compress(piece) if piece else one.packer.flush())
            if not piece:
                self._disk.sync(beside)
                self._disk.rename(beside, f"{one.name}.gz")
                self._disk.sync_names()
                self._disk.remove(one.name)
                del self._closed[0]

    def _file_at(self, now_ms: int) -> str:
        hour, part = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y-%m-%dT%HZ"), 0
        if self._file is not None:
            open_hour, open_part = _place(self._file)
            if hour <= open_hour:  # a server's clock may go back; names must not
                if self._size < self._max_bytes:
                    return self._file
                hour, part = open_hour, open_part + 1
        return f"facts-{hour}-{part:03d}.jsonl"


def read_committed(disk: ArchiveDisk) -> ArchiveCheckpoint | None:
    """Return the committed state of an archive, or None if nothing was committed. Raise ConfigError."""
    if COMMITTED not in disk.names():
        return None
    try:
        told = json.loads(disk.read(COMMITTED))
        if told["version"] != VERSION:
            raise ConfigError(f"{COMMITTED} has version {told['version']}, but this Toolgate reads {VERSION}")
        file = told["file"]
        if file is not None and not _DATA.fullmatch(file):
            raise ValueError(file)
        return ArchiveCheckpoint(
            str(told["namespace"]), file, int(told["size"]), ArchiveProgress.of(told["standing"])
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{COMMITTED} cannot be read ({error!r}): restore the file") from None


def data_files(names: Sequence[str]) -> list[str]:
    """Return the files that hold facts, the oldest first."""
    return sorted((name for name in names if _DATA.fullmatch(name)), key=_place)


def hour_of(name: str) -> float:
    """Return the time when the hour of a file began, in seconds since the epoch."""
    return datetime.strptime(_place(name)[0], "%Y-%m-%dT%HZ").replace(tzinfo=UTC).timestamp()


def line_of(fact: Fact) -> bytes:
    """Return a fact as one line of JSON."""
    try:
        text = json.dumps(fact, ensure_ascii=False, allow_nan=False, default=repr)
    except ValueError:  # NaN or infinity: no JSON, so they become words
        text = json.dumps(_finite(fact), ensure_ascii=False, default=repr)
    return text.encode("utf-8", "replace") + b"\n"


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(child) for child in value]
    return str(value) if isinstance(value, float) and value - value != 0 else value


def _place(name: str) -> tuple[str, int]:
    found = _DATA.fullmatch(name)
    if found is None:
        raise ValueError(name)
    return found[1], int(found[2])
