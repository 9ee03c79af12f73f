"""What a command leaves behind: processes by a mark in their environment, files by their directory."""

import secrets
from pathlib import Path

__all__ = ["World"]

MARK = "TOOLGATE_TEST_MARK"


class World:
    """Where a command's files and processes are found."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mark = secrets.token_hex(8)
        self.env = {"TMPDIR": str(directory), MARK: self.mark, "NO_COLOR": ""}

    def files(self) -> list[Path]:
        """What is there, but for the file by which Python's `tempfile` tries the directory itself."""
        found = sorted(self.directory.rglob("*"))
        return [one for one in found if one.is_dir() or one.parent != self.directory]

    def processes(self, of: str = "") -> list[int]:
        """Every process that was started with the mark, and with this in its command line."""
        marked = f"{MARK}={self.mark}".encode()
        found = []
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                ours = marked in (directory / "environ").read_bytes().split(b"\0")
                if ours and of.encode() in (directory / "cmdline").read_bytes():
                    found.append(int(directory.name))
            except OSError:  # it is gone, or another user's
                continue
        return found
