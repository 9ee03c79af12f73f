"""Questions of tests: a tool and its arguments, and plain values for all else."""

from collections.abc import Coroutine
from typing import Any

from toolgate_bus.protocol.events import Decision, ToolQuestion
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate

PLAIN: dict[str, Any] = {
    "id": "0" * 32,
    "ttl_ms": 500,
    "agent": "",
    "labels": {},
    "session": "",
    "root_session": "",
    "parent": None,
    "lineage": [],
    "tool_call_id": "",
    "iteration": 0,
    "parallel_group_id": "",
    "available_agents": None,
    "agent_target": None,
    "trace": {},
    "truncated": False,
}


def question_about(tool: str, arguments: dict[str, Any], **fields: Any) -> ToolQuestion:
    """What a gate would ask about this call."""
    told = {"available_tools": [tool], **PLAIN, **fields}
    return ToolQuestion(tool_name=tool, tool_input=arguments, **told)


def call_about(tool: str, arguments: Any, tools: Any, **fields: Any) -> Call:
    """Return the call that a door would make; `fields` are those of the question."""
    named = {_WORDS.get(name, name): value for name, value in fields.items()}
    whose = {name: named.pop(name) for name in Caller.__match_args__ if name in named}
    return Call(tool, arguments, tools, Caller(**whose), **named)


def decide(gate: Gate, tool: str, arguments: Any, tools: Any, **fields: Any) -> Coroutine[Any, Any, Decision]:
    """Put a call to a gate; `fields` are those of the question, and options of `Gate.decide`."""
    options = {name: fields.pop(name) for name in ("local", "ask", "on_hold", "passes") if name in fields}
    return gate.decide(call_about(tool, arguments, tools, **fields), **options)


_WORDS = {"root_session": "root", "tool_call_id": "id", "parallel_group_id": "group"}
