"""What the name of a tool says about its effect, for rules that a person reads before they rule. Pure."""

import re
from typing import Final

from toolgate_orchestrator.commands.init.draft import Action

DENY: Final = (
    *("delete", "destroy", "drop", "erase", "kill", "purge", "remove", "reset", "revoke", "rm", "terminate"),
    *("truncate", "uninstall", "unlink", "wipe"),
)
"""Words in the names of tools that take something away."""
READ: Final = (
    *("check", "count", "describe", "fetch", "find", "get", "list", "lookup", "query", "read", "search"),
    *("show", "view"),
)
"""First words in the names of tools that only look."""
ASK: Final = (
    *("approve", "bash", "book", "buy", "cancel", "charge", "commit", "create", "deploy", "edit", "email"),
    *("eval", "exec", "execute", "grant", "insert", "install", "invite", "mail", "merge", "move", "order"),
    *("overwrite", "pay", "post", "publish", "purchase", "push", "refund", "rename", "replace", "run"),
    *("schedule", "send", "shell", "terminal", "transfer", "update", "upload", "write"),
)
"""Words in the names of tools that change something."""
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def find_word(name: str) -> tuple[Action, str]:
    """Return the action for a tool, and the word in its name that says so; empty if no word does."""
    parts = [part.lower() for part in _PART.findall(name)]
    for word in DENY:
        if word in parts:
            return "deny", word
    if parts[:1] and parts[0] in READ:
        return "allow", parts[0]
    return next((("ask", word) for word in ASK if word in parts), ("allow", ""))
