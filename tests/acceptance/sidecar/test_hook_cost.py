"""What asking costs a coding agent: CPU of the process beside an empty one, and time over HTTP, in one run.

pytest -s tests/acceptance/sidecar/test_hook_cost.py prints the figures
"""

import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hook_world import FILE, event_of, hook_world

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(300)]

CALLS = 40
BLOCKS, CALLS_A_BLOCK = 8, 150
MAX_CPU_MS = 30.0
EMPTY_MS = 15.0
"""What an empty interpreter takes where the first figure was set; a slower machine has as much more."""


def cpu_ms(run) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def is_whole(said: bytes) -> bool:
    """Whether an answer is all there: head and body come in two pieces."""
    head, ended, body = said.partition(b"\r\n\r\n")
    return bool(ended) and len(body) >= int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])


def test_a_hook_takes_as_much_again_as_an_empty_interpreter_at_the_most(crew, short_directory):
    event = json.dumps(event_of("claude", {"command": "ls"})).encode()
    with hook_world(short_directory, crew.url, crew.namespace) as world:
        world.ask("claude", event, "--required", "alpha", timeout_s=200)

        def empty():
            subprocess.run([sys.executable, "-c", "pass"], check=True, env=world.env)

        def bare():
            subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True, env=world.env)

        def hook():
            command = [sys.executable, "-I", "-S", str(FILE), "claude", "--required", "alpha"]
            done = subprocess.run(command, input=event, check=True, env=world.env, capture_output=True)
            assert (done.stdout, done.stderr) == (b"", b"")

        told = [(cpu_ms(empty), cpu_ms(bare), cpu_ms(hook)) for _ in range(CALLS)]
    plain, isolated, asked = (statistics.median(column) for column in zip(*told, strict=True))
    figures = f"python -c pass {plain:.1f} ms, -I -S {isolated:.1f} ms, a hook {asked:.1f} ms"
    print(f"\nCPU, median of {CALLS}: {figures}")
    assert asked <= MAX_CPU_MS * max(1.0, plain / EMPTY_MS)


def test_over_http_a_ruling_takes_little_more_than_by_the_plain_interface(crew, tmp_path, process):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef\n")
    token.chmod(0o600)
    where = {"TOOLGATE_REDIS_URL": crew.url, "TOOLGATE_NAMESPACE": crew.namespace}
    options = ("--http", "127.0.0.1:0", "--token-file", token, "--required", "alpha", "--json")
    serve = process("toolgate", "serve", *options, env=where)
    deadline = time.monotonic() + 60
    while "\n" not in serve.stdout and time.monotonic() < deadline:
        time.sleep(0.01)
    port = int(json.loads(serve.stdout.splitlines()[0])["url"].rpartition(":")[2])
    link = socket.create_connection(("127.0.0.1", port), timeout=30)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    secret = token.read_text().strip()

    def cpu_s():
        fields = Path(f"/proc/{serve.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask_ms(path, body):
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        started = time.perf_counter()
        link.sendall((head + body).encode())
        said = link.recv(65536)
        while not is_whole(said):
            said += link.recv(65536)
        assert said.startswith(b"HTTP/1.1 200"), said
        return (time.perf_counter() - started) * 1000

    ways = {"/v1/decide": {"tool": "bash", "arguments": {"command": "ls"}}}
    ways["/hooks/claude?timeout=60"] = event_of("claude", {"command": "ls"})
    told, spent = {way: [] for way in ways}, dict.fromkeys(ways, 0.0)
    for block in range(BLOCKS + 1):
        for way, asked in ways.items():
            before = cpu_s()
            times = [
                ask_ms(way, json.dumps({**asked, "tool_use_id": f"{block}-{n}"} if "hooks" in way else asked))
                for n in range(CALLS_A_BLOCK)
            ]
            if block:  # the first is for warming up
                told[way] += times
                spent[way] += cpu_s() - before
    link.close()
    decide, hook = (statistics.median(times) for times in told.values())
    for way, times in told.items():
        last = statistics.quantiles(times, n=100)[98]
        cpu = spent[way] / len(times) * 1000
        figures = f"p50 {statistics.median(times):.2f} ms, p99 {last:.2f} ms, {cpu:.2f} ms of its CPU"
        print(
            f"\nover HTTP, {way.partition('?')[0]}, n={len(times)}: {figures}; load {os.getloadavg()[0]:.1f}"
        )
    assert hook <= 2 * decide + 1.0
