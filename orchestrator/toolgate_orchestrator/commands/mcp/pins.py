"""Pins: digests of the tools' descriptions as first seen, kept in a small file.

    {"version": 1, "servers": {"files 5f2a…": {"read": "c0ff…"}}}

A tool whose description differs later counts as changed until a person accepts it. Only the user can read the
file (0600). Beyond MAX_PINNED_SERVERS, the servers that were not seen for the longest time are dropped.
Several proxies can share the file.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from toolgate_bus.errors import ConfigError
from toolgate_bus.transport.redis.asking.fact_spill import check_private, find_state, make_private

from toolgate_orchestrator.commands.mcp.config import McpServer

MAX_PINNED_SERVERS: Final = 64
MAX_PINNED_TOOLS: Final = 2_000
"""Maximum number of pinned tools of one server; further tools are not pinned."""
MAX_FILE: Final = 32 << 20
_VERSION: Final = 1
_FLAGS: Final = os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Seen = dict[str, dict[str, str]]
"""Digests of the tools, by server."""


def default_pins() -> Path:
    """Return the user's own file. Raise ConfigError if the user has no home directory."""
    try:
        return find_state().with_name("mcp-tools.json")
    except RuntimeError:
        raise ConfigError("--pin: you have no home directory; name a file") from None


def identity_of(name: str, server: McpServer) -> str:
    """Return the key of a server: its name, with a digest of its command or address."""
    told = json.dumps([server.command, server.url])
    return f"{name} {hashlib.sha256(told.encode()).hexdigest()[:16]}"


class Pins:
    """The file of pins."""

    def __init__(self, path: Path, *, accept: bool = False) -> None:
        """Use the file at `path`; `accept` pins the tools' current descriptions instead of the old ones."""
        self._path, self._accept = path, accept

    def check(self) -> None:
        """Raise ConfigError if the file cannot be read or written."""
        with self._open() as file:
            self._read(file)

    def observe(self, server: str, digests: Mapping[str, str]) -> frozenset[str]:
        """Pin new tools, and return the names of changed ones. Blocks. Raise ConfigError."""
        with self._open() as file:
            seen = self._read(file)
            before = seen.pop(server, {})
            changed = {name for name, digest in digests.items() if before.get(name, digest) != digest}
            kept = (
                before
                if not self._accept
                else {name: one for name, one in before.items() if name not in changed}
            )
            now = {**digests, **kept} if len(kept) < MAX_PINNED_TOOLS else dict(kept)
            seen[server] = dict(
                [*kept.items(), *((name, now[name]) for name in now if name not in kept)][:MAX_PINNED_TOOLS]
            )
            if seen[server] != before or self._accept:
                self._write(file, seen)
            return frozenset() if self._accept else frozenset(changed)

    @contextlib.contextmanager
    def _open(self) -> Iterator[int]:
        """Open the file and lock it for this process."""
        try:
            if self._path == default_pins():
                make_private(self._path.parent)
            file = os.open(self._path, os.O_RDWR | _FLAGS, 0o600)
            try:
                check_private(os.fstat(file), stat.S_ISREG)
                fcntl.flock(file, fcntl.LOCK_EX)
                yield file
            finally:
                os.close(file)
        except OSError as error:
            raise ConfigError(f"--pin: {self._path} cannot be used: {error.strerror or error}") from None

    def _read(self, file: int) -> Seen:
        raw = (
            b"".join(iter(lambda: os.read(file, 1 << 20), b""))
            if os.fstat(file).st_size <= MAX_FILE
            else b"?"
        )
        try:
            told = json.loads(raw) if raw else {"version": _VERSION, "servers": {}}
            if told["version"] == _VERSION:
                return _check_seen(told["servers"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            pass
        raise ConfigError(
            f"--pin: {self._path} is not a file of pins; move it away, and check the tools' descriptions"
        )

    def _write(self, file: int, seen: Seen) -> None:
        servers = dict([*seen.items()][-MAX_PINNED_SERVERS:])
        raw = json.dumps({"version": _VERSION, "servers": servers}, separators=(",", ":")).encode()
        os.lseek(file, 0, os.SEEK_SET)
        os.ftruncate(file, 0)
        written = 0
        while written < len(raw):
            written += os.write(file, raw[written:])


def _check_seen(servers: Any) -> Seen:
    """Return the servers of the file if they have the right form. Raise ValueError."""
    for tools in servers.values():
        if not all(isinstance(one, str) for pair in tools.items() for one in pair):
            raise ValueError
    return dict(servers)
