"""What a caller can do with an answer. Pure."""

from typing import Final

ARGUMENTS: Final = "arguments"
TOOL: Final = "tool"
ASK: Final = "ask"
ALL: Final = frozenset({ARGUMENTS, TOOL, ASK})
"""Whatever an answer may be, it can be done."""
