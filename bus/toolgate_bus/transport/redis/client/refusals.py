"""Translates the server's error replies into our own errors. It loads no client: errors are known by name."""

from collections.abc import Sequence
from typing import Final

from toolgate_bus.errors import Refusal, TooFewReplicas, TransportError
from toolgate_bus.transport.ports import Arg
from toolgate_bus.transport.redis.client.command_keys import key_of

_NO_RIGHT: Final = "NoPermissionError"
_CODES: Final = {
    "ReadOnlyError": "READONLY",
    "BusyLoadingError": "LOADING",
    "MovedError": "MOVED",
    "AskError": "ASK",
    "TryAgainError": "TRYAGAIN",
    "ClusterDownError": "CLUSTERDOWN",
    "MasterDownError": "MASTERDOWN",
}
"""First words of replies that the client removes, by the class that it makes of them."""


def refusal_of(command: Sequence[Arg], error: Exception) -> TransportError:
    """Return the error for an error reply to this command; it names its key, or else the command."""
    key = key_of(command) or str(command[0])
    return refusal(key.encode("utf-8", "backslashreplace").decode(), error)


def refusal(key: str, error: Exception) -> TransportError:
    """Return the error for an error reply about a key: what a person must do, or that a retry may help."""
    if type(error).__name__ == _NO_RIGHT:
        return Refusal(f"{key}: the server gives this user no right to it ({error}); see deploy/redis/roles")
    if "WRONGTYPE" in str(error):
        return Refusal(
            f"{key}: it holds something of another type, which is not Toolgate's: "
            f"look at it (TYPE {key}), and delete it (DEL {key}) or use another namespace"
        )
    if "NOREPLICAS" in str(error):
        return TooFewReplicas(
            f"{error}: the server takes writes only while min-replicas-to-write replicas follow it"
        )
    return TransportError(error_text(error))


def error_text(error: Exception) -> str:
    """Return an error reply as the server wrote it."""
    code = _CODES.get(type(error).__name__)
    return f"{code} {error}" if code is not None else str(error)
