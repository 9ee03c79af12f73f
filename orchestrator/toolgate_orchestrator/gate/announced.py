"""What a scheduler says of itself on the roster, reduced over its replicas."""

from dataclasses import dataclass

from toolgate_bus import globs

__all__ = ["Announced"]


@dataclass(frozen=True, slots=True)
class Announced:
    """What a scheduler's replicas say of it; where they disagree, the newest start."""

    name: str
    priority: int
    tools: tuple[str, ...]
    shadow: bool
    version: int = 1
    """The version of the wire that is spoken with all of them; 0 where there is none."""
    phases: tuple[str, ...] = ("select", "verify")
    """The phases in which all of them rule."""
    wire: tuple[int, ...] = ()
    """The versions that its newest start speaks, for people."""

    def wants(self, tool: str) -> bool:
        """Whether its selector matches a tool."""
        return globs.either(self.tools, tool)
