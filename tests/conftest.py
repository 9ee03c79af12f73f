"""What every test may use: a server, a namespace of its own, processes that are ended, waiting.

No test waits by sleeping: `wait_until` looks every few milliseconds and has a bound. Whatever a
test starts through these fixtures is ended when the test is, by its process id.
"""

import asyncio
import contextlib
import gc
import inspect
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from installed import look_once
from nursery import NURSERY, Process
from toolgate_bus.server.embedded import Server, private_server, server_process
from toolgate_bus.server.guard import ServerProcess

look_once()

# Where tests are run in the background of a script, SIGINT is ignored, and in all that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A shared machine is sometimes slow: a slow example is no failure (each test has its own timeout).
# Examples are the same in each run, so that none is red by chance; `make soak-properties` draws others.
settings.register_profile(
    "toolgate",
    deadline=None,
    derandomize="TOOLGATE_RANDOM" not in os.environ,
    max_examples=int(os.environ.get("TOOLGATE_EXAMPLES", "10")),
)
settings.load_profile("toolgate")


HERE = Path(__file__).parent
DEPLOY = HERE / "deploy"
EARLY = (DEPLOY / "containers", HERE, HERE / "oracle", HERE / "simulation")
"""Folders with the files that take longest: at the end, one process alone would run such a file."""


ONLY_PURE = ("pure and not system", "pure and not session and not system")
WITH_SERVERS, SYSTEM, SOURCE = "not pure and not system and not source", "system", "source"
"""Markers that the Makefile asks for."""
ALL_PURE = re.compile(r"^pytestmark = pytest\.mark\.(pure|source)$", re.MULTILINE)
ALL_SYSTEM = re.compile(r"^pytestmark = .*pytest\.mark\.system\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not load the files in which the markers asked for choose nothing: most of a start is loading."""
    asked = config.option.markexpr
    if collection_path.suffix != ".py" or asked not in {*ONLY_PURE, WITH_SERVERS, SYSTEM, SOURCE}:
        return None
    text = collection_path.read_text()
    if collection_path.is_relative_to(DEPLOY):
        is_left_out = asked != SYSTEM
    elif asked in ONLY_PURE:
        is_left_out = "mark.pure" not in text
    elif asked == SOURCE:
        is_left_out = "mark.source" not in text
    elif asked == WITH_SERVERS:
        is_left_out = bool(ALL_PURE.search(text) or ALL_SYSTEM.search(text))
    else:
        is_left_out = "mark.system" not in text
    return True if is_left_out else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make test-fast` leaves out (whole sessions), and what deployments need; long files first."""
    items.sort(key=lambda item: EARLY.index(item.path.parent) if item.path.parent in EARLY else len(EARLY))
    for item in items:
        if "agent" in getattr(item, "fixturenames", ()):
            item.add_marker("session")
        if item.path.is_relative_to(DEPLOY):
            item.add_marker("system")


def pytest_collection_finish() -> None:
    """Leave all that was loaded out of garbage collections: one of them takes half a second otherwise."""
    gc.collect()
    gc.freeze()


TERMINALS = {"FORCE_COLOR", "TERM"}
"""What a console looks at as it is made: who sets these has the command started by its interpreter."""
KEPT = ("TOOLGATE_RUNS", "TOOLGATE_TOOLS", "TOOLGATE_ROLLS", "TOOLGATE_VERSION_ONE")
"""What tests themselves are told."""
OF_MAKE = ("MAKELEVEL", "MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES")
"""Set where `make` runs the tests. A `make` that a test runs must not take itself for one inside it."""


@pytest.fixture(scope="session", autouse=True)
def _own_world() -> Iterator[None]:
    """Keep the user's server and settings out of the tests, and the tests' server out of the user's."""
    with pytest.MonkeyPatch.context() as patch, short_directory() as runtime:
        for name in [name for name in os.environ if name.startswith("TOOLGATE_") and name not in KEPT]:
            patch.delenv(name)
        for name in OF_MAKE:
            patch.delenv(name, raising=False)
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        patch.setenv("XDG_STATE_HOME", str(runtime / "state"))
        os.umask(0o027)  # keys that others can read are refused
        yield


@pytest.fixture(autouse=True)
def _own_logs() -> Iterator[None]:
    """Lines go where they went before: a test that captures structlog's leaves it configured."""
    yield
    if (structlog := sys.modules.get("structlog")) is not None and structlog.is_configured():
        structlog.reset_defaults()


@contextlib.contextmanager
def short_directory() -> Iterator[Path]:
    """A temporary directory (0700) whose path leaves room for a socket's name; `tmp_path` may not."""
    directory = Path(tempfile.mkdtemp(prefix="tg-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(name="short_directory")
def _short_directory() -> Iterator[Path]:
    """A directory for sockets, removed at the end."""
    with short_directory() as directory:
        yield directory


@pytest.fixture(scope="session")
def shared_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all workers of a run have in common."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The server that all tests share; use `namespace` to be alone on it."""
    with private_server() as started:
        yield started


@pytest.fixture(scope="session")
def server_url(server: Server) -> str:
    """URL of the server that all tests share."""
    return server.url


@pytest.fixture
def namespace() -> str:
    """A namespace that no other test uses."""
    return f"t{secrets.token_hex(6)}"


@pytest.fixture
def own_server(short_directory: Path) -> Iterator[ServerProcess]:
    """A running server of the test's own, to `stop()`, `kill()`, `start()` or `restart()` on the same URL.

    It keeps nothing over a restart; `own_durable_server` does.
    """
    yield from _started(server_process(short_directory))


@pytest.fixture
def own_durable_server(short_directory: Path) -> Iterator[ServerProcess]:
    """Like `own_server`, and what was written is there again after a restart (append-only file)."""
    yield from _started(server_process(short_directory, appendonly=True))


def _started(process: ServerProcess) -> Iterator[ServerProcess]:
    process.start()
    try:
        yield process
    finally:
        process.kill()


@pytest.fixture
def wait_until() -> Callable[..., Awaitable[Any]]:
    """`await wait_until(predicate, timeout=30)`: its first true value; fails when there is none in time.

    The predicate may be an async function. Looks every 5 ms.
    """

    async def wait(predicate: Callable[[], Any | Awaitable[Any]], timeout: float = 30.0) -> Any:
        deadline = time.monotonic() + timeout
        while True:
            found = predicate()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
            if time.monotonic() > deadline:
                what = getattr(predicate, "func", predicate)  # a partial has no source of its own
                pytest.fail(f"still {found!r} after {timeout} s: {inspect.getsource(what).strip()}")
            await asyncio.sleep(0.005)

    return wait


@dataclass(frozen=True)
class Running:
    """A process under test; what it says goes to files, so that it never blocks on a full pipe."""

    popen: subprocess.Popen[bytes] | Process
    out: Path
    err: Path

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.popen.pid

    @property
    def stdout(self) -> str:
        """What it wrote to stdout so far."""
        return self.out.read_text(errors="replace")

    @property
    def stderr(self) -> str:
        """What it wrote to stderr so far."""
        return self.err.read_text(errors="replace")

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.popen.poll() is None

    def wait(self, timeout: float = 30.0) -> int:
        """Its exit code; fails, with what it said, if it does not end in time."""
        try:
            return self.popen.wait(timeout)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{self.popen.args} still runs after {timeout} s: {self.stdout}\n{self.stderr}")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, as `kill` does."""
        self.popen.send_signal(number)

    def end(self) -> None:
        """End it: SIGTERM, and SIGKILL if it has not gone after 5 seconds."""
        if self.alive:
            self.popen.terminate()
            try:
                self.popen.wait(5.0)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Running]]:
    """`process("toolgate", "scheduler", "run", …, env={…})` starts a process that ends with the test.

    The first word may be `toolgate` or `python`: this environment's. `env` adds to the environment;
    other keywords go to Popen.
    """
    started: list[Running] = []
    base = tmp_path_factory.mktemp("processes")
    words = {"python": [sys.executable], "toolgate": [sys.executable, "-m", "toolgate_bus"]}

    def start(*command: object, env: dict[str, str] | None = None, **popen: Any) -> Running:
        first, *rest = map(str, command)
        out, err = (base / f"{len(started)}.{name}" for name in ("stdout", "stderr"))
        with out.open("wb") as stdout, err.open("wb") as stderr, Path(os.devnull).open("rb") as stdin:
            child: subprocess.Popen[bytes] | Process
            if first == "toolgate" and popen.keys() <= {"cwd"} and not TERMINALS & (env or {}).keys():
                files = [each.fileno() for each in (stdin, stdout, stderr)]
                child = NURSERY.start(rest, os.environ | (env or {}), popen.get("cwd"), files)
                started.append(Running(child, out, err))
                return started[-1]
            child = subprocess.Popen(
                [*words.get(first, [first]), *rest],
                env=os.environ | (env or {}),
                **{"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": stderr} | popen,
            )
        started.append(Running(child, out, err))
        return started[-1]

    try:
        yield start
    finally:
        for running in reversed(started):
            running.end()
