"""Post the notifications in the outbox to one receiver, in order, until each is taken or given up.

A POST begins only while this process surely has the lease, and is over before another could have it. A
notification that was taken is removed from the outbox before anything else is done. Only a process that
ends between these two steps has it posted once more, under the same id.
"""

import time
from typing import Final, Literal, Protocol

import anyio
import stamina

from toolgate_bus.commands.notify.config import NotifyConfig
from toolgate_bus.commands.notify.grouping import Notification
from toolgate_bus.commands.notify.message import make_body
from toolgate_bus.commands.notify.webhook import Webhook, WebhookRefusal, WebhookUnavailable
from toolgate_bus.telemetry import definitions
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.metrics import CounterSeries

PostOutcome = Literal["delivered", "refused", "expired", "superseded"]
stamina.instrumentation.set_on_retry_hooks([])  # this module logs and counts retries itself
POSTS: Final = CounterSeries(definitions.NOTIFICATIONS)
_log = get_logger("toolgate.notify")


class SendQueue(Protocol):
    """Queue from which a sender takes notifications, and to which it reports."""

    async def first(self, receiver: str) -> Notification:
        """Wait for the oldest notification of a receiver, and return it."""

    async def may_send(self, one: Notification) -> bool:
        """Wait until this process surely leads. Return whether the notification is still to be sent."""

    async def strike(self, one: Notification) -> None:
        """Remove a notification that needs no sending any longer."""


class Sender:
    """Sender of one receiver."""

    def __init__(
        self, name: str, webhook: Webhook, queue: SendQueue, config: NotifyConfig, space: str
    ) -> None:
        self._name, self._webhook, self._queue = name, webhook, queue
        self._config, self._space = config, space

    async def run(self) -> None:
        """Work until cancelled. A POST that has begun is ended, and its outcome kept."""
        while True:
            one = await self._queue.first(self._name)
            outcome = await self._deliver(one)
            if outcome == "superseded":
                continue
            if outcome != "delivered":
                await self._queue.strike(one)

    async def _deliver(self, one: Notification) -> PostOutcome:
        retry = self._config.retry
        tries = stamina.retry_context(
            on=_wait_for,
            attempts=None,
            timeout=None,
            wait_initial=retry.first_s,
            wait_max=retry.max_s,
            wait_jitter=retry.first_s,
        )
        try:
            async for attempt in tries:
                with attempt:
                    outcome = await self._try(one)
        except WebhookRefusal as error:
            self._tell(one, "refused", str(error))
            return "refused"
        return outcome

    async def _try(self, one: Notification) -> PostOutcome:
        """Try once. Raise WebhookUnavailable or WebhookRefusal."""
        if not await self._queue.may_send(one):
            return "superseded"
        if time.time() - one.at >= self._config.retry.give_up_s:
            self._tell(one, "expired", "")
            return "expired"
        receiver = self._config.receivers[self._name]
        body = make_body(receiver.kind, one, self._space, self._config.console_url)
        with anyio.CancelScope(shield=True):  # bounded by the receiver's timeout
            try:
                await self._webhook.post(one.id, body)
            except WebhookUnavailable as error:
                self._tell(one, "failed", str(error))
                raise
            await self._queue.strike(one)
            self._tell(one, "delivered", "")
        return "delivered"

    def _tell(self, one: Notification, outcome: str, words: str) -> None:
        cause = one.incidents[0].cause
        POSTS.add((cause, self._name, outcome))
        tell = _log.info if outcome == "delivered" else _log.warning
        tell(
            f"a notification was {outcome}"
            if outcome != "failed"
            else "a receiver did not take a notification",
            id=one.id,
            receiver=self._name,
            cause=cause,
            incidents=len(one.incidents) + one.left_off,
            **({"why": words} if words else {}),
        )


def _wait_for(error: Exception) -> bool | float:
    """Return whether to try again, or the minimum seconds before that, if the receiver said so."""
    if isinstance(error, WebhookUnavailable):
        return True if error.wait_s is None else error.wait_s
    return False
