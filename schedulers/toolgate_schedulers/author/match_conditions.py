"""Match conditions: which calls concern a scheduler, as its author says by `when`."

    when={"amount": {"gt": 100}}                                          conditions on arguments
    when=[{"tools": "pay", "when": {"amount": {"gt": 100}}}, {"agents": "intern-*"}]     one of these

The second form has the conditions of a rule of `policy`. Gates read them as the scheduler's local table, and
do not ask about other calls. A gate may have no table, so the scheduler itself goes on with other calls, too:
its author's code is never given one.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from toolgate_bus.config.check import check
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.codec import PLAIN_CONTINUE
from toolgate_bus.protocol.events import ToolSelecting, Verdict
from toolgate_bus.protocol.llm import ANY
from toolgate_bus.ruling.conditions.conditions import Globs
from toolgate_bus.ruling.conditions.matching import CallMatcher
from toolgate_bus.ruling.local_table import LocalTable, encode_table, list_concerns

from toolgate_schedulers.author.scheduler import Decide, Scheduler

When = Mapping[str, Any] | Sequence[Mapping[str, Any]]


class MatchCondition(CallMatcher):
    """Conditions that a call of these tools meets if it concerns the scheduler."""

    tools: Globs = ("*", ANY)


_KEYS: Final = frozenset({"tools", "when", "schema", "agents", "labels", "sessions", "agent_targets"})


def read_conditions(name: str, when: When) -> tuple[MatchCondition, ...]:
    """Return the conditions as they are meant. Raises ConfigError, which names each wrong one."""
    where = f"scheduler {name!r}"
    if not when or not isinstance(when, Mapping | list | tuple):
        raise ConfigError(
            f"{where}: when: give conditions on arguments, such as {{'amount': {{'gt': 100}}}}, or a list of "
            f"conditions on calls; without any, leave it out"
        )
    if not isinstance(when, Mapping):
        return tuple(
            check(MatchCondition, one, f"{where}: when[{number}]") for number, one in enumerate(when)
        )
    for key in sorted(_KEYS.intersection(when)):
        # Taken for an argument, it would match no call, and nobody would ever be asked.
        raise ConfigError(
            f"{where}: when: {key} is a condition on the call: write when=[{{{key!r}: …}}] "
            f"(an argument of this name: when=[{{'when': {{{key!r}: …}}}}])"
        )
    return (check(MatchCondition, {"when": when}, where),)


def limit(scheduler: Scheduler, when: When) -> Scheduler:
    """Return the scheduler, asked only about calls that meet one of these conditions.

    A call also concerns it if a condition holds for an agent above, or cannot be checked.
    """
    conditions = read_conditions(scheduler.name, when)
    rules = list_concerns((one.tools, one) for one in conditions)
    table = LocalTable.model_validate({"rules": rules, "default": "continue"})
    decide = scheduler.decide

    def answer(call: ToolSelecting) -> Any:
        if table.answer(call) is None:
            return decide(call)
        return _continue_streaming() if scheduler.streams else _continue()

    raw = encode_table(rules, "continue")
    return replace(scheduler, decide=cast("Decide", answer), local_table=raw)


async def _continue() -> Verdict:
    return PLAIN_CONTINUE


async def _continue_streaming() -> AsyncIterator[Verdict]:
    yield PLAIN_CONTINUE
