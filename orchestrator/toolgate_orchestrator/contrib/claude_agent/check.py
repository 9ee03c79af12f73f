"""Finds tools of a Claude Agent SDK session that no gate rules on."""

from collections.abc import Iterator
from typing import Final

from claude_agent_sdk import ClaudeAgentOptions

from toolgate_orchestrator.contrib.claude_agent.adapter import AGENT, desk_of
from toolgate_orchestrator.contrib.gap import Gap

TAKES: Final = (ClaudeAgentOptions,)
NO_HOOKS: Final = "there is no gate: options = gate(ClaudeAgentOptions(…), guard)"
OTHERS: Final = (
    "hooks of settings files and plugins may change arguments: set setting_sources=[] and plugins=[]"
)


def find_gaps(found: ClaudeAgentOptions) -> Iterator[Gap]:
    """Yield the gaps in a session with these options."""
    if desk_of(found) is None:
        yield Gap(AGENT, "*", NO_HOOKS)
    elif found.setting_sources != [] or found.plugins:
        yield Gap(AGENT, "hooks of others", OTHERS)
