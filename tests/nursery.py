"""Starts `toolgate` processes quickly: each is forked from a parent that has loaded what they need.

Most of a short command's time is the interpreter's start and its imports, which are the same for each. The
parent (one for each process of pytest) has done both, has one thread and has opened nothing; a child of it
gets its own arguments, environment, folder and descriptors, then runs the command as `python -m` would. It
is a process like any other: with a pid, signals, an exit status. What starting itself costs or breaks is
seen by the tests that start a command by its interpreter (`command_of`), and by those marked `system`.
"""

import array
import asyncio
import atexit
import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

__all__ = ["NURSERY", "Nursery", "Process"]

MAX_MESSAGE: Final = 1 << 20
NOTHING: Final = Path(os.devnull)
PRELOAD: Final = (
    *(
        "toolgate_bus.commands.main",
        "toolgate_bus.commands.options",
        "toolgate_bus.commands.budget",
        "toolgate_bus.commands.agents",
    ),
    *(
        "toolgate_bus.commands.decisions.cli",
        "toolgate_bus.commands.doctor.cli",
        "toolgate_bus.commands.exporter.cli",
    ),
    *(
        "toolgate_schedulers.commands.scheduler",
        "toolgate_schedulers.worker.process",
        "toolgate_schedulers.commands.approvals.cli",
    ),
    *(
        "toolgate_schedulers.shipped.policy.scheduler",
        "toolgate_schedulers.shipped.router.router",
        "toolgate_schedulers.shipped.cost_aware.scheduler",
    ),
    *(
        "toolgate_schedulers.shipped.approval.scheduler",
        "toolgate_schedulers.shipped.rate_limit",
        "toolgate_schedulers.shipped.loop_guard",
    ),
    *(
        "toolgate_orchestrator.commands.run.cli",
        "toolgate_orchestrator.commands.replay.cli",
        "toolgate_orchestrator.loops.events",
    ),
    *(
        "toolgate_bus.transport.redis.client.local_commands",
        "toolgate_schedulers.commands.doctor_checks",
        "toolgate_schedulers.commands.scheduler_list",
        "toolgate_schedulers.commands.scheduler_run",
        "toolgate_schedulers.worker.supervisor",
        "toolgate_orchestrator.commands.replay.jobs",
        "toolgate_orchestrator.commands.replay.session",
        "toolgate_orchestrator.modules.context_simple",
    ),
    *(
        "anyio._backends._asyncio",
        "rich.progress",
        "typer._adapters",
        "typer._click.decorators",
        "uvloop",
    ),
    *(
        "toolgate_orchestrator.commands.host.checks",
        "amplifier_core",
        "prometheus_client",
        "structlog",
        "rich.live",
    ),
)


class Process:
    """A child, as `subprocess.Popen` shows one."""

    def __init__(self, nursery: "Nursery", pid: int, args: Sequence[str]) -> None:
        self.pid, self.args = pid, list(args)
        self.returncode: int | None = None
        self.stdin = self.stdout = self.stderr = None
        self._nursery = nursery

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            self._nursery.listen(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code; raises subprocess.TimeoutExpired."""
        ends = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = 0.1 if ends is None else ends - time.monotonic()
            if left <= 0 and ends is not None:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self._nursery.listen(min(left, 0.1))
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Nursery:
    """The parent of processes; its own process starts with the first."""

    def __init__(self) -> None:
        self._link: socket.socket | None = None
        self._parent: subprocess.Popen[bytes] | None = None
        self._children: dict[int, Process] = {}
        self._short_lived: dict[int, int] = {}
        """Exit codes of children that ended before their birth was handled."""
        self._buffer = b""

    def start(
        self,
        words: Sequence[str],
        env: Mapping[str, str],
        cwd: str | os.PathLike[str] | None,
        files: Sequence[int],
    ) -> Process:
        """`toolgate WORDS`, with these descriptors as stdin, stdout, stderr."""
        link = self._link or self._open()
        told = {"words": list(words), "env": dict(env), "cwd": os.fspath(cwd or Path.cwd())}
        head = json.dumps(told).encode()
        descriptors = array.array("i", files)
        link.sendmsg([len(head).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)])
        link.sendall(head)
        born: list[int] = []
        while not born:
            self.listen(10.0, born)
        child = Process(self, born[0], ("toolgate", *words))
        child.returncode = self._short_lived.pop(child.pid, None)
        if child.returncode is None:
            self._children[child.pid] = child
        return child

    def listen(self, seconds: float, born: list[int] | None = None) -> None:
        """Hear who was born and who died, for at most so long."""
        link = self._link
        assert link is not None
        link.settimeout(max(seconds, 0.0001))
        try:
            came = link.recv(65536)
        except (TimeoutError, BlockingIOError):
            return
        finally:
            link.settimeout(None)
        if not came:
            raise RuntimeError("the parent of the processes is gone")
        *lines, self._buffer = (self._buffer + came).split(b"\n")
        for line in lines:
            word, *numbers = line.split()
            if word == b"born":
                assert born is not None
                born.append(int(numbers[0]))
            else:
                pid, status = map(int, numbers)
                code = os.waitstatus_to_exitcode(status)
                if (child := self._children.pop(pid, None)) is not None:
                    child.returncode = code
                else:
                    self._short_lived[pid] = code

    def _open(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            self._parent = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        self._link = ours
        atexit.register(self.close)
        return ours

    async def run(
        self,
        *words: object,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float = 60.0,
    ) -> tuple[int, str, str]:
        """`toolgate WORDS` to its end: exit code, stdout, stderr; raises TimeoutError, and kills it."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, NOTHING.open() as nothing:
            files = (nothing.fileno(), out.fileno(), err.fileno())
            child = self.start(list(map(str, words)), os.environ | dict(env or {}), cwd, files)
            try:
                async with asyncio.timeout(timeout):
                    while (code := child.poll()) is None:
                        await asyncio.sleep(0.005)
            finally:
                if child.returncode is None:
                    child.kill()
                    child.wait()
            said = []
            for file in (out, err):
                file.seek(0)
                said.append(file.read().decode(errors="replace"))
        return code, said[0], said[1]

    def close(self) -> None:
        """End the parent; its children, if there are any, are ended by who started them."""
        if self._link is not None and self._parent is not None:
            self._link.close()
            self._parent.wait(5)
            self._link = self._parent = None


NURSERY: Final = Nursery()
"""That of this process of pytest."""


# ---------------------------------------------------------------------- the parent's side


def serve(number: int) -> None:
    """Fork whatever is asked for, and tell who ended, until nobody asks."""
    import importlib

    for name in PRELOAD:
        importlib.import_module(name)
    link = socket.socket(fileno=number)
    woken, wakes = socket.socketpair()
    for each in (woken, wakes):
        each.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest; a child has Python's own again
    import gc
    import select

    gc.freeze()
    while True:
        ready, _, _ = select.select([link, woken], [], [])
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                woken.recv(4096)
            tell_the_dead(link)
        if link in ready:
            head, rights, _, _ = link.recvmsg(4, socket.CMSG_SPACE(3 * 4))
            if not head:
                return
            files = array.array("i")
            for _, _, data in rights:
                files.frombytes(data[: len(data) - len(data) % files.itemsize])
            told = json.loads(read_exactly(link, int.from_bytes(head, "big")))
            pid = os.fork()
            if pid == 0:
                link.detach()
                become(told, files.tolist())
            for file in files:
                os.close(file)
            link.sendall(b"born %d\n" % pid)


def tell_the_dead(link: socket.socket) -> None:
    """Tell of every child that ended."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            link.sendall(b"dead %d %d\n" % (pid, status))


def read_exactly(link: socket.socket, size: int) -> bytes:
    """So many bytes."""
    assert size <= MAX_MESSAGE
    parts = bytearray()
    while len(parts) < size:
        parts += link.recv(size - len(parts))
    return bytes(parts)


def become(told: dict[str, Any], files: list[int]) -> None:
    """Be the command: never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for target, file in enumerate(files):
            os.dup2(file, target)
        os.closerange(3, 1 << 12)
        os.chdir(told["cwd"])
        before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ.clear()
        os.environ.update(told["env"])
        added = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one not in before]
        sys.path[0:1] = [told["cwd"], *added]
        sys.argv = [str(sys.modules["toolgate_bus.commands.main"].__file__), *told["words"]]
        for name, file, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
            errors = "backslashreplace" if name == "stderr" else "strict"
            unbuffered = mode == "w" and bool(os.environ.get("PYTHONUNBUFFERED"))
            raw = open(file, f"{mode}b", buffering=0 if unbuffered else -1, closefd=False)  # noqa: SIM115 - it stays
            stream = io.TextIOWrapper(
                raw,
                encoding="utf-8",
                errors=errors,
                write_through=unbuffered,
                line_buffering=name == "stderr",
            )
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
        time.tzset()
        sys.modules["toolgate_bus.commands.main"].main()
        code = 0
    except SystemExit as error:
        code = code_of(error)
    except KeyboardInterrupt:
        code = 130
    except BaseException:  # noqa: BLE001 - as the interpreter does
        import traceback

        traceback.print_exc()
    finally:
        end(code)


def code_of(error: SystemExit) -> int:
    """As the interpreter reads it."""
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1


def end(code: int) -> None:
    """As the interpreter ends: threads, `atexit`, what is buffered."""
    import threading

    with contextlib.suppress(BaseException):
        threading._shutdown()
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(BaseException):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    from installed import look_once

    look_once()
    sys.path[0:1] = [""]  # as with `-m`: the folder of whoever is asked for
    serve(int(sys.argv[1]))
