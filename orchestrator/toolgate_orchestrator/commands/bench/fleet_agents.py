"""What the agents of `toolgate bench fleet` do, and the schedulers that rule on it. Pure but for `lay_out`.

Every agent makes the same number of calls, so that their times can be compared. Each fifth delegates
once besides: to `senior`, whose work the router gives to `junior`, an agent with two calls of its own.
The last call of each agent is one that the policy denies.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolgate_orchestrator.commands.host.scheduler_processes import SchedulerSpec

PATIENCE_MS: Final = 120_000
"""Every scheduler is required: a silent one would deny, never be passed over. Nobody is to be silent
merely because the machine is busy, so the patience is longer than any run here."""
SCHEDULERS: Final = ("bench-policy", "bench-router", "bench-audit")
EVERY: Final = 5
CHILD_CALLS: Final = 2
FORBIDDEN: Final = "1000 + 1"

POLICY: Final = """\
rules:
  - name: no thousands
    tools: calculate
    when: {expression: "1000 *"}
    action: deny
    reason: sums above a thousand are done by hand
"""
ROUTES: Final = """\
routes:
  - name: small work
    from: delegate
    agent_targets: senior
    to: delegate
    agent: junior
    reason: junior does it for less
"""
AUDIT: Final = """\
rules:
  - name: a second pair of eyes
    tools: calculate
    when: {expression: "* 7"}
    action: deny
    mode: observe
"""


@dataclass(frozen=True, slots=True)
class Work:
    """What one process of the fleet is to do."""

    url: str
    namespace: str
    row: str
    """Begins the ids of its sessions."""
    first: int
    """Number of its first agent."""
    agents: int
    calls: int
    """Of each agent, not counting a delegation and what the other agent does."""
    think_s: float
    """What the LLM takes over a request."""
    limit_s: float
    """The longest that all may take."""


def lay_out(directory: Path, replicas: int) -> list[SchedulerSpec]:
    """Write the schedulers' files; gives every replica of each."""
    specs: list[SchedulerSpec] = []
    written = zip(SCHEDULERS, (("policy", POLICY), ("router", ROUTES), ("policy", AUDIT)), strict=True)
    for name, (spec, text) in written:
        config = directory / f"{name}.yaml"
        config.write_text(text)
        specs += [SchedulerSpec(spec, config, name, tools=("*",))] * replicas
    return specs


def delegates(number: int) -> bool:
    """Whether this agent also delegates."""
    return number % EVERY == 0


def decisions_of(work: Work) -> int:
    """How many calls the LLMs of a process make, all told: so many decisions there must be."""
    numbers = range(work.first, work.first + work.agents)
    return sum(work.calls + (1 + CHILD_CALLS if delegates(number) else 0) for number in numbers)


def plan_of(work: Work, number: int) -> dict[str, Any]:
    """The mount plan of one agent; what its LLM says is `turns_of`, and no part of the agent."""
    toolgate = {
        "redis": work.url,
        "namespace": work.namespace,
        "agent": "worker",
        "required": list(SCHEDULERS),
        "patience_ms": PATIENCE_MS,
    }
    helper = {"providers": [_llm(work.think_s)]}
    return {
        "session": {
            "orchestrator": {"module": "loop-events", "config": {"max_iterations": -1, "toolgate": toolgate}},
            "context": "context-simple",
        },
        "providers": [_llm(work.think_s)],
        "tools": [
            {"module": "tool-calculator"},
            *([{"module": "tool-delegate"}] if delegates(number) else []),
        ],
        "hooks": [],
        "agents": {"senior": helper, "junior": helper} if delegates(number) else {},
    }


def _sum(expression: str) -> dict[str, Any]:
    return {"name": "calculate", "arguments": {"expression": expression}}


def turns_of(work: Work, number: int) -> list[dict[str, Any]]:
    """What the LLM of this agent says."""
    calls = [*(_sum(f"{number} + {n}") for n in range(work.calls - 1)), _sum(FORBIDDEN)]
    if delegates(number):
        calls.insert(0, {"name": "delegate", "arguments": {"agent": "senior", "instruction": "Add up."}})
    return _script(calls)


def turns_of_child() -> list[dict[str, Any]]:
    """What the LLM of an agent says to which was delegated."""
    return _script([_sum(f"2 + {n}") for n in range(CHILD_CALLS)])


def _script(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [*({"tool_calls": [call]} for call in calls), {"text": "Done."}]


def _llm(think_s: float) -> dict[str, Any]:
    # A call comes in two pieces, and the LLM takes its time before each.
    return {"module": "provider-scripted", "config": {"pace_s": think_s / 2}}
