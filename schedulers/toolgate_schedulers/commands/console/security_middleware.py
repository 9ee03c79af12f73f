"""Check every request before it is answered: Host, origin, size and session; else send the sign-in page.

Every answer also gets the headers that keep other pages out.
"""

from collections.abc import Mapping
from functools import cache
from html import escape
from http.cookies import CookieError, SimpleCookie
from importlib.resources import files
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolgate_schedulers.commands.console.access import HEADER, Access, Session

MAX_BODY: Final = 256 * 1024
"""Maximum size of a request in bytes: a correction has at most 64 KiB, and JSON may spell each byte as
six."""
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
_READS: Final = ("GET", "HEAD")

OPEN: Final = frozenset(("style.css", "icon.svg", "theme.js"))
"""Files that the sign-in page needs."""


@cache
def _page() -> str:
    return (files(__package__) / "static" / "sign-in.html").read_text("utf-8")


def sign_in_page(status: int, problem: str = "") -> HTMLResponse:
    """Return the sign-in page, with the problem if there is one."""
    told = f'<p class="problem" role="alert">{escape(problem)}</p>' if problem else ""
    return HTMLResponse(_page().replace("<!-- problem -->", told), status)


class TooLarge(Exception):  # noqa: N818 - as the status is called
    """The body of a request is longer than any that the page sends."""


class SecurityMiddleware:
    """Middleware that passes on allowed requests; others get the sign-in page, or 401."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request."""
        if scope["type"] != "http":
            return
        headers, path = Headers(scope=scope), scope["path"]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                told = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    told[name] = value
                told.setdefault("cache-control", "no-cache" if "etag" in told else "no-store")
            await send(message)

        refused = self._check_request(scope, headers, path)
        if refused is not None:
            await refused(scope, receive, send_with_headers)
            return
        try:
            await self._app(scope, receive, send_with_headers)
        except TooLarge:
            await _respond_error(413, f"longer than {MAX_BODY} bytes")(scope, receive, send_with_headers)

    def _check_request(self, scope: Scope, headers: Mapping[str, str], path: str) -> Response | None:
        """Return the answer to a request that may not pass; None lets it pass."""
        if path == "/healthz":
            return None
        host = headers.get("host", "")
        if not self._access.serves(host):
            return PlainTextResponse(
                "This name is not served here: start the console with --allow-host.", 421
            )
        if scope["method"] not in _READS:
            if not self._access.is_own(host, headers):
                return _respond_error(403, "only pages of this console may do that")
            if path.startswith("/api/") and headers.get(HEADER) != "1":
                return _respond_error(403, f"the header {HEADER}: 1 is missing")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY:
            return _respond_error(413, f"longer than {MAX_BODY} bytes")
        session = self._access.session(cookies(headers.get("cookie", "")))
        scope.setdefault("state", {})["session"] = session
        signs_in = path == "/" and b"token=" in scope.get("query_string", b"")
        if session is None and not (signs_in or path == "/sign-in" or path.removeprefix("/static/") in OPEN):
            return _respond_error(401, "sign in first") if path.startswith("/api/") else sign_in_page(401)
        return None


def cookies(header: str) -> dict[str, str]:
    """Return the cookies of a request; none if they are malformed."""
    try:
        return {name: one.value for name, one in SimpleCookie(header[:8192]).items()}
    except CookieError:
        return {}


async def body_of(request: Request) -> bytes:
    """Return the body of a request; raise TooLarge."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY:
            raise TooLarge
    return bytes(body)


def _respond_error(status: int, error: str) -> Response:
    return JSONResponse({"error": error}, status)


def session_of(request: Request) -> Session:
    """Return the session of a request, which the doorway has checked."""
    session: Session = request.scope["state"]["session"]
    return session
