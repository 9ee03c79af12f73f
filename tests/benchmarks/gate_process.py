"""Gate in a process of its own, which decides on command; it runs under any version of Toolgate.

`python gate_process.py JSON`, with server and namespace in the environment. Of Toolgate it uses `Gate.open`
and `decide`, or `Guard` and its `tool`. The JSON has `mix` (path of the mix of calls), `calls` (`mix`,
`policy`, `guard`: functions that are a guard's tools, or `paid`: the same, of which none is denied),
`schedulers` and `config`, further fields of the gate. A line of JSON on stdin is a block (`decisions`,
`in_flight`, `size`); a line on stdout is its result (`latencies` and `wall` in seconds, `fault`). It ends
with its stdin.
"""

import asyncio
import gc
import importlib.util
import json
import os
import sys
import time
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

from toolgate_bus.errors import CallDenial
from toolgate_orchestrator import Gate, Guard

try:
    from toolgate_orchestrator import Call, Caller
except ImportError:  # a version whose `decide` takes the fields one by one
    Call = Caller = None

FACTS_S = 0.05
"""Seconds after which facts are written; their cost belongs to the block."""
PATIENCE_MS = 120_000
COLLECT_AFTER = (10_000, 20, 50)
POLICY_TOOLS = ("bash", "send_mail", "write_file", "read_file")
DENY_EVERY = 16


class MixCalls:
    """Calls of the mix, which `toolgate bench` decides too."""

    def __init__(self, path: str, schedulers: list[str]) -> None:
        spec = importlib.util.spec_from_file_location("bench_mix", path)
        if spec is None or spec.loader is None:
            raise ImportError(path)
        self._module: Any = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = self._module
        spec.loader.exec_module(self._module)
        self._mix = self._module.Mix(schedulers)
        self.tools = self._module.TOOLS

    def take(self, decisions: int, size: str) -> list[Any]:
        """Return the next calls."""
        return list(self._mix.take(decisions, size))

    def find_fault(self, call: Any, decision: Any) -> str | None:
        """Return what is wrong with a decision."""
        fault: str | None = self._module.find_fault(call, self._module.to_answer(decision))
        return fault


class PolicyCalls:
    """Calls that the rules of a policy look at; every 16th is denied."""

    tools = POLICY_TOOLS

    def __init__(self) -> None:
        self._number = 0

    def take(self, decisions: int, size: str) -> list[Any]:
        """Return the next calls, whatever the size."""
        return [self._next() for _ in range(decisions)]

    def _next(self) -> SimpleNamespace:
        self._number = number = self._number + 1
        denied = number % DENY_EVERY == 0
        command = "rm -rf /srv" if denied else f"ls {number} {'x' * 300}"
        return SimpleNamespace(
            tool_name="bash" if denied else POLICY_TOOLS[number % len(POLICY_TOOLS)],
            tool_input={"command": command, "path": f"notes/{number}.txt", "amount": 5},
            session=f"s{number % 64}",
            tool_call_id=str(number),
            denied=denied,
        )

    def find_fault(self, call: Any, decision: Any) -> str | None:
        """Return what is wrong with a decision."""
        if decision.allowed is call.denied or decision.silent:
            return f"call {call.tool_call_id}: {decision!r:.500}"
        return None


class GuardCalls(PolicyCalls):
    """The same calls, of functions that a guard has made tools."""

    def __init__(self, guard: Guard, *, denies: bool) -> None:
        super().__init__()
        self._denies = denies

        def make(name: str) -> Any:
            async def run(command: str, path: str, amount: int) -> str:
                return "done"

            return guard.tool(run, name=name)

        self._functions = {name: make(name) for name in POLICY_TOOLS}

    async def ask(self, call: Any) -> Any:
        """Return what a function gives, or None where it is denied."""
        try:
            return await self._functions[call.tool_name](**call.tool_input)
        except CallDenial:
            return None

    def find_fault(self, call: Any, decision: Any) -> str | None:
        """Return what is wrong with the end of a call."""
        expected = None if call.denied and self._denies else "done"
        return None if decision == expected else f"call {call.tool_call_id}: {decision!r:.500}"


async def ask(gate: Any, source: Any, call: Any) -> Any:
    """Return the decision of a gate on a call, or what a guard's function gives."""
    if isinstance(source, GuardCalls):
        return await source.ask(call)
    id_, tools = call.tool_call_id, source.tools
    if Call is None:
        return await gate.decide(
            call.tool_name, call.tool_input, tools, session=call.session, tool_call_id=id_
        )
    return await gate.decide(Call(call.tool_name, call.tool_input, tools, Caller(call.session), id_))


async def run_block(gate: Any, source: Any, calls: list[Any], in_flight: int) -> dict[str, Any]:
    """Decide all calls."""
    latencies: list[float] = []
    decided: list[tuple[Any, Any]] = []
    rest = iter(calls)

    async def lane() -> None:
        for call in rest:
            began = time.perf_counter()
            decision = await ask(gate, source, call)
            latencies.append(time.perf_counter() - began)
            decided.append((call, decision))

    began = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(in_flight)))
    wall = time.perf_counter() - began
    await asyncio.sleep(FACTS_S)
    faults = (source.find_fault(call, decision) for call, decision in decided)
    return {"latencies": latencies, "wall": wall, "fault": next(filter(None, faults), None)}


async def main(told: dict[str, Any]) -> None:
    """Serve blocks until stdin ends."""
    names = told["schedulers"]
    loop = asyncio.get_running_loop()
    fields = {"required": names, "patience_ms": PATIENCE_MS, **told["config"]}
    fields |= {"redis": os.environ["TOOLGATE_REDIS_URL"], "namespace": os.environ["TOOLGATE_NAMESPACE"]}
    source: PolicyCalls | MixCalls
    async with AsyncExitStack() as stack:
        gate = None
        if told["calls"] in ("guard", "paid"):
            guard = Guard(agent="bench", **fields)
            stack.callback(guard.close)
            source = GuardCalls(guard, denies=told["calls"] == "guard")
        else:
            source = MixCalls(told["mix"], names) if told["calls"] == "mix" else PolicyCalls()
            gate = await stack.enter_async_context(Gate.open(agent="bench", **fields))
        gc.freeze()
        gc.set_threshold(*COLLECT_AFTER)
        print("ready", flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            asked = json.loads(line)
            calls = source.take(asked["decisions"], asked["size"])
            print(json.dumps(await run_block(gate, source, calls, asked["in_flight"])), flush=True)


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        new_loop = asyncio.new_event_loop
    else:
        new_loop = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main(json.loads(sys.argv[1])))
