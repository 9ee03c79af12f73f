"""A local table: the calls on which a scheduler's answer is known, so that a gate need not ask it. Pure.

    {"rules": [{"tools": ["delete_*"], "answer": "deny", "name": "rule 1"},
               {"tools": ["send_mail"], "when": {"to": "*@ok.example"}, "answer": "continue"}],
     "default": "ask"}

A scheduler writes its table and announces the digest of it. A gate answers for the scheduler wherever the
table is certain, and asks about the rest. The first rule that fits counts, as in a policy. A rule whose
conditions cannot be checked, and a rule that answers `ask`, have the scheduler asked. So a scheduler says
which calls concern it by rules that answer `ask`, with `continue` as the default (`list_concerns`).

A table cannot allow more than its scheduler: it comes from the scheduler, and whatever is unknown is asked.
"""

import hashlib
import json
from collections.abc import Iterable
from functools import cached_property
from itertools import islice
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field, ValidationError

from toolgate_bus.config.check import StrictModel
from toolgate_bus.errors import CodecError
from toolgate_bus.protocol.codec import PLAIN_CONTINUE
from toolgate_bus.protocol.events import Continue, Deny
from toolgate_bus.protocol.names import MAX_REASON, MAX_RULE
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.ruling.conditions.conditions import Globs, Quantifier, Truth
from toolgate_bus.ruling.conditions.matching import (
    AnyQuestion,
    CallMatcher,
    SessionMatcher,
    as_each_agent,
    explain_lineage,
)
from toolgate_bus.ruling.conditions.when_matcher import WhenMatcher

MAX_TABLE: Final = 64 * 1024
"""Maximum size of a table in bytes. A scheduler with a larger one is asked."""
MAX_RULES: Final = 10_000
MAX_NAMES: Final = 4096
"""Maximum number of tool names whose rules are cached."""
DEFAULT_RULE: Final = "default"
_CONDITIONS: Final[set[str]] = {"when", "agents", "labels", "sessions", "agent_targets", "when_session"}
Answer = Literal["continue", "deny", "ask"]
Text = Annotated[str, Field(max_length=MAX_REASON)]


class LocalAnswer(NamedTuple):
    """Answer of a table for its scheduler."""

    verdict: Continue | Deny
    is_plain: bool
    """True if the verdict is a continue without a word."""


PLAIN_ANSWER: Final = LocalAnswer(PLAIN_CONTINUE, True)


class TableRule(SessionMatcher):
    """Answer to the calls that fit."""

    tools: Globs
    answer: Answer
    reason: Text | None = None
    """Reason of a denial, or of a continue."""

    def explain(self, tool: str) -> LocalAnswer:
        """Return the answer to a call of this tool."""
        if self.answer == "deny":
            return LocalAnswer(deny_by_rule(tool, self.name or DEFAULT_RULE, self.reason), False)
        return PLAIN_ANSWER if self.reason is None else self._allowed

    @property
    def elements(self) -> Quantifier:
        """Number of elements of a list that must fit: a rule that allows needs all of them."""
        return "all" if self.answer == "continue" else "any"

    @cached_property
    def _allowed(self) -> LocalAnswer:
        return LocalAnswer(Continue(reason=self.reason), False)


class _Candidate(NamedTuple):
    """A rule that may be about a tool."""

    rule: TableRule
    named: Truth
    """True if it is about the tool; None if that is unknown."""
    alone: WhenMatcher | None
    """Conditions on arguments, if they alone decide whether it fits."""
    elements: Quantifier


class LocalTable(StrictModel):
    """Rules in order, and the answer to calls that none of them fits."""

    rules: Annotated[tuple[TableRule, ...], Field(max_length=MAX_RULES)] = ()
    default: Answer = "ask"

    @classmethod
    def read(cls, raw: bytes) -> "LocalTable":
        """Read a table that a scheduler wrote. Raises CodecError."""
        if len(raw) > MAX_TABLE:
            raise CodecError("oversize", f"a local table has at most {MAX_TABLE} bytes")
        try:
            return cls.model_validate(json.loads(raw))
        except (ValueError, RecursionError, ValidationError) as error:
            raise CodecError("malformed", f"a local table: {str(error)[:200]}") from None

    def answer(self, question: AnyQuestion) -> LocalAnswer | None:
        """Return the answer to a question, for each agent of its lineage; None if the scheduler is asked.

        The arguments must be those that the scheduler would be sent.
        """
        found = self._answer_one(question)
        if not question.lineage:
            return found
        if found is None or found.verdict.action == "deny":
            return found
        for one in islice(as_each_agent(question), 1, None):
            above = self._answer_one(one)
            if above is None:
                return None
            if isinstance(above.verdict, Deny):
                words = explain_lineage(above.verdict.reason, question.agent, one.agent)
                return LocalAnswer(above.verdict.model_copy(update={"reason": words}), False)
        return found

    @cached_property
    def denies(self) -> bool:
        """True if some call is denied by this table, without its scheduler hearing of it."""
        return "deny" in (self.default, *(rule.answer for rule in self.rules))

    def denies_all(self, question: AnyQuestion) -> bool:
        """Return whether every call of this tool by this agent is denied, whatever its arguments."""
        return any(self._denies_all(one) for one in as_each_agent(question))

    def _denies_all(self, question: AnyQuestion) -> bool:
        for rule, *_ in self._rules_for(question.tool_name):
            truth = rule.covers(rule.tools, question)
            if truth is not False and rule.answer != "deny":
                return False  # some calls may run
            if truth:
                return True
        return self.default == "deny"

    def _answer_one(self, question: AnyQuestion) -> LocalAnswer | None:
        tool, arguments = question.tool_name, question.tool_input
        for rule, named, alone, elements in self._rules_of(tool, question.agent):
            if alone is not None:
                truth = alone.holds(arguments, elements)
            else:
                truth = rule.about_tool(named, question, elements)
            if truth is False:
                continue
            return rule.explain(tool) if truth and rule.answer != "ask" else None
        if self.default == "continue":
            return PLAIN_ANSWER
        return None if self.default == "ask" else LocalAnswer(deny_by_default(tool), False)

    @cached_property
    def _by_tool(self) -> dict[str, tuple[_Candidate, ...]]:
        return {}

    @cached_property
    def _by_agent(self) -> dict[tuple[str, str], tuple[_Candidate, ...]]:
        return {}

    def _rules_of(self, tool: str, agent: str) -> tuple[_Candidate, ...]:
        """Return the rules that may be about an agent's calls of a tool. What its name decides is decided."""
        found = self._by_agent.get((tool, agent))
        if found is None:
            found = tuple(filter(None, (_narrow(one, agent) for one in self._rules_for(tool))))
            if len(tool) <= globs.SHORT and len(agent) <= globs.SHORT:
                if len(self._by_agent) >= MAX_NAMES:
                    self._by_agent.clear()
                self._by_agent[tool, agent] = found
        return found

    def _rules_for(self, tool: str) -> tuple[_Candidate, ...]:
        found = self._by_tool.get(tool)
        if found is None:
            found = tuple(
                _Candidate(rule, named, rule.conditions if named else None, rule.elements)
                for rule in self.rules
                if (named := globs.fits(rule.tools, tool)) is not False
            )
            if len(tool) <= globs.SHORT:
                if len(self._by_tool) >= MAX_NAMES:  # the names come from an LLM
                    self._by_tool.clear()
                self._by_tool[tool] = found
        return found


def _narrow(one: _Candidate, agent: str) -> _Candidate | None:
    """Return a candidate with what an agent's name decides; None if it is not about that agent."""
    if not (one.named and one.rule.asks_agent_only):
        return one
    alone = one.rule.conditions_of(agent)
    return None if alone is None else one._replace(alone=alone)


def encode_table(rules: list[dict[str, Any]], default: Answer) -> bytes:
    """Return the bytes of a table; empty if it is too large, says nothing, or has values that JSON lacks."""
    if default == "ask" and all(rule["answer"] == "ask" for rule in rules):
        return b""
    try:
        raw = json.dumps({"rules": rules, "default": default}, separators=(",", ":")).encode()
    except (TypeError, ValueError):
        return b""
    return raw if len(raw) <= MAX_TABLE else b""


def describe_conditions(matcher: CallMatcher) -> dict[str, Any]:
    """Return the conditions of a rule, except its tools, as a table's rule has them."""
    # As Python's values: as JSON's, pydantic would write a large whole number as its neighbour.
    told = matcher.model_dump(by_alias=True, exclude_unset=True, include=_CONDITIONS)
    if matcher.schema_ is not None:
        told["schema"] = json.loads(str(matcher.schema_))
    return told


def list_concerns(matchers: Iterable[tuple[Globs, CallMatcher]]) -> list[dict[str, Any]]:
    """Return rules that have a scheduler asked about calls of these tools, under these conditions."""
    return [{"tools": tools, **describe_conditions(one), "answer": "ask"} for tools, one in matchers]


def digest_of(raw: bytes) -> str:
    """Return the digest by which a scheduler announces its table; empty without one."""
    return hashlib.sha256(raw).hexdigest() if raw else ""


def table_key(scheduler: str, digest: str) -> str:
    """Return the key of a table in the shared store. What is there never changes."""
    return f"table:{scheduler}:{digest}"


def deny_by_rule(tool: str, name: str, reason: str | None, unseen: str = "") -> Deny:
    """Return the denial of a call by a rule, in the words of a policy."""
    words = f"{reason or f'{tool} is not allowed'} ({name}{unseen})"
    return Deny(reason=words[:MAX_REASON], rule_name=name[:MAX_RULE])


def deny_by_default(tool: str) -> Deny:
    """Return the denial of a call that no rule fits."""
    return Deny(reason=f"no rule allows {tool} (default)", rule_name=DEFAULT_RULE)
