"""A webhook beside Toolgate: every scheduler an HTTP server of its own (aiohttp), asked by POST.

`python -m toolgate_orchestrator.commands.bench.peer_webhook NAME` is the answering process; the line that it
writes is its port on loopback. Connections are kept and shared, as many as there are questions.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from toolgate_bus.errors import ToolgateError
from toolgate_bus.server.embedded import Server

from toolgate_orchestrator.commands.bench.measure import Contender
from toolgate_orchestrator.commands.bench.peer_rules import answer, decide
from toolgate_orchestrator.commands.bench.processes import READY_S, read_line, run_answering, start_processes

MAX_CONNECTIONS = 1024
TYPE = {"Content-Type": "application/msgpack"}


@asynccontextmanager
async def open_webhook(_server: Server, names: Sequence[str]) -> AsyncIterator[Contender]:
    """The answering processes, and a client that keeps its connections."""
    import aiohttp

    program = (sys.executable, "-m", "toolgate_orchestrator.commands.bench.peer_webhook")
    async with start_processes([(*program, name) for name in names], "the webhook", wait=False) as running:
        ports = [int(await read_line(one, "the webhook", READY_S)) for one in running]
        urls = {name: f"http://127.0.0.1:{port}/" for name, port in zip(names, ports, strict=True)}
        connector = aiohttp.TCPConnector(limit=MAX_CONNECTIONS)
        async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:

            async def post(name: str, question: bytes) -> tuple[str, bytes]:
                async with session.post(urls[name], data=question, headers=TYPE) as response:
                    if response.status != 200:
                        raise ToolgateError(f"the webhook {name} answered {response.status}")
                    return name, await response.read()

            async def ask(question: bytes, schedulers: Sequence[str]) -> list[tuple[str, bytes]]:
                if len(schedulers) == 1:
                    return [await post(schedulers[0], question)]
                return await asyncio.gather(*(post(name, question) for name in schedulers))

            pids = {"gate": [os.getpid()], "server": [], "schedulers": [one.pid for one in running]}
            yield Contender("webhook", partial(decide, ask, names), pids)


async def serve(name: str) -> None:
    """The answering side, until it is ended."""
    from aiohttp import web

    async def reply(request: web.BaseRequest) -> web.Response:
        return web.Response(body=answer(name, await request.read()), content_type="application/msgpack")

    server = web.ServerRunner(web.Server(reply))
    await server.setup()
    site = web.TCPSite(server, "127.0.0.1", 0)
    await site.start()
    _, port = server.addresses[0][:2]
    print(port, flush=True)  # noqa: T201 - the bench reads it
    await asyncio.Event().wait()


if __name__ == "__main__":
    run_answering(serve(sys.argv[1]))
