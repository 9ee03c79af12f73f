"""What names may look like, and which are taken: of schedulers, replicas, namespaces and orchestrators."""

from typing import Final

__all__ = ["IN_PROCESS", "NAME_PATTERN", "RESERVED_NAMES"]

NAME_PATTERN = r"^[A-Za-z0-9_.-]{1,64}$"
"""What a scheduler, replica, namespace or orchestrator id may look like: safe inside a Redis key."""
IN_PROCESS: Final = "in-process"
"""The scheduler made of the hooks of an orchestrator's own process."""
RESERVED_NAMES: Final = frozenset((IN_PROCESS,))
"""Names that nobody on a bus may bear, whatever the pattern allows."""
