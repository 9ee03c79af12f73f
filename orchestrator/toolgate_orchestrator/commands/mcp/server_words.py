"""What is left of a server's notification while its words are withheld. Pure.

A text that a server sends by itself is no result, so no scheduler is asked about it. While any scheduler
rules on results of the server, such texts do not pass: they would be a way around the rules. Numbers of
progress, levels of logs, and the news that a list has changed do pass.
"""

from collections.abc import Container, Mapping
from math import isfinite
from typing import Any, Final

from toolgate_orchestrator.commands.mcp.messages import (
    LOG,
    NOTIFICATIONS,
    PROGRESS,
    Message,
    Params,
    meta_of,
)

SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
WITHHELD: Final = "[withheld: words of the server, which no rule has seen]"
"""Data of a log message whose own are withheld."""
RESOURCE_UPDATED: Final = f"{NOTIFICATIONS}resources/updated"
_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_BARE: Final = frozenset(
    f"{NOTIFICATIONS}{name}"
    for name in (
        "tools/list_changed",
        "prompts/list_changed",
        "resources/list_changed",
        "subscriptions/acknowledged",
    )
)
"""Notifications that say all by their name."""
WORDLESS: Final = frozenset(("ping", "roots/list"))
"""Requests of a server that have no words."""


def without_words(method: str, params: Params, uris: Container[str]) -> Message | None:
    """Return a notification without its words; None if nothing of it may pass.

    `uris` are addresses that the client itself has named.
    """
    told: Mapping[str, Any] = params if isinstance(params, Mapping) else {}
    subscription = meta_of(params).get(SUBSCRIPTION)
    kept: Message = {"_meta": {SUBSCRIPTION: subscription}} if subscription is not None else {}
    if method == PROGRESS:
        numbers = {name: told[name] for name in ("progress", "total") if _is_number(told.get(name))}
        return {"progressToken": told.get("progressToken"), "progress": 0, **numbers}
    if method == LOG:
        level = told.get("level")
        return {**kept, "level": level if level in _LEVELS else "info", "data": WITHHELD}
    if method == RESOURCE_UPDATED:
        uri = told.get("uri")
        return {**kept, "uri": uri} if isinstance(uri, str) and uri in uris else None
    return kept if method in _BARE else None


def is_wordless(method: str, params: Params) -> bool:
    """Return whether a notification is progress in numbers alone."""
    told: Mapping[str, Any] = params if isinstance(params, Mapping) else {}
    return method == PROGRESS and without_words(method, params, ()) == told


def _is_number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and isfinite(value))
