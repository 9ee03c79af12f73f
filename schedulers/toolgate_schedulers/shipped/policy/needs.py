"""Define the conditions of rules on order: `after`, `unless_after`, `at_most`. Pure.

`order` judges calls by them, and `verdicts` writes the verdicts.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.ruling.conditions.conditions import Globs, Number, When
from toolgate_bus.ruling.conditions.matching import CallMatcher, SessionMatcher
from toolgate_bus.ruling.conditions.result_paths import WhenOrResult, names_result

MAX_WINDOW_S: Final = 3600.0
LABEL: Final = "label:"
_WILD: Final = frozenset("*?[")
_SCOPE: Final = re.compile(r"session|own-session|tree|label:.{1,128}", re.DOTALL)
_PATH: Final = re.compile(r"\$\.(.{1,1022})", re.DOTALL)
_PATH_BEFORE: Final = re.compile(r"\$(?:\.(.{1,1022})|result(?:\..{1,1000})?)", re.DOTALL)
MAX_COUNT: Final = 128
"""Highest `n` that counts calls; one that bounds a sum may be higher."""


def _read_scope(written: Any) -> Any:
    if not isinstance(written, str) or not _SCOPE.fullmatch(written):
        raise ValueError("must be session, own-session, tree or label:NAME")
    return written


def _read_pairs(written: Any) -> Any:
    pairs = written.items() if isinstance(written, dict) else ()
    if not all(map(_is_pair, pairs)):
        raise ValueError(
            "must be $.path in this call to $.path in that one, or to $result.path in what that one gave, "
            "such as {$.id: $.order}"
        )
    return written


def _is_pair(pair: tuple[Any, Any]) -> bool:
    here, there = pair
    is_text = isinstance(here, str) and isinstance(there, str)
    return is_text and bool(_PATH.fullmatch(here) and _PATH_BEFORE.fullmatch(there))


def _read_sum(written: Any) -> Any:
    if not isinstance(written, str) or not _PATH.fullmatch(written):
        raise ValueError("must be $.path of an argument, such as $.amount")
    return written


Scope = Annotated[str, BeforeValidator(_read_scope, json_schema_input_type=str)]
Window = Annotated[float, Field(gt=0, le=MAX_WINDOW_S, allow_inf_nan=False, strict=True)]
Pairs = Annotated[dict[str, str], Field(max_length=16), BeforeValidator(_read_pairs)]


class Precondition(StrictModel):
    """Earlier call that must have ended, or must not have."""

    tool: Globs
    """Tools of the earlier call: one glob or several."""
    when: When = Field(default_factory=dict)
    """Conditions on its arguments, as in a rule's own `when`."""
    result: WhenOrResult = Field(default_factory=dict)
    """Conditions on what it gave, by the path in that: `{ok: true}`. `$result` is all of it."""
    success: Annotated[bool | None, Field(strict=True)] = True
    """Result of the earlier call: true for success, false for failure, null for either."""
    within_s: Window = MAX_WINDOW_S
    """Longest time in seconds since its end. Calls are remembered for an hour at most."""
    same: Pairs = Field(default_factory=dict)
    """Values that must be equal: `{$.path: $.path}`, a path in this call to a path in the earlier call, or
    to `$result.path` in what that call gave."""
    scope: Scope = "session"
    """Calls that count: those of the same `session`, `tree` of sessions, or value of `label:NAME`. A call
    that counts against others in a `session` also counts against those of its agents; `own-session` is the
    session alone. A call without that label may have any value, so it counts against all of them."""

    def list_paths(self) -> Iterator[str]:
        """List the paths in the earlier call's arguments that it looks at."""
        yield from self.when
        yield from (path for path in self.same.values() if not names_result(path))

    @cached_property
    def result_paths(self) -> tuple[str, ...]:
        """Paths in what the earlier call gave whose values must be equal to those of this call."""
        return tuple(filter(names_result, self.same.values()))

    @property
    def needs_result(self) -> bool:
        """True if it looks at what the earlier call gave."""
        return bool(self.result or self.result_paths)

    @cached_property
    def digest(self) -> str:
        """Digest of its words, the same in all replicas."""
        return hashlib.sha256(self.model_dump_json().encode("utf-8", "replace")).hexdigest()[:16]


class CallCount(StrictModel):
    """Limit on the number of calls of a rule, or on the sum of one of their arguments."""

    n: Annotated[Number, Field(gt=0)]
    """Maximum number of calls within `within_s`, including those that run at present: 1 to 128. With `sum`:
    the highest sum."""
    sum: Annotated[str, BeforeValidator(_read_sum, json_schema_input_type=str)] | None = None
    """Argument that is added up, such as `$.amount`, instead of counting calls. A value that is no number
    counts against the call; one below 0 counts as 0."""
    within_s: Window = MAX_WINDOW_S
    """Seconds in which calls are counted."""
    scope: Scope = "session"
    """Calls that are counted together, as above."""

    @model_validator(mode="after")
    def _counts_whole_calls(self) -> "CallCount":
        if self.sum is None and not (type(self.n) is int and 1 <= self.n <= MAX_COUNT):
            raise ValueError(f"n: must be a whole number from 1 to {MAX_COUNT}; a higher one goes with sum")
        return self


class OrderMatcher(SessionMatcher):
    """Conditions on the calls before those that a rule is about."""

    tools: Globs
    """Tools the rule is about: one glob or several."""
    after: Precondition | None = None
    """Earlier call that must have ended; the call is denied before that. See below."""
    unless_after: Precondition | None = None
    """Earlier call after which, and during which, the call may not run."""
    at_most: CallCount | None = None
    """Maximum number of calls that fit `tools` and `when`. Denied calls do not count."""
    wait_s: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False, strict=True)] | None = None
    """Longest wait in seconds for an earlier call that is still under way. Without it the call is denied at
    once."""

    @model_validator(mode="after")
    def _waits_for_something(self) -> "OrderMatcher":
        if self.wait_s is not None and not self.is_ordered:
            raise ValueError("wait_s: goes with after, unless_after or at_most")
        if self.at_most is not None and self.schema_ is not None:
            raise ValueError("at_most: counts calls by tools and when, and does not go with schema")
        return self

    @property
    def is_ordered(self) -> bool:
        """True if the rule looks at other calls, too."""
        return not (self.after is None and self.unless_after is None and self.at_most is None)

    def list_globs(self) -> Iterator[str]:
        """List the globs of the tools whose calls the rule must know."""
        for need in (self.after, self.unless_after):
            yield from need.tool if need is not None else ()
        yield from self.tools if self.at_most is not None else ()

    def list_paths(self) -> Iterator[str]:
        """List the paths in those calls' arguments that the rule looks at."""
        for need in (self.after, self.unless_after):
            yield from need.list_paths() if need is not None else ()
        if self.at_most is not None:
            yield from self.when
            yield from (self.at_most.sum,) if self.at_most.sum is not None else ()

    @property
    def needs(self) -> Iterator[Precondition]:
        """Earlier calls that must have ended, or must not have."""
        yield from (need for need in (self.after, self.unless_after) if need is not None)

    def list_watched(self) -> Iterator[tuple[Globs, CallMatcher]]:
        """List the calls that the rule must know, by their tools and the conditions on their arguments.

        Those are all that can count: whoever makes the call, it counts for and against others.
        """
        for need in (self.after, self.unless_after):
            if need is not None:
                yield need.tool, CallMatcher(when=need.when)
        if self.at_most is not None:
            yield self.tools, CallMatcher(when=self.when)

    @property
    def is_for_all(self) -> bool:
        """True if the rule is about every call of its tools, whoever makes it and with any arguments."""
        told = (self.when, self.schema_, self.agents, self.labels, self.sessions, self.agent_targets)
        return not (any(told) or self.when_session)

    def list_labels(self) -> Iterator[str]:
        """List the labels by which the rule tells calls apart."""
        for need in (self.after, self.unless_after, self.at_most):
            if need is not None and need.scope.startswith(LABEL):
                yield need.scope.removeprefix(LABEL)


def find_circle(rules: Sequence[OrderMatcher]) -> set[str]:
    """Return the tools that certainly can never run, as each may run only after another of them."""
    needs: dict[str, Globs] = {}
    for rule in rules:
        for tool in rule.tools:
            if not _WILD.isdisjoint(tool):
                return _close(needs)  # the glob may take any tool from the rules below
            if tool not in needs:
                firm = rule.is_for_all and rule.after is not None
                needs[tool] = rule.after.tool if firm and rule.after is not None else ()
    return _close(needs)


def _close(needs: Mapping[str, Globs]) -> set[str]:
    """Return the largest set of tools whose every need is in the set."""
    closed = {tool for tool, after in needs.items() if after and all(_WILD.isdisjoint(one) for one in after)}
    users: dict[str, list[str]] = {}
    for tool in closed:
        for one in needs[tool]:
            users.setdefault(one, []).append(tool)
    open_ = [one for one in users if one not in closed]
    while open_:
        opened = [tool for tool in users.get(open_.pop(), ()) if tool in closed]
        closed.difference_update(opened)
        open_ += opened
    return closed
