"""The few words of MCP that the proxy itself reads and writes; all else passes as it is. Pure.

Two eras: up to 2025-11-25 a client initializes a connection, and the server may ask it; from 2026-07-28 on
each request bears a version and the client's capabilities in its `_meta`, and a server that needs an
answer ends the request with `input_required`, upon which the client asks again.
"""

from collections.abc import Mapping
from typing import Any, Final

from toolgate_bus.telemetry.printable import shorten

Params = Mapping[str, Any] | None
"""The parameters of a request or a notification, as they came."""
Message = dict[str, Any]
"""A result, or parameters, as they are sent."""

CALL: Final = "tools/call"
LIST: Final = "tools/list"
INITIALIZE: Final = "initialize"
DISCOVER: Final = "server/discover"
LISTEN: Final = "subscriptions/listen"
NOTIFICATIONS: Final = "notifications/"
"""With this begins what bears no id, and wants no answer."""
PROGRESS: Final = "notifications/progress"
CANCELLED: Final = "notifications/cancelled"
LOG: Final = "notifications/message"
TOOLS_CHANGED: Final = "notifications/tools/list_changed"

VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT: Final = "io.modelcontextprotocol/clientInfo"
CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
ENVELOPE: Final = (VERSION, CLIENT, CAPABILITIES)
"""Keys of `_meta` by which a request of the newer era says whose it is."""

SESSION: Final = "toolgate/session"
"""Key of a request's `_meta`: to which session of its agent it belongs."""
CALL_ID: Final = "toolgate/call"
"""The call's id, as the LLM gave it."""
GROUP: Final = "toolgate/group"
"""What calls of one response of the LLM have in common."""
DECISION: Final = "toolgate/decision"
"""Key of a result's `_meta`: the decision that denied the call or replaced it."""
MAX_ID: Final = 256
"""Characters of such a value that are taken."""


def find_fault(method: str, params: Params) -> str:
    """Why a request is refused before anybody looks into it; empty for a proper one.

    A server may be lax about what it takes for a call: no other spelling of it passes.
    """
    if method != CALL and _squeeze(method) == _squeeze(CALL):
        return f"a tool is called by {CALL}"
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    return "" if meta is None or isinstance(meta, Mapping) else "_meta is an object, or left out"


def _squeeze(method: str) -> str:
    return "".join(one for one in method.casefold() if one.isalnum())


def meta_of(params: Params) -> Mapping[str, Any]:
    """The `_meta` of parameters or of a result; empty where there is none."""
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    return meta if isinstance(meta, Mapping) else {}


def version_of(params: Params) -> str:
    """The protocol version that a request of the newer era bears; empty for the older one."""
    told = meta_of(params).get(VERSION)
    return told if isinstance(told, str) else ""


def envelope_of(params: Params) -> Message:
    """Parameters for a request of our own, for the same client and in the same era."""
    meta = meta_of(params)
    kept = {key: meta[key] for key in ENVELOPE if key in meta}
    return {"_meta": kept} if kept else {}


def token_of(params: Params) -> str | int | None:
    """The token under which a client wants to hear of a request's progress."""
    token = meta_of(params).get("progressToken")
    return token if isinstance(token, str | int) and not isinstance(token, bool) else None


def text_of(params: Params, key: str) -> str:
    """A text of `_meta`, cut; empty where there is none."""
    told = meta_of(params).get(key)
    return shorten(told, MAX_ID) if isinstance(told, str) else ""


def trace_of(params: Params) -> dict[str, str]:
    """The trace context that a request bears."""
    meta = meta_of(params)
    return {key: meta[key] for key in ("traceparent", "tracestate") if isinstance(meta.get(key), str)}


def can_elicit(capabilities: Any) -> bool:
    """Whether a client that declares these capabilities can put a form before its user."""
    told = capabilities.get("elicitation") if isinstance(capabilities, Mapping) else None
    return isinstance(told, Mapping) and (not told or "form" in told)


def with_meta(params: Params, **values: Any) -> Message:
    """The same with these keys of `_meta` set."""
    return {**(params or {}), "_meta": {**meta_of(params), **values}}
