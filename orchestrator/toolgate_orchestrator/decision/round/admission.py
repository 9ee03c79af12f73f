"""The last round: who gives what is scarce is asked about the call that is about to run.

One after another, the highest priority first, so that nothing is given while something else is waited for.
They may continue, deny or hold; the first denial gives back all that was given before it, and so does a
caller that goes. Not here: whom to ask (`recipients`), and what becomes of a call that was admitted.
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
    """The same ruling, or a denial of one who was asked; each is waited for as long as any question."""
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
