"""The admission round: schedulers that give something scarce are asked about the call that is about to run.

They are asked one by one, highest priority first, so that nothing is given while another answer is pending.
They may continue, deny or hold. The first denial gives back all that was given before, and so does a caller
that leaves. The recipients (`recipients`), and what follows an admission, are elsewhere.
"""

import time
from dataclasses import replace

from toolgate_orchestrator.decision.config import ToolgateConfig
from toolgate_orchestrator.decision.link.recipients import Recipients
from toolgate_orchestrator.decision.round.decision_state import DecisionState
from toolgate_orchestrator.decision.round.dispatcher import Dispatcher
from toolgate_orchestrator.decision.ruling import (
    AGREED,
    UNASKED,
    RulingResult,
    denial,
    objection,
)


async def admit(
    dispatcher: Dispatcher,
    call: DecisionState,
    ruling: RulingResult,
    audience: Recipients,
    config: ToolgateConfig,
) -> RulingResult:
    """Return the ruling, or an asked scheduler's denial. Each is waited for as long as for any question."""
    began, patience = time.monotonic(), config.patience_ms / 1000
    final = ruling.admission(call.question, config.patience_ms)
    ruling = AGREED if ruling is UNASKED else ruling
    is_admitted = False
    try:
        for one in audience.admitters:
            if (objected := objection(call)) is not None:
                return objected
            closed = await dispatcher.dispatch(call, final, one, None, patience)
            if (denied := denial(call, closed, config)) is not None:
                return denied
            if closed.silent and ruling.why == "agreed":
                ruling = replace(ruling, why="failed_open")
        is_admitted = True
        return ruling
    finally:
        call.end_admission(time.monotonic() - began)
        if not is_admitted:
            dispatcher.give_back(call)
