"""Questions of tests: a tool and its arguments, and plain values for all else."""

from typing import Any

from toolgate_bus.protocol.events import ToolQuestion

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
