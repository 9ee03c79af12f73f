"""Calls that hand work to another agent: the agent that a call or its replacement names. Pure.

The kernel has no delegation of its own. Tools that delegate take the agent's name as an argument `agent` or
`agent_name`, and the mount plan lists the agents under `agents:`. No scheduler could rule on a call that has
both: schedulers would look at one of them, and the tool at the other.
"""

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, Final

_ARGUMENTS: Final = ("agent", "agent_name")
TWO_AGENTS: Final = "it has both `agent` and `agent_name`; name the agent once, as the schema does"


def target_of(arguments: Mapping[str, Any], agents: Collection[str] | None) -> str | None:
    """Return the agent that a call names, if it is one of `agents`; else None."""
    key = _key(arguments, agents) if agents else None
    return _name(arguments[key]) if key else None


def two_agents(arguments: Mapping[str, Any], agents: Collection[str] | None) -> bool:
    """Return whether a call hands work to an agent, and a second argument could name another one."""
    return (
        bool(agents)
        and all(name in arguments for name in _ARGUMENTS)
        and _key(arguments, agents or ()) is not None
    )


def reroute(
    original: Mapping[str, Any], was: str | None, arguments: dict[str, Any], target: str | None
) -> tuple[dict[str, Any], str | None]:
    """Return a replacement's arguments and agent. `target` is put into the argument that names the agent.

    `original` are the arguments that named the agent `was`. Without a target the agent is the one that the
    new arguments name in the same place.
    """
    key = _key(original, (was,)) if was is not None else None
    if target is not None:
        key = key or next((name for name in _ARGUMENTS if _name(arguments.get(name)) is not None), None)
        named = key is not None and key in arguments
        return ({**arguments, key: target} if named and key else arguments), target
    return arguments, _name(arguments.get(key)) if key is not None else None


def _key(arguments: Mapping[str, Any], agents: Collection[str]) -> str | None:
    for key in _ARGUMENTS:
        name = _name(arguments.get(key))
        if name is not None and name in agents:
            return key
    return None


def _name(value: Any) -> str | None:
    """Return the text of an argument; None if it is no text. A subclass's own methods are not called."""
    if issubclass(type(value), Enum):
        value = object.__getattribute__(value, "_value_")
    return str.__str__(value) if issubclass(type(value), str) else None
