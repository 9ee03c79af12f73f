"""A short-lived agent of a demo fleet: a gate, a number of calls, the facts that a loop tells, the end.

    python fleet_agent.py URL NAMESPACE KIND SEED

`steady` works; `spender` spends most of a budget and `squanderer` all of one; `tester` has the scheduler
alpha do whatever a scheduler can do wrong; `rehearsal` has it as a shadow; `endless` reserves money, and goes
on until it is killed; `payer` pays, `lavish` pays and asks a dear LLM, `troubled` calls what is denied, until
told to stop. `hoarder` takes the only desk, or waits for it;
`clerk` uses the till, and asks for it twice, until told to stop; `idler` makes notes
until then, and bears the label `team: idle`.
"""

import asyncio
import itertools
import random
import signal
import sys

from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate

TOOLS = ["search", "cheap_search", "delete", "notes", "pay", "desk", "till"]
COSTS = {"search": 50_000, "cheap_search": 10_000, "pay": 50_000}
REQUIRED = ("policy", "guard", "second")
CHEAPER = {"alpha": {"action": "modify", "tool": "cheap_search", "reason": "cheaper"}}
MISHAPS = [
    {"action": "deny", "reason": "told to"},
    {"action": "modify", "tool": "cheap_search", "reason": "told to"},
    {"action": "modify", "tool": "nowhere", "reason": "no such tool"},
    {"do": "raise"},
    {"do": "hang"},
    {"action": "deny", "reason": "too late", "after": 0.5},
]
FREE_MISHAPS = [one for one in MISHAPS if one.get("tool") != "cheap_search"]
"""Those that cost nothing, however long they go on."""
OVERRUN = {"overrun": {}}
RESULT = "use AKIAIOSFODNN7EXAMPLE for it"
"""What each tool gives: a key, which the policy hides in notes."""
CONFIGS = {
    "tester": {"patience_ms": 300, "schedulers": {"alpha": {"max_priority": 5}}},
    "rehearsal": {"patience_ms": 5000, "shadow": ("alpha",)},
    "troubled": {"required": REQUIRED},
    "payer": {"patience_ms": 5000},
    "clerk": {"patience_ms": 5000, "required": ("slots",)},
    "hoarder": {"patience_ms": 5000, "required": ("slots",)},
    "idler": {"patience_ms": 5000, "labels": {"team": "idle"}},
}
STEADY = {"patience_ms": 5000, "required": REQUIRED}


class Agent:
    """One agent's calls and facts."""

    def __init__(self, gate: Gate, name: str, session: str, root: str) -> None:
        self.gate = gate
        self.who = {"agent": name, "session": session, "root_session": root}
        self.caller = Caller(session, name, root)

    async def call(self, tool: str, rules: dict | None = None) -> bool:
        """One call, ruled on and run; whether it ran."""
        call = Call(tool, {"rules": rules or {}}, TOOLS, self.caller)
        decision = await self.gate.decide(call)
        if decision.allowed:
            ran = {**self.who, "decision_id": decision.id, "tool": decision.tool_name}
            source = "scheduler" if decision.outcome == "modify" else "llm"
            self.gate.note("tool:selected", {**ran, "original_tool": tool, "source": source})
            cost = COSTS.get(decision.tool_name, 0) * (2 if rules == OVERRUN else 1)
            await self.gate.rule_on_result(call, decision, RESULT)
            self.gate.note("tool:post", {**ran, "success": True, "seconds": 0.02, "cost": cost})
        return decision.allowed

    def turn(self, status: str = "completed", cost_usd: float = 0.004) -> None:
        """What a loop tells at the end of a turn, and of the requests in it."""
        asked = {**self.who, "provider": "scripted", "seconds": 0.4}
        used = {"input_tokens": 900, "output_tokens": 120, "cost_usd": cost_usd}
        self.gate.note("usage", {**asked, **used, "iteration": 1})
        self.gate.note("provider:error", {**asked, "error": "Timeout"})
        self.gate.note(
            "turn",
            {**self.who, "loop": "loop-events", "status": status, "seconds": 1.5, "iterations": 2},
        )


async def steady(agent: Agent, seed: int) -> None:
    """Forty calls, of which six are denied and eight replaced."""
    calls = ["delete"] * 6 + ["search"] * 20 + ["notes"] * 12 + ["pay"] * 2
    random.Random(seed).shuffle(calls)
    searches = itertools.count()
    for number, tool in enumerate(calls):
        replaced = tool == "search" and next(searches) % 5 < 2
        await agent.call(tool, CHEAPER if replaced else None)
        if number % 10 == 9:
            agent.turn()


async def spend(agent: Agent, calls: int) -> None:
    """So many paid calls."""
    for _ in range(calls):
        await agent.call("pay")


async def mishaps(agent: Agent, rounds: int) -> None:
    """Everything that alpha can do wrong, between calls that it answers: else it would be passed over."""
    for _ in range(rounds):
        for rule in MISHAPS:
            await agent.call("search", {"alpha": rule})
            await agent.call("notes")
    await agent.call("pay", OVERRUN)
    agent.turn("error")


async def rehearsal(agent: Agent) -> None:
    """Calls that alpha would deny, if it counted."""
    for _ in range(10):
        await agent.call("notes", {"alpha": {"action": "deny", "reason": "in rehearsal"}})


async def endless(agent: Agent) -> None:
    """Money reserved by calls that never end, and others that do, until somebody kills this."""
    for _ in range(2):
        await agent.gate.decide(Call("pay", {}, TOOLS, agent.caller))
    print("reserved", flush=True)
    while True:
        await agent.call("notes")
        agent.turn()


async def hoard(agent: Agent) -> None:
    """Take the desk when it is free, and never give it back."""
    decision = await agent.gate.decide(Call("desk", {}, TOOLS, agent.caller))
    print("has" if decision.allowed else decision.reason, flush=True)
    await asyncio.Event().wait()


def watch_for_the_end() -> asyncio.Event:
    """Set when this process is told to stop."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    return stop


async def clerk(agent: Agent) -> None:
    """Five times a second a slot that is had, and meanwhile one that is not given.

    Where the first is ruled too late, the second has the slot: whoever has it gives it back.
    """
    stop = watch_for_the_end()
    while not stop.is_set():
        had = [await agent.gate.decide(Call("till", {}, TOOLS, agent.caller)) for _ in range(2)]
        for decision in had:
            if decision.allowed:
                agent.gate.note("tool:post", {**agent.who, "decision_id": decision.id, "tool": "till"})
        await asyncio.sleep(0.2)


async def idle(agent: Agent) -> None:
    """Notes, five times a second."""
    stop = watch_for_the_end()
    while not stop.is_set():
        await agent.call("notes")
        print("notes", flush=True)
        await asyncio.sleep(0.2)


async def pay(gate: Gate, kind: str, seed: int, cost_usd: float = 0.0) -> None:
    """A paid call, one that is always free, and a request, five times a second, in sessions of their own."""
    stop = watch_for_the_end()
    for number in itertools.count():
        if stop.is_set():
            return
        agent = Agent(gate, f"{kind}-0", f"{kind}-{seed}-{number}", f"{kind}-{seed}-{number}")
        await agent.call("pay")
        await agent.call("notes")
        agent.turn(cost_usd=cost_usd)
        await asyncio.sleep(0.2)


async def troubled(gate: Gate, seed: int) -> None:
    """Twelve sessions that mostly call what is denied; now and then alpha fails them.

    They pause between turns: this goes on for minutes, and the server's memory is bounded.
    """
    stop = watch_for_the_end()

    async def session(number: int) -> None:
        agent = Agent(gate, "troubled", f"t-{seed}-{number}", f"t-{seed}")
        for turn in itertools.count():
            if stop.is_set():
                return
            for _ in range(5):
                await agent.call("delete")
            await agent.call("notes", {"alpha": FREE_MISHAPS[(turn + number) % len(FREE_MISHAPS)]})
            agent.turn("incomplete")
            await asyncio.sleep(1)

    await asyncio.gather(*(session(number) for number in range(12)))


async def main(url: str, namespace: str, kind: str, seed: str) -> None:
    """Be one agent."""
    config = CONFIGS.get(kind, STEADY)
    async with Gate.open(redis=url, namespace=namespace, **config) as gate:
        agent = Agent(gate, f"{kind}-{int(seed) % 3}", f"{kind}-{seed}", f"{kind}-{seed}")
        match kind:
            case "steady":
                await steady(agent, int(seed))
            case "spender":
                await spend(agent, 19)
            case "squanderer":
                for part in range(4):
                    await spend(Agent(gate, kind, f"{kind}-{seed}-{part}", f"{kind}-{seed}"), 10)
            case "tester":
                await mishaps(agent, 2)
            case "rehearsal":
                await rehearsal(agent)
            case "endless":
                await endless(agent)
            case "clerk":
                await clerk(agent)
            case "hoarder":
                await hoard(agent)
            case "idler":
                await idle(agent)
            case "payer":
                await pay(gate, kind, int(seed))
            case "lavish":
                await pay(gate, kind, int(seed), cost_usd=5.0)
            case "troubled":
                await troubled(gate, int(seed))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
