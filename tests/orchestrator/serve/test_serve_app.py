"""The HTTP edge of a sidecar: who is refused, with which words, and what is never let through for a fault."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.protocol.events import Continue, Deny
from toolgate_bus.telemetry import metrics
from toolgate_orchestrator.commands.serve import app as edge
from toolgate_orchestrator.commands.serve.access import AccessTokens
from toolgate_orchestrator.commands.serve.routes import PAGES, ROUTES

pytestmark = pytest.mark.pure

TOKEN = "0123456789abcdef"
AUTHZEN = {
    "subject": {"type": "agent", "id": "clerk"},
    "action": {"name": "run"},
    "resource": {"type": "file", "id": "a"},
}


@pytest.mark.parametrize(
    ("path", "method", "fields", "status", "words"),
    [
        ("/", "POST", {}, 404, "/v1/decide"),
        ("/v1/decide/", "POST", {}, 404, "this path does not exist"),
        ("/v1/decide", "GET", {}, 405, "takes POST only"),
        ("/metrics", "POST", {}, 405, "takes GET only"),
        ("/v1/decide", "POST", {"content_type": "text/plain"}, 415, "Content-Type: application/json"),
        ("/v1/decide", "POST", {"body": b"{"}, 400, "not JSON"),
        ("/v1/decide", "POST", {"body": b""}, 400, "not JSON"),
        ("/v1/decide", "POST", {"body": b'{"tool": "run", "arguments": {"a": NaN}}'}, 400, "not JSON"),
        ("/v1/decide", "POST", {"body": b"[" * 5000}, 400, "not JSON"),
        ("/v1/decide", "POST", {"body": b'"\xff"'}, 400, "not JSON"),
        ("/v1/decide", "POST", {"body": []}, 400, "the body"),
        ("/v1/decide", "POST", {"content_length": str(edge.MAX_BODY + 1)}, 413, "larger than 1024 KiB"),
        ("/v1/decide", "POST", {"content_length": "9" * 400}, 413, "larger than 1024 KiB"),
        (
            "/v1/report",
            "POST",
            {"body": {"id": "ab" * 16, "outcome": "succeed"}},
            404,
            "waits for a report here",
        ),
        ("/v1/wait", "POST", {"body": {"token": "x"}}, 404, "no call is held here by that token"),
    ],
)
async def test_what_cannot_be_answered_is_refused_with_words(sidecar, path, method, fields, status, words):
    asked = await sidecar()
    answered = await asked.ask(path, method=method, **{"body": {"tool": "run"}, **fields})
    assert (answered.status, answered.headers["content-type"]) == (status, "application/problem+json")
    assert words in answered.body["detail"]
    assert answered.body["status"] == status
    assert asked.facts == []


async def test_a_token_opens_everything_and_its_lack_all_but_health(sidecar):
    asked = await sidecar((TOKEN,))
    for wrong in ({}, {"authorization": "Bearer wrong-wrong-wrong-wrong"}):
        for path in ROUTES:
            answered = await asked.ask(path, {}, **wrong)
            assert (answered.status, answered.headers["www-authenticate"]) == (401, 'Bearer realm="toolgate"')
            assert answered.headers["connection"] == "close"
        assert (await asked.ask("/metrics", method="GET", **wrong)).status == 401
        assert (await asked.ask("/healthz", method="GET", **wrong)).status == 200
    right = {"authorization": f"Bearer {TOKEN}"}
    assert (await asked.ask("/v1/decide", {"tool": "run"}, **right)).status == 200
    assert (await asked.ask("/openapi.json", method="GET", **right)).body["info"]["version"] == "1.2.3"


async def test_more_than_it_can_do_is_sent_away_and_asked_to_come_back(sidecar, world):
    asking = asyncio.Event()

    async def wait(call):
        asking.set()
        await asyncio.Event().wait()

    await world.scheduler("slow", wait)
    asked = await sidecar(max_requests=1, required=["slow"], patience_ms=600_000)
    first = asked.begin("/v1/decide", {"tool": "run"})
    await asking.wait()
    answered = await asked.ask("/v1/decide", {"tool": "run"})
    assert (answered.status, answered.headers["retry-after"]) == (503, "1")
    first.leave()
    assert await first.answer() is None
    assert asked.app.requests == 0


async def test_a_body_that_comes_too_slowly_is_given_up(sidecar, monkeypatch):
    monkeypatch.setattr(edge, "BODY_S", 0.05)
    asked = await sidecar()
    slow = asked.begin("/v1/decide", b"{")
    slow._parts = [b"{", None]
    slow._parts.pop()

    async def never():
        await asyncio.Event().wait()

    slow.task.cancel()
    receive = iter([{"type": "http.request", "body": b"{", "more_body": True}])

    async def trickle():
        for message in receive:
            return message
        return await never()

    sent = []

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/decide",
        "headers": [(b"content-type", b"application/json")],
    }
    await asked.app(scope, trickle, send)
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]


async def test_a_body_in_parts_is_read_whole_and_no_further_than_allowed(sidecar):
    asked = await sidecar()
    whole = json.dumps({"tool": "run"}).encode()
    parts = asked.begin("/v1/decide", whole)
    parts._parts = [whole[:5], whole[5:9], whole[9:]]
    assert (await parts.answer()).body["outcome"] == "continue"
    large = asked.begin("/v1/decide", whole)
    large._parts = [b" " * (edge.MAX_BODY // 2)] * 5
    assert (await large.answer()).status == 413


async def test_a_fault_of_ours_is_told_and_lets_nothing_through(sidecar, monkeypatch):
    asked = await sidecar()

    async def broken(*_, **__):
        raise RuntimeError("secret words")

    monkeypatch.setattr(asked.gate, "decide", broken)
    answered = await asked.ask("/v1/decide", {"tool": "run"})
    assert answered.status == 500
    assert "secret" not in answered.raw.decode()
    assert len(asked.service.calls) == 0


async def test_a_request_id_comes_back_with_each_answer(sidecar):
    asked = await sidecar()
    for path in ("/v1/decide", "/access/v1/evaluation", "/nothing"):
        assert (await asked.ask(path, {}, x_request_id="r-1")).headers["x-request-id"] == "r-1"
        assert "x-request-id" not in (await asked.ask(path, {})).headers


async def test_faults_of_authzen_are_words_and_another_type_of_content_is_a_bad_request(sidecar):
    asked = await sidecar()
    for fields in (
        {"body": {}},
        {"body": b"{"},
        {"body": b""},
        {"body": AUTHZEN, "content_type": "text/plain"},
    ):
        answered = await asked.ask("/access/v1/evaluation", **fields)
        assert (answered.status, answered.headers["content-type"]) == (400, "text/plain; charset=utf-8")
        assert len(answered.raw) > 10


async def test_several_evaluations_are_answered_in_order_as_far_as_their_semantic_wants(sidecar, world):
    await world.scheduler("policy", lambda call: Deny(reason="no") if call.tool_name == "no" else Continue())
    asked = await sidecar()
    actions = [{"action": {"name": name}} for name in ("yes", "no", "yes")]

    async def ask(semantic, evaluations=actions):
        body = {**AUTHZEN, "evaluations": evaluations, "options": {"evaluations_semantic": semantic}}
        answered = await asked.ask("/access/v1/evaluations", body)
        return [one["decision"] for one in answered.body["evaluations"]]

    assert await ask("execute_all") == [True, False, True]
    assert await ask("deny_on_first_deny") == [True, False]
    assert await ask("permit_on_first_permit") == [True]
    failing = await asked.ask("/access/v1/evaluations", {**AUTHZEN, "resource": None, "evaluations": [{}]})
    (one,) = failing.body["evaluations"]
    assert (one["decision"], one["context"]["error"]["status"]) == (False, 400)
    for alone in ({}, {"evaluations": []}):
        assert (await asked.ask("/access/v1/evaluations", {**AUTHZEN, **alone})).body["decision"] is True
    unknown = {**AUTHZEN, "evaluations": [{}], "options": {"evaluations_semantic": "some"}}
    assert (await asked.ask("/access/v1/evaluations", unknown)).status == 400


@pytest.mark.parametrize("semantic", ["execute_all", "deny_on_first_deny"])
async def test_who_leaves_several_evaluations_leaves_nothing_reserved(semantic, sidecar, world):
    asking = asyncio.Event()

    async def decide(call):
        if call.tool_name == "slow":
            asking.set()
            await asyncio.Event().wait()
        return Continue()

    await world.scheduler("policy", decide)
    asked = await sidecar(required=["policy"], patience_ms=600_000)
    two = [{}, {"action": {"name": "slow"}}]
    options = {"evaluations_semantic": semantic}
    one = asked.begin("/access/v1/evaluations", {**AUTHZEN, "evaluations": two, "options": options})
    await asking.wait()
    while not asked.told("tool:selected"):
        await asyncio.sleep(0.001)
    one.leave()
    assert await one.answer() is None
    assert [fact["tool"] for fact in asked.told("tool:unused")] == ["run"]
    assert len(asked.service.calls) == 0


async def test_every_page_is_served_and_requests_are_counted(sidecar):
    asked = await sidecar()
    before = metrics.value("toolgate_serve_requests_total", path="/healthz", status="200")
    for path in PAGES:
        answered = await asked.ask(path, method="GET")
        assert answered.status == 200
        assert answered.raw
    head = await asked.ask("/healthz", method="HEAD")
    assert (head.raw, int(head.headers["content-length"]) > 0) == (b"", True)
    assert metrics.value("toolgate_serve_requests_total", path="/healthz", status="200") == before + 2
    found = (await asked.ask("/.well-known/authzen-configuration", method="GET")).body
    assert found["access_evaluation_endpoint"] == "http://localhost/access/v1/evaluation"


@given(
    raw=st.binary(max_size=200) | st.sampled_from([b"0", b"[]", b'"x"', b"null"]),
    path=st.sampled_from(sorted(ROUTES)),
    kind=st.sampled_from(["application/json", "x"]),
)
def test_whatever_is_posted_has_an_answer(raw, path, kind):
    sent = []

    async def receive():
        return {"type": "http.request", "body": raw, "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": [(b"content-type", kind.encode())]}
    served = edge.SidecarApp(_Closed(), AccessTokens(()), {})
    asyncio.run(served(scope, receive, send))
    assert sent[0]["status"] in (400, 415)


class _Closed:
    """A service that is never asked: no such body can be read."""

    is_ending = False

    def __getattr__(self, name):
        return self
