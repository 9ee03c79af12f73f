"""Post one notification to one webhook: bounded in time and bytes, whatever stands at the other end.

No redirect is followed, so that no other address is told anything. Certificates are checked; proxies come
from the environment. Of an answer its head alone is read, so that no body delays what follows. No error and
no log says the address, which may be a secret.
"""

import email.utils
import logging
import ssl
import time
from typing import Final

import anyio
import httpx2

from toolgate_bus.commands.notify.config import Receiver
from toolgate_bus.commands.notify.message import make_headers
from toolgate_bus.commands.notify.targets import WebhookTarget
from toolgate_bus.errors import ConfigError, ToolgateError

MAX_RETRY_AFTER_S: Final = 3600.0
REFUSALS: Final = frozenset({400, 413, 422})
"""Statuses that mean that a receiver will never take this body."""

for _name in ("httpx2", "httpcore2"):  # they log addresses
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)


class WebhookRefusal(ToolgateError):  # noqa: N818 - an answer of the receiver's
    """The receiver will never take this notification."""


class WebhookUnavailable(ToolgateError):  # noqa: N818 - a state of the receiver's
    """The receiver has not taken it, as far as is known. Try again, after `wait_s` seconds if it said so."""

    def __init__(self, words: str, wait_s: float | None = None) -> None:
        super().__init__(words)
        self.wait_s = wait_s


class Webhook:
    """Address of one receiver, ready to be posted to."""

    def __init__(self, receiver: Receiver, target: WebhookTarget) -> None:
        """Raise ConfigError if its certificates cannot be read."""
        self._target, self.timeout_s = target, receiver.timeout_s
        self._client = httpx2.AsyncClient(
            verify=_make_context(receiver),
            timeout=receiver.timeout_s,
            follow_redirects=False,
            headers={"user-agent": "toolgate-notify"},
            limits=httpx2.Limits(max_connections=1, max_keepalive_connections=0),
        )

    async def post(self, id_: str, body: bytes) -> None:
        """Post a body. Return when the receiver has taken it. Raise WebhookRefusal or WebhookUnavailable."""
        headers = make_headers(id_, body, self._target.key, int(time.time()))
        status, after = 0, None
        try:
            with anyio.fail_after(self.timeout_s):
                async with self._client.stream(
                    "POST", self._target.url, content=body, headers=headers
                ) as answer:
                    status, after = answer.status_code, answer.headers.get("retry-after")
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError, TimeoutError, ValueError) as error:
            if not status:  # once the status is here, what follows it does not matter
                raise WebhookUnavailable(f"no answer ({type(error).__name__})") from None
        finally:
            self._client.cookies.clear()
        _judge(status, after)

    async def aclose(self) -> None:
        """Close the client."""
        await self._client.aclose()


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
        raise WebhookRefusal(f"status {status}")
    raise WebhookUnavailable(f"status {status}", read_retry_after(after, time.time()))


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
