"""Filter the decisions that a page wants to see. Pure.

Filters run on the console's side: a page that looks for one call in a thousand is sent only that one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, get_args

from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.events import Outcome

FIELDS: Final = ("tool", "scheduler", "outcome", "agent", "session", "text")
FLAGS: Final = ("late", "shadow", "result")
OUTCOMES: Final = frozenset((*get_args(Outcome), *FLAGS))
"""Outcomes to filter by; also `late` (a verdict came late), `shadow` (a shadow would have changed the
decision) and `result` (the LLM did not get the result as it was)."""
MAX_LENGTH: Final = 200


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions on a decision; empty fields match all decisions."""

    tool: str = ""
    """Glob for the tool of the LLM's call or of its replacement."""
    scheduler: str = ""
    """Glob for a scheduler that gave a verdict or kept silent."""
    outcome: str = ""
    agent: str = ""
    session: str = ""
    """Beginning of a session's id, or a glob; the root of its tree matches as well."""
    text: str = ""
    """Words that must all occur in the decision's text."""

    def __bool__(self) -> bool:
        return any((self.tool, self.scheduler, self.outcome, self.agent, self.session, self.text))

    def wants(self, decision: Mapping[str, Any], row: Mapping[str, Any], searched: str) -> bool:
        """Return whether a decision matches, given its record, row and text."""
        flag = self.outcome in FLAGS
        return (
            (not self.outcome or bool(row[self.outcome] if flag else row["outcome"] == self.outcome))
            and _fits(self.tool, decision["tool_name"], decision.get("final_tool"))
            and _fits(self.agent, decision.get("agent"))
            and _fits(
                self.session and f"{self.session}*", decision.get("session"), decision.get("root_session")
            )
            and (not self.scheduler or _fits(self.scheduler, *_names(decision)))
            and all(word in searched for word in self.text.casefold().split())
        )


def filter_from(query: Mapping[str, str]) -> Filter:
    """Return the filter in a page's address; raise ConfigError, which names the wrong field."""
    given = {name: query.get(name, "").strip() for name in FIELDS}
    for name, value in given.items():
        if len(value) > MAX_LENGTH:
            raise ConfigError(f"{name}: must be at most {MAX_LENGTH} characters")
    if given["outcome"] and given["outcome"] not in OUTCOMES:
        raise ConfigError(f"outcome: must be one of {', '.join(sorted(OUTCOMES))}")
    return Filter(**given)


def _names(decision: Mapping[str, Any]) -> list[Any]:
    result = decision.get("result")
    names: list[Any] = []
    for about in (decision, result if isinstance(result, Mapping) else {}):
        names += [one.get("scheduler") for one in about.get("verdicts") or () if isinstance(one, Mapping)]
        names += about.get("silent") or ()
    return names


def _fits(pattern: str, *names: Any) -> bool:
    return not pattern or any(isinstance(name, str) and fnmatchcase(name, pattern) for name in names)
