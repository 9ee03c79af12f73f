"""Which agents a session can hand work to: those of its plan's `agents:`. Pure."""

from collections.abc import Mapping
from typing import Any

__all__ = ["agents_of"]


def agents_of(config: Any) -> tuple[str, ...] | None:
    """Names of the agents in a session's config; None where it has none."""
    agents = config.get("agents") if isinstance(config, Mapping) else None
    if isinstance(agents, Mapping) and agents:
        return tuple(str(name) for name in agents)
    return None
