"""What asking costs a coding agent: CPU of the process beside an empty one, and time over HTTP, in one run.

pytest -s tests/acceptance/test_hook_cost.py      prints the figures
"""

import http.client
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import pytest
from hook_world import FILE, event_of, hook_world

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(300)]

CALLS = 40
MAX_CPU_MS = 30.0
EMPTY_MS = 15.0
"""What an empty interpreter takes where the first figure was set; a slower machine has as much more."""


def cpu_ms(run) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


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
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token.read_text().strip()}"}

    def ask_ms(path, body):
        started = time.perf_counter()
        link.request("POST", path, body, headers)
        answer = link.getresponse()
        said = answer.read()
        assert answer.status == 200, said
        return (time.perf_counter() - started) * 1000

    plain = json.dumps({"tool": "bash", "arguments": {"command": "ls"}})
    event = json.dumps(event_of("claude", {"command": "ls"}))
    told = [(ask_ms("/v1/decide", plain), ask_ms("/hooks/claude?timeout=60", event)) for _ in range(300)]
    decide, hook = (statistics.median(column) for column in zip(*told[20:], strict=True))
    link.close()
    figures = f"/v1/decide {decide:.2f} ms, /hooks/claude {hook:.2f} ms; load {os.getloadavg()[0]:.1f}"
    print(f"\nover HTTP, median of 280: {figures}")
    assert hook <= 2 * decide + 1.0
