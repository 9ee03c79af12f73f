"""What a check of an agent object finds. Pure."""

from typing import NamedTuple


class Gap(NamedTuple):
    """A tool, or all of an agent's, that runs without being ruled on."""

    agent: str
    """Whose it is."""
    tool: str
    """Its name; `*` for all that the agent has."""
    reason: str
    """Why, and what to do about it."""

    def __str__(self) -> str:
        return f"{self.agent}: {self.tool}: {self.reason}"
