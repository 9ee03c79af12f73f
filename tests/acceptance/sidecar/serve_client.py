"""A sidecar as a process, and callers of it over its socket."""

import asyncio
import json
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp


class Said(NamedTuple):
    """An answer."""

    status: int
    headers: dict
    body: object


class SidecarCaller:
    """Asks over a Unix socket, or an address."""

    def __init__(self, session, base, token=None):
        self._session, self._base = session, base
        self.headers = {"authorization": f"Bearer {token}"} if token else {}

    async def post(self, path, body, **more):
        sent = {"data": body} if isinstance(body, bytes) else {"json": body}
        if isinstance(body, bytes):
            more = {"headers": {"content-type": "application/json"}, **more}
        return await self._ask("POST", path, **sent, **more)

    async def get(self, path, **more):
        return await self._ask("GET", path, **more)

    async def _ask(self, method, path, headers=None, **more):
        headers = {**self.headers, **(headers or {})}
        async with self._session.request(method, self._base + path, headers=headers, **more) as answer:
            raw = await answer.read()
        is_json = "json" in answer.headers.get("content-type", "")
        found = {name.lower(): value for name, value in answer.headers.items()}
        return Said(answer.status, found, json.loads(raw) if is_json else raw.decode())

    async def decide(self, tool="run", **fields):
        said = await self.post("/v1/decide", {"tool": tool, **fields})
        assert said.status == 200, said
        return said.body


@asynccontextmanager
async def tree_of(path=None, url="http://localhost", token=None, connections=400, ssl=True):
    """Somebody who may ask."""
    at = {"limit": connections}
    connector = aiohttp.UnixConnector(str(path), **at) if path else aiohttp.TCPConnector(ssl=ssl, **at)
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield SidecarCaller(session, url, token)
    await asyncio.sleep(0)  # its connections are closed in the loop's next turn
