"""What a rule on order asks of the calls before, as it is written: `after`, `unless_after`, `at_most`. Pure.

What is judged by it is in `policy_order`, and in which words in `policy_verdicts`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.ruling.conditions.conditions import Globs, When
from toolgate_bus.ruling.conditions.matching import CallMatcher

MAX_WINDOW_S: Final = 3600.0
LABEL: Final = "label:"
_WILD: Final = frozenset("*?[")
_SCOPE: Final = re.compile(r"session|own-session|tree|label:.{1,128}", re.DOTALL)
_PATH: Final = re.compile(r"\$\.(.{1,1022})", re.DOTALL)


def _read_scope(written: Any) -> Any:
    if not isinstance(written, str) or not _SCOPE.fullmatch(written):
        raise ValueError("must be session, own-session, tree or label:NAME")
    return written


def _read_pairs(written: Any) -> Any:
    pairs = written.items() if isinstance(written, dict) else ()
    if not all(isinstance(path, str) and _PATH.fullmatch(path) for pair in pairs for path in pair):
        raise ValueError("must be $.path in this call to $.path in that one, such as {$.id: $.order}")
    return written


Scope = Annotated[str, BeforeValidator(_read_scope, json_schema_input_type=str)]
Window = Annotated[float, Field(gt=0, le=MAX_WINDOW_S, allow_inf_nan=False, strict=True)]
Pairs = Annotated[dict[str, str], Field(max_length=16), BeforeValidator(_read_pairs)]


class Precondition(StrictModel):
    """A call that must have come before, or must not have."""

    tool: Globs
    """The call that came before: one glob or several."""
    when: When = Field(default_factory=dict)
    """Its arguments to conditions, as a rule's own `when`."""
    success: Annotated[bool | None, Field(strict=True)] = True
    """How it ended: true is well, false is not, null either way."""
    within_s: Window = MAX_WINDOW_S
    """It ended so many seconds ago at most; an hour is the most that is remembered."""
    same: Pairs = Field(default_factory=dict)
    """`{$.path: $.path}`: what stands there in this call is what stood there in that one."""
    scope: Scope = "session"
    """Whose calls count: those of the same `session`, `tree` of sessions, or value of `label:NAME`. What
    counts against a call in a `session` counts in those of its agents as well; `own-session` is it alone. A
    call without that label may be of any value: it counts against all of them."""

    def list_paths(self) -> Iterator[str]:
        """The places in that call's arguments that it looks at."""
        yield from self.when
        yield from self.same.values()


class CallCount(StrictModel):
    """How often the calls of a rule may run."""

    n: Annotated[int, Field(ge=1, le=128, strict=True)]
    """So many calls, those that run at present among them …"""
    within_s: Window = MAX_WINDOW_S
    """… in so many seconds."""
    scope: Scope = "session"
    """Whose calls are counted together: as above."""


class OrderMatcher(CallMatcher):
    """What must have come before the calls that a rule is about."""

    tools: Globs
    """One glob or several."""
    after: Precondition | None = None
    """The call may run after such a call only, and is denied before; see below."""
    unless_after: Precondition | None = None
    """The call may not run after such a call, nor beside one."""
    at_most: CallCount | None = None
    """So many of the calls that fit `tools` and `when` may run; one that was denied counts for nothing."""
    wait_s: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False, strict=True)] | None = None
    """Seconds that the call waits where what it depends on is under way; without it, it is denied then."""

    @model_validator(mode="after")
    def _waits_for_something(self) -> "OrderMatcher":
        if self.wait_s is not None and not self.is_ordered:
            raise ValueError("wait_s: goes with after, unless_after or at_most")
        if self.at_most is not None and self.schema_ is not None:
            raise ValueError("at_most: counts calls by tools and when, and does not go with schema")
        return self

    @property
    def is_ordered(self) -> bool:
        """Whether anything but the call itself is looked at."""
        return not (self.after is None and self.unless_after is None and self.at_most is None)

    def list_globs(self) -> Iterator[str]:
        """The globs of tools of whose calls it must know."""
        for need in (self.after, self.unless_after):
            yield from need.tool if need is not None else ()
        yield from self.tools if self.at_most is not None else ()

    def list_paths(self) -> Iterator[str]:
        """The places in their arguments that it looks at."""
        for need in (self.after, self.unless_after):
            yield from need.list_paths() if need is not None else ()
        yield from self.when if self.at_most is not None else ()

    @property
    def is_for_all(self) -> bool:
        """Whether it is about every call of its tools, whoever makes it and with what arguments."""
        told = (self.when, self.schema_, self.agents, self.labels, self.sessions, self.agent_targets)
        return not any(told)

    def list_labels(self) -> Iterator[str]:
        """The labels by which it tells calls apart."""
        for need in (self.after, self.unless_after, self.at_most):
            if need is not None and need.scope.startswith(LABEL):
                yield need.scope.removeprefix(LABEL)


def find_circle(rules: Sequence[OrderMatcher]) -> set[str]:
    """Tools of which no call can ever run, as each may run only after one of them; only what is certain."""
    needs: dict[str, Globs] = {}
    for rule in rules:
        for tool in rule.tools:
            if not _WILD.isdisjoint(tool):
                return _close(needs)  # of the rules below it is not certain what they are about
            if tool not in needs:
                firm = rule.is_for_all and rule.after is not None
                needs[tool] = rule.after.tool if firm and rule.after is not None else ()
    return _close(needs)


def _close(needs: Mapping[str, Globs]) -> set[str]:
    """The largest set of tools whose every need is in the set."""
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
