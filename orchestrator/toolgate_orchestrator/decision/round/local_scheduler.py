"""The scheduler in the agent's own process: its hooks. It is asked beside the bus, and heard like any other.

The open question checks its answers as it checks every verdict. A failure of a hook is the hook's own.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import (
    IN_PROCESS,
    AskUser,
    Continue,
    Deny,
    Failure,
    Hold,
    Modify,
    ToolQuestion,
    Verdict,
)

from toolgate_orchestrator.decision.faults import note_fault
from toolgate_orchestrator.decision.question.plain_values import copy_arguments
from toolgate_orchestrator.decision.round.open_round import OpenRound

LocalScheduler = Callable[[ToolQuestion], Awaitable[Sequence[Verdict]]]
"""Decides in this process. It sees the call unredacted."""


async def consult(local: LocalScheduler, question: OpenRound) -> None:
    """Ask the hooks of this process: they are one more scheduler, whose failure is its own."""
    verdicts: Sequence[Verdict | Failure]
    try:
        asked = question.question
        asked = asked._replace(tool_input=copy_arguments(asked.tool_input))
        verdicts = [_sanitize_answer(one) for one in await local(asked)]
    except (Exception, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        verdicts = (Failure(reason=f"a hook raised {type(error).__name__}"),)
    now = time.monotonic()
    for verdict in verdicts:
        try:
            mark = repr(verdict).encode("utf-8", "replace")
            question.receive(question.judge_verdict(IN_PROCESS, verdict, mark, now), now)
        except Exception as error:  # noqa: BLE001 - a fault of ours; nobody may gain by it
            note_fault("verdict", error, IN_PROCESS)
            question.deny(IN_PROCESS, now)
    question.end_if_over()


def _sanitize_answer(verdict: Verdict | Failure) -> Verdict | Failure:
    """Return a hook's answer in words that can leave this process, or a failure if it is no verdict."""
    if isinstance(verdict, Continue | Deny | Modify | AskUser | Hold | Failure):
        if verdict.reason is None or verdict.reason.isascii():
            return verdict
        return verdict.model_copy(update={"reason": packing.make_readable(verdict.reason)})
    return Failure(reason=f"a hook answered {type(verdict).__name__}, which is not a verdict")
