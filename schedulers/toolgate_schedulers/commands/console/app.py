"""Route the console's requests and answer them, with data from `ConsoleState`."""

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qs

from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp
from toolgate_bus.commands.http_access import is_loopback
from toolgate_bus.errors import ConfigError, ToolgateError, TransportError
from toolgate_bus.protocol.json_values import UnreadableJson, read_json

from toolgate_schedulers.commands.approvals.answer import Person
from toolgate_schedulers.commands.console.access import Access, Session
from toolgate_schedulers.commands.console.agents import PauseRequest, ResumeRequest, StopRequest
from toolgate_schedulers.commands.console.budgets import query_from
from toolgate_schedulers.commands.console.console_state import ConsoleState
from toolgate_schedulers.commands.console.filters import filter_from
from toolgate_schedulers.commands.console.inbox import AnswerRequest, CorrectionProblem
from toolgate_schedulers.commands.console.queues import DropRequest, LimitRequest, MoveRequest
from toolgate_schedulers.commands.console.rule_trial import PushRequest, TrialRequest
from toolgate_schedulers.commands.console.security_middleware import (
    SecurityMiddleware,
    body_of,
    cookies,
    session_of,
    sign_in_page,
)

WINDOWS: Final = {"15m": 900, "1h": 3600}
POINTS: Final = 60
_CHANGES: Final = (("move", MoveRequest), ("drop", DropRequest), ("limit", LimitRequest))
"""Changes of a queue; to drain a pool, its limit is set to 0."""
_AGENT_ORDERS: Final = (("stop", StopRequest), ("pause", PauseRequest), ("resume", ResumeRequest))
WRONG: Final = "That is not the token. The console prints it when it starts."


def make_app(access: Access, known: ConsoleState, host: str, *, tls: bool = False) -> ASGIApp:
    """Make the application; `host` names this machine in the answers that people give here."""
    console = _Console(access, known, host, tls)
    routes = [
        Route("/healthz", lambda _: PlainTextResponse("ok\n")),
        Route("/", console.page),
        Route("/sign-in", console.sign_in, methods=["POST"]),
        Mount("/static", console.static),
        Route("/api/me", console.me),
        Route("/api/me", console.rename, methods=["POST"]),
        Route("/api/sign-out", console.sign_out, methods=["POST"]),
        Route("/api/live", console.live),
        Route("/api/decisions/{id}", console.decision),
        Route("/api/glance", console.glance),
        Route("/api/rates", console.rates),
        Route("/api/budgets", console.budgets),
        Route("/api/roster", console.roster),
        Route("/api/queue", console.queue),
        *(Route(f"/api/queue/{act}", console.change_queue(asks), methods=["POST"]) for act, asks in _CHANGES),
        Route("/api/revisions", console.revisions),
        Route("/api/revisions/{name}/diff", console.diff),
        Route("/api/agents", console.agents),
        *(
            Route(f"/api/agents/{act}", console.order_agents(asks), methods=["POST"])
            for act, asks in _AGENT_ORDERS
        ),
        Route("/api/policies", console.policies),
        Route("/api/policies/try", console.try_rules, methods=["POST"]),
        Route("/api/policies/push", console.push_rules, methods=["POST"]),
        Route("/api/approvals", console.approvals),
        Route("/api/approvals/{id}/answer", console.answer, methods=["POST"]),
    ]
    door = Middleware(SecurityMiddleware, access=access)
    return Starlette(routes=routes, middleware=[door], exception_handlers={ToolgateError: _handle_error})


class _Console:
    """Handlers of the console's requests."""

    def __init__(self, access: Access, known: ConsoleState, host: str, tls: bool) -> None:
        self._access, self._known, self._host, self._tls = access, known, host, tls
        self.static = StaticFiles(packages=[(__package__, "static")])

    async def page(self, request: Request) -> Response:
        """Answer with the page; with `?token=`, sign in first."""
        if "token" in request.query_params:
            return self._finish_sign_in(self._access.sign_in(request.query_params["token"]))
        return await self.static.get_response("index.html", request.scope)

    async def sign_in(self, request: Request) -> Response:
        """Sign in with the data of the form."""
        form = parse_qs((await body_of(request)).decode("utf-8", "replace"), max_num_fields=8)
        token, user = ((form.get(name) or [""])[0].strip() for name in ("token", "user"))
        try:
            return self._finish_sign_in(self._access.sign_in(token, user))
        except ConfigError as error:
            return sign_in_page(400, str(error))

    def _finish_sign_in(self, session: Session | None) -> Response:
        if session is None:
            return sign_in_page(401, WRONG)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            self._access.cookie, session.key, httponly=True, samesite="strict", secure=self._tls, path="/"
        )
        return answer

    async def sign_out(self, request: Request) -> Response:
        """End the session, and its streams."""
        self._access.sign_out(session_of(request))
        return JSONResponse({})

    async def me(self, request: Request) -> Response:
        """Answer with the person who is signed in, and the namespace."""
        session = session_of(request)
        return JSONResponse({"user": session.user, "namespace": self._known.namespace, "now": time.time()})

    async def rename(self, request: Request) -> Response:
        """Answer under another name."""
        name = (await _json_of(request)).get("user")
        if not isinstance(name, str):
            raise ConfigError("user: must be a text")
        return JSONResponse({"user": self._access.rename(session_of(request), name).user})

    async def live(self, request: Request) -> Response:
        """Stream decisions as they come, and notes about other news."""
        wanted = filter_from(request.query_params)
        if self._known.hub.full:
            return _error("too many pages are open", 503)
        signed_in = cookies(request.headers.get("cookie", ""))
        last = request.headers.get("last-event-id")
        events = self._known.stream(wanted, last, lambda: self._access.session(signed_in) is not None)
        return StreamingResponse(events, headers={"x-accel-buffering": "no"}, media_type="text/event-stream")

    async def decision(self, request: Request) -> Response:
        """Answer with one decision in full."""
        found = self._known.decision(request.path_params["id"])
        if found is None:
            words = "this decision is no longer among the newest; `toolgate decisions` may still have it"
            return _error(words, 404)
        return _json(found)

    async def glance(self, request: Request) -> Response:
        """Answer with the fleet at a glance."""
        return _json(await self._known.glance(_window_of(request), POINTS))

    async def rates(self, request: Request) -> Response:
        """Answer with counts over time."""
        return _json(self._known.rates.over(_window_of(request), POINTS, time.time()))

    async def budgets(self, request: Request) -> Response:
        """Answer with a part of the money spent and reserved."""
        return _json({"books": await self._known.budgets(query_from(request.query_params))})

    async def roster(self, request: Request) -> Response:
        """Answer with the schedulers and orchestrators that are alive."""
        return _json(await self._known.roster())

    async def queue(self, request: Request) -> Response:
        """Answer with the calls that have slots, and those that wait."""
        return _json({"queues": await self._known.queues()})

    def change_queue(
        self, asks: type[MoveRequest | DropRequest | LimitRequest]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler of one kind of change to a queue."""

        async def change(request: Request) -> Response:
            try:
                asked = asks.model_validate(await _json_of(request))
            except ValidationError as error:
                return _misfit("the order to the queue is malformed", error)
            await self._known.change_queue(asked)
            return _json({})

        return change

    async def revisions(self, request: Request) -> Response:
        """Answer with the configurations of the schedulers."""
        return _json(await self._known.revisions())

    async def diff(self, request: Request) -> Response:
        """Answer with the difference between two configurations."""
        words = (request.query_params.get(name, "") for name in ("from", "to"))
        return _json({"lines": await self._known.diff(request.path_params["name"], *words)})

    async def agents(self, request: Request) -> Response:
        """Answer with the trees of living agents."""
        return _json(await self._known.agents())

    def order_agents(
        self, asks: type[StopRequest | PauseRequest | ResumeRequest]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the handler of one kind of order to agents."""

        async def order(request: Request) -> Response:
            try:
                asked = asks.model_validate(await _json_of(request))
            except ValidationError as error:
                return _misfit("the order to agents is malformed", error)
            return _json(await self._known.order_agents(asked, session_of(request).user))

        return order

    async def policies(self, request: Request) -> Response:
        """Answer with the policies whose rules can be tried and pushed."""
        return _json({"policies": await self._known.policies()})

    async def try_rules(self, request: Request) -> Response:
        """Answer with what rules would have changed."""
        try:
            asked = TrialRequest.model_validate(await _json_of(request))
        except ValidationError as error:
            return _misfit("the rules are malformed", error)
        return _json(await self._known.trial.run(asked))

    async def push_rules(self, request: Request) -> Response:
        """Push rules as a shadow or for a share of the sessions, on a person's order."""
        try:
            asked = PushRequest.model_validate(await _json_of(request))
        except ValidationError as error:
            return _misfit("the order to push is malformed", error)
        return _json(await self._known.push(asked, session_of(request).user))

    async def approvals(self, request: Request) -> Response:
        """Answer with the calls that wait for a person."""
        return _json({**await self._known.inbox.list_calls(), "now": time.time()})

    async def answer(self, request: Request) -> Response:
        """Take a person's answer."""
        try:
            asked = AnswerRequest.model_validate(await _json_of(request))
        except ValidationError as error:
            return _misfit("the answer is malformed", error)
        peer = request.client.host if request.client else ""
        host = self._host if not peer or is_loopback(peer) else peer[:64]
        who = Person(session_of(request).user, host)
        try:
            return _json(await self._known.inbox.answer(request.path_params["id"], asked, who))
        except CorrectionProblem as error:
            return JSONResponse({"error": str(error), "fields": error.fields, "doubts": error.doubts}, 422)


def _window_of(request: Request) -> int:
    """Return the seconds that a page looks back; raise ConfigError."""
    window = request.query_params.get("window", "15m")
    if window not in WINDOWS:
        raise ConfigError(f"window: must be one of {', '.join(WINDOWS)}")
    return WINDOWS[window]


async def _json_of(request: Request) -> Mapping[str, Any]:
    """Return the JSON object of a request; raise ConfigError if there is none."""
    try:
        found = read_json(await body_of(request))
    except UnreadableJson as error:
        raise ConfigError(f"the body must be JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError("the body must be a JSON object")
    return found


async def _handle_error(_request: Request, error: Exception) -> Response:
    if isinstance(error, ConfigError):
        return _error(str(error), 400)
    if isinstance(error, TransportError):
        return _error(f"the bus is away: {error}", 503)
    return _error(str(error), 409)


def _json(value: Any) -> Response:
    """Answer with JSON, in ASCII: an agent's text may hold characters that no encoding allows."""
    text = json.dumps(value, ensure_ascii=True, default=repr)
    return Response(text, media_type="application/json")


def _error(words: str, status: int) -> Response:
    return JSONResponse({"error": words}, status)


def _misfit(words: str, error: ValidationError) -> Response:
    faults = {str((*fault["loc"], "")[0]): fault["msg"] for fault in error.errors()}
    return JSONResponse({"error": words, "fields": faults}, 422)
