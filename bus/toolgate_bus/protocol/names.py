"""What names may look like, and which are taken: of schedulers, replicas, orchestrators and tools."""

import unicodedata
from typing import Final

NAME_PATTERN = r"^[A-Za-z0-9_.-]{1,64}$"
"""What a scheduler, replica, namespace or orchestrator id may look like: safe inside a Redis key."""
IN_PROCESS: Final = "in-process"
"""The scheduler made of the hooks of an orchestrator's own process."""
OPERATOR: Final = "operator"
"""Who holds a paused call, or denies that of a stopped agent, where a scheduler's name would stand."""
PSEUDO_NAMES: Final = frozenset((IN_PROCESS, "ledger", OPERATOR, "orchestrator", "unknown"))
"""Who is named like a scheduler in the record or in metrics, and is none."""
STORE_NAMES: Final = frozenset(
    (
        *("answering", "budget", "budget-hooks", "budget-shadow", "buckets", "buckets-shadow", "config"),
        *("deferred", "exporter", "hold", "notices", "notify", "order", "pauses", "slots-shadow"),
        *("tally", "tally-shadow", "turns"),
    )
)
"""First words of keys in the shared store: a scheduler of that name would share them with their owner.

`deploy/redis/make_acl.py` has them as well, beside those that a shipped scheduler has its own name for."""
RESERVED_NAMES: Final = PSEUDO_NAMES | STORE_NAMES
"""Names that no scheduler on a bus may bear, whatever the pattern allows."""
RESERVED_PREFIXES: Final = ("llm:", "turn:", "session:")
"""How no tool's name begins: so begin the names of what else is ruled on."""
_RESERVED_WORDS: Final = frozenset(prefix[:-1] for prefix in RESERVED_PREFIXES)
_FILLERS: Final = dict.fromkeys(map(ord, "\u115f\u1160\u3164\uffa0\u17b4\u17b5"))
"""Letters that nobody sees."""
NO_TOOL: Final = (
    f"names that begin with {', '.join(RESERVED_PREFIXES[:-1])} or {RESERVED_PREFIXES[-1]} are no tools'; "
    "give the tool another"
)
"""Why a call by such a name is denied."""
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


def is_reserved_tool(name: str) -> bool:
    """Return whether no tool may have this name, however it is spelled.

    Large letters, wide letters, blanks and letters that nobody sees change nothing: a client may drop them,
    and whoever reads the record takes the name for the reserved one.
    """
    if name.isascii():
        if ":" not in name:
            return False
    else:
        name = unicodedata.normalize("NFKC", name.translate(_FILLERS))
    word, colon, _ = name.partition(":")
    return bool(colon) and "".join(filter(str.isalnum, word)).casefold() in _RESERVED_WORDS


def explain_reserved(name: str) -> str:
    """Why a scheduler may not have this name, in words; empty where it may."""
    if name == IN_PROCESS:
        return "it means the hooks of an orchestrator's own process; take another"
    if name in PSEUDO_NAMES:
        return "the record and the metrics mean somebody else by it; take another"
    return "it names keys of the shared store; take another" if name in STORE_NAMES else ""
