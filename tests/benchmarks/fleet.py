"""Many agents at once, ruled on by replicated schedulers, and the growth of the figures with their number.

    python tests/benchmarks/fleet.py                            10, 100 and 1,000 agents
    python tests/benchmarks/fleet.py --agents 1000 --think 5    LLMs that take their time
    python tests/benchmarks/fleet.py --agents 1000 --think 5 --by-table
    python tests/benchmarks/fleet.py --agents 10000 --think 60 --calls 4 --limit 3600

Whole sessions of loop-events with a scripted LLM and a real tool, over several processes; three schedulers
with replicas, all required. Every agent makes the same number of calls; the last is one that the policy
denies. Each fifth also delegates to `senior`, whose work the router gives to `junior`, an agent with two
calls of its own. Every call has to be ruled on by all, recorded, and answered once; otherwise the exit code
is 1. The schedulers have no local tables, so they are asked about each call. With --by-table all of them are
policies whose tables answer; no work goes to `junior` then.
Without --think the agents take turns at the whole machine: the rate is the highest, and the latency is
mostly waiting for it.
"""

import argparse
import asyncio
import gc
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
from amplifier_core import AmplifierSession, HookResult
from harness import Columns, Report, count, open_lines, options, own_process, send, start
from toolgate_bus.errors import ToolgateError
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.protocol.events import Decision
from toolgate_bus.server.embedded import Server, private_server
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator.commands.bench.measure import cpu_seconds, quantile
from toolgate_orchestrator.commands.bench.processes import start_processes
from toolgate_orchestrator.commands.host.kernel_threads import let_kernel_threads_go
from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec, scheduler_processes
from toolgate_orchestrator.commands.host.sub_agents import let_delegate

NAMESPACE = "bench-fleet"
SET_UP_S = 60.0
SET_UP_EACH_S = 0.1
"""About ten times what a session takes to be made."""
FACTS_S = 10.0
"""Longest wait for facts, which are written within milliseconds."""
GRACE_S = 10.0
PATIENCE_MS = 120_000
"""Longer than any run: no scheduler counts as silent because the machine is busy."""
SCHEDULERS = ("bench-policy", "bench-router", "bench-audit")
RULED = ("agreed", "denied", "modified")
"""Reasons of decisions for which everybody asked was heard."""
DELEGATE_EVERY = 5
CHILD_CALLS = 2
FORBIDDEN = "1000 + 1"
GOLDEN = 0.618034
"""Multiples of it, without their whole parts, are spread evenly, however many there are."""
POLICY = """\
rules:
  - name: no thousands
    tools: calculate
    when: {expression: "1000 *"}
    action: deny
    reason: sums above a thousand are done by hand
"""
ROUTES = """\
routes:
  - name: small work
    from: delegate
    agent_targets: senior
    to: delegate
    agent: junior
    reason: junior does it for less
"""
AUDIT = """\
rules:
  - name: a second pair of eyes
    tools: calculate
    when: {expression: "* 7"}
    action: deny
    mode: observe
"""
NEVER = """\
rules:
  - {tools: "delete_*", action: deny}
  - {tools: calculate, when: {expression: {matches: "__"}}, action: deny}
"""
OPTIONS = options(__doc__)
OPTIONS.add_argument(
    "-a", "--agents", type=count, nargs="+", default=[10, 100, 1000], help="number at once, row by row"
)
OPTIONS.add_argument("-p", "--processes", type=count, default=4, help="processes of agents (default: 4)")
OPTIONS.add_argument("-r", "--replicas", type=count, default=2, help="of each scheduler (default: 2)")
OPTIONS.add_argument("--calls", type=count, default=8, help="tool calls of each agent (default: 8)")
OPTIONS.add_argument("--think", type=float, default=0.0, help="seconds of the LLM for a request (default: 0)")
OPTIONS.add_argument("--by-table", action="store_true", help="local tables answer all calls")
OPTIONS.add_argument("--limit", type=float, default=300.0, help="longest time of a row (default: 300)")


# ------------------------------------------------------------------ what agents and schedulers do


@dataclass(frozen=True, slots=True)
class Work:
    """Task of one process of agents."""

    url: str
    row: str
    """Beginning of the ids of its sessions."""
    first: int
    """Number of its first agent."""
    agents: int
    calls: int
    """Calls of each agent, without a delegation and the calls of the other agent."""
    think_s: float
    limit_s: float


def works_of(given: argparse.Namespace, row: str, agents: int, url: str) -> list[Work]:
    """Return the work of each process: the agents in even parts, at least one each."""
    processes = min(given.processes, agents)
    firsts = [agents * part // processes for part in range(processes + 1)]
    return [
        Work(url, row, first, after - first, given.calls, given.think, given.limit)
        for first, after in pairwise(firsts)
    ]


def lay_out(directory: Path, replicas: int, *, by_table: bool) -> list[SchedulerSpec]:
    """Write the files of the schedulers and return every replica of each."""
    specs: list[SchedulerSpec] = []
    policy, router = "asked_schedulers:Policy", "asked_schedulers:Router"
    asked = ((policy, POLICY), (router, ROUTES), (policy, AUDIT))
    texts = (("policy", POLICY), ("policy", NEVER), ("policy", NEVER)) if by_table else asked
    for name, (spec, text) in zip(SCHEDULERS, texts, strict=True):
        config = directory / f"{name}.yaml"
        config.write_text(text)
        specs += [SchedulerSpec(spec, config, name, Path(__file__).parent, ("*",))] * replicas
    return specs


def delegates(number: int) -> bool:
    """Return whether this agent also delegates."""
    return number % DELEGATE_EVERY == 0


def decisions_of(work: Work) -> int:
    """Return the number of calls that the LLMs of a process make."""
    numbers = range(work.first, work.first + work.agents)
    return sum(work.calls + (1 + CHILD_CALLS if delegates(number) else 0) for number in numbers)


def plan_of(work: Work, number: int) -> dict[str, Any]:
    """Return the mount plan of one agent, without the turns of its LLM."""
    toolgate = {
        "redis": work.url,
        "namespace": NAMESPACE,
        "agent": "worker",
        "required": list(SCHEDULERS),
        "patience_ms": PATIENCE_MS,
    }
    # A call comes in two pieces, and the LLM takes its time before each.
    llm = {"module": "provider-scripted", "config": {"pace_s": work.think_s / 2}}
    more, helper = delegates(number), {"providers": [llm]}
    return {
        "session": {
            "orchestrator": {"module": "loop-events", "config": {"max_iterations": -1, "toolgate": toolgate}},
            "context": "context-simple",
        },
        "providers": [llm],
        "tools": [{"module": "tool-calculator"}, *([{"module": "tool-delegate"}] if more else [])],
        "hooks": [],
        "agents": {"senior": helper, "junior": helper} if more else {},
    }


def turns_of(work: Work, number: int) -> list[dict[str, Any]]:
    """Return the turns of the LLM of this agent."""
    calls = [*(_sum(f"{number} + {n}") for n in range(work.calls - 1)), _sum(FORBIDDEN)]
    if delegates(number):
        calls.insert(0, {"name": "delegate", "arguments": {"agent": "senior", "instruction": "Add up."}})
    return _script(calls)


def turns_of_child() -> list[dict[str, Any]]:
    """Return the turns of the LLM of an agent to which was delegated."""
    return _script([_sum(f"2 + {n}") for n in range(CHILD_CALLS)])


def _sum(expression: str) -> dict[str, Any]:
    return {"name": "calculate", "arguments": {"expression": expression}}


def _script(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*({"tool_calls": [call]} for call in calls), {"text": "Done."}]


# ------------------------------------------------------------------ a process of agents


class Agents:
    """Agents of one process, and their counts."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._sessions: list[Any] = []
        self._decided: dict[str, float] = {}
        self._whys: Counter[str] = Counter()
        self._by_table = 0
        self._calls: Counter[str] = Counter()
        self._results: Counter[str] = Counter()

    async def set_up(self) -> None:
        """Make every session."""
        for number in range(self._work.first, self._work.first + self._work.agents):
            session = AmplifierSession(plan_of(self._work, number), session_id=f"{self._work.row}-{number}")
            self._sessions.append(session)
            let_delegate(session, lambda child: self._listen(child, turns_of_child))
            self._listen(session, partial(turns_of, self._work, number))
            await session.initialize()

    async def run(self) -> dict[str, Any]:
        """Run all agents at once and return the counts."""
        numbered = list(enumerate(self._sessions, self._work.first))
        async with asyncio.timeout(self._work.limit_s):
            taken = await asyncio.gather(*(self._time_turn(number, session) for number, session in numbered))
        return {
            "decided": self._decided,
            "whys": self._whys,
            "by_table": self._by_table,
            "calls": self._calls.total(),
            "answered": sum(1 for id_, times in self._calls.items() if self._results[id_] == times == 1),
            "alike_s": [s for (number, _), s in zip(numbered, taken, strict=True) if not delegates(number)],
        }

    async def close(self) -> None:
        """Close every session."""
        for session in self._sessions:
            await session.cleanup()

    async def _time_turn(self, number: int, session: Any) -> float:
        # Agents whose LLMs take as long as each other's would all ask at the same moments.
        await asyncio.sleep(self._work.think_s * (number * GOLDEN % 1.0))
        began = time.perf_counter()
        await session.execute("Add up.")
        return time.perf_counter() - began

    def _listen(self, session: Any, turns: Callable[[], list[dict[str, Any]]]) -> None:
        """Count a session's decisions, calls and results; it need not be set up yet.

        `turns` is called when its turn begins, so that the script counts as no agent's memory.
        """
        coordinator = session.coordinator
        kept: list[Any] = []

        async def begin(event: str, data: dict[str, Any]) -> HookResult:
            coordinator.get("orchestrator").gate.subscribe(self._on_decision)
            coordinator.get("providers")["scripted"].add_turns(turns())
            kept.append(coordinator.get("context"))
            return HookResult()

        async def count_calls(event: str, data: dict[str, Any]) -> HookResult:
            for message in await kept.pop().get_messages():
                self._calls.update(call["id"] for call in message.get("tool_calls") or ())
                if message["role"] == "tool":
                    self._results[message["tool_call_id"]] += 1
            return HookResult()

        coordinator.hooks.register("execution:start", begin, name="bench-fleet")
        coordinator.hooks.register("execution:end", count_calls, name="bench-fleet")

    def _on_decision(self, decision: Decision) -> None:
        self._decided[decision.id] = decision.seconds
        self._whys[decision.why] += 1
        self._by_table += all(one.revision.endswith(" local") for one in decision.verdicts)


async def work() -> None:
    """Run the agents of one process: say `ready`, wait for a line, run, say `done`, wait, leave."""
    lines = await open_lines()
    told = Work(**json.loads(await lines.readline()))
    # One agent that is not counted: what it loads stays, and is no other agent's.
    first = Agents(replace(told, row=f"{told.row}-warm-up-{told.first}", first=0, agents=1, think_s=0.0))
    await first.set_up()
    await first.run()
    await first.close()
    before = resident_bytes()
    agents = Agents(told)
    await agents.set_up()
    await _tell_parent(lines, {"event": "ready"})
    counted = await agents.run()
    after = resident_bytes()
    grown = None if before is None or after is None else after - before
    await _tell_parent(lines, {"event": "done", "grown": grown, **counted})
    await agents.close()


async def _tell_parent(lines: asyncio.StreamReader, told: dict[str, Any]) -> None:
    print(json.dumps(told), flush=True)
    if not await lines.readline():
        sys.exit(1)  # the parent is gone


def resident_bytes() -> int | None:
    """Return the memory of this process after garbage collection (Linux); None elsewhere."""
    gc.collect()
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


# ------------------------------------------------------------------ a row


async def measure(works: Sequence[Work], shared: dict[str, list[int]], record: FactsReader) -> dict[str, Any]:
    """Return the row of one number of agents. Raises ToolgateError."""
    async with open_processes(works) as processes:
        pids = {"agents": [one.pid for one in processes], **shared}
        agents = sum(one.agents for one in works)
        await hear_all(processes, "ready", SET_UP_S + agents * SET_UP_EACH_S)
        before, began = {name: cpu_seconds(of) for name, of in pids.items()}, time.perf_counter()
        for process in processes:
            send(process, "go")
        told = await hear_all(processes, "done", works[0].limit_s + GRACE_S)
        wall = time.perf_counter() - began
        spent = {name: _less(cpu_seconds(of), before[name]) for name, of in pids.items()}
        decided = {id_ for one in told for id_ in one["decided"]}
        recorded = await count_in_record(record, decided)
        for process in processes:
            send(process, "go")
    calls = {
        "planned": sum(map(decisions_of, works)),
        "called": sum(one["calls"] for one in told),
        "decided": len(decided),
        "recorded": recorded,
        "answered": sum(one["answered"] for one in told),
    }
    whys = sum((Counter(one["whys"]) for one in told), Counter[str]())
    unheard = sum(times for why, times in whys.items() if why not in RULED)
    latencies = sorted(seconds for one in told for seconds in one["decided"].values()) or [0.0]
    alike = [seconds for one in told for seconds in one["alike_s"]]
    grown = [one["grown"] for one in told]
    cpu = {name: None if s is None else round(s / max(1, len(decided)) * 1e6) for name, s in spent.items()}
    known = [each for each in cpu.values() if each is not None]
    return {
        "agents": agents,
        "processes": len(works),
        "calls": {**calls, "lost": max(calls["planned"] - min(calls.values()), 0), "unheard": unheard},
        "outcomes": dict(whys),
        "by_table": round(sum(one["by_table"] for one in told) / max(1, len(decided)), 3),
        "ok": len(set(calls.values())) == 1 and not unheard,
        "wall_s": round(wall, 3),
        "per_second": round(len(decided) / wall),
        "median_ms": round(statistics.median(latencies) * 1000, 2),
        "p99_ms": round(quantile(latencies, 0.99) * 1000, 2),
        "slowest_to_median": round(max(alike) / statistics.median(alike), 2) if alike else 1.0,
        "jain": round(jain(alike), 3),
        "bytes_per_agent": None if None in grown else round(sum(grown) / agents),
        "cpu_us": {**cpu, "all": sum(known) if len(known) == len(cpu) else None},
    }


def _less(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


def jain(values: Sequence[float]) -> float:
    """Return Jain's index of fairness: 1 where all are alike, 1/n where one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


async def count_in_record(record: FactsReader, decided: set[str]) -> int:
    """Return how many of these decisions stand in the record, each counted once."""
    found: set[str] = set()
    until = time.monotonic() + FACTS_S
    while True:
        for fact in await record.read_all():
            if fact.get("event") == "decision" and fact["id"] in decided:
                found.add(fact["id"])
        if found >= decided or time.monotonic() > until:
            return len(found)
        await asyncio.sleep(0.05)


@asynccontextmanager
async def open_processes(works: Sequence[Work]) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """Start the agents' processes, each told its work; they leave by themselves, or are ended."""
    program = own_process(__file__)
    async with start_processes([program] * len(works), "the agents", wait=False) as processes:
        for process, each in zip(processes, works, strict=True):
            send(process, json.dumps(asdict(each)))
        yield processes
        with anyio.move_on_after(GRACE_S):
            await asyncio.gather(*(one.wait() for one in processes))


async def hear_all(
    processes: Sequence[asyncio.subprocess.Process], event: str, seconds: float
) -> list[dict[str, Any]]:
    """Return the next line of each process; raises ToolgateError if one ends or is too late."""
    try:
        async with asyncio.timeout(seconds):
            return list(await asyncio.gather(*(_hear(process, event) for process in processes)))
    except TimeoutError:
        raise ToolgateError(
            f"the agents were not {event} within {seconds:g} s. Take fewer, or --limit"
        ) from None


async def _hear(process: asyncio.subprocess.Process, event: str) -> dict[str, Any]:
    line = await process.stdout.readline() if process.stdout else b""
    told: dict[str, Any] = json.loads(line) if line.startswith(b"{") else {}
    if told.get("event") != event:
        raise ToolgateError(f"a process of agents ended before it was {event}. Its messages stand above")
    return told


# ------------------------------------------------------------------ command


async def run(server: Server, given: argparse.Namespace, report: Report) -> list[dict[str, Any]]:
    """Run each number of agents."""
    bus = BusSettings(redis=server.url, namespace=NAMESPACE)
    commands = RedisCommands(server.url, "bench-fleet", connections=1)
    rows = []
    try:
        async with scheduler_processes(
            lay_out(server.directory, given.replicas, by_table=given.by_table), bus
        ) as running:
            shared = {"schedulers": [one.pid for one in running], "server": [server.pid]}
            for number, agents in enumerate(given.agents):
                report.tell(f"{agents} agents …")
                works = works_of(given, f"row{number}", agents, server.url)
                rows.append(await measure(works, shared, FactsReader(commands, NAMESPACE)))
                report.add(rows[-1])
    finally:
        await commands.aclose()
    return rows


async def main(given: argparse.Namespace, report: Report) -> int:
    """Run and print; the exit code is 1 where a call was lost, or not ruled on by all."""
    report.show_machine(patience_ms=PATIENCE_MS)
    with private_server() as server:
        rows = await run(server, given, report)
    report.show_beside(LINES, [f"{row['agents']} agents" for row in rows], rows)
    for row in rows:
        if not row["ok"]:
            report.say(f"{row['agents']} agents: {row['calls']}; {row['outcomes']}")
    return 0 if all(row["ok"] for row in rows) else 1


def _cpu(name: str) -> Callable[[Any], str]:
    return lambda row: "?" if row["cpu_us"][name] is None else f"{row['cpu_us'][name]} µs"


LINES: Columns = {
    "calls of LLMs": lambda row: row["calls"]["planned"],
    "  ruled on": lambda row: row["calls"]["decided"],
    "  in the record": lambda row: row["calls"]["recorded"],
    "  by table": lambda row: f"{row['by_table']:.0%}",
    "  answered once": lambda row: row["calls"]["answered"],
    "decisions per second": lambda row: row["per_second"],
    "latency, median": lambda row: f"{row['median_ms']:.1f} ms",
    "latency, p99": lambda row: f"{row['p99_ms']:.1f} ms",
    "slowest ÷ median agent": lambda row: f"{row['slowest_to_median']:.2f}",
    "fairness (Jain, 1 is even)": lambda row: f"{row['jain']:.3f}",
    "memory per agent": lambda row: f"{(row['bytes_per_agent'] or 0) / 1024:.0f} KiB",
    "CPU per decision": _cpu("all"),
    "  agents' processes": _cpu("agents"),
    "  schedulers": _cpu("schedulers"),
    "  server": _cpu("server"),
}


if __name__ == "__main__":
    try:
        start(OPTIONS, main, work)
    finally:
        let_kernel_threads_go()
