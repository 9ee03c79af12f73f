"""`approval`, killed while it gives an answer: `before` or `after` the bus has it (TOOLGATE_TEST_DIES)."""

import os
import signal

from toolgate_bus.transport.redis.answering.scheduler import RedisSchedulerBus
from toolgate_schedulers.shipped.approval.scheduler import ApprovalScheduler

_write = RedisSchedulerBus.answer_now


async def _dies(self: RedisSchedulerBus, orchestrator: str, item: bytes) -> None:
    if os.environ["TOOLGATE_TEST_DIES"] == "after":
        await _write(self, orchestrator, item)
    os.kill(os.getpid(), signal.SIGKILL)


class Approval(ApprovalScheduler):
    """The shipped one, on a bus that is the end of it."""

    name = "approval"


RedisSchedulerBus.answer_now = _dies
