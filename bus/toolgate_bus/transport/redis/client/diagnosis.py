"""Explains why a server cannot be used, and what to change, from the URL and the client's words. Pure.

The explanation is for the first contact; a connection that worked before needs another one.
"""

import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

START: Final = (
    "start the server, or name the right one: --redis URL or TOOLGATE_REDIS_URL "
    "(redis://host:6379/0, rediss:// with TLS, unix:///path, redis+sentinel://host1,host2,host3/SERVICE, "
    "redis+cluster://host1,host2)"
)
CREDENTIALS: Final = (
    "put the password into a file that only you can read, TOOLGATE_REDIS_PASSWORD_FILE=FILE, and the user "
    "into the URL (redis://USER@host:6379/0); deploy/redis/make_acl.py creates both"
)
SENTINELS: Final = (
    "look at the sentinels and their quorum (SENTINEL CKQUORUM SERVICE), and at the URL: "
    "redis+sentinel://host1:26379,host2,host3/SERVICE"
)
CLUSTER: Final = "name any of its nodes, or several: redis+cluster://host1:port,host2"
NO_CLUSTER: Final = "name one server as redis://host:port, or the nodes of a cluster"
SLOTS: Final = (
    "look at the cluster (CLUSTER INFO, CLUSTER SHARDS): each slot needs a master; `valkey-cli --cluster fix`"
)
EMBEDDED: Final = (
    "the embedded server has ended. If it was killed, it starts anew by itself, without what it kept; "
    "else a command that starts one brings it back (toolgate scheduler run …, toolgate run …)"
)
FIRST_BYTE: Final = {
    "H": "an HTTP server answers there",
    "S": "an SSH server answers there",
    "2": "a mail or file server (SMTP, FTP) answers there",
}
_EMBEDDED: Final = re.compile(r"/toolgate(-\w+)?/s\.sock$")
_GOT: Final = re.compile(r'got "(\\x[0-9a-f]{2}|.)" as reply')


class ServerProblem(NamedTuple):
    """A fault of a server, and what to do about it."""

    name: str
    what: str
    """The fault, as the rest of a sentence that begins with the server's name."""
    change: str


def diagnose(url: str, said: str, *, refused: bool = False) -> ServerProblem:
    """Return the fault behind the client's words. `refused`: the server refuses the credentials."""
    said = said.rstrip(".")
    words, scheme = said.casefold(), urlsplit(url).scheme
    if "one node of a redis cluster" in words:
        return ServerProblem("cluster-node", f"cannot be used alone: {said}", CLUSTER)
    if "cluster mode is not enabled" in words or "no nodes of a redis cluster" in words:
        return ServerProblem("no-cluster", "is not a cluster", NO_CLUSTER)
    if "slots" in words and "cluster" in words:
        return ServerProblem("slots", f"cannot be used: {said}", SLOTS)
    if "sentinel" in words:
        return ServerProblem("sentinels", f"cannot be found: {said}", SENTINELS)
    if "loading" in words:
        return ServerProblem("loading", "still loads its data", "wait until it has finished, then try again")
    if refused:
        return _explain_refusal(words, said)
    if (got := _GOT.search(said)) is not None:
        first = got[1]
        if first in ("\\x15", "\\x16"):
            return ServerProblem(
                "closed", "is not Redis without TLS: TLS is wanted there", "name it as rediss://…"
            )
        who = FIRST_BYTE.get(first, f"what answers there begins with {first!r}")
        return ServerProblem("foreign", f"is not Redis: {who}", START)
    if "ssl" in words or "certificate" in words or "tls" in words:
        return _tls(words, said)
    if "timed out" in words or "timeout" in words:
        change = (
            "look at the server's process (stopped? swapping? a long script?), and at firewalls in between"
        )
        if scheme == "rediss":
            change += "; a server without TLS hangs like this as well: then name it as redis://…"
        return ServerProblem("hangs", "does not answer: it hangs, or nothing comes through", change)
    ended = "closed" in words or "reset by peer" in words
    if ended and "connecting to" not in words and scheme == "redis":
        change = "a port that expects TLS does this: name it as rediss://…; else look into the server's log"
        return ServerProblem("closed", f"closes the connection at once: {said}", change)
    if scheme == "unix" and _EMBEDDED.search(urlsplit(url).path):
        return ServerProblem("unreachable", "cannot be reached", EMBEDDED)
    if "refused" in words or "connect call failed" in words:
        return ServerProblem("unreachable", "cannot be reached: nothing listens there", START)
    return ServerProblem("unreachable", f"cannot be reached: {said}", START)


def _explain_refusal(words: str, said: str) -> ServerProblem:
    if "no permissions" in words:
        return ServerProblem(
            "user-may-nothing",
            f"accepts this user, who may not even use PING: {said}",
            "give the user +ping, or create the users with deploy/redis/make_acl.py",
        )
    if "noauth" in words or "authentication required" in words:
        return ServerProblem("credentials", f"wants a password: {said}", CREDENTIALS)
    return ServerProblem(
        "credentials", f"refuses these credentials: {said.partition(': ')[2] or said}", CREDENTIALS
    )


def _tls(words: str, said: str) -> ServerProblem:
    if "wrong_version" in words or "wrong version" in words or "record layer" in words:
        return ServerProblem("tls-not-spoken", "speaks no TLS", "name it as redis://…, without TLS")
    if "hostname mismatch" in words or "doesn't match" in words or "ip address mismatch" in words:
        change = "use the name in the certificate, or make one for this name (deploy/redis/make-certificates)"
        return ServerProblem("tls-name", f"has a certificate for another name: {said}", change)
    if "verify failed" in words or "self-signed" in words or "self signed" in words:
        change = "name the authority that signed it: rediss://…?ssl_ca_certs=/path/ca.crt"
        return ServerProblem(
            "tls-authority", f"has a certificate whose signer is not known here: {said}", change
        )
    change = "it may ask for a client certificate: rediss://…?ssl_certfile=…&ssl_keyfile=… (docs/secure.md)"
    return ServerProblem("tls", f"cannot be reached by TLS: {said}", change)
