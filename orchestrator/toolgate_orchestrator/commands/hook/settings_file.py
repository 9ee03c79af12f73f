"""A settings file of another program, replaced as a whole or not at all, with a backup.

The new text is written beside the file and renamed over it. It keeps the file's mode, and a link stays a
link. Before that, the old text and a digest of the new one go to the user's state folder. A file
that another program changes meanwhile is left alone.
"""

import contextlib
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

from toolgate_bus.commands.new_files import replace_file
from toolgate_bus.errors import ConfigError
from toolgate_bus.transport.redis.asking.fact_spill import make_folders

MAX_BYTES: Final = 16 << 20


class SettingsRecord(NamedTuple):
    """Record of an install: the file before it and after it."""

    before: bytes | None
    """Content before the install; None if there was no file."""
    after: str
    """Digest of the content that the install wrote."""
    folders: tuple[str, ...] = ()
    """Folders that the install created."""


class SettingsFile:
    """The settings file of one client."""

    def __init__(self, path: Path, state: Path) -> None:
        """Read the file at `path`. `state` is the user's folder for backups."""
        self.path = path
        try:
            self.target = path.resolve()
        except (OSError, RuntimeError) as error:
            raise ConfigError(f"{path} cannot be resolved: {error}") from None
        digest = hashlib.sha256(os.fsencode(self.target)).hexdigest()[:16]
        self.kept = state / "toolgate" / "hooks" / digest
        self.content = self._read()

    def _read(self) -> bytes | None:
        try:
            if not stat.S_ISREG(self.target.stat().st_mode):
                raise ConfigError(f"{self.path} is not a regular file; nothing was changed")
            with self.target.open("rb") as file:
                found = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error.strerror}") from None
        if len(found) > MAX_BYTES:
            raise ConfigError(f"{self.path} has more than {MAX_BYTES >> 20} MiB; nothing was changed")
        return found

    @property
    def text(self) -> str:
        """Content as text. Raises ConfigError if it is not UTF-8."""
        try:
            return (self.content or b"").decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{self.path} is not UTF-8 (byte {error.start}); nothing was changed") from None

    # ------------------------------------------------------------------ backup and record

    @property
    def backup(self) -> Path:
        """Path of the backup."""
        return self.kept / "before"

    def read_record(self) -> SettingsRecord | None:
        """Return the record of the install; None if there is none, or it cannot be read."""
        try:
            told = json.loads((self.kept / "record.json").read_text("utf-8"))
            before = self.backup.read_bytes() if told["existed"] else None
            return SettingsRecord(before, told["after"], tuple(told["folders"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def is_as_written(self, record: SettingsRecord) -> bool:
        """Return whether the file is unchanged since the install."""
        return self.content is not None and hashlib.sha256(self.content).hexdigest() == record.after

    def keep(self, before: bytes | None, after: bytes, folders: tuple[str, ...] = ()) -> None:
        """Write the backup and the record of an install. Raise ConfigError if that is not possible."""
        told = {
            "path": str(self.path),
            "existed": before is not None,
            "after": hashlib.sha256(after).hexdigest(),
            "folders": list(folders),
        }
        try:
            make_folders(self.kept)
            if before is not None:
                replace_file(self.backup, before, 0o600)
            replace_file(self.kept / "record.json", json.dumps(told, indent=1).encode(), 0o600)
        except OSError as error:
            raise ConfigError(f"{self.kept}: the backup cannot be written: {error.strerror}") from None

    def forget(self) -> None:
        """Delete the backup and the record."""
        for name in ("record.json", "before"):
            (self.kept / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.kept.rmdir()

    # ------------------------------------------------------------------ changes

    def write(self, content: bytes) -> tuple[str, ...]:
        """Replace the file's content; return the folders that were created. Raise ConfigError."""
        folders = []
        parent = self.target.parent
        try:
            while not parent.exists():
                folders.append(str(parent))
                parent = parent.parent
            self.target.parent.mkdir(parents=True, exist_ok=True)
            mode = stat.S_IMODE(self.target.stat().st_mode) if self.content is not None else None
            self._check_unchanged()
            replace_file(self.target, content, mode)
        except OSError as error:
            raise ConfigError(
                f"{self.path} cannot be written: {error.strerror}; nothing was changed"
            ) from None
        self.content = content
        return tuple(folders)

    def remove(self, folders: tuple[str, ...]) -> None:
        """Delete the file, since there was none before, and the folders created for it. Raise ConfigError."""
        try:
            self._check_unchanged()
            self.target.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be removed: {error.strerror}") from None
        self.content = None
        for folder in folders:
            with contextlib.suppress(OSError):
                Path(folder).rmdir()

    def _check_unchanged(self) -> None:
        if self._read() != self.content:
            raise ConfigError(f"{self.path} changed just now; nothing was written, try again")
