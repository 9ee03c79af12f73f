"""A fleet whose every name and word is an attack on who reads it: schedulers, agents, calls, approvals.

A process of its own, by the public ways only. It says `ready` with the decision and session ids once all
of it can be seen, then goes on until it is killed.
"""

import asyncio
import json
import socket
import sys
from collections.abc import Sequence

from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.ledger.slots.queue import Need, Request, tell_call
from toolgate_bus.ledger.slots.redis import RedisQueues
from toolgate_bus.protocol.agents import LiveAgent
from toolgate_bus.protocol.events import Continue, Deny, Modify, ToolSelecting, Verdict
from toolgate_bus.state.shared import connect_shared_state
from toolgate_bus.transport.redis.answering.scheduler import RedisSchedulerBus
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.session_labels import RedisLabelStore
from toolgate_bus.transport.session_labels import LabelMark
from toolgate_orchestrator import Call, Caller, Gate
from toolgate_orchestrator.decision.link.live_session import LiveSession
from toolgate_schedulers.author.forms import as_scheduler
from toolgate_schedulers.shipped.approval.config import ApprovalConfig, ApprovalRule
from toolgate_schedulers.shipped.approval.scheduler import ApprovalScheduler
from toolgate_schedulers.shipped.cost_aware.config import CostAwareConfig
from toolgate_schedulers.shipped.cost_aware.scheduler import CostAware
from toolgate_schedulers.worker.worker import Worker

BAD = (
    "[red]EVIL[/red][/]\\[b] :bomb: \x1b[2J\x1b]0;title\x07\x9b31m\x85\x7f\u202e\u2066\u200f\u061c\u2028"
    "\ufeff\U000e0041\r\nFAKE line\n\tFAKE"
)
"""Markup, escape sequences of both kinds, bidirectional controls, tags, and lines of its own."""


class Denier:
    """Denies what is called so, replaces what is called so, each with words of its own."""

    name = "denier"
    priority = 1
    tools: Sequence[str] = ("*", BAD)

    async def decide(self, call: ToolSelecting) -> Verdict:
        if call.tool_name.startswith("no"):
            return Deny(reason=BAD)
        if call.tool_name.startswith("other"):
            return Modify(tool=f"runs{BAD}", arguments={BAD: BAD}, reason=BAD)
        return Continue(reason=BAD)


async def serve(url: str, namespace: str, written: object, replica: str) -> None:
    bus = RedisSchedulerBus(url, namespace)
    worker = Worker(
        as_scheduler(written),
        bus,
        shared=connect_shared_state(url, bus.commands, namespace),
        namespace=namespace,
        replica=replica,
    )
    await worker.start()


async def main(url: str, namespace: str) -> None:
    socket.gethostname = lambda: BAD  # what a process says of its host is its own affair
    rules = (ApprovalRule(tools=("pay*",), name=BAD, prompt=BAD),)
    budgets = (
        {"name": "each", "level": "session", "limit": 5},
        {"name": "who", "level": "agent", "limit": 5},
    )
    costs = CostAwareConfig.model_validate({"tools": {"*": {"cost": 1}}, "budgets": budgets})
    for number, one in enumerate(
        (Denier(), ApprovalScheduler(ApprovalConfig(rules=rules)), CostAware(costs))
    ):
        await serve(url, namespace, one, f"replica-{number}")
    commands = RedisCommands(url, "hostile")
    queue = RedisQueues(commands, namespace).find("slots")
    for id_ in ("has", "waits"):
        need, told = Need(f"pool{BAD}", 1), tell_call(BAD, BAD, BAD)
        await queue.ask(Request(f"{id_}{BAD}", (need,), BAD, tenant=BAD, about=told))
    given, taken = {"a=1": LabelMark(), "*": LabelMark()}, {"a=2": LabelMark(2, 10**15, BAD)}
    await RedisLabelStore(commands, namespace).keep({f"s{BAD}": given | taken})
    facts = FactsReader(commands, namespace, "console")
    await facts.join()
    who = Caller(f"s{BAD}", root=f"s{BAD}", lineage=[BAD], labels={BAD: BAD})
    async with Gate.open(redis=url, namespace=namespace, agent=BAD, patience_ms=5000) as gate:
        seen = LiveSession(LiveAgent(f"s{BAD}", f"s{BAD}", None, BAD, (BAD,)), lambda _now: None)
        gate.enter(seen)
        with seen.turn():
            seen.start_decision("c", BAD)
            held = asyncio.create_task(gate.decide(Call(f"pay{BAD}", {BAD: BAD}, {}, who)))
            decisions = [
                (await gate.decide(Call(f"{word}{BAD}", {BAD: BAD}, {f"runs{BAD}": None}, who))).id
                for word in ("yes", "no", "other")
            ]
            for name in ("tool:post", "usage", "llm:response"):
                gate.note(name, {"decision_id": decisions[0], "tool": BAD, "error": BAD, "agent": BAD})
            print(json.dumps(decisions), flush=True)
            await held
            await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
