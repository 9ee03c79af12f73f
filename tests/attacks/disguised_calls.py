"""Sends calls in disguise through real gates to a worker's process, and compares with the plain rules."""

import asyncio
import contextlib
import copy
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from disguises import TOOLS, Case, Dresser, policy_of
from plain_rules import refused
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate

__all__ = ["Found", "besiege"]

PATIENCE_MS = 30_000
IN_FLIGHT = 48
REDACTS: tuple[dict[str, Any], ...] = (
    {"max_chars": 256},
    {},
    {"max_chars": 256, "patterns": ["sk-[A-Za-z0-9]{20,}"], "fields": ["to", "secret"]},
)


@dataclass
class Found:
    """What came of a siege."""

    cases: int = 0
    policies: int = 0
    denied: int = 0
    """Of the cases: those that the plain rules refuse."""
    unread: int = 0
    """Cases on which the policy was silent."""
    strict: int = 0
    """Cases that were refused although the plain rules let them run."""
    mattered: Counter[str] = field(default_factory=Counter)
    """Cases that the plain rules refuse, by what they wore."""
    violations: list[str] = field(default_factory=list)
    first: dict[str, int] = field(default_factory=dict)
    """The number of the first violation in one disguise, by that."""

    def summary(self) -> str:
        """For people."""
        worn = "\n".join(f"  {name:22} {number:8}" for name, number in self.mattered.most_common())
        holes = "\n".join(f"  {name:40} case {at}" for name, at in self.first.items())
        return (
            f"{self.cases} cases under {self.policies} policies; {self.denied} that the plain rules refuse, "
            f"{self.strict} refused beyond them; {self.unread} unread\nrefused, by disguise:\n{worn}\n"
            f"violations: {len(self.violations)}\n" + (f"first by disguise:\n{holes}\n" if holes else "")
        )


@contextlib.contextmanager
def _worker(url: str, namespace: str, seed: int) -> Iterator[None]:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "seed.yaml"
        file.write_text(json.dumps({"seed": seed}))
        spec = "disguised_policies:Policies"
        where = ("--config", str(file), "--redis", url, "--namespace", namespace, "--json")
        process = subprocess.Popen(
            [sys.executable, "-m", "toolgate_bus", "scheduler", "run", spec, *where],
            cwd=Path(__file__).parent,
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        try:
            assert process.stdout is not None
            assert b"ready" in process.stdout.readline()
            yield
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


@contextlib.asynccontextmanager
async def _gates(url: str, namespace: str) -> AsyncIterator[list[Gate]]:
    async with contextlib.AsyncExitStack() as stack:
        gates = [
            await stack.enter_async_context(
                Gate.open(
                    redis=url, namespace=namespace, required=required, patience_ms=PATIENCE_MS, redact=redact
                )
            )
            for redact in REDACTS
            for required in ((), ("policy",))
        ]
        deadline = time.monotonic() + 20
        while not all("policy" in gate._client.bus.read_set for gate in gates):
            assert time.monotonic() < deadline, "no gate reads the verdicts of the policy"
            await asyncio.sleep(0.01)
        yield gates


async def besiege(
    url: str,
    namespace: str,
    cases: int,
    policies: int,
    *,
    seed: int = 1,
    told: Callable[[Found], None] | None = None,
) -> Found:
    """So many cases under so many policies."""
    found = Found()
    with _worker(url, namespace, seed):
        async with _gates(url, namespace) as gates:
            for number in range(policies):
                policy = policy_of(seed, number)
                dresser = Dresser(policy, f"{seed} {number}")
                found.policies += 1
                left = cases * (number + 1) // policies - found.cases
                while left > 0:
                    some = [dresser.case() for _ in range(min(left, IN_FLIGHT))]
                    await _send(gates, policy, number, some, found)
                    left -= len(some)
                if told is not None:
                    told(found)
    return found


async def _send(
    gates: list[Gate], policy: dict[str, Any], number: int, cases: list[Case], found: Found
) -> None:
    asked = []
    for at, case in enumerate(cases):
        gate = gates[(found.cases + at) % len(gates)]
        tools, arguments = [*TOOLS, case.tool], copy.deepcopy(case.arguments)
        asked.append(gate.decide(Call(case.tool, arguments, tools, Caller(labels={"policy": str(number)}))))
    for at, decision in enumerate(await asyncio.gather(*asked)):
        case = cases[at]
        found.cases += 1
        wanted = refused(policy, case.tool, case.arguments)
        if decision.why in ("failed_open", "silent"):
            found.unread += 1
        found.denied += wanted
        found.strict += decision.outcome == "deny" and not wanted
        for worn in case.worn if wanted else ():
            found.mattered[worn] += 1
        if wanted and decision.outcome != "deny":
            worn = "+".join(case.worn) or "no disguise"
            shown = json.dumps(case.arguments, default=repr)[:300]
            found.violations.append(
                f"policy {number}, gate {(found.cases - 1) % len(gates)}, {worn}: {case.tool!r} {shown} "
                f"({decision.outcome}, {decision.why}) under {json.dumps(policy)}"
            )
            if len(case.worn) < 2:
                found.first.setdefault(worn, found.cases)
