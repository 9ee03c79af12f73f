"""Who holds on to what it should let go: half-open connections, and replicas that hang."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from toolgate_bus.commands import http_connection
from toolgate_bus.commands.http_connection import serve_bounded
from toolgate_bus.commands.http_server import bind_socket
from toolgate_bus.telemetry import http as metrics_server
from toolgate_schedulers.commands.console.cli import MAX_CONNECTIONS

pytestmark = pytest.mark.timeout(60)

SUPERVISOR = """
import sys, anyio
from toolgate_schedulers.worker import supervisor as module
module.SURVIVE_S, module.GRACE = 0.3, 0.3
add = module._ReplicaSet.add

async def tell(self, process):
    await add(self, process)
    open(sys.argv[1], "a").write(f"told {process.pid}\\n")

module._ReplicaSet.add = tell

async def never():
    await anyio.sleep_forever()
    yield

async def main(seconds):
    with anyio.move_on_after(seconds):
        code = "import os,sys,time; open(sys.argv[1],'a').write(f'hangs {os.getpid()}\\\\n'); " + sys.argv[2]
        command = [sys.executable, "-c", code, sys.argv[1], ]
        reloads = module.Reloads(never(), lambda: None, print)
        await module.supervise(command, [{}, {}], print, reloads)

anyio.run(main, float(sys.argv[3]))
"""
HANGS = {
    "it is stopped": "os.kill(os.getpid(), 19); time.sleep(600)",
    "endless C code": "import signal; signal.pthread_sigmask(0, [15]); sum(range(10**18))",
}


def alive(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


HALF_OPEN = (
    b"",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: ",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx",
)


@contextlib.asynccontextmanager
async def half_open(port, count):
    """Connections that began to say something, or nothing, and go on with nothing."""
    writers = []
    try:
        for number in range(count):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(HALF_OPEN[number % len(HALF_OPEN)])
            writers.append(writer)
        await asyncio.sleep(0.05)
        yield
    finally:
        for writer in writers:
            await closed(writer)


async def closed(writer):
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def ended(reader):
    """Whether the other end lets go within five seconds."""
    try:
        return await asyncio.wait_for(reader.read(), 5) == b""
    except ConnectionError:
        return True


async def asked(port, path="/"):
    """The first line of an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
    try:
        return (await asyncio.wait_for(reader.readline(), 5)).decode().strip()
    finally:
        await closed(writer)


async def test_half_open_connections_keep_nobody_from_the_console(monkeypatch, wait_until):
    monkeypatch.setattr(http_connection, "REQUEST_S", 0.5)

    async def app(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    bound = bind_socket("127.0.0.1", 0)
    port, up = bound.getsockname()[1], asyncio.Event()
    serving = asyncio.create_task(serve_bounded(app, bound, "console", MAX_CONNECTIONS, up.set))
    try:
        await up.wait()
        async with half_open(port, 300):
            assert await asked(port) == "HTTP/1.1 204 No Content"
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await ended(reader)  # who asks nothing is not waited for
            await closed(writer)
    finally:
        serving.cancel()
        await serving


@pytest.mark.parametrize("words", ["", "Connection: close\r\n"])
async def test_a_stream_outlives_the_time_for_a_request_however_it_was_asked_for(words, monkeypatch):
    monkeypatch.setattr(http_connection, "REQUEST_S", 0.2)
    go_on = asyncio.Event()

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first ", "more_body": True})
        await go_on.wait()
        await send({"type": "http.response.body", "body": b"last"})

    bound = bind_socket("127.0.0.1", 0)
    port, up = bound.getsockname()[1], asyncio.Event()
    serving = asyncio.create_task(serve_bounded(app, bound, "console", MAX_CONNECTIONS, up.set))
    try:
        await up.wait()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{words}\r\n".encode())
        await asyncio.wait_for(reader.readuntil(b"first "), 5)
        idle, other = await asyncio.open_connection("127.0.0.1", port)
        assert await ended(idle)  # began later, and its time is over
        await closed(other)
        go_on.set()
        await asyncio.wait_for(reader.readuntil(b"last"), 5)
        await closed(writer)
    finally:
        serving.cancel()
        await serving


async def test_half_open_connections_keep_nobody_from_the_metrics(monkeypatch, wait_until):
    serving = metrics_server.serve_page(0, "127.0.0.1", lambda accept: ("text/plain", b"page"))
    threads = threading.active_count()
    try:
        async with half_open(serving.port, 300):
            assert await asked(serving.port, "/metrics") == "HTTP/1.0 200 OK"
            most = threads + metrics_server.MAX_CONNECTIONS + 5
            await wait_until(lambda: threading.active_count() <= most)  # those that were closed are ending
            monkeypatch.setattr(metrics_server, "MAX_SECONDS", 0.0)
            await wait_until(lambda: threading.active_count() <= threads)
    finally:
        serving.close()


@pytest.fixture
async def supervised(process, tmp_path, wait_until):
    """Starts a supervisor of two replicas that hang, and ends what is left."""
    pids = []

    async def start(hang, seconds=600):
        file = tmp_path / "pids"
        run = process(sys.executable, "-c", SUPERVISOR, file, HANGS[hang], seconds)
        # Each hangs, and the survivor was told of each.
        await wait_until(lambda: file.exists() and len(file.read_text().splitlines()) == 4)
        pids.extend({int(line.split()[1]) for line in file.read_text().splitlines()})
        return run, pids

    yield start
    for pid in pids:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("hang", HANGS)
async def test_a_replica_that_hangs_does_not_outlive_its_supervisor(supervised, wait_until, hang):
    run, pids = await supervised(hang)
    os.kill(run.pid, signal.SIGKILL)
    await wait_until(lambda: not any(map(alive, pids)))


async def test_a_supervisor_that_is_to_end_ends_a_replica_that_hangs(supervised, wait_until):
    run, pids = await supervised("it is stopped", seconds=1)
    assert await asyncio.to_thread(run.wait, 20) == 0, run.stderr
    assert not any(map(alive, pids))
