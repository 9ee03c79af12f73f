"""Posts what stands in the outbox to one receiver, in order, until it is taken or given up.

A POST begins only while this process surely has the lease, and is over before another could have it. What
was taken is struck out of the outbox before anything else is done; only between these two can an end of the
process have it posted once more, under the same id.
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
stamina.instrumentation.set_on_retry_hooks([])  # what is tried again is logged and counted here
POSTS: Final = CounterSeries(definitions.NOTIFICATIONS)
_log = get_logger("toolgate.notify")


class SendQueue(Protocol):
    """What a sender takes from, and tells."""

    async def first(self, receiver: str) -> Notification:
        """The oldest for a receiver, as soon as there is one."""

    async def may_send(self, one: Notification) -> bool:
        """Wait until this process surely leads; whether it is still to be sent then."""

    async def strike(self, one: Notification) -> None:
        """It needs no sending any longer."""


class Sender:
    """One receiver's."""

    def __init__(
        self, name: str, webhook: Webhook, queue: SendQueue, config: NotifyConfig, space: str
    ) -> None:
        self._name, self._webhook, self._queue = name, webhook, queue
        self._config, self._space = config, space

    async def run(self) -> None:
        """Work until cancelled; a POST that has begun is ended, and what came of it kept."""
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
        """One try; raises WebhookUnavailable, WebhookRefusal."""
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
    """Whether to try again, or after how many seconds at least, as the receiver asked."""
    if isinstance(error, WebhookUnavailable):
        return True if error.wait_s is None else error.wait_s
    return False
