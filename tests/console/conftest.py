"""What the tests of the console use: one in this process, an HTTP client, somebody who tells facts."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import h11
import pytest
import redis.asyncio as redis
from chromium import browser, opened
from toolgate_bus.commands.http_connection import serve_bounded
from toolgate_bus.commands.http_server import bind_socket
from toolgate_bus.facts import record
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.server.settings import bus_settings
from toolgate_schedulers.commands.console.access import Access
from toolgate_schedulers.commands.console.app import make_app
from toolgate_schedulers.commands.console.cli import MAX_CONNECTIONS
from toolgate_schedulers.commands.console.console_state import ConsoleState, open_state

TOKEN = "a-token-of-enough-letters"


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, read."""
        return json.loads(self.body)


class Conversation:
    """One connection that sends exactly the headers it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer, self._http = reader, writer, h11.Connection(h11.CLIENT)

    async def send(self, method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> None:
        """One request."""
        told = {"host": "localhost", "content-length": str(len(body)), **headers}
        for event in (
            h11.Request(
                method=method,
                target=path,
                headers=[(name, value.encode("latin-1")) for name, value in told.items()],
            ),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self._writer.write(self._http.send(event) or b"")
        await self._writer.drain()

    async def next(self) -> Any:
        """The next event of the answer."""
        while (event := self._http.next_event()) is h11.NEED_DATA:
            self._http.receive_data(await self._reader.read(65536))
        return event

    async def answer(self) -> Answer:
        """The whole answer."""
        head, body = await self.next(), b""
        while isinstance(event := await self.next(), h11.Data):
            body += event.data
        return Answer(head.status_code, {k.decode(): v.decode() for k, v in head.headers}, body)

    async def events(self) -> AsyncIterator[tuple[str, Any, str | None]]:
        """Server-sent events: kind, data, id."""
        text = ""
        while isinstance(event := await self.next(), h11.Data):
            text += event.data.decode()
            *whole, text = text.split("\n\n")
            for one in whole:
                if not one.startswith(":"):
                    lines = dict(line.split(": ", 1) for line in one.splitlines())
                    yield lines["event"], json.loads(lines["data"]), lines.get("id")

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


@dataclass
class Console:
    """A console in this process, on a port of its own."""

    port: int
    access: Access
    known: ConsoleState
    serving: "asyncio.Task[None]"
    cookie: str = ""
    talking: list[Conversation] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}/"

    async def talk(self) -> Conversation:
        """A connection; closed at the end of the test."""
        self.talking.append(Conversation(*await asyncio.open_connection("127.0.0.1", self.port)))
        return self.talking[-1]

    async def ask(self, method: str, path: str, body: bytes = b"", **headers: str) -> Answer:
        """One request on a connection of its own; `Header_name="…"`."""
        talk = await self.talk()
        told = {name.replace("_", "-").lower(): value for name, value in headers.items()}
        await talk.send(method, path, told, body)
        try:
            return await asyncio.wait_for(talk.answer(), 20)
        finally:
            talk.close()
            self.talking.remove(talk)

    async def get(self, path: str, **headers: str) -> Answer:
        """A request of somebody who is signed in."""
        return await self.ask("GET", path, **{"cookie": self.cookie, **headers})

    async def publish(self, path: str, body: Any, **headers: str) -> Answer:
        """What the page sends."""
        told = {"cookie": self.cookie, "x_toolgate_console": "1", "origin": "http://localhost"}
        return await self.ask("POST", path, json.dumps(body).encode(), **{**told, **headers})

    async def live(self, query: str = "", last: str | None = None) -> AsyncIterator[Any]:
        """The events of a page that is open."""
        talk = await self.talk()
        more = {"last-event-id": last} if last else {}
        await talk.send("GET", f"/api/live{query}", {"cookie": self.cookie, **more})
        assert (await talk.next()).status_code == 200
        return talk.events()

    async def sign_in(self) -> None:
        """Sign in by the address that is printed."""
        answer = await self.ask("GET", f"/?token={TOKEN}")
        assert answer.status == 303
        self.cookie = answer.headers["set-cookie"].partition(";")[0]


@asynccontextmanager
async def console_on(url: str, namespace: str) -> AsyncIterator[Console]:
    """A console, signed in to."""
    async with open_state(bus_settings(url, namespace)) as known:
        bound = bind_socket("127.0.0.1", 0)
        port = bound.getsockname()[1]
        access = Access(TOKEN, "anna", ["127.0.0.1"], port=port)
        up = asyncio.Event()
        serving = asyncio.create_task(
            serve_bounded(
                make_app(access, known, "box"), bound, "console", MAX_CONNECTIONS, up.set, known.hub.close
            )
        )
        made = Console(port, access, known, serving)
        try:
            await asyncio.wait_for(up.wait(), 20)
            await made.sign_in()
            yield made
        finally:
            serving.cancel()
            await asyncio.wait([serving])
            for one in made.talking:
                one.close()
            bound.close()


@pytest.fixture
async def console(server_url: str, namespace: str) -> AsyncIterator[Console]:
    """A console on the test's namespace."""
    async with console_on(server_url, namespace) as made:
        yield made


@pytest.fixture
def console_maker():
    """`async with console_maker(url, namespace)`: a console on another server."""
    return console_on


class Teller:
    """An orchestrator that only tells decisions, as many and as fast as the test likes."""

    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self._client, self._keys, self._told = client, keys, 0
        self.name = f"o{secrets.token_hex(4)}"

    async def tell(self, count: int, outcome: str = "continue", **fields: Any) -> list[str]:
        """Tell so many decisions at once; gives their ids, oldest first."""
        ids = [secrets.token_hex(16) for _ in range(count)]
        items = [self._fact(id_, outcome, fields) for id_ in ids]
        key = self._keys.facts(self.name)
        await self._client.zadd(self._keys.writers, {self.name: (await self._client.time())[0] * 1000})
        pipe = self._client.pipeline(transaction=False)
        for frame in packing.frames(items):
            pipe.xadd(key, {"event": "facts", "frame": packing.frame(frame)})
        await pipe.execute()
        return ids

    def _fact(self, id_: str, outcome: str, fields: Mapping[str, Any]) -> bytes:
        self._told += 1
        asked = {"tool_name": "write_file", "tool_input": {"path": f"{self._told}.txt"}, "agent": "clerk"}
        question = {"id": id_, "session": "s-1", **asked}
        said = {"outcome": outcome, "why": "denied" if outcome == "deny" else "agreed", "seconds": 0.004}
        told = {"event": "decision", "id": id_, "verdicts": [], **said}
        mine = {name: value for name, value in fields.items() if name in asked or name in question}
        rest = {name: value for name, value in fields.items() if name not in mine}
        body = {**told, **rest, "question": packing.pack({**question, **mine})}
        return record.other_fact(body, self._told, time.time())


@pytest.fixture
async def teller(server_url: str, namespace: str) -> AsyncIterator[Teller]:
    """Tells decisions in the test's namespace."""
    async with redis.from_url(server_url) as client:
        yield Teller(client, Keys(namespace))


@pytest.fixture
def token():
    return TOKEN


@pytest.fixture
async def chromium():
    async with browser() as started:
        yield started


@pytest.fixture
async def page(chromium, console, token):
    async with opened(chromium, f"{console.url}?token={token}#live") as made:
        yield made
        assert made.wrong == []
