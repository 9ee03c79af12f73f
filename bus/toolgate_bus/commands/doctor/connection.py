"""Why a server cannot be used, in words: from the URL and what the client says."""

from typing import Final
from urllib.parse import urlsplit

from toolgate_bus.commands.doctor.finding import Finding, error
from toolgate_bus.errors import ConfigError, OutcomeUnknown, ToolgateError
from toolgate_bus.server.settings import shown

__all__ = ["unusable"]

SUBJECT: Final = "server"
START: Final = (
    "start the server, or name the right one: --redis URL or TOOLGATE_REDIS_URL "
    "(redis://host:6379/0, rediss:// with TLS, unix:///path)"
)


def unusable(url: str, raised: ToolgateError | TimeoutError) -> Finding:
    """The finding for what was raised when the server was asked for the first time."""
    said, where = str(raised), shown(url)
    words = said.casefold()
    if "loading" in words:
        return _finding("loading", f"{where} still loads its data", "wait until it has; look again")
    if isinstance(raised, ConfigError):
        return _refused(where, words, said)
    if "ssl" in words or "certificate" in words or "tls" in words:
        return _tls(where, words, said)
    if isinstance(raised, TimeoutError) or "timed out" in words or "timeout" in words:
        change = (
            "look at the server's process (stopped? swapping? a long script?), and at firewalls in between"
        )
        if urlsplit(url).scheme == "rediss":
            change += "; one that speaks no TLS waits as well: then name it as redis://…"
        return _finding("hangs", f"{where} does not answer: it hangs, or nothing comes through", change)
    if isinstance(raised, OutcomeUnknown) and urlsplit(url).scheme == "redis":
        return _finding(
            "closed",
            f"{where} closes the connection at once: {said}",
            "a port that wants TLS does so: name it as rediss://…; else look into the server's log",
        )
    return _finding("unreachable", f"{where} cannot be reached: {said}", START)


def _refused(where: str, words: str, said: str) -> Finding:
    if "no permissions" in words:
        return _finding(
            "user-may-nothing",
            f"{where} lets this user in, and may not even be pinged by it: {said}",
            "give the user +ping, or make the users by deploy/redis/make_acl.py",
        )
    return _finding(
        "credentials",
        f"{where} refuses these credentials: {said.partition(': ')[2] or said}",
        "put the right user and password into the URL (redis://USER:PASSWORD@host:6379/0); "
        "deploy/redis/make_acl.py makes both",
    )


def _tls(where: str, words: str, said: str) -> Finding:
    if "wrong_version" in words or "wrong version" in words or "record layer" in words:
        return _finding(
            "tls-not-spoken", f"{where}: no TLS is spoken there", "name it as redis://…, without TLS"
        )
    if "hostname mismatch" in words or "doesn't match" in words or "ip address mismatch" in words:
        change = "use the name in the certificate, or make one for this name (deploy/redis/make-certificates)"
        return _finding("tls-name", f"{where}: its certificate is for another name", change)
    if "verify failed" in words or "self-signed" in words or "self signed" in words:
        change = "name the authority that signed it: rediss://…?ssl_ca_certs=/path/ca.crt"
        return _finding("tls-authority", f"{where}: its certificate is signed by nobody known here", change)
    change = "it may want a certificate of yours: rediss://…?ssl_certfile=…&ssl_keyfile=… (docs/secure.md)"
    return _finding("tls", f"{where}: TLS failed: {said}", change)


def _finding(name: str, what: str, change: str) -> Finding:
    return error(SUBJECT, f"server-{name}", what, change)
