"""One process of the bench of slots: many agents in one event loop that want the same things.

`python -m toolgate_orchestrator.commands.bench.slots_worker`, and on stdin its `SlotWork` as a line of JSON.
It prints `ready`, begins at the next line, and ends its runs and leaves at the one after, or with its stdin.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from contextlib import suppress

import typer
from toolgate_bus.commands.options import run_async
from toolgate_bus.telemetry.logging import configure_logging

from toolgate_orchestrator.commands.bench.slots_load import (
    PATIENCE_MS,
    SCHEDULER,
    TOOL,
    Moment,
    SlotWork,
    What,
    tenant_of,
    write_moment,
)
from toolgate_orchestrator.gate.gate import Gate


class Rivals:
    """The agents of one process."""

    def __init__(self, work: SlotWork, gate: Gate, journal: int) -> None:
        self._work, self._gate, self._journal = work, gate, journal
        self._random = random.Random(work.seed)
        self.words: Counter[str] = Counter()
        """Why calls were denied, and how often."""
        self.is_over = False

    async def run(self) -> None:
        """Let every agent call, run and report until it is over."""
        first = self._work.first
        await asyncio.gather(*(self._live(number) for number in range(first, first + self._work.agents)))

    async def _live(self, agent: int) -> None:
        work = self._work
        urgent = bool(work.urgent_every) and agent % work.urgent_every == 0
        tenant = tenant_of(agent // work.urgent_every if urgent else agent)
        labels = {"tenant": tenant, "class": "urgent" if urgent else "batch"}
        think = work.urgent_think_s if urgent else work.think_s
        while not self.is_over:
            await asyncio.sleep(self._random.expovariate(1.0 / think) if think else 0)
            key = self._random.randrange(work.keys)

            def note(what: What, fence: int = 0, key: int = key) -> None:
                moment = Moment(what, tenant, urgent, agent, key, time.monotonic(), fence)
                os.write(self._journal, write_moment(moment))

            note("ask")
            decision = await self._gate.decide(
                TOOL, {"key": f"k{key}"}, (TOOL,), labels=labels, agent=tenant, session=f"s{agent}"
            )
            if not decision.allowed:
                note("denied")
                self.words[f"{decision.why}: {decision.reason}"] += 1
                continue
            note("start", decision.grants.get(SCHEDULER, 0))
            try:
                if work.hold_s:
                    await asyncio.sleep(work.hold_s)
            finally:
                note("end")
                told = {"decision_id": decision.id, "tool_name": TOOL, "session": f"s{agent}"}
                self._gate.note("tool:post", told)


async def _main() -> None:
    configure_logging()  # stdout is what the bench reads
    lines = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(lines)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    work = SlotWork(**json.loads(await lines.readline()))
    journal = os.open(work.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    async with Gate.open(
        redis=work.url,
        namespace=work.namespace,
        agent="bench",
        required=(SCHEDULER,),
        patience_ms=PATIENCE_MS,
    ) as gate:
        print("ready", flush=True)  # noqa: T201 - the bench waits for this line
        if not await lines.readline():
            return
        rivals = Rivals(work, gate, journal)
        running = asyncio.create_task(rivals.run())
        await lines.readline()
        rivals.is_over = True
        running.cancel()  # a run that is cut off ends as any other
        await asyncio.wait([running])
        print(json.dumps({"event": "done", "denied": rivals.words}), flush=True)  # noqa: T201 - as above
        await lines.readline()
    os.close(journal)


if __name__ == "__main__":
    with suppress(typer.Exit):  # told to end
        run_async(_main)
