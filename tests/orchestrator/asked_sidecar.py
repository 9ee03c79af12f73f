"""A sidecar's application on the in-memory bus, asked without a socket."""

import asyncio
import json
from typing import NamedTuple

from toolgate_orchestrator.commands.serve.access import AccessTokens
from toolgate_orchestrator.commands.serve.app import SidecarApp
from toolgate_orchestrator.commands.serve.pages import make_pages
from toolgate_orchestrator.commands.serve.service import SidecarService

__all__ = ["Answered", "Asking", "Sidecar"]


class Answered(NamedTuple):
    """What came back."""

    status: int
    headers: dict
    raw: bytes

    @property
    def body(self):
        return json.loads(self.raw)


class Asking:
    """One request under way; `leave` closes its connection."""

    def __init__(self, app, method, path, parts, headers):
        self._parts, self._left, self._sent = list(parts), asyncio.Event(), []
        fields = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": method, "path": path, "headers": fields}
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self):
        if self._parts:
            part = self._parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self._parts)}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        self._sent.append(message)

    def leave(self):
        self._left.set()

    async def answer(self):
        await asyncio.wait_for(self.task, 20)
        if not self._sent:
            return None
        head, body = self._sent
        headers = {name.decode(): value.decode() for name, value in head["headers"]}
        return Answered(head["status"], headers, body["body"])


class Sidecar:
    """The application, its service and its clock."""

    def __init__(self, gate, tokens=(), **fields):
        self.now = 100.0
        self.facts = []
        gate.note = gate._recorder.note = lambda event, data: self.facts.append((event, dict(data)))
        gate._recorder.note_released = lambda _call, fact: gate.note("tool:result", fact)
        self.gate, self.service = gate, SidecarService(gate, lambda: self.now)
        pages = make_pages(self.service, "http://localhost", "1.2.3")
        self.app = SidecarApp(self.service, AccessTokens(tokens), pages, **fields)

    def begin(self, path, body=None, method="POST", **headers):
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        told = {"content-type": "application/json", "content-length": str(len(raw))}
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return Asking(self.app, method, path, [raw], {**told, **names})

    async def ask(self, path, body=None, method="POST", **headers):
        return await self.begin(path, body, method, **headers).answer()

    async def decide(self, tool="run", **fields):
        answered = await self.ask("/v1/decide", {"tool": tool, **fields})
        assert answered.status == 200, answered.raw
        return answered.body

    def told(self, event):
        return [fact for name, fact in self.facts if name == event]
