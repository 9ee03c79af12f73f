"""Which decisions a page wants to see. Pure.

Filters run where the decisions are: a page that looks for one call in a thousand is sent that one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, get_args

from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.events import Outcome

FIELDS: Final = ("tool", "scheduler", "outcome", "agent", "session", "text")
OUTCOMES: Final = frozenset((*get_args(Outcome), "late", "shadow"))
"""Beside the outcomes: decisions on which a verdict came late, or that a shadow would have changed."""
MAX_LENGTH: Final = 200


@dataclass(frozen=True, slots=True)
class Filter:
    """What must hold of a decision; what is empty holds of all."""

    tool: str = ""
    """A glob, of the LLM's own call or of what replaced it."""
    scheduler: str = ""
    """A glob: it gave a verdict, or kept silent."""
    outcome: str = ""
    agent: str = ""
    session: str = ""
    """How the session's id begins, or a glob; the root of its tree counts as well."""
    text: str = ""
    """Words that all occur somewhere."""

    def __bool__(self) -> bool:
        return any((self.tool, self.scheduler, self.outcome, self.agent, self.session, self.text))

    def wants(self, decision: Mapping[str, Any], row: Mapping[str, Any], searched: str) -> bool:
        """Whether a decision, as it is in the record, as a row and as text, is wanted."""
        flag = self.outcome in ("late", "shadow")
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
    """The filter that a page's address names; raises ConfigError by field."""
    given = {name: query.get(name, "").strip() for name in FIELDS}
    for name, value in given.items():
        if len(value) > MAX_LENGTH:
            raise ConfigError(f"{name}: at most {MAX_LENGTH} characters")
    if given["outcome"] and given["outcome"] not in OUTCOMES:
        raise ConfigError(f"outcome: one of {', '.join(sorted(OUTCOMES))}")
    return Filter(**given)


def _names(decision: Mapping[str, Any]) -> list[Any]:
    heard = [one.get("scheduler") for one in decision.get("verdicts") or () if isinstance(one, Mapping)]
    return [*heard, *(decision.get("silent") or ())]


def _fits(pattern: str, *names: Any) -> bool:
    return not pattern or any(isinstance(name, str) and fnmatchcase(name, pattern) for name in names)
