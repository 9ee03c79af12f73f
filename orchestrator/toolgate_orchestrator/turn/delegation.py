"""Calls that hand work to another agent: which agents there are, which one a call names. Pure.

The kernel has no delegation of its own; tools that delegate take the agent's name as an argument
`agent` or `agent_name`, and the mount plan lists the agents under `agents:`.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["agents_of", "redirected", "target_of"]

_ARGUMENTS = ("agent", "agent_name")


def agents_of(config: Any) -> tuple[str, ...] | None:
    """Names of the agents in a session's config; None where it has none."""
    agents = config.get("agents") if isinstance(config, Mapping) else None
    if isinstance(agents, Mapping) and agents:
        return tuple(str(name) for name in agents)
    return None


def target_of(arguments: Mapping[str, Any], agents: tuple[str, ...] | None) -> str | None:
    """The agent that a call names, if it is one of the known ones."""
    key = _key(arguments, agents)
    return str(arguments[key]) if key else None


def redirected(
    arguments: dict[str, Any], agents: tuple[str, ...] | None, target: str | None
) -> dict[str, Any]:
    """The arguments with another agent in them; unchanged for a call that names none."""
    key = _key(arguments, agents)
    return {**arguments, key: target} if key and target else arguments


def _key(arguments: Mapping[str, Any], agents: tuple[str, ...] | None) -> str | None:
    known = agents or ()
    return next((key for key in _ARGUMENTS if arguments.get(key) in known), None)
