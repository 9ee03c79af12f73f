"""Peers of Toolgate in the benchmark: NATS request-reply, and an HTTP webhook for each scheduler.

Both do the same work with a call: encode it, have all schedulers rule, validate, merge, verify a replacement.
`python -m toolgate_orchestrator.commands.bench.peers nats NAME URL` and `… webhook NAME` are the answering
processes. NATS is core NATS: nothing is stored or acknowledged. The webhook is aiohttp with kept connections.
"""

import asyncio
import importlib.util
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import CodecError, ConfigError, ToolgateError
from toolgate_bus.installation import how_to_install
from toolgate_bus.protocol.packing import pack, unpack
from toolgate_bus.server.embedded import Server

from toolgate_orchestrator.commands.bench.measure import Contender
from toolgate_orchestrator.commands.bench.mix import (
    REPLACEMENT,
    STOP,
    TOOLS,
    Answer,
    Mix,
    MixedCall,
    reason_of,
    replace,
)
from toolgate_orchestrator.commands.bench.processes import READY_S, read_line, run_answering, start_processes

Ask = Callable[[bytes, Sequence[str]], Awaitable[Sequence[tuple[str, bytes]]]]
"""Carries a question to these schedulers and returns their names and answers."""
CONTINUE: Final = pack({"action": "continue"})
TTL_MS: Final = 120_000
SUBJECT: Final = "bench.ask"
"""All schedulers listen to this subject, and each to one below it that ends with its name."""
NATS_START_S: Final = 10.0
MAX_CONNECTIONS: Final = 1024
MEDIA_TYPE: Final = "application/msgpack"
PROGRAM: Final = (sys.executable, "-m", "toolgate_orchestrator.commands.bench.peers")


# ------------------------------------------------------------------ the work of a decision


class PeerVerdict(NamedTuple):
    """Verdict that was read and found well formed."""

    scheduler: str
    action: str
    reason: str | None = None
    tool: str = ""
    arguments: dict[str, Any] | None = None


def encode(call: MixedCall, phase: str, tool: str, given: dict[str, Any]) -> bytes:
    """Return a question with the fields of Toolgate's."""
    return pack(
        {
            "phase": phase,
            "id": f"{call.number:032x}",
            "available_tools": TOOLS,
            "available_agents": None,
            "truncated": False,
            "ttl_ms": TTL_MS,
            "trace": {},
            "agent_target": None,
            "agent": "bench",
            "labels": {},
            "parent": None,
            "parallel_group_id": "",
            "iteration": 0,
            "root_session": call.session,
            "session": call.session,
            "tool_call_id": call.tool_call_id,
            "tool_name": tool,
            "tool_input": given,
        }
    )


def answer(name: str, raw: bytes) -> bytes:
    """Return the answer of the scheduler of this name to a question."""
    given = unpack(raw)["tool_input"]
    if given["by"] != name:
        return CONTINUE
    action = "deny" if given["rule"] == STOP else given["rule"]
    verdict = {"action": action, "reason": reason_of(name, given)}
    if given["rule"] == "modify":
        verdict |= {"tool": REPLACEMENT, "arguments": replace(given)}
    return pack(verdict)


def read_verdict(scheduler: str, raw: bytes) -> PeerVerdict:
    """Return the verdict in these bytes; bytes that hold none become a deny."""
    try:
        fields = unpack(raw)
    except CodecError:
        fields = None
    if type(fields) is dict and type(fields.get("reason")) in (str, type(None)):
        action, reason = fields.get("action"), fields.get("reason")
        if action in ("continue", "deny"):
            return PeerVerdict(scheduler, action, reason)
        tool, arguments = fields.get("tool"), fields.get("arguments")
        if action == "modify" and tool in TOOLS and type(arguments) is dict:
            return PeerVerdict(scheduler, "modify", reason, tool, arguments)
    return PeerVerdict(scheduler, "deny", f"{scheduler} gave no verdict")


def find_winner(answers: Sequence[tuple[str, bytes]]) -> PeerVerdict | None:
    """Return the first deny, else the first modify; None if all continue."""
    verdicts = [read_verdict(name, raw) for name, raw in answers if raw != CONTINUE]
    denies = (one for one in verdicts if one.action == "deny")
    return next(denies, next((one for one in verdicts if one.action == "modify"), None))


async def decide(ask: Ask, schedulers: Sequence[str], call: MixedCall) -> Answer:
    """Have all schedulers rule on a call, and all but the author on its replacement."""
    answers = await ask(encode(call, "select", call.tool_name, call.tool_input), schedulers)
    heard, winner = len(answers), find_winner(answers)
    if winner is None:
        return Answer("continue", call.tool_name, call.tool_input, None, heard)
    if winner.action == "deny" or winner.arguments is None:
        return Answer("deny", "", {}, winner.reason, heard)
    if others := [name for name in schedulers if name != winner.scheduler]:
        answers = await ask(encode(call, "verify", winner.tool, winner.arguments), others)
        heard += len(answers)
        if (against := find_winner(answers)) is not None:
            return Answer("deny", "", {}, against.reason, heard)
    return Answer("modify", winner.tool, winner.arguments, winner.reason, heard)


# ------------------------------------------------------------------ NATS


class NatsClient:
    """Asking side: questions out, replies to the decision that waits for them."""

    def __init__(self, client: Any, schedulers: Sequence[str]) -> None:
        self._client = client
        self._all = list(schedulers)
        self._inbox = client.new_inbox()
        self._open: dict[str, tuple[int, list[tuple[str, bytes]], asyncio.Future[Any]]] = {}
        self._number = 0

    async def start(self) -> None:
        """Listen for replies."""
        await self._client.subscribe(f"{self._inbox}.*.*", cb=self._receive)

    async def ask(self, question: bytes, schedulers: Sequence[str]) -> list[tuple[str, bytes]]:
        """Send one question to these schedulers and wait for all replies."""
        self._number += 1
        number, reply = str(self._number), f"{self._inbox}.{self._number}"
        future = asyncio.get_running_loop().create_future()
        self._open[number] = (len(schedulers), [], future)
        one_for_all = len(schedulers) == len(self._all)
        for subject in [SUBJECT] if one_for_all else [f"{SUBJECT}.{name}" for name in schedulers]:
            await self._client.publish(subject, question, reply=reply)
        found: list[tuple[str, bytes]] = await future
        return found

    async def _receive(self, message: Any) -> None:
        _, number, name = message.subject.rsplit(".", 2)
        if (waiting := self._open.get(number)) is None:
            return
        wanted, heard, future = waiting
        heard.append((name, message.data))
        if len(heard) == wanted:
            del self._open[number]
            if not future.done():
                future.set_result(heard)


def find_nats_server() -> str | None:
    """Return the server program beside this Python, or on PATH."""
    own = Path(sys.executable).with_name("nats-server")
    return str(own) if own.exists() else shutil.which("nats-server")


@asynccontextmanager
async def open_nats(server: Server, names: Sequence[str]) -> AsyncIterator[Contender]:
    """Open a NATS server on loopback and the answering processes."""
    import nats

    ports = server.directory / f"nats-{len(names)}"
    ports.mkdir(exist_ok=True)
    options = ("-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(ports), "-l", str(ports / "log"))
    program = (find_nats_server() or "nats-server", *options)
    async with start_processes([program], "nats-server", wait=False) as (carrier,):
        url = await _find_url(ports / f"nats-server_{carrier.pid}.ports")
        async with start_processes([(*PROGRAM, "nats", name, url) for name in names], "NATS") as running:
            client = await nats.connect(url, allow_reconnect=False)
            try:
                asker = NatsClient(client, names)
                await asker.start()
                answering = [one.pid for one in running]
                pids = {"gate": [os.getpid()], "server": [carrier.pid], "schedulers": answering}
                yield Contender("nats", partial(decide, asker.ask, names), pids, Mix(names))
            finally:
                await client.close()


async def _find_url(file: Path) -> str:
    """Return the address that the server writes down once it listens."""
    for _ in range(round(NATS_START_S / 0.02)):
        if (url := _read_url(file)) is not None:
            return url
        await asyncio.sleep(0.02)
    raise ToolgateError(f"nats-server did not listen within {NATS_START_S:g} s")


def _read_url(file: Path) -> str | None:
    try:
        return str(json.loads(file.read_text())["nats"][0])
    except (OSError, ValueError, KeyError, IndexError):
        return None  # not written yet, or only in part


async def _answer_nats(name: str, url: str) -> None:
    import nats

    ended = asyncio.Event()

    async def end() -> None:
        ended.set()

    client = await nats.connect(url, allow_reconnect=False, closed_cb=end)

    async def reply(message: Any) -> None:
        await client.publish(f"{message.reply}.{name}", answer(name, message.data))

    await client.subscribe(SUBJECT, cb=reply)
    await client.subscribe(f"{SUBJECT}.{name}", cb=reply)
    await client.flush()
    print("ready", flush=True)  # noqa: T201 - the benchmark waits for this line
    await ended.wait()


# ------------------------------------------------------------------ webhook


@asynccontextmanager
async def open_webhook(_server: Server, names: Sequence[str]) -> AsyncIterator[Contender]:
    """Open an HTTP server for each scheduler, and a client that keeps its connections."""
    import aiohttp

    commands = [(*PROGRAM, "webhook", name) for name in names]
    async with start_processes(commands, "the webhook", wait=False) as running:
        ports = [int(await read_line(one, "the webhook", READY_S)) for one in running]
        urls = {name: f"http://127.0.0.1:{port}/" for name, port in zip(names, ports, strict=True)}
        connector = aiohttp.TCPConnector(limit=MAX_CONNECTIONS)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

            async def post(name: str, question: bytes) -> tuple[str, bytes]:
                headers = {"Content-Type": MEDIA_TYPE}
                async with session.post(urls[name], data=question, headers=headers) as response:
                    if response.status != 200:
                        raise ToolgateError(f"the webhook {name} answered {response.status}")
                    return name, await response.read()

            async def ask(question: bytes, schedulers: Sequence[str]) -> list[tuple[str, bytes]]:
                if len(schedulers) == 1:
                    return [await post(schedulers[0], question)]
                return await asyncio.gather(*(post(name, question) for name in schedulers))

            pids = {"gate": [os.getpid()], "server": [], "schedulers": [one.pid for one in running]}
            yield Contender("webhook", partial(decide, ask, names), pids, Mix(names))


async def _answer_webhook(name: str) -> None:
    from aiohttp import web

    async def reply(request: web.BaseRequest) -> web.Response:
        return web.Response(body=answer(name, await request.read()), content_type=MEDIA_TYPE)

    server = web.ServerRunner(web.Server(reply))
    await server.setup()
    await web.TCPSite(server, "127.0.0.1", 0).start()
    print(server.addresses[0][1], flush=True)  # noqa: T201 - the benchmark reads the port
    await asyncio.Event().wait()


# ------------------------------------------------------------------ choice of peers


Open = Callable[[Server, Sequence[str]], AbstractAsyncContextManager[Contender]]
PEERS: Final[dict[str, Open]] = {"nats": open_nats, "webhook": open_webhook}
_NEEDS: Final = {"nats": ("nats", "nats-py"), "webhook": ("aiohttp", "aiohttp")}
"""Module and package of each peer."""


def find_missing(peer: str) -> str | None:
    """Return the package or program that this peer lacks; None if it can run."""
    module, package = _NEEDS[peer]
    if importlib.util.find_spec(module) is None:
        return package
    return "nats-server" if peer == "nats" and find_nats_server() is None else None


def choose(asked: str | None) -> tuple[dict[str, Open], str | None]:
    """Return the peers to run, and a line about those that are not installed.

    `asked` is the value of `--peers`: names with commas, `none`, or None for all that are installed. Raises
    ConfigError for an unknown name, and for a named peer that is not installed.
    """
    names = [] if asked == "none" else [*PEERS] if asked is None else asked.split(",")
    if unknown := [name for name in names if name not in PEERS]:
        raise ConfigError(
            f"--peers: unknown peer {unknown[0]!r:.50}. Choose from {', '.join(PEERS)}, or none"
        )
    missing = {name: lack for name in names if (lack := find_missing(name)) is not None}
    if missing and asked is not None:
        name, lack = next(iter(missing.items()))
        raise ConfigError(f"--peers {name}: {lack} is not installed. Run: {how_to_install('bench')}")
    words = "; ".join(f"{name} is left out: {lack} is not installed" for name, lack in missing.items())
    line = f"{words} (run `{how_to_install('bench')}`)" if missing else None
    return {name: PEERS[name] for name in names if name not in missing}, line


if __name__ == "__main__":
    run_answering((_answer_nats if sys.argv[1] == "nats" else _answer_webhook)(*sys.argv[2:]))
