"""Operate on an archive's directory, one step at a time, so that tests can let a crash follow each step.

Nothing is decided here. Tests use another disk, which forgets what was not synced.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from toolgate_bus.errors import ConfigError


class ArchiveDisk:
    """A flat directory that only its owner can read, made if it is missing. Every failure raises OSError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def names(self) -> list[str]:
        """Return the names of its files."""
        return sorted(path.name for path in self._directory.iterdir() if path.is_file())

    def read(self, name: str) -> bytes:
        """Return the contents of a file."""
        return (self._directory / name).read_bytes()

    def read_piece(self, name: str, at: int, size: int) -> bytes:
        """Return at most `size` bytes of a file, from place `at`."""
        with (self._directory / name).open("rb") as file:
            file.seek(at)
            return file.read(size)

    def size(self, name: str) -> int:
        """Return the length of a file in bytes."""
        return (self._directory / name).stat().st_size

    def append(self, name: str, data: bytes) -> None:
        """Append to a file; make it if it is missing."""
        descriptor = os.open(
            self._directory / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(descriptor, "ab", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]

    def truncate(self, name: str, size: int) -> None:
        """Cut a file off after `size` bytes."""
        os.truncate(self._directory / name, size)

    def sync(self, name: str) -> None:
        """Return when the contents of a file would survive a power cut."""
        _sync(self._directory / name)

    def rename(self, name: str, to: str) -> None:
        """Give a file another name. A file that had that name is gone."""
        (self._directory / name).replace(self._directory / to)

    def remove(self, name: str) -> None:
        """Remove a file."""
        (self._directory / name).unlink()

    def sync_names(self) -> None:
        """Return when the names of the files would survive a power cut."""
        _sync(self._directory)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def lock_directory(directory: Path) -> Iterator[None]:
    """Lock the directory for the length of a block. Raise ConfigError if another process has it.

    The kernel drops the lock however the process ends.
    """
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
            raise ConfigError(
                f"{directory}: another archiver (process {holder}) writes there; "
                "end it, or give another directory"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
