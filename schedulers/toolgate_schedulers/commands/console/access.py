"""Control access to the page: a token, sessions that end with the process, and checks of the origin. Pure.

A foreign page must not read this one, by a name that its owner lets point here: the Host header is checked.
Nor may it act through this one: cookies have SameSite=Strict, the Origin is checked, and a header is
required that no form can send.
"""

import hashlib
import hmac
import ipaddress
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from toolgate_bus.errors import ConfigError

HEADER: Final = "x-toolgate-console"
"""Header that every POST of the page has."""
MAX_SESSIONS: Final = 256
MAX_NAME: Final = 64


class Session(NamedTuple):
    """Session of a person who signed in."""

    key: str
    user: str
    """Name under which the person answers."""


class Access:
    """Token and sessions of one console."""

    def __init__(
        self, token: str, user: str, hosts: Iterable[str] = (), *, port: int = 0, tls: bool = False
    ) -> None:
        self._token = _digest(token)
        self.user = user
        self._hosts = frozenset(host.lower().strip("[]") for host in hosts) | {"localhost"}
        self._scheme = "https" if tls else "http"
        self.cookie = f"toolgate-console-{port}"
        """Name of the cookie. It holds the port, as all ports of a host share cookies."""
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()

    def sign_in(self, token: str, user: str | None = None) -> Session | None:
        """Return a new session if the token is right, else None; raise ConfigError for a bad name."""
        if not hmac.compare_digest(_digest(token), self._token):
            return None
        session = Session(secrets.token_urlsafe(32), check_name(user or self.user))
        self._sessions[_digest(session.key)] = session
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def session(self, cookies: Mapping[str, str]) -> Session | None:
        """Return the session of a request; it is found by a digest, so that the time reveals nothing about
        the key."""
        key = cookies.get(self.cookie, "")
        return self._sessions.get(_digest(key)) if key else None

    def rename(self, session: Session, user: str) -> Session:
        """Let a session answer under another name; raise ConfigError for a bad one."""
        renamed = session._replace(user=check_name(user))
        self._sessions[_digest(session.key)] = renamed
        return renamed

    def sign_out(self, session: Session) -> None:
        """End a session."""
        self._sessions.pop(_digest(session.key), None)

    def serves(self, host: str) -> bool:
        """Return whether a Host header names this console.

        Any address is accepted. A name must be an allowed one, as its owner could let any name point here.
        """
        name = host_of(host)
        if name is None:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._hosts
        return True

    def is_own(self, host: str, headers: Mapping[str, str]) -> bool:
        """Return whether a request that changes something comes from a page of this console."""
        site = headers.get("sec-fetch-site")
        if site not in (None, "same-origin", "none"):
            return False
        origin = headers.get("origin")
        return origin is None or origin == f"{self._scheme}://{host}"


def check_name(name: str) -> str:
    """Return a person's name without outer spaces; raise ConfigError for a bad one."""
    name = name.strip()
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise ConfigError(f"name: must be 1 to {MAX_NAME} visible characters")
    return name


def host_of(header: str) -> str | None:
    """Return the name or address in a Host header, without port and brackets; None if it is malformed."""
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port
    except ValueError:
        return None
    if parts.path or parts.query or parts.fragment or "@" in header:
        return None
    return parts.hostname


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
