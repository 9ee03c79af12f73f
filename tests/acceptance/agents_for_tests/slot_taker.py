"""An agent that comes to one point on its way to a slot, says so, and stands still until it is killed.

python slot_taker.py URL NAMESPACE POINT
"""

import asyncio
import os
import signal
import sys

from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

TOOLS = ["work"]


async def be_at(url, namespace, point):
    """Prints where it is; `ended` kills itself before it can tell that its tool has run."""

    async def stand(*_):
        print(point, flush=True)
        await asyncio.Event().wait()

    where = {"redis": url, "namespace": namespace}
    async with Gate.open(**where, patience_ms=20_000, required=["slots"], ask=stand) as gate:
        asks = {"rules": {"alpha": {"action": "ask_user", "prompt": "May it?"}}} if point == "asks" else {}

        def tell(_):
            print(point if point == "waits" else "", flush=True)

        call = gate.decide(Call("work", {"point": point, **asks}, TOOLS), on_hold=tell)
        if point == "anywhere":
            print(point, flush=True)
        decision = await call
        if point == "ended":
            gate.note("tool:post", {"decision_id": decision.id, "tool": "work", "success": True})
            os.kill(os.getpid(), signal.SIGKILL)
        await stand()


if __name__ == "__main__":
    asyncio.run(be_at(*sys.argv[1:]))
