"""Send a notification's text to one of the services that apprise knows: Slack, mail and a hundred others.

An address holds a service's secrets and settings. apprise and the libraries below it log addresses, so their
logs are off, and a failure is reported without their words. apprise waits for sockets, and some of its
services sleep between messages, so each message is sent in a thread.
"""

import asyncio
import logging
from concurrent.futures import Future
from threading import Thread
from typing import Final

from apprise import Apprise, AppriseAsset, OverflowMode

from toolgate_bus.commands.notify.config import Severity
from toolgate_bus.commands.notify.notification import Incident, Notification, make_text
from toolgate_bus.commands.notify.receivers import ReceiverUnavailable

TYPES: Final[dict[Severity, str]] = {"info": "info", "warning": "warning", "critical": "failure"}
"""Types of apprise, which colour a message, by our severity."""

for _name in ("apprise", "urllib3", "requests", "requests_oauthlib", "oauthlib"):  # they log addresses
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)


class AppriseService:
    """Service at one address, ready to be sent to."""

    def __init__(self, url: str, timeout_s: float, namespace: str, console_url: str | None) -> None:
        """Raise ValueError, which does not show the address, if apprise reads no service in it."""
        make_sender(url)
        self._url, self._timeout_s = url, timeout_s
        self._namespace, self._console_url = namespace, console_url
        self._sending: tuple[str, Future[str]] | None = None
        """Id of the notification that a thread sends, and its result."""

    async def post(self, one: Notification) -> None:
        """Return when the service has taken it. Raise ReceiverUnavailable.

        A thread cannot be ended. One that takes too long goes on, and the next try waits for it, so that a
        service which is slow gets no message twice and no more than one thread.
        """
        if self._sending is None or (self._sending[0] != one.id and self._sending[1].done()):
            self._sending = one.id, self._start(one)
        id_, result = self._sending
        await asyncio.wait({asyncio.wrap_future(result)}, timeout=self._timeout_s)
        if not result.done() or id_ != one.id:
            raise ReceiverUnavailable("no answer in time")
        self._sending = None
        if why := result.result():
            raise ReceiverUnavailable(why)

    def _start(self, one: Notification) -> "Future[str]":
        result: Future[str] = Future()

        def run() -> None:
            try:
                result.set_result(self._send(one))
            except Exception as error:  # noqa: BLE001 - of any service's code; its words may show the address
                result.set_result(type(error).__name__)

        # A process that is told to end does not wait for it.
        Thread(target=run, name="toolgate-notify", daemon=True).start()
        return result

    def _send(self, one: Notification) -> str:
        """Return why the service did not take it; empty if it did."""
        taken = make_sender(self._url).notify(
            body=make_text(one, self._console_url),
            title=f"Toolgate {self._namespace}",
            notify_type=_type_of(one.incidents[0]),
            body_format="text",
        )
        return "" if taken else "not delivered"


def make_sender(url: str) -> Apprise:
    """Return apprise with one service, which remembers nothing of earlier messages.

    Raise ValueError, which does not show the address, if apprise reads no service in it.
    """
    asset = AppriseAsset(app_id="Toolgate", app_desc="Toolgate", image_url_mask="", image_url_logo="")
    service = Apprise.instantiate(url, asset=asset)
    if service is None:
        raise ValueError("must be one that apprise knows: https://appriseit.com/services/")
    # Retries are ours: those of an address would wait in the thread. A failure is never a success.
    service.retry, service.wait, service.optional = 0, 0.0, False
    if service.overflow_mode == OverflowMode.UPSTREAM:  # most services refuse a text that is too long
        service.overflow_mode = OverflowMode.TRUNCATE
    sender = Apprise(asset=asset)
    sender.add(service)
    return sender


def _type_of(incident: Incident) -> str:
    return "success" if incident.stage == "closed" else TYPES[incident.severity]
