"""The gate of one install of Toolgate, which decides on command.

`python -P gate_worker.py URL NAMESPACE COUNT` runs in any Python with a Toolgate, an earlier one, too: of it
are used `Gate.open` and `decide` alone, and of this one `mix`, by its path. A line of JSON on stdin is a
block (`decisions`, `in_flight`, `size`), a line on stdout what it came to (`latencies` and `wall` in seconds,
`fault`). It ends with its stdin.
"""

import asyncio
import gc
import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

from toolgate_orchestrator import Gate

FACTS_S = 0.05
"""After it facts are written; they are part of what a decision costs."""
PATIENCE_MS = 120_000
COLLECT_AFTER = (10_000, 20, 50)


def _load_mix() -> Any:
    spec = importlib.util.spec_from_file_location("bench_mix", Path(__file__).with_name("mix.py"))
    if spec is None or spec.loader is None:
        raise ImportError("mix.py is not there")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


async def run_block(gate: Any, mix: Any, calls: list[Any], in_flight: int) -> dict[str, Any]:
    """Decide all calls, so many at a time."""
    latencies: list[float] = []
    decided: list[tuple[Any, Any]] = []
    rest = iter(calls)

    async def lane() -> None:
        for call in rest:
            began = time.perf_counter()
            decision = await gate.decide(
                call.tool_name,
                call.tool_input,
                mix.TOOLS,
                session=call.session,
                tool_call_id=call.tool_call_id,
            )
            latencies.append(time.perf_counter() - began)
            decided.append((call, decision))

    began = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(in_flight)))
    wall = time.perf_counter() - began
    await asyncio.sleep(FACTS_S)
    faults = (mix.find_fault(call, mix.to_answer(decision)) for call, decision in decided)
    return {"latencies": latencies, "wall": wall, "fault": next(filter(None, faults), None)}


async def main(url: str, namespace: str, count: int) -> None:
    """Serve blocks until stdin ends."""
    mix = _load_mix()
    names = mix.name_schedulers(count)
    mixes = {size: mix.Mix(names, size) for size in mix.SIZES}
    loop = asyncio.get_running_loop()
    async with Gate.open(
        redis=url, namespace=namespace, agent="bench", required=names, patience_ms=PATIENCE_MS
    ) as gate:
        gc.freeze()
        gc.set_threshold(*COLLECT_AFTER)
        print("ready", flush=True)  # noqa: T201 - the bench waits for this line
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            asked = json.loads(line)
            calls = mixes[asked["size"]].take(asked["decisions"])
            found = await run_block(gate, mix, calls, asked["in_flight"])
            print(json.dumps(found), flush=True)  # noqa: T201 - as above


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        new_loop = asyncio.new_event_loop
    else:
        new_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
