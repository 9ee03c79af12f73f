"""Allowed and reserved names of schedulers, replicas, orchestrators and tools."""

import unicodedata
from typing import Final

NAME_PATTERN = r"^[A-Za-z0-9_.-]{1,64}$"
"""Pattern of the name of a scheduler, replica, namespace or orchestrator: safe inside a Redis key."""
IN_PROCESS: Final = "in-process"
"""Name of the scheduler that the hooks of an orchestrator's own process form."""
OPERATOR: Final = "operator"
"""Name in the place of a scheduler's for an operator who paused the call or stopped its agent."""
PSEUDO_NAMES: Final = frozenset((IN_PROCESS, "ledger", OPERATOR, "orchestrator", "unknown"))
"""Names that stand in the place of a scheduler's in the record or in metrics without being one."""
STORE_NAMES: Final = frozenset(
    (
        *("answering", "budget", "budget-hooks", "budget-shadow", "buckets", "buckets-shadow", "config"),
        *("deferred", "exporter", "hold", "notices", "notify", "order", "pauses"),
        *("session-labels", "slots-shadow", "table", "tally", "tally-shadow", "turns"),
    )
)
"""First words of keys in the shared store: a scheduler of that name would share them with their owner.

`deploy/redis/make_acl.py` has them as well, without those for which a shipped scheduler has its own name."""
RESERVED_NAMES: Final = PSEUDO_NAMES | STORE_NAMES
"""Names that no scheduler on a bus may have, even if they match the pattern."""
RESERVED_PREFIXES: Final = ("llm:", "turn:", "session:")
"""Beginnings that no tool's name may have: they mark the names of other things that are ruled on."""
POINTS_OF_WORDS: Final = ("turn:input", "turn:output")
"""Points of a turn at which words are ruled on: the user's, and the answer."""
POINTS: Final = (*POINTS_OF_WORDS, "session:start")
"""Points of a turn or a session that are ruled on like a call. Only selectors that name them match them."""
_RESERVED_WORDS: Final = frozenset(prefix[:-1] for prefix in RESERVED_PREFIXES)
_FILLERS: Final = dict.fromkeys(map(ord, "\u115f\u1160\u3164\uffa0\u17b4\u17b5"))
"""Invisible letters."""
NO_TOOL: Final = (
    f"a tool's name cannot begin with {', '.join(RESERVED_PREFIXES[:-1])} or {RESERVED_PREFIXES[-1]}; "
    "give the tool another name"
)
"""Reason why a call by such a name is denied."""
OVERRULED: Final = "overruled"
"""`problem` of a valid modify of an optional scheduler that is set aside in `verify`."""
COMPRESSED: Final = "zlib"
"""Word by which readers of facts, and replicas of schedulers, say that they read compressed frames."""
OFFSETS: Final = "offsets"
"""Word by which they say that they read unanimous decisions between which other facts stand."""
FACT_KINDS: Final = (COMPRESSED, OFFSETS)
"""Forms of facts that not every release reads."""
AGAIN: Final = "again"
"""Word among a scheduler's phases: it can be asked a second time in `verify`."""
MAX_NAME: Final = 256
"""Maximum number of characters of the name of a tool, an agent or a session in a question."""
MAX_LINEAGE: Final = 64
"""Maximum number of sessions in the lineage of a question."""
MAX_POINTER: Final = 1024
"""Maximum number of characters of a path into a result."""
MAX_PARTS: Final = 1024
"""Maximum number of parts of a result that one verdict hides."""
MAX_SESSION_LABELS: Final = 64
"""Maximum number of labels of a session, and of values that one of them has."""
LABEL_PATTERN: Final = r"^[A-Za-z0-9_.:/@-]{1,64}$"
"""Pattern of the name and of a value of a session's label."""
MAX_RULE: Final = 64
"""Maximum number of characters of the name of a rule."""
MAX_FENCE: Final = 2**53
"""Highest fencing number: higher numbers are not exact in every language."""
MAX_GRANTS: Final = 16
"""Maximum number of schedulers whose fencing numbers go with a call."""
MAX_REASON: Final = 1024
"""Maximum number of characters of a verdict's reason; the rest is cut."""
MAX_REQUEST: Final = 8192
"""Maximum number of characters of the user's request in a question; the rest is cut."""


def is_reserved_tool(name: str) -> bool:
    """Return whether no tool may have this name, however it is spelled.

    Capital letters, wide letters, blanks and invisible letters change nothing. A client may drop them, and a
    reader of the record takes the name for the reserved one.
    """
    if name.isascii():
        if ":" not in name:
            return False
    else:
        name = unicodedata.normalize("NFKC", name.translate(_FILLERS))
    word, colon, _ = name.partition(":")
    return bool(colon) and "".join(filter(str.isalnum, word)).casefold() in _RESERVED_WORDS


def explain_reserved(name: str) -> str:
    """Return the reason why a scheduler may not have this name; empty if it may."""
    if name == IN_PROCESS:
        return "it stands for the hooks of an orchestrator's own process; choose another name"
    if name in PSEUDO_NAMES:
        return "the record and the metrics use this name for something else; choose another name"
    return "it names keys of the shared store; choose another name" if name in STORE_NAMES else ""
