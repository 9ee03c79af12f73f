"""Local tables in simulated worlds: rules that change, the policy that has them, and who watches them.

A version of the rules is drawn from the seed. Its table and its policy say the same; what it answers with
`ask`, the policy alone decides. Replicas take a new version one after the other.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from simulated_server import SimulatedServer
from simulation_plan import TOOLS, Plan, SchedulerPlan, draw
from toolgate_bus.protocol.events import Continue, Deny, ToolSelecting
from toolgate_bus.protocol.revision import Revision
from toolgate_bus.transport.redis.roster.roster import RosterView
from toolgate_schedulers import Scheduler
from toolgate_schedulers.commands.policy_status import describe_tables
from virtual_time import VirtualLoop

POLICY = "policy"
LOOK_S = 0.01
"""Seconds between two looks of somebody who waits for new rules to be in force."""
NOTICE_S = 0.02
"""Seconds after which a replica looks at its file again."""


@lru_cache(4096)
def rules_of(seed: int, version: int) -> tuple[dict[str, Any], ...]:
    """Return the rules of a version, as a table has them."""
    rules: list[dict[str, Any]] = []
    for tool in TOOLS:
        share = draw(seed, "rules", version, tool)
        if share < 0.3:
            rules.append({"tools": [tool], "answer": "deny"})
        elif share < 0.5:
            rules.append({"tools": [tool], "answer": "ask"})
        elif share < 0.75:
            digit = int(share * 1000) % 10
            rules.append({"tools": [tool], "answer": "deny", "when": {"n": {"glob": f"*{digit}"}}})
    return tuple(rules)


def answer_of(seed: int, version: int, tool: str, number: str) -> str:
    """Return what a version of the rules says about a call: `deny`, `ask` or `continue`."""
    for rule in rules_of(seed, version):
        if tool in rule["tools"] and ("when" not in rule or number.endswith(rule["when"]["n"]["glob"][1:])):
            return str(rule["answer"])
    return "continue"


@lru_cache(4096)
def table_of(seed: int, version: int) -> bytes:
    """Return the bytes of a version's table; no two versions have the same."""
    named = [{**rule, "name": f"v{version}"} for rule in rules_of(seed, version)]
    mark = {"tools": [f"version_{version}"], "answer": "ask"}
    return json.dumps({"rules": [*named, mark], "default": "continue"}).encode()


def with_rules(plan: Plan, made: Scheduler, version: int, says: Callable[..., None]) -> Scheduler:
    """Return the policy with this version of its rules."""

    async def decide(call: ToolSelecting) -> Any:
        number = str(call.tool_input["n"])
        share = draw(plan.seed, made.name, number, version)
        if share < 0.3:
            await asyncio.sleep(share / 20)
        answer = answer_of(plan.seed, version, call.tool_name, number)
        denies = answer == "deny" or (answer == "ask" and share > 0.7)
        verdict = Deny(reason=f"as v{version} says") if denies else Continue()
        says(made.name, call, verdict)
        return verdict

    return replace(
        made,
        decide=decide,
        local_table=table_of(plan.seed, version),
        revision=Revision(f"v{version}"),
    )


class RulesOnDisk:
    """The rules as their file has them, and the replicas that take them from it."""

    def __init__(self, plan: Plan, loop: VirtualLoop, note: Callable[[str], None]) -> None:
        self._plan, self._loop, self._note = plan, loop, note
        self.version = 0
        self.on_change: Callable[[], None] = lambda: None

    def change(self) -> None:
        """Write the next version."""
        self.version += 1
        self._note(f"the rules change to v{self.version}")
        self.on_change()

    async def keep(self, process: Any, make: Callable[[int], Scheduler], shared: Callable[[], Any]) -> None:
        """Have a replica follow the file, as long as it lives; it takes its time to notice."""
        has = process.version
        while not process.dead and not process.leaves:
            if has != self.version:
                wanted = self.version
                until = self._loop.time() + self._lag(process.name, wanted)
                while self._loop.time() < until:
                    await asyncio.sleep(NOTICE_S)
                    if process.dead or process.leaves:
                        return
                has = self.version
                self._note(f"{process.name} takes v{has}")
                await process.worker.swap(make(has), shared())
            await asyncio.sleep(NOTICE_S)

    def _lag(self, name: str, version: int) -> float:
        share = draw(self._plan.seed, name, version, "lag")
        return share * 0.05 if share < 0.6 else share * 2


class StatusWatch:
    """An operator who waits, after each change, until `toolgate policy status` says that it is in force."""

    def __init__(
        self,
        server: SimulatedServer,
        loop: VirtualLoop,
        digests: Callable[[str], int | None],
        tell: Callable[[int | None], None],
    ) -> None:
        """`digests` gives the version of a digest; `tell` is told what is in force everywhere, or None."""
        self._server, self._loop, self._digests, self._tell = server, loop, digests, tell
        self._last: int | None = None
        self._seen: tuple[Any, Any] = ((), {})

    def look(self) -> None:
        """Look, and look again."""
        alive = tuple(one for one in self._server.list_living().values() if not one.left)
        seen = alive, self._server.list_gates()
        if seen != self._seen:
            self._seen = seen
            found = [one for one in describe_tables(RosterView(alive, tables=seen[1])) if one.name == POLICY]
            now = self._digests(found[0].digest) if found and found[0].is_everywhere else None
            if now != self._last:
                self._last = now
                self._tell(now)
        self._loop.call_later(LOOK_S, self.look)


def is_policy(one: SchedulerPlan) -> bool:
    """Return whether a scheduler is the one that has tables."""
    return one.kind == POLICY
