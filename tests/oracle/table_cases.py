"""Policies and calls for local tables, drawn from a seed: many rules about few tools, values in every form.

A case is one call. Its table is held against a linear evaluation, which has no index; against what the policy
says of the question that it would be sent; and against the oracle, which reads rules and values by itself.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import toolgate_orchestrator as guarded
from carrying import schemas
from cases import SUBJECTS, TOOLS
from forms import FORMS, HONEST, put, tool_forms, twice
from meanings import Past, Rule, RuleList, Test
from readings import Call, Who
from toolgate_bus.config.check import check
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import ToolQuestion, ToolSelecting
from toolgate_bus.ruling.conditions.matching import AnyQuestion, as_each_agent
from toolgate_bus.ruling.local_table import LocalTable
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.question.question import (
    UnreadableQuestion,
    fill_defaults,
    make_question,
    write_question,
)
from toolgate_orchestrator.decision.question.redact import Redactor
from toolgate_schedulers.shipped.policy.scheduler import Policy, PolicyConfig, rule_on

__all__ = ["CALLS", "TableCase", "TableFound", "TableWorld", "draw_worlds", "to_call", "try_world"]

CALLS = 100
"""Calls of a world."""
SHOWN = 3
AGENTS = (
    *(Who(), Who("boss", "s"), Who("helper1", "s-1", "s", "s", ("boss",)), Who("stranger", "other")),
    *(Who("helper2", "s-2", "s", "s-1", ("boss", "planner")), Who("clerk", "s", labels={"team": "red-1"})),
)
WHOSE: tuple[Mapping[str, Any], ...] = (
    *({}, {}, {}, {}, {"agents": "boss"}, {"agents": "bo*"}, {"agents": "?*"}, {"sessions": "s"}),
    *({"labels": {"team": "red*"}}, {"agents": "helper?"}),
)
REDACTS: tuple[Mapping[str, Any], ...] = (
    *({}, {}, {}, {"max_chars": 256}, {"fields": ["amount"]}, {"patterns": ["sk-[A-Za-z0-9]{20,}"]}),
    {"fields": ["secret"], "max_chars": 256},
)
UNTOLD = ({"unknown": "allow"}, {"unknown": "deny"}, {"schema": {"required": ["to"]}})
"""What rules may say besides, of which the oracle knows nothing."""


class TableCase(NamedTuple):
    """A call, and whether it is told plainly."""

    call: Call
    is_honest: bool
    kind: str


class TableWorld(NamedTuple):
    """A policy, and calls under it."""

    written: RuleList
    cases: tuple[TableCase, ...]
    is_judged: bool
    """Whether the oracle knows all that its rules say."""


@dataclass
class TableFound:
    """What came of many cases: how they were answered, and what was wrong, with a few examples."""

    answered: Counter[str] = field(default_factory=Counter)
    """Cases by who answered: `continue` and `deny` by the table; `asked`; `no table`; `unreadable`."""
    judged: Counter[str] = field(default_factory=Counter)
    """Answers of tables that the oracle looked at."""
    wrong: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def cases(self) -> int:
        """Number of cases."""
        return self.answered.total()

    def blame(self, what: str, told: str) -> None:
        """Count a wrong answer."""
        self.wrong[what] += 1
        texts = self.examples.setdefault(what, [])
        texts += [told][: SHOWN - len(texts)]

    def add(self, other: "TableFound") -> None:
        """Take in what another process found."""
        for name in ("answered", "judged", "wrong"):
            getattr(self, name).update(getattr(other, name))
        for what, texts in other.examples.items():
            self.examples[what] = (self.examples.get(what, []) + texts)[:SHOWN]

    def as_json(self) -> dict[str, Any]:
        """All of it."""
        return {
            "cases": self.cases,
            "answered": dict(self.answered),
            "judged": dict(self.judged),
            "wrong": dict(self.wrong),
            "examples": self.examples,
        }


# ---------------------------------------------------------------------- drawn


def draw_worlds(seed: int, part: tuple[int, int] = (0, 1)) -> Iterator[TableWorld]:
    """Worlds without an end; `part` (n, of) is every of-th from n on."""
    number = part[0]
    while True:
        dice = random.Random(f"tables {seed} {number}")
        is_judged = dice.random() < 0.8
        count = dice.choice((1, 2, 3, 4, 6, 8, 12, 40, 125))
        rules = tuple(_rule(dice, at, is_judged=is_judged) for at in range(count))
        default = dice.choice(("allow", "allow", "deny", "ask"))
        written = RuleList("policy", rules, default, redact=dice.choice(REDACTS))
        yield TableWorld(written, tuple(islice(_cases(dice), CALLS)), is_judged)
        number += part[1]


def _rule(dice: random.Random, number: int, *, is_judged: bool) -> Rule:
    subjects = dice.sample(SUBJECTS, dice.choice((1, 1, 1, 2)))
    tool = subjects[0].tool
    tools = dice.choice(((tool,), (tool,), (tool[:2] + "*", "other"), ("*",), (f"{tool[:-1]}?",), TOOLS[:4]))
    tests = {one.path: Test(one.kind, one.given) for one in subjects}
    action = dice.choice(("allow", "allow", "deny", "deny", "deny", "ask"))
    more: dict[str, Any] = {"name": f"r{number}"}
    if action != "ask" and dice.random() < 0.2:
        more["reason"] = "because"
    if not is_judged and dice.random() < 0.4:
        observed = [{"mode": "observe"}] if action != "allow" else []
        more |= dice.choice([*UNTOLD, *observed])
    return Rule(action, tools, tests if dice.random() < 0.85 else {}, dice.choice(WHOSE), more)


def _cases(dice: random.Random) -> Iterator[TableCase]:
    forms = sorted(FORMS)
    while True:
        subject = dice.choice(SUBJECTS)
        value, form = dice.choice((*subject.inside, *subject.outside)), dice.choice(("plain", *forms))
        if dice.random() < 0.1 and (both := twice(dice, subject, value)) is not None:
            form, arguments = both
        else:
            try:
                arguments = FORMS[form](dice, subject, value)
            except TypeError:  # what cannot stand in a set
                arguments = None
        if arguments is None:
            continue
        other = dice.choice(SUBJECTS)
        if other.path.partition(".")[0] not in arguments and dice.random() < 0.3:
            arguments = {**arguments, **put(other.path, dice.choice((*other.inside, *other.outside)))}
        schema = None
        if form == "default left out":
            schema = {"type": "object", "properties": {subject.path: {"default": value}}}
        is_spelled = dice.random() < 0.05
        tool = tool_forms(dice, subject.tool) if is_spelled else dice.choice((subject.tool, *TOOLS[:2]))
        call = Call(tool, arguments, dice.choice(AGENTS), schema)
        yield TableCase(call, form in HONEST and not is_spelled, "tool's name" if is_spelled else form)


# ---------------------------------------------------------------------- held against each other


def to_call(call: Call) -> guarded.Call:
    """Return a call as a program puts it to a gate."""
    who, tools = call.who, schemas(call)
    at = guarded.Caller(who.session, who.agent, who.root_session, who.parent, who.lineage, who.labels)
    return guarded.Call(call.tool, call.arguments, tools if call.schema else list(tools), at)


def try_world(world: TableWorld, found: TableFound) -> None:
    """Hold the table of a world against the other three, call by call."""
    config = check(PolicyConfig, world.written.document(), "rules")
    raw = Policy(config).local_table
    if not raw:
        found.answered["no table"] += len(world.cases)
        return
    table = LocalTable.read(raw)
    settings, redactor = parse({}), Redactor(parse({"redact": dict(world.written.redact)}).redact)
    for case in world.cases:
        call = to_call(case.call)
        asking = make_question(call, settings, 1000, case.call.who.root_session or case.call.who.session)
        try:
            told = _told(asking._replace(tool_input=fill_defaults(call.tools, asking)), redactor)
        except UnreadableQuestion:
            found.answered["unreadable"] += 1
            continue
        sent, decoded = told
        answer = table.answer(sent)
        said = "asked" if answer is None else answer.verdict.action
        found.answered[said] += 1
        words = f"{world.written.document()} redact={dict(world.written.redact)}\n    {case.call!r:.600}"
        if (linear := evaluate(table, sent)) != (answer and (answer.verdict.action, answer.verdict.reason)):
            found.blame("index", f"{words}\n    {answer} and not {linear}")
        if answer is None:
            continue
        if (ruled := rule_on(config, decoded)) != answer.verdict:
            found.blame("policy", f"{words}\n    {answer.verdict} and not {ruled}")
        if world.is_judged:
            found.judged[said] += 1
            may_run = world.written.may_run(case.call, Past())
            if said == "continue" and not may_run:
                found.blame(f"let through: {case.kind}", words)
            elif said == "deny" and may_run and case.is_honest:
                found.blame(f"false alarm: {case.kind}", words)


def _told(asking: ToolQuestion, redactor: Redactor) -> tuple[AnyQuestion, ToolSelecting]:
    """Return the question as the gate's table sees it, and as its scheduler would read it."""
    body, outgoing = write_question(asking, redactor)
    item = packing.Item(
        bytes.fromhex(asking.id), packing.NUMBERS["select", False], body, None, packing.NEWEST
    )
    decoded = codec.question(item)
    return asking if outgoing is None else decoded, decoded


def evaluate(table: LocalTable, question: AnyQuestion) -> tuple[str, str | None] | None:
    """Return action and reason by going through all rules, for each agent; None if the scheduler is asked."""
    verdicts: list[tuple[str, str | None]] = []
    for one in as_each_agent(question):
        answer, name, reason = table.default, "default", None
        for rule in table.rules:
            truth = rule.about(rule.tools, one, "all" if rule.answer == "continue" else "any")
            if truth is not False:
                answer = rule.answer if truth else "ask"
                name, reason = rule.name or "default", rule.reason
                break
        if answer == "ask":
            return None
        if answer == "deny":
            tool = question.tool_name
            fallback = f"no rule allows {tool}" if name == "default" else f"{tool} is not allowed"
            words = f"{reason or fallback} ({name})"[:1024]
            if one is not question and one.agent != question.agent:
                words += f"; this holds for {question.agent}, which works for {one.agent}"
            return "deny", words[:1024]
        verdicts.append((answer, reason))
    return verdicts[0]
