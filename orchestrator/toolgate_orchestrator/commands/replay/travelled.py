"""Questions that have travelled once, asked again as they were: placeholders stay what they are.

What was secret is not in the record, and what was too long is not either; schedulers see what they
saw. A modify may keep a placeholder by the same rules as ever: it stands for itself.
"""

from typing import Any

from toolgate_bus.protocol import codec
from toolgate_bus.protocol.placeholders import MARK

from toolgate_orchestrator.gate.config import RedactConfig
from toolgate_orchestrator.gate.redact import Outgoing, Redactor

__all__ = ["Travelled"]


class Travelled(Redactor):
    """Hides nothing that was not hidden before."""

    def __init__(self) -> None:
        super().__init__(RedactConfig())
        self.truncated = False
        """Whether the question being asked was marked so."""

    def question(
        self, fields: dict[str, Any], tool_input: dict[str, Any], before: Outgoing | None = None
    ) -> tuple[bytes, Outgoing]:
        """The body of a question about these arguments as they stand."""
        fields |= {"tool_input": tool_input, "truncated": self.truncated or fields["truncated"]}
        return codec.pack(fields), Outgoing(tool_input, {text: text for text in _placeholders(tool_input)})


def _placeholders(root: Any) -> set[str]:
    found, waiting = set[str](), [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and MARK in value:
            found.add(value)
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return found
