"""Sessions over HTTP: no client, dead or greedy, leaves none to others."""

import contextlib
import json

import anyio
from toolgate_orchestrator.commands.mcp import sdk

OPENING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


class Client:
    """A client at an address; it opens sessions, and asks in them."""

    def __init__(self, app, address):
        self._app, self._address = app, address

    async def open(self):
        """The id of a new session; None where there is none."""
        status, headers = await self._post({"id": 1, "method": "initialize", "params": OPENING})
        return headers.get("mcp-session-id") if status == 200 else None

    async def ping(self, session):
        """The status of a request in a session."""
        return (await self._post({"id": 2, "method": "ping"}, ("mcp-session-id", session)))[0]

    async def _post(self, message, *more):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        told = [
            ("host", "h"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("content-length", str(len(body))),
            *more,
        ]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/mcp",
            "raw_path": b"/mcp",
            "query_string": b"",
            "client": (self._address, 1),
            "headers": [(name.encode(), value.encode()) for name, value in told],
        }
        parts, sent = [{"type": "http.request", "body": body, "more_body": False}], []

        async def receive():
            if parts:
                return parts.pop()
            return await anyio.sleep_forever()

        async def send(answer):
            sent.append(answer)

        await self._app(scope, receive, send)
        return sent[0]["status"], {name.decode(): value.decode() for name, value in sent[0]["headers"]}


@contextlib.asynccontextmanager
async def front(handle=None, most=4):
    ended = []

    async def answer(ctx):
        if ctx.method == "initialize":
            ctx.session._connection.exit_stack.callback(ended.append, ctx.session._connection.session_id)
            return {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": OPENING["clientInfo"]}
        return await handle() if handle else {}

    async with sdk.http_front(answer, hosts=["h"], most=1 << 20, max_sessions=most) as app:
        yield lambda address: Client(app, address), ended


async def test_a_new_session_ends_the_one_that_was_quiet_for_longest():
    async with front() as (client, ended):
        one = client("10.0.0.1")
        first, second, *others = [await one.open() for _ in range(4)]
        assert await one.ping(first) == 200
        new = await one.open()
        assert new
        assert [await one.ping(id_) for id_ in (first, second, *others, new)] == [200, 404, 200, 200, 200]
        assert ended == [second]


async def test_who_opens_many_ends_its_own_alone():
    async with front() as (client, _):
        other, greedy = client("10.0.0.1"), client("10.0.0.2")
        quiet = await other.open()
        assert None not in [await greedy.open() for _ in range(20)]
        assert await other.ping(quiet) == 200


async def test_a_session_whose_call_runs_is_ended_last():
    running, go_on = anyio.Event(), anyio.Event()

    async def wait():
        running.set()
        await go_on.wait()
        return {}

    async with front(wait) as (client, _), anyio.create_task_group() as group:
        one, answers = client("10.0.0.1"), []
        busy = await one.open()

        async def ask():
            answers.append(await one.ping(busy))

        group.start_soon(ask)
        await running.wait()
        assert None not in [await one.open() for _ in range(8)]
        go_on.set()
    assert answers == [200]


async def test_sessions_that_their_clients_end_are_counted_no_longer():
    async with front() as (client, _):
        one = client("10.0.0.1")
        kept = [await one.open() for _ in range(3)]
        assert [await one.ping("made-up") for _ in range(5)] == [404] * 5
        assert [await one.ping(id_) for id_ in kept] == [200] * 3
