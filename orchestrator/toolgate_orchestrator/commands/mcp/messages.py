"""The parts of MCP that the proxy itself reads and writes; everything else passes as it is. Pure.

MCP has two eras. Up to 2025-11-25, a client initializes a connection, and the server may send it requests.
From 2026-07-28 on, each request bears a version and the client's capabilities in its `_meta`. A server that
needs an answer ends the request with `input_required`, and the client sends it again with the answer.
"""

from collections.abc import Container, Mapping
from math import isfinite
from typing import Any, Final

from toolgate_bus.telemetry.printable import shorten

Params = Mapping[str, Any] | None
"""Parameters of a request or a notification, as they came."""
Message = dict[str, Any]
"""A result, or parameters, as they are sent."""

CALL: Final = "tools/call"
LIST: Final = "tools/list"
INITIALIZE: Final = "initialize"
DISCOVER: Final = "server/discover"
LISTEN: Final = "subscriptions/listen"
NOTIFICATIONS: Final = "notifications/"
"""Prefix of methods that bear no id and get no answer."""
READ_RESOURCE: Final = "resources/read"
GET_PROMPT: Final = "prompts/get"
READS: Final = (READ_RESOURCE, GET_PROMPT)
"""Methods whose results are ruled on as those of a tool of that name."""
LISTS: Final[Mapping[str, tuple[str, str]]] = {
    LIST: ("tools", "tools"),
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resourceTemplates", "resources"),
}
"""Key of the entries, and capability of a server with such a list, by method."""
REQUESTS: Final = frozenset((CALL, INITIALIZE, DISCOVER, LISTEN, *READS, *LISTS)) | {
    *("ping", "logging/setLevel", "completion/complete", "resources/subscribe", "resources/unsubscribe")
}
"""Requests of a client that are passed on. Any other might run a tool, or give what one gave."""
PROGRESS: Final = "notifications/progress"
CANCELLED: Final = "notifications/cancelled"
LOG: Final = "notifications/message"
TOOLS_CHANGED: Final = "notifications/tools/list_changed"

VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT: Final = "io.modelcontextprotocol/clientInfo"
CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
ENVELOPE: Final = (VERSION, CLIENT, CAPABILITIES)
"""Keys of `_meta` by which a request of the newer era tells its client."""

SESSION: Final = "toolgate/session"
"""Key of a request's `_meta` for the agent's session."""
CALL_ID: Final = "toolgate/call"
"""Key of a request's `_meta` for the call's id from the LLM."""
GROUP: Final = "toolgate/group"
"""Key of a request's `_meta` for an id that calls of one LLM response share."""
DECISION: Final = "toolgate/decision"
"""Key of a result's `_meta` for the decision that denied or replaced the call."""
MAX_ID: Final = 256
"""Maximum number of characters of such a value; the rest is cut off."""


def meta_of(params: Params) -> Mapping[str, Any]:
    """Return the `_meta` of parameters or a result; empty if there is none."""
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    return meta if isinstance(meta, Mapping) else {}


def version_of(params: Params) -> str:
    """Return the protocol version in a request of the newer era; empty for the older era."""
    told = meta_of(params).get(VERSION)
    return told if isinstance(told, str) else ""


def envelope_of(params: Params) -> Message:
    """Return parameters for a request of the proxy's own, for the same client and era."""
    meta = meta_of(params)
    kept = {key: meta[key] for key in ENVELOPE if key in meta}
    return {"_meta": kept} if kept else {}


def token_of(params: Params) -> str | int | None:
    """Return the token under which a client wants progress messages; None if it wants none."""
    token = meta_of(params).get("progressToken")
    return token if isinstance(token, str | int) and not isinstance(token, bool) else None


def text_of(params: Params, key: str) -> str:
    """Return a text of `_meta`, cut to MAX_ID characters; empty if there is none."""
    told = meta_of(params).get(key)
    return shorten(told, MAX_ID) if isinstance(told, str) else ""


def trace_of(params: Params) -> dict[str, str]:
    """Return the trace context of a request."""
    meta = meta_of(params)
    return {key: meta[key] for key in ("traceparent", "tracestate") if isinstance(meta.get(key), str)}


def can_elicit(capabilities: Any) -> bool:
    """Return whether a client with these capabilities can show a form to its user."""
    told = capabilities.get("elicitation") if isinstance(capabilities, Mapping) else None
    return isinstance(told, Mapping) and (not told or "form" in told)


def with_meta(params: Params, **values: Any) -> Message:
    """Return the parameters with these keys of `_meta` set."""
    return {**(params or {}), "_meta": {**meta_of(params), **values}}


# ------------------------------------------------------------ tasks
#
# The result of a task comes as the answer to another request than its call, which nobody would rule on. So
# neither side is told that the other one can do tasks. A request that wants one anyway is a plain one.

_TASKS: Final = "io.modelcontextprotocol/tasks"


def without_tasks(capabilities: Any) -> Any:
    """Return capabilities without tasks."""
    if not isinstance(capabilities, Mapping):
        return capabilities
    told = capabilities.get("extensions")
    if isinstance(told, Mapping) and _TASKS in told:
        kept = {name: one for name, one in told.items() if name != _TASKS}
        capabilities = {**capabilities, "extensions": kept}
    return {name: one for name, one in capabilities.items() if name != "tasks"}


def without_task(params: Params) -> Params:
    """Return the parameters of a request that makes no task."""
    able = meta_of(params).get(CAPABILITIES)
    if able is not None:
        params = with_meta(params, **{CAPABILITIES: without_tasks(able)})
    return {name: one for name, one in params.items() if name != "task"} if params else params


# ------------------------------------------------------------ words that a server says by itself
#
# A text that a server sends by itself is no result, so no scheduler is asked about it. While any scheduler
# rules on results of the server, such texts do not pass: they would be a way around the rules. Numbers of
# progress, levels of logs, and the news that a list has changed do pass.

SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
WITHHELD: Final = "[withheld: words of the server, which no rule has seen]"
"""Data of a log message whose own are withheld."""
RESOURCE_UPDATED: Final = f"{NOTIFICATIONS}resources/updated"
_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_BARE: Final = frozenset(f"{NOTIFICATIONS}{name}/list_changed" for name in ("tools", "prompts", "resources"))
"""Notifications that say all by their name."""
_ACKNOWLEDGED: Final = f"{NOTIFICATIONS}subscriptions/acknowledged"
_WANTED: Final = ("toolsListChanged", "promptsListChanged", "resourcesListChanged")
WORDLESS: Final = frozenset(("ping", "roots/list"))
"""Requests of a server that have no words."""


def without_words(method: str, params: Params, uris: Container[str]) -> Message | None:
    """Return a notification without its words; None if nothing of it may pass.

    `uris` are addresses that the client itself has named.
    """
    told: Mapping[str, Any] = params if isinstance(params, Mapping) else {}
    if method == PROGRESS:
        numbers = {name: told[name] for name in ("progress", "total") if _is_number(told.get(name))}
        return {"progressToken": told.get("progressToken"), "progress": 0, **numbers}
    if method == LOG:
        level = told.get("level")
        return {"level": level if level in _LEVELS else "info", "data": WITHHELD}
    if method == RESOURCE_UPDATED:
        uri = told.get("uri")
        return {"uri": uri} if isinstance(uri, str) and uri in uris else None
    if method == _ACKNOWLEDGED:
        return {"notifications": _read_filter(told.get("notifications"), uris)}
    return {} if method in _BARE else None


def list_subscribed(wanted: Any) -> list[str]:
    """Return the addresses in a filter of notifications."""
    listed = wanted.get("resourceSubscriptions") if isinstance(wanted, Mapping) else None
    return [one for one in listed if isinstance(one, str)] if isinstance(listed, list) else []


def _read_filter(wanted: Any, uris: Container[str]) -> Message:
    told: Mapping[str, Any] = wanted if isinstance(wanted, Mapping) else {}
    found: Message = {name: told[name] for name in _WANTED if type(told.get(name)) is bool}
    known = [one for one in list_subscribed(told) if one in uris]
    return {**found, "resourceSubscriptions": known} if known else found


def is_wordless(method: str, params: Params) -> bool:
    """Return whether a notification is progress in numbers alone."""
    told: Mapping[str, Any] = params if isinstance(params, Mapping) else {}
    return method == PROGRESS and without_words(method, params, ()) == told


def _is_number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and isfinite(value))
