"""What names may look like, and which are taken: of schedulers, replicas, namespaces and orchestrators."""

from typing import Final

NAME_PATTERN = r"^[A-Za-z0-9_.-]{1,64}$"
"""What a scheduler, replica, namespace or orchestrator id may look like: safe inside a Redis key."""
IN_PROCESS: Final = "in-process"
"""The scheduler made of the hooks of an orchestrator's own process."""
RESERVED_NAMES: Final = frozenset((IN_PROCESS,))
"""Names that nobody on a bus may bear, whatever the pattern allows."""
OVERRULED: Final = "overruled"
"""The `problem` of a valid modify of an optional scheduler that is set aside in `verify`."""
AGAIN: Final = "again"
"""With which a scheduler announces, among its phases, that it can be asked a second time in `verify`."""
MAX_NAME: Final = 256
"""Characters of the name of a tool, an agent or a session in a question."""
MAX_LINEAGE: Final = 64
"""Sessions in the lineage of a question."""
MAX_RULE: Final = 64
"""Characters of the name of a rule."""
MAX_FENCE: Final = 2**53
"""The highest fencing number: above it numbers are not exact in every language."""
MAX_GRANTS: Final = 16
"""Of so many schedulers the fencing numbers go with a call."""
MAX_REASON: Final = 1024
"""Characters of a verdict's reason: the rest is cut."""
MAX_REQUEST: Final = 8192
"""Characters of what the user asked for, in a question: the rest is cut."""
