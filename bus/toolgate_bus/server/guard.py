"""Run the guard: a small process that owns one embedded server, and ends it when no command needs it.

    command ──connection──▶ guard ──parent of──▶ server
    command ──connection──▶   │ holds the lock file, listens on guard.sock

Every command holds one connection to `guard.sock` for its life (the one that started the guard was
given its connection at birth). A new connection is told where the server is, as one line of JSON.
However a command dies, the kernel closes its connection; when the last one is closed the guard
kills the server, removes its files and ends. A leaver that half-closes gets `kept` if others stay,
and end-of-file once everything is gone. A server that dies is started anew on the same socket, with nothing
in it. If the guard is killed, the kernel kills the server (Linux).

This file is run as a script by an isolated interpreter, so that it starts fast and no file in the
user's directory can shadow a module: it imports the standard library only, and nothing of Toolgate.
"""

import contextlib
import fcntl
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

GUARD_SOCKET = "guard.sock"
SERVER_SOCKET = "s.sock"
LOCK_FILE = "lock"
LOG_FILE = "log"
START_S = 15.0
"""Longest wait for a server's first answer to PING, in seconds; usually it takes 0.03 s."""
SHORT_LIFE_S = 1.0
"""A server that dies sooner after its start was not killed by chance, in seconds."""
MAX_SHORT_LIVES = 5
"""Short lives in a row after which a server is not started anew."""
_PR_SET_PDEATHSIG = 1
_LOCKED = 75  # EX_TEMPFAIL: another guard lives here, or is just leaving


def answers_ping(path: Path, timeout_s: float = 1.0) -> bool:
    """Return whether a server on this unix socket answers PING."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(timeout_s)
        try:
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(7) == b"+PONG\r\n"
        except OSError:
            return False


def die_with_parent() -> Callable[[], None] | None:
    """Return a function that a child calls before exec, so that the kernel kills it when its parent dies."""
    if sys.platform != "linux":
        return None
    import ctypes  # not for commands that only join a server

    prctl = ctypes.CDLL(None).prctl  # looked up before the fork, where loading is safe
    parent = os.getpid()

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if os.getppid() != parent:  # it died between fork and prctl
            os._exit(1)

    return in_child


class ServerProcess:
    """One server on a unix socket in `directory`. It can be stopped, killed and started again there.

    Start it from a thread that outlives it (the main thread): the kernel's parent-death signal fires
    when the spawning *thread* ends. With `appendonly` its data outlives a restart; else it has none.
    """

    def __init__(self, directory: Path, binary: str, *, appendonly: bool = False) -> None:
        self.directory = directory
        self.binary = binary
        self.appendonly = appendonly
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """URL for clients, as redis-py reads it. It is the same whether the server runs or not."""
        return f"unix://{quote(str(self.socket))}?db=0"

    @property
    def socket(self) -> Path:
        """Unix socket of the server."""
        return self.directory / SERVER_SOCKET

    @property
    def pid(self) -> int:
        """Process id of the running server; 0 when there is none."""
        return self._process.pid if self.is_running and self._process else 0

    @property
    def is_running(self) -> bool:
        """True if the process lives."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout_s: float = START_S) -> None:
        """Start the server, and wait until it answers; else raise RuntimeError with the end of its log."""
        with (self.directory / LOG_FILE).open("ab") as log, warnings.catch_warnings():
            # Python warns of a fork beside threads; all that runs in the child before exec is one prctl.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"LC_ALL": "C"},  # it refuses to start under a locale that is not installed
                preexec_fn=die_with_parent(),
            )
        deadline = time.monotonic() + timeout_s
        while not answers_ping(self.socket):
            if not self.is_running or time.monotonic() > deadline:
                self.kill()
                lines = (self.directory / LOG_FILE).read_text(errors="replace").strip().splitlines()
                said = " / ".join(lines[-3:]) or "its log is empty"
                raise RuntimeError(f"{self.binary} did not start: {said}")
            time.sleep(0.002)

    def stop(self, timeout_s: float = 10.0) -> None:
        """End the server in good order (what `appendonly` keeps is written), or kill it after `timeout_s`."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
        self.kill()

    def kill(self) -> None:
        """End the server at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None
        self.socket.unlink(missing_ok=True)

    def restart(self) -> None:
        """Stop the server, and start it again on the same socket."""
        self.stop()
        self.start()

    def _command(self) -> list[str]:
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self.directory),
            "daemonize": "no",
            "loglevel": "warning",
            "save": "",
            "appendonly": "yes" if self.appendonly else "no",
            "appendfsync": "always",
            "maxmemory": "512mb",
            "maxmemory-policy": "noeviction",
        }
        return [self.binary, *(word for key, value in options.items() for word in (f"--{key}", value))]


def _make(directory: Path, *, private: bool) -> None:
    """Make the directory if it is missing. Raise OSError if that fails, or if it is somebody else's."""
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        if private or (os.path.lexists(directory) and not directory.is_dir()):
            raise  # a private one is never somebody else's
    with contextlib.suppress(FileNotFoundError):
        if directory.lstat().st_uid != os.getuid():
            raise PermissionError(f"{directory} belongs to somebody else")


def _lock(directory: Path) -> int | None:
    """Take the directory's lock and return its file descriptor.

    Return None if somebody holds it, or if a guard that was leaving has just removed the directory.
    """
    path = directory / LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino == path.stat().st_ino:  # else a leaving guard removed it meanwhile
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _listen(directory: Path) -> socket.socket:
    for name in (GUARD_SOCKET, SERVER_SOCKET):
        (directory / name).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(directory / GUARD_SOCKET))
    listener.listen(128)
    return listener


@contextlib.contextmanager
def _signals() -> Iterator[socket.socket]:
    """Give a socket that becomes readable when the guard is told to end, or when the server ended."""
    readable, writable = socket.socketpair()
    for end in (readable, writable):
        end.setblocking(False)
    signal.set_wakeup_fd(writable.fileno(), warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    with readable, writable:
        try:
            yield readable
        finally:
            signal.set_wakeup_fd(-1)  # later signals come of our own shutdown


class _Revival:
    """Starts a server anew when it has died, as long as it does not die again and again."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._started, self._short_lives = time.monotonic(), 0

    def revive(self) -> bool:
        """Return whether the server runs, started anew if need be."""
        if self._server.is_running:
            return True
        lived = time.monotonic() - self._started
        self._short_lives = self._short_lives + 1 if lived < SHORT_LIFE_S else 0
        if self._short_lives >= MAX_SHORT_LIVES:
            return False
        self._server.kill()  # takes its socket away
        self._server.start()
        self._started = time.monotonic()
        return True


def _serve(
    listener: socket.socket,
    signals: socket.socket,
    first: socket.socket,
    server: ServerProcess,
    stay: ExitStack,
) -> None:
    """Greet each connection. Return when the last one has left, on a signal, or if the server cannot live.

    Connections that are still open then go to `stay`: they see end-of-file when all is gone.
    """
    revival = _Revival(server)
    with selectors.DefaultSelector() as selector:

        def join(member: socket.socket) -> None:
            selector.register(stay.enter_context(member), selectors.EVENT_READ)
            hello = {"url": server.url, "directory": str(server.directory), "pid": server.pid}
            with contextlib.suppress(OSError):
                member.sendall(json.dumps(hello).encode() + b"\n")

        selector.register(listener, selectors.EVENT_READ)
        selector.register(signals, selectors.EVENT_READ)
        join(first)
        while True:
            for key, _ in selector.select():
                member = key.fileobj
                if member is signals:
                    received = set(signals.recv(4096))  # the numbers of the signals
                    if received != {signal.SIGCHLD} or not revival.revive():
                        return
                    continue
                if member is listener:
                    join(listener.accept()[0])
                elif isinstance(member, socket.socket) and _is_closed(member):
                    selector.unregister(member)
                    if len(selector.get_map()) == 2:  # the listener and the signals: it was the last one
                        return
                    with member, contextlib.suppress(OSError):
                        member.sendall(b"kept\n")


def _is_closed(member: socket.socket) -> bool:
    try:
        return member.recv(4096) == b""
    except OSError:
        return True


def guard(directory: Path, binary: str, first: socket.socket, *, private: bool) -> int:
    """Own the server in `directory` until the last command leaves. Return the exit code.

    `first` is the connection of the command that started this guard. Raise OSError or RuntimeError,
    with everything cleaned up, if the server cannot be started.
    """
    _make(directory, private=private)
    if _lock(directory) is None:  # the descriptor stays open, and locked, until this process ends
        return _LOCKED
    server = ServerProcess(directory, binary)
    with ExitStack() as stay:
        try:
            # A server whose guard was killed, where the kernel has not already ended it (not Linux).
            with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
                client.settimeout(1.0)
                client.connect(str(directory / SERVER_SOCKET))
                client.sendall(b"SHUTDOWN NOSAVE\r\n")
                client.recv(1)
            with _listen(directory) as listener, _signals() as signals:
                server.start()
                _serve(listener, signals, first, server, stay)
        finally:
            server.kill()
            # The lock last, since whoever gets it next may begin at once.
            for name in (GUARD_SOCKET, SERVER_SOCKET, LOG_FILE, LOCK_FILE):
                (directory / name).unlink(missing_ok=True)
            if private:
                shutil.rmtree(directory, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):  # the next guard may be there already
                    directory.rmdir()
    return 0


def main() -> int:
    """Read the arguments that `embedded` gives, and run as the guard."""
    import argparse  # as above

    parser = argparse.ArgumentParser(prog="toolgate-guard", description="Own the embedded server.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("binary", help="path of the server program")
    parser.add_argument("descriptor", type=int, help="connection of the command that starts this guard")
    parser.add_argument("--private", action="store_true", help="remove the directory with all it holds")
    options = parser.parse_args()
    os.set_inheritable(options.descriptor, False)
    with socket.socket(fileno=options.descriptor) as first:
        try:
            return guard(options.directory, options.binary, first, private=options.private)
        except (OSError, RuntimeError) as error:
            with contextlib.suppress(OSError):
                first.sendall(json.dumps({"error": str(error)}).encode() + b"\n")
            return 1


if __name__ == "__main__":
    sys.exit(main())
