"""Doors of a sidecar: `/v1/decide` and AuthZEN, as bytes of HTTP that its ASGI application is given."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from carrying import is_json, schemas
from meanings import Written
from readings import Call, Who
from station import PATIENCE_MS, Station
from toolgate_orchestrator.commands.serve.access import AccessTokens
from toolgate_orchestrator.commands.serve.app import SidecarApp
from toolgate_orchestrator.commands.serve.hook_handler import HookHandler
from toolgate_orchestrator.commands.serve.service import SidecarService
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate

__all__ = ["AuthzenDoor", "DecideDoor", "Sidecar"]

OK = 200
REFUSED = range(400, 500)


class Sidecar:
    """The application of `toolgate serve`, and a client of it."""

    def __init__(self, station: Station, gate: Gate) -> None:
        service = SidecarService(gate)
        hooks = HookHandler(service, denies=lambda: gate.ruled)
        self.station, self._app = station, SidecarApp(service, AccessTokens(), {}, hooks)
        self._begun: set[str] = set()

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, station: Station) -> AsyncIterator["Sidecar"]:
        """A sidecar whose gate comes to a station."""
        gate = await Gate.start(parse({"on_bus_down": "deny", **station.settings}))
        try:
            yield cls(station, gate)
        finally:
            await gate.aclose()

    async def post(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None, query: str = ""
    ) -> Any:
        """The body of the answer; None for one that is empty, or that refuses the request."""
        raw, sent = json.dumps(body).encode(), []
        told = {"content-type": "application/json", "content-length": str(len(raw)), **(headers or {})}
        half = len(raw) // 2
        parts = [(raw[:half], True), (raw[half:], False)]

        async def receive() -> dict[str, Any]:
            if not parts:  # the caller stays
                await asyncio.Event().wait()
            part, more = parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": more}

        async def send(message: Any) -> None:
            sent.append(message)

        await self._app(
            {
                "type": "http",
                "method": "POST",
                "path": path,
                "query_string": query.encode(),
                "headers": [(name.encode(), value.encode()) for name, value in told.items()],
            },
            receive,
            send,
        )
        status = sent[0]["status"]
        answer = b"".join(one.get("body", b"") for one in sent[1:])
        if status != OK:
            if status not in REFUSED:
                self.station.fail(f"{status} {answer!r}")
            return None
        return json.loads(answer) if answer else None

    async def begin(self, who: Who) -> None:
        """Tell what the user asked for, once a session."""
        if who.request and who.session not in self._begun:
            self._begun.add(who.session)
            turn = {"session": who.session, "do": "begin", "request": who.request, "agent": who.agent}
            await self.post("/v1/turn", turn)

    async def report(self, id_: str) -> None:
        """Tell that a call has ended, where calls end."""
        if id_ and not self.station.keeps_open:
            await self.post("/v1/report", {"id": id_, "outcome": "succeed"})


class DecideDoor:
    """`POST /v1/decide`."""

    name = "/v1/decide"
    can = frozenset(("ask", "tool"))

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar, self._station = sidecar, sidecar.station

    @staticmethod
    def carries(call: Call, written: Written) -> bool:
        """Values of JSON."""
        return not call.rewrites and is_json(call.arguments)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, station: Station) -> AsyncIterator["DecideDoor"]:
        """See Door."""
        async with Sidecar.open(station) as sidecar:
            yield cls(sidecar)

    async def make(self, call: Call) -> None:
        """See Door."""
        sidecar, station, who = self._sidecar, self._station, call.who
        await sidecar.begin(who)
        body: dict[str, Any] = {
            "tool": call.tool,
            "arguments": call.arguments,
            "tools": schemas(call) if call.schema else list(schemas(call)),
            "agent": who.agent,
            "session": who.session,
            "root_session": who.root_session,
            "parent": who.parent,
            "lineage": [*who.lineage, who.agent] if who.lineage else [],
            "labels": dict(who.labels),
            "can": ["arguments", "tool", "ask"],
            "timeout_ms": PATIENCE_MS,
            "iteration": call.iteration,
            "group": f"g{call.iteration}" if call.iteration else "",
        }
        ruling = await sidecar.post("/v1/decide", body)
        if ruling is not None and ruling["outcome"] == "ask":
            said = {"token": ruling["token"], "answer": "allow" if station.agree() else "refuse", "by": "ann"}
            ruling = await sidecar.post("/v1/decide", body | {"answer": said})
        if ruling is not None and ruling["outcome"] in ("continue", "modify"):
            station.take(ruling["tool"], ruling["arguments"])
            await sidecar.report(ruling["id"])


class AuthzenDoor:
    """`POST /access/v1/evaluation`."""

    name = "authzen"
    can = frozenset(("ask",))

    def __init__(self, sidecar: Sidecar) -> None:
        self._sidecar, self._station = sidecar, sidecar.station

    @staticmethod
    def carries(call: Call, written: Written) -> bool:
        """Values of JSON, of an agent alone; a person's yes does not lead further here."""
        who = call.who
        plain = not (call.rewrites or call.schema or who.lineage or who.labels or written.person_agrees)
        plain = plain and written.scheduler != "router"  # which other tools there are is not told
        return plain and is_json(call.arguments)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, station: Station) -> AsyncIterator["AuthzenDoor"]:
        """See Door."""
        async with Sidecar.open(station) as sidecar:
            yield cls(sidecar)

    async def make(self, call: Call) -> None:
        """See Door."""
        sidecar, station, who = self._sidecar, self._station, call.who
        await sidecar.begin(who)
        body = {
            "subject": {"type": "agent", "id": who.agent},
            "action": {"name": call.tool, "properties": call.arguments},
            "resource": {"type": "tool", "id": call.tool},
            "context": {"session": who.session},
        }
        answer = await sidecar.post("/access/v1/evaluation", body)
        if answer is None:
            return
        if answer["decision"] is True:
            station.take(call.tool, call.arguments)
            await sidecar.report(answer["context"]["id"])
        elif answer["context"].get("outcome") == "ask":
            station.agree()
