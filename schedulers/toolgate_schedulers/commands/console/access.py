"""Who may see the page: a token, sessions that end with the process, and where a request may come from. Pure.

A page of somebody else must neither read this one (by a name that it lets point here: the Host header is
checked) nor act through it (SameSite=Strict, the Origin, and a header that no form can send).
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
"""Every POST of the page has it."""
MAX_SESSIONS: Final = 256
MAX_NAME: Final = 64


class Session(NamedTuple):
    """Somebody who signed in."""

    key: str
    user: str
    """The name that answers are given under."""


class Access:
    """The token and the sessions of one console."""

    def __init__(
        self, token: str, user: str, hosts: Iterable[str] = (), *, port: int = 0, tls: bool = False
    ) -> None:
        self._token = _digest(token)
        self.user = user
        self._hosts = frozenset(host.lower().strip("[]") for host in hosts) | {"localhost"}
        self._scheme = "https" if tls else "http"
        self.cookie = f"toolgate-console-{port}"
        """Cookies are shared by all ports of a host."""
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()

    def sign_in(self, token: str, user: str | None = None) -> Session | None:
        """A new session for who knows the token; None otherwise. Raises ConfigError for a bad name."""
        if not hmac.compare_digest(_digest(token), self._token):
            return None
        session = Session(secrets.token_urlsafe(32), check_name(user or self.user))
        self._sessions[_digest(session.key)] = session
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def session(self, cookies: Mapping[str, str]) -> Session | None:
        """Whose request this is; found by a digest, so that time tells nothing about the key."""
        key = cookies.get(self.cookie, "")
        return self._sessions.get(_digest(key)) if key else None

    def rename(self, session: Session, user: str) -> Session:
        """Let a session answer under another name; raises ConfigError."""
        renamed = session._replace(user=check_name(user))
        self._sessions[_digest(session.key)] = renamed
        return renamed

    def sign_out(self, session: Session) -> None:
        """End a session."""
        self._sessions.pop(_digest(session.key), None)

    def serves(self, host: str) -> bool:
        """Whether a Host header names this console.

        An address cannot be made to point elsewhere by who owns a name; a name can.
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
        """Whether a request that changes something was made by a page of this console."""
        site = headers.get("sec-fetch-site")
        if site not in (None, "same-origin", "none"):
            return False
        origin = headers.get("origin")
        return origin is None or origin == f"{self._scheme}://{host}"


def check_name(name: str) -> str:
    """A person's name; raises ConfigError."""
    name = name.strip()
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise ConfigError(f"name: 1 to {MAX_NAME} visible characters")
    return name


def host_of(header: str) -> str | None:
    """The name or address in a Host header, without port and brackets; None for what is none."""
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
