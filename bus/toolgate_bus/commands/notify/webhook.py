"""Post a notification as signed JSON to one webhook: bounded in time and bytes, whatever stands there.

Headers follow Standard Webhooks: `webhook-id` is the notification's, in the body too, the same at every try;
`webhook-signature` is `v1,` and base64 of HMAC-SHA256 over id, timestamp and body, with a dot between them.
No redirect is followed, so that no other address is told anything. Certificates are checked; proxies come
from the environment. Of an answer its head alone is read, so that no body delays what follows. No error and
no log says the address, which may be a secret.
"""

import base64
import email.utils
import hashlib
import hmac
import json
import logging
import ssl
import time
from typing import Any, Final

import anyio
import httpx2

from toolgate_bus.commands.notify.config import Receiver, check_webhook_url
from toolgate_bus.commands.notify.notification import Notification, find_link, make_text
from toolgate_bus.commands.notify.receivers import ReceiverRefusal, ReceiverUnavailable
from toolgate_bus.errors import ConfigError

VERSION: Final = 1
MAX_RETRY_AFTER_S: Final = 3600.0
REFUSALS: Final = frozenset({400, 413, 422})
"""Statuses that mean that a receiver will never take this body."""

for _name in ("httpx2", "httpcore2"):  # they log addresses
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)


class Webhook:
    """Address of one receiver, ready to be posted to."""

    def __init__(
        self, receiver: Receiver, url: str, key: bytes | None, namespace: str, console_url: str | None
    ) -> None:
        """Raise ConfigError if its certificates cannot be read, or no webhook can be at the address."""
        check_webhook_url(url)
        self._url, self._key, self._timeout_s = url, key, receiver.timeout_s
        self._namespace, self._console_url = namespace, console_url
        self._verify = _make_context(receiver)

    async def post(self, one: Notification) -> None:
        """Return when the receiver has taken it. Raise ReceiverRefusal or ReceiverUnavailable."""
        body = make_body(one, self._namespace, self._console_url)
        headers = make_headers(one.id, body, self._key, int(time.time()))
        client = httpx2.AsyncClient(verify=self._verify, timeout=self._timeout_s, follow_redirects=False)
        status, after = 0, None
        try:
            with anyio.fail_after(self._timeout_s):
                async with client, client.stream("POST", self._url, content=body, headers=headers) as answer:
                    status, after = answer.status_code, answer.headers.get("retry-after")
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, TimeoutError, ValueError) as error:
            if not status:  # once the status is here, what follows it does not matter
                raise ReceiverUnavailable(f"no answer ({type(error).__name__})") from None
        _judge(status, after)


def make_body(one: Notification, namespace: str, console_url: str | None) -> bytes:
    """Return the JSON to post."""
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
        "text": f"Toolgate {namespace}: {make_text(one, console_url)}",
        "link": find_link(one, console_url),
        "incidents": [
            {"key": each.key, "at": round(each.at, 3), "labels": dict(each.labels), **each.fields}
            for each in one.incidents
        ],
    }
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def make_headers(id_: str, body: bytes, key: bytes | None, now: int) -> dict[str, str]:
    """Return the headers of a body. `now` is in seconds since the epoch."""
    headers = {"content-type": "application/json", "user-agent": "toolgate-notify"}
    headers |= {"webhook-id": id_, "webhook-timestamp": str(now)}
    if key is not None:
        headers["webhook-signature"] = sign(id_, body, key, now)
    return headers


def sign(id_: str, body: bytes, key: bytes, now: int) -> str:
    """Return the signature of a body."""
    digest = hmac.digest(key, f"{id_}.{now}.".encode() + body, hashlib.sha256)
    return f"v1,{base64.b64encode(digest).decode()}"


def _make_context(receiver: Receiver) -> ssl.SSLContext | bool:
    if receiver.ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=str(receiver.ca_file))
    except (OSError, ssl.SSLError):
        raise ConfigError(f"ca_file: {receiver.ca_file} holds no certificates that can be read") from None


def _judge(status: int, after: str | None) -> None:
    if 200 <= status < 300:
        return
    if status in REFUSALS:
        raise ReceiverRefusal(f"status {status}")
    raise ReceiverUnavailable(f"status {status}", read_retry_after(after, time.time()))


def read_retry_after(said: str | None, now: float) -> float | None:
    """Return the seconds that a Retry-After asks for, in either form, at most an hour; None for nonsense."""
    if said is None:
        return None
    try:
        wait = (
            float(said)
            if said.strip().isdigit()
            else email.utils.parsedate_to_datetime(said).timestamp() - now
        )
    except (ValueError, OverflowError):
        return None
    return min(max(0.0, wait), MAX_RETRY_AFTER_S)
