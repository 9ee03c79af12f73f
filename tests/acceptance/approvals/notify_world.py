"""What the tests of `toolgate notify` use: a webhook on loopback that counts, and its processes."""

import asyncio
import base64
import hashlib
import hmac
import json
import os
import signal
import ssl
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import yaml
from toolgate_bus.state.changes import ChangeEvent, ConfigChange, tell_change
from toolgate_bus.state.notifications import RedisNotices
from toolgate_bus.transport.redis.client.connection import RedisCommands

KEY = base64.b64encode(b"k" * 32).decode()
SECRET = f"whsec_{KEY}"
BOUND_S = 30.0
PLANTED = "sk-planted-0123456789abcdef"


class Post(NamedTuple):
    """One POST as it came."""

    id: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        """Its body."""
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def is_signed(self) -> bool:
        """As a receiver checks it."""
        content = f"{self.id}.{self.headers['webhook-timestamp']}.".encode() + self.body
        digest = hmac.new(base64.b64decode(KEY), content, hashlib.sha256).digest()
        return self.headers.get("webhook-signature") == f"v1,{base64.b64encode(digest).decode()}"


class LoopbackReceiver:
    """A webhook: what it answers is `answer`, which is given each POST and returns a status (or bytes)."""

    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.answer: Callable[[Post], int | bytes] = lambda post: 204
        self.paths: list[str] = []
        self._port = 0
        self._server: ThreadingHTTPServer | None = None
        self.start()
        self.url = f"http://127.0.0.1:{self._port}/hook/planted-in-the-address"

    def start(self) -> None:
        """Listen, on the same port as before."""
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                post = Post(headers.get("webhook-id", ""), headers, body)
                receiver.paths.append(self.path)
                receiver.posts.append(post)
                answer = receiver.answer(post)
                if isinstance(answer, bytes):
                    self.wfile.write(answer)
                    return
                self.send_response(answer)
                if answer == 302:
                    self.send_header("Location", f"http://127.0.0.1:{receiver._port}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            allow_reuse_address = True

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass

        self._server = Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def wrap(self, context: ssl.SSLContext) -> None:
        """Speak TLS from now on."""
        assert self._server is not None
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def stop(self) -> None:
        """Be away."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def count(self, **fields: object) -> Counter[str]:
        """How often each id came, of those with these fields."""
        return Counter(post.id for post in self.told(**fields))

    def told(self, **fields: object) -> list[Post]:
        """The POSTs whose bodies have these fields."""
        posts = list(self.posts)
        return [one for one in posts if all(one.json.get(name) == value for name, value in fields.items())]

    async def wait(self, number: int = 1, **fields: object) -> list[Post]:
        """So many different notifications with these fields, once they have come."""
        async with asyncio.timeout(BOUND_S):
            while len(self.count(**fields)) < number:
                await asyncio.sleep(0.02)
        return self.told(**fields)


class Notifiers:
    """Starts `toolgate notify` processes on one bus."""

    def __init__(self, url: str, namespace: str, directory: Path, receiver: LoopbackReceiver) -> None:
        self.url, self.namespace, self.directory = url, namespace, directory
        self.receiver = receiver
        self.config: dict[str, Any] = {
            "console_url": "https://console.example/",
            "receivers": {"ops": {"url_env": "HOOK", "key_env": "HOOK_KEY", "timeout_s": 1}},
            "group_s": 0.2,
            "retry": {"first_s": 0.1, "max_s": 0.3},
        }
        self.started: list[subprocess.Popen[bytes]] = []
        self.more: dict[str, str] = {}
        """Variables for the command."""

    def write(self) -> Path:
        """The config as a file."""
        file = self.directory / "notify.yaml"
        file.write_text(yaml.safe_dump(self.config))
        return file

    def run(self, *options: str) -> "subprocess.CompletedProcess[str]":
        """The command to its end."""
        return subprocess.run(
            [*self._command, *options],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )

    @property
    def _command(self) -> Sequence[str]:
        return (
            sys.executable,
            "-m",
            "toolgate_bus",
            "--log-level",
            "DEBUG",
            "--log-format",
            "json",
            "notify",
            "--config",
            str(self.write()),
        )

    @property
    def _env(self) -> dict[str, str]:
        return os.environ | {"HOOK": self.receiver.url, "HOOK_KEY": SECRET} | self.more

    async def start(self, *options: str) -> subprocess.Popen[bytes]:
        """A process that follows the bus; waits until it has said so."""
        where = ("--redis", self.url, "--namespace", self.namespace, "--json")
        number = len(self.started)
        out = self.directory / f"notify-{number}.out"
        with out.open("wb") as told, (self.directory / f"notify-{number}.err").open("wb") as errors:
            child = subprocess.Popen(
                [*self._command, *where, *options],
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=told,
                stderr=errors,
            )
        self.started.append(child)
        async with asyncio.timeout(BOUND_S):
            while not out.read_text():
                assert child.poll() is None, self.said()
                await asyncio.sleep(0.02)
        return child

    async def lead(self, *options: str) -> subprocess.Popen[bytes]:
        """The same, once it works."""
        child = await self.start(*options)
        await self.heard("looks, and posts")
        return child

    async def heard(self, words: str) -> None:
        """Wait until the newest has logged this."""
        async with asyncio.timeout(BOUND_S):
            while words not in (self.directory / f"notify-{len(self.started) - 1}.err").read_text():
                await asyncio.sleep(0.02)

    @property
    def ready(self) -> dict[str, Any]:
        """What the newest said when it began."""
        out = self.directory / f"notify-{len(self.started) - 1}.out"
        found: dict[str, Any] = json.loads(out.read_text().splitlines()[0])
        return found

    def said(self) -> str:
        """All that any of them wrote."""
        return "".join(file.read_text() for file in sorted(self.directory.glob("notify-*")))

    def kill(self, child: "subprocess.Popen[bytes]") -> None:
        """End it without a word."""
        child.send_signal(signal.SIGKILL)
        child.wait(10)

    def end(self) -> None:
        """End them all."""
        for child in self.started:
            if child.poll() is None:
                child.kill()
            child.wait()


async def tell_of_change(commands: RedisCommands, namespace: str, event: ChangeEvent) -> None:
    """Have rules changed, with a secret in what somebody says about it."""
    notices = RedisNotices(commands, commands, namespace)
    await tell_change(notices, ConfigChange(event, "policy", "v8", "v7", why=PLANTED))
