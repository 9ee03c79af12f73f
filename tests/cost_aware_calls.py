"""Configurations of cost-aware, and calls that it is asked about."""

from toolgate_bus.config.check import check
from toolgate_schedulers import ToolSelecting
from toolgate_schedulers.shipped.cost_aware.config import CostAwareConfig


def config(**fields):
    return check(CostAwareConfig, fields, "cost.yaml")


def call(tool="dear", available=("dear", "cheap", "calc"), **fields):
    return ToolSelecting(id="0" * 32, tool_name=tool, available_tools=available, **fields)


TOOLS = {
    "dear": {"cost": 0.40, "latency_s": 1},
    "cheap": {"cost": "0.02", "latency_s": 5},
    "calc": {"cost": 0},
}
EQUIVALENT = [{"tools": ["dear", "cheap"]}]

TEAM = {
    "tools": {"delegate": {"cost": 0.01, "latency_s": 3}},
    "agents": {"senior": {"cost": 2, "latency_s": 60}, "junior": {"cost": 0.5, "latency_s": 20}},
    "alternatives": [{"agents": ["senior", "junior", "intern"]}],
}


def delegation(agent="senior", agents=("senior", "junior", "intern", "clerk"), **fields):
    given = {"agent": agent, "instruction": "Do it", **fields.pop("arguments", {})}
    return call(
        "delegate",
        ("delegate",),
        **{"tool_input": given, "agent_target": agent, "available_agents": agents, **fields},
    )
