"""Turn a notification into bytes for a webhook: the body, and the headers that name and sign it. Pure.

Headers follow Standard Webhooks: `webhook-id` is the notification's, in the body too, the same at every try;
`webhook-signature` is `v1,` and base64 of HMAC-SHA256 over id, timestamp and body, with a dot between them.
"""

import base64
import hashlib
import hmac
import json
import re
from typing import Any, Final

from toolgate_bus.commands.notify.grouping import Notification
from toolgate_bus.commands.notify.incident import FieldValue, Incident, Stage, describe

VERSION: Final = 1
_JOINT: Final = re.compile(r":(?=//)|@(?=\w)|(?<=\w)[.\u3002\uff0e\uff61](?=[^\W\d_])")
"""Characters that join a link or a mention."""
_MARKS: Final[dict[Stage, str]] = {"open": "", "repeat": "again: ", "closed": "over: "}


def make_body(kind: str, one: Notification, namespace: str, console_url: str | None) -> bytes:
    """Return the JSON to post."""
    if kind == "slack":
        return json.dumps({"text": make_text(one, namespace, console_url, escape=_escape)}).encode()
    first = one.incidents[0]
    value: dict[str, Any] = {
        "id": one.id,
        "version": VERSION,
        "namespace": namespace,
        "cause": first.cause,
        "severity": first.severity,
        "stage": first.stage,
        "at": round(one.at, 3),
        "count": len(one.incidents) + one.left_off,
        "left_off": one.left_off,
        "text": make_text(one, namespace, console_url),
        "link": find_link(one, console_url),
        "incidents": [
            {"key": each.key, "at": round(each.at, 3), "labels": dict(each.labels), **each.fields}
            for each in one.incidents
        ],
    }
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def make_text(one: Notification, namespace: str, console_url: str | None, escape: Any = str) -> str:
    """Return the notification for people, one line an incident."""
    mark = _MARKS[one.incidents[0].stage]
    lines = [f"{mark}{escape(unlink(describe(each)))}" for each in one.incidents]
    if one.left_off:
        lines.append(f"and {one.left_off} more")
    link = find_link(one, console_url)
    return "\n".join([f"Toolgate {escape(namespace)}: {lines[0]}", *lines[1:], *([link] if link else [])])


def unlink(text: str) -> str:
    """Return a text in which no chat or mail program sees a link or a mention: its joints are in brackets.

    Names come from agents, and a receiver unfolds a bare link in them by fetching it.
    """
    return _JOINT.sub(r"[\g<0>]", text)


def find_link(one: Notification, console_url: str | None) -> str | None:
    """Return the page on which a person can act on it; None without a console."""
    page = {"held": "#approvals", "budget": "#budgets", "gone": "#roster"}.get(one.incidents[0].cause, "")
    return None if console_url is None else f"{console_url}{page}"


def make_headers(id_: str, body: bytes, key: bytes | None, now: int) -> dict[str, str]:
    """Return the headers of a body. `now` is in seconds since the epoch."""
    headers = {"content-type": "application/json", "webhook-id": id_, "webhook-timestamp": str(now)}
    if key is not None:
        headers["webhook-signature"] = sign(id_, body, key, now)
    return headers


def sign(id_: str, body: bytes, key: bytes, now: int) -> str:
    """Return the signature of a body."""
    digest = hmac.digest(key, f"{id_}.{now}.".encode() + body, hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"


def _escape(text: str) -> str:
    """Return a text that Slack shows as it is, without links and mentions."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def make_sample(receiver: str, at: float, mark: str) -> Notification:
    """Return a sample that tests a receiver. `mark` makes its id unique."""
    fields: dict[str, FieldValue] = {
        "scheduler": "approval",
        "tool": "sample",
        "agent": "nobody",
        "seconds_left": 900,
    }
    sample = Incident(f"sample:{mark}", "held", "info", "open", at, fields)
    return Notification(f"msg_sample_{mark}", receiver, (sample,), 0, at)
