"""MCP around the proxy: servers as processes, the proxy as a process, clients of the official SDK in the
test.

Clients come in both eras: `legacy` (initialize, sessions, elicitation) and `modern` (2026-07-28).
"""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import mcp_types as types
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

HERE = Path(__file__).parent
SERVER = [sys.executable, str(HERE / "mcp_server.py")]
HOSTILE = HERE.parents[1] / "orchestrator" / "hostile_mcp.py"
"""A server that misbehaves as it is told."""
ERAS = {"legacy": "legacy", "modern": "2026-07-28"}
PROXY = [sys.executable, "-m", "toolgate_bus", "mcp"]
AT = re.compile(r"at (http://\S+)")


class Person:
    """The user at a client: answers what is asked, and remembers it."""

    def __init__(self, action="accept", content=None):
        self.action, self.content, self.asked, self.seconds = action, content, [], 0.0

    async def __call__(self, context, params):
        self.asked.append(params.message)
        await asyncio.sleep(self.seconds)
        return types.ElicitResult(action=self.action, content=self.content)


class Heard:
    """What a client is told of its own accord."""

    def __init__(self):
        self.messages, self.logs, self.progress = [], [], []

    async def message(self, message):
        self.messages.append(message)

    async def log(self, params):
        self.logs.append(params.data)

    async def note(self, progress, total, message):
        self.progress.append((progress, total, message))


async def sample(context, params):
    """The client's LLM."""
    return types.CreateMessageResult(role="assistant", content=types.TextContent(text="sampled"), model="m")


async def roots(context):
    """The client's folders."""
    return types.ListRootsResult(roots=[types.Root(uri="file:///work")])


def client(where, era="modern", person=None, heard=None, **options):
    """A client of the SDK in one era, with everything that one can do."""
    heard = heard or Heard()
    return Client(
        where,
        mode=ERAS[era],
        elicitation_callback=person,
        sampling_callback=sample,
        list_roots_callback=roots,
        logging_callback=heard.log,
        message_handler=heard.message,
        log_level="info" if era == "modern" else None,
        cache=None,
        **options,
    )


def words_of(result):
    """The texts of a result."""
    return [one.text for one in result.content if isinstance(one, types.TextContent)]


def parameters(command, **env):
    """How the SDK starts a program that speaks MCP."""
    return StdioServerParameters(command=command[0], args=list(map(str, command[1:])), env=os.environ | env)


@contextlib.asynccontextmanager
async def stdio(command, errors, era="legacy", **options):
    """A client of a program, whose stderr goes to a file."""
    with errors.open("w") as errlog:
        async with client(stdio_client(parameters(command), errlog), era, **options) as connected:
            yield connected


class Program:
    """A process that tells where it listens."""

    def __init__(self, command, directory, **env):
        self._out, self._err = directory / "out", directory / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.popen = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=os.environ | env,
            )

    @property
    def said(self):
        """What it wrote to stderr."""
        return self._err.read_text(errors="replace")

    def wait_for(self, find, seconds=50.0):
        """The first true value of a function of its stdout and stderr."""
        deadline = time.monotonic() + seconds
        while not (found := find(self._out.read_text(), self.said)):
            if self.popen.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"not ready: {self.said}")
            time.sleep(0.01)
        return found

    def end(self):
        """SIGTERM, and its exit code; SIGKILL after 10 s."""
        if self.popen.poll() is None:
            self.popen.terminate()
        try:
            return self.popen.wait(30)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            return self.popen.wait()


@contextlib.contextmanager
def server_over_http(directory):
    """The server of the tests over HTTP; gives its address."""
    directory.mkdir()
    program = Program([*SERVER, "--http", directory], directory)
    try:
        port = program.wait_for(lambda out, err: out.strip())
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        program.end()


@contextlib.contextmanager
def proxy_over_http(directory, *options, **env):
    """`toolgate mcp --http 0 …`; gives its address and the process."""
    directory.mkdir()
    program = Program([*PROXY, "--http", 0, *options], directory, **env)
    try:
        yield program.wait_for(lambda out, err: (found := AT.search(err)) and found[1]), program
    finally:
        program.end()


def notes(directory, word):
    """Lines of the server's log that begin with a word."""
    log = directory / "log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [line for line in lines if line.startswith(word)]


def rules(**by_scheduler):
    """What schedulers are told to say."""
    return {"rules": by_scheduler}


def decisions(url, namespace):
    """What `toolgate decisions` shows, newest last."""
    where = ("--redis", url, "--namespace", namespace)
    command = [sys.executable, "-m", "toolgate_bus", "decisions", "--json", *where]
    told = subprocess.run(command, capture_output=True, check=True, text=True)
    return [json.loads(line) for line in told.stdout.splitlines()]


def status(url, method="POST", body=b"{}", **headers):
    """The status of a request; by default a POST that is no message."""
    kind = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
    request = urllib.request.Request(url, data=body, headers=kind | headers, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


async def raw(command, errors):
    """The proxy with pipes, and its stderr in a file."""
    pipe = asyncio.subprocess.PIPE
    with errors.open("ab") as err:
        return await asyncio.create_subprocess_exec(
            *map(str, command), stdin=pipe, stdout=pipe, stderr=err, limit=1 << 20
        )


def say(process, message):
    process.stdin.write(json.dumps(message).encode() + b"\n")


async def ask(process, id_, method, params):
    """The answer to one request."""
    say(process, {"jsonrpc": "2.0", "id": id_, "method": method, "params": params})
    while (told := json.loads(await process.stdout.readline())).get("id") != id_:
        pass
    return told
