"""Findings of a check: a tool, and a tool without a gate. Pure."""

from typing import NamedTuple


class Gap(NamedTuple):
    """A tool, or all tools of an agent, that run without a ruling."""

    agent: str
    """Name of the agent."""
    tool: str
    """Name of the tool; `*` for all tools of the agent."""
    reason: str
    """Reason for the gap, and how to close it."""

    def __str__(self) -> str:
        return f"{self.agent}: {self.tool}: {self.reason}"


class FoundTool(NamedTuple):
    """A tool of an agent."""

    agent: str
    """Name of the agent."""
    tool: str
    """Name of the tool."""
    is_own: bool = True
    """False if the model's provider runs it: no gate sees its calls."""
