"""Turn a decision into one row of the page, and into the text for searches.

Rows are cut to one line; the page fetches the whole decision when its row is opened.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from toolgate_bus.errors import CodecError
from toolgate_bus.facts.shadow_report import Disagreement, disagreements
from toolgate_bus.protocol.events import IN_PROCESS
from toolgate_bus.telemetry.printable import shorten

Fact = Mapping[str, Any]

SHORT: Final = 160
SEARCHED: Final = 4096
WORD: Final = 128


def row_of(decision: Fact) -> dict[str, Any]:
    """Return the row that shows a decision before it is opened."""
    verdicts = list(valid_verdicts(decision))
    heard = [one for one in verdicts if not one.get("shadow") and not one.get("late")]
    final = decision.get("final_tool")
    return {
        "id": _word(decision["id"]),
        "at": decision["at"],
        "outcome": _word(decision["outcome"]),
        "why": _word(decision["why"]),
        "tool": _word(decision["tool_name"]),
        "input": as_text(decision["tool_input"], SHORT),
        "final_tool": _word(final) if decision["outcome"] == "modify" and final else None,
        "agent": _word(decision.get("agent")),
        "session": _word(decision.get("session")),
        "by": _word(decision.get("scheduler")),
        "reason": shorten(str(decision.get("reason") or ""), SHORT),
        "ms": round(decision["seconds"] * 1000, 1),
        "heard": len(heard),
        "late": sum(bool(one.get("late")) for one in verdicts),
        "shadow": [f"{_word(one.scheduler)}: {one.change}" for one in changes_of(decision, verdicts)],
        "silent": [_word(name) for name in decision.get("silent") or ()],
        "result": _describe_result(decision.get("result")),
    }


def _describe_result(result: Any) -> str:
    """Return what became of the call's result, and by whom; empty if nobody ruled on it, or it was given."""
    if not isinstance(result, Mapping) or result.get("outcome") in (None, "released"):
        return ""
    by = f" by {_word(result['scheduler'])}" if result.get("scheduler") else ""
    return f"result {_word(result['outcome'])}{by}"


def as_text(value: Any, most: int) -> str:
    """Return a value in JSON, cut if it is long."""
    return shorten(json.dumps(value, ensure_ascii=False, default=repr), most)


def search_text_of(decision: Fact) -> str:
    """Return the text for free-text searches, in lower case."""
    words = (
        "id",
        "tool_name",
        "final_tool",
        "agent",
        "session",
        "root_session",
        "reason",
        "scheduler",
        "why",
    )
    told = [str(decision[name]) for name in words if decision.get(name)]
    told += [str(one.get("reason")) for one in valid_verdicts(decision) if one.get("reason")]
    return " ".join((*told, as_text(decision["tool_input"], SEARCHED))).casefold()[: 2 * SEARCHED]


def valid_verdicts(decision: Fact) -> Iterable[Fact]:
    """Return the verdicts that are mappings: other programs wrote the record."""
    return (one for one in decision.get("verdicts") or () if isinstance(one, Mapping))


def changes_of(decision: Fact, verdicts: Iterable[Fact]) -> list[Disagreement]:
    """Return the changes that shadows would have made; none if no shadow was heard, or if they cannot be
    compared."""
    if not any(one.get("shadow") for one in verdicts):
        return []
    try:
        return disagreements(decision)
    except CodecError:
        return []


def recipients_of(decision: Fact) -> frozenset[str]:
    """Return the schedulers that were asked over the bus.

    If the record does not name them, they are those that answered in time or were silent.
    """
    asked = decision.get("asked")
    if isinstance(asked, list | tuple):
        return frozenset(_word(name) for name in asked)
    heard = {_word(one.get("scheduler")) for one in valid_verdicts(decision) if not one.get("late")}
    # The hooks of an agent's own process have verdicts, but are not asked over the bus.
    return frozenset(heard | {_word(name) for name in decision.get("silent") or ()}) - {IN_PROCESS, ""}


def _word(value: Any) -> str:
    return shorten(str(value), WORD) if value else ""
