"""Facts of any type, through the one door, to everybody who reads facts: dropped or told, never raised."""

import io
import json
import math
import struct
from contextlib import redirect_stdout, suppress
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toolgate_bus.commands.decisions.archive_progress import ArchiveProgress
from toolgate_bus.commands.decisions.archive_reader import _fact as archived
from toolgate_bus.commands.decisions.explained import aftermath, explain
from toolgate_bus.commands.decisions.filters import Filters
from toolgate_bus.commands.decisions.listing import (
    DecisionListView,
    print_decision,
    print_disagreements,
    print_totals,
)
from toolgate_bus.commands.exporter.fleet import FleetCounts
from toolgate_bus.commands.terminal import Terminal
from toolgate_bus.config.check import check
from toolgate_bus.errors import CodecError, ConfigError
from toolgate_bus.facts import record
from toolgate_bus.facts.join import join_decisions
from toolgate_bus.facts.shadow_report import add_to_totals, disagreements
from toolgate_bus.ledger.money.ledger import Step
from toolgate_bus.ledger.money.rules import LedgerRules
from toolgate_bus.ledger.money.settlement import step_of
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.agents import decode_agents, decode_stop, forest
from toolgate_bus.telemetry.fact_metrics import metrics_of
from toolgate_orchestrator.commands.replay.recorded_decisions import read_record
from toolgate_schedulers.commands.console.rates import Rates
from toolgate_schedulers.commands.console.ring import Ring
from toolgate_schedulers.shipped.cost_aware.accounts import payer_of
from toolgate_schedulers.shipped.cost_aware.config import CostAwareConfig
from toolgate_schedulers.shipped.cost_aware.delegations import Delegations
from toolgate_schedulers.shipped.cost_aware.estimates import CostHistory
from toolgate_schedulers.shipped.cost_aware.scheduler import CostAware
from toolgate_schedulers.shipped.score.outcomes import outcome_of

pytestmark = pytest.mark.pure

ID = "0f" * 16
QUESTION = {
    "tool_name": "bash",
    "tool_input": {"command": "ls"},
    "available_tools": ["bash"],
    "session": "s",
    "agent": "a",
    "labels": {"team": "x"},
    "lineage": ["boss"],
    "trace": {"traceparent": f"00-{ID}-{'0f' * 8}-01"},
}
SAID = {"scheduler": "p", "action": "deny", "phase": "select", "priority": 5, "seconds": 0.1, "reason": "no"}
SHADOW = {**SAID, "action": "modify", "tool": "cat", "arguments": {"a": 1}, "shadow": True}
WHO = {"session": "s", "root_session": "s", "agent": "a", "seq": 7, "at": 1e9}
CALL = {**WHO, "decision_id": ID, "tool": "bash", "tool_call_id": "c", "seconds": 0.5}
DECISION = {
    "event": "decision",
    "seq": 7,
    "at": 1e9,
    "id": ID,
    "question": QUESTION,
    "outcome": "deny",
    "why": "denied",
    "verdicts": [SAID, SHADOW],
    "seconds": 0.2,
    "reason": "no",
    "scheduler": "p",
    "silent": ["q"],
    "failed_open": {"q": "silent"},
    "passed_over": ["q"],
    "final_tool": None,
}
GOOD: list[dict[str, Any]] = [
    DECISION,
    {**DECISION, "outcome": "modify", "why": "modified", "final_tool": "cat", "final_input": {"a": 1}},
    {"event": "verdict", "id": ID, "seq": 8, "at": 1e9, **SHADOW, "tool_label": "bash", "disagreeing": ["p"]},
    {"event": "tool:selected", **CALL, "source": "scheduler", "original_tool": "cat"},
    {"event": "tool:post", **CALL, "success": True, "cost": 5},
    {"event": "tool:error", **CALL, "error": "ValueError"},
    {"event": "tool:unused", **CALL},
    {"event": "usage", **WHO, "provider": "p", "cost_usd": "0.1", "input_tokens": 5, "seconds": 1.0},
    {"event": "turn", **WHO, "loop": "l", "status": "completed", "seconds": 1.0, "iterations": 3},
    {
        "event": "delegate:agent_spawned",
        **WHO,
        "agent_target": "x",
        "sub_session_id": "t",
        "tool_call_id": "c",
    },
    {
        "event": "agreed",
        "seq": 1,
        "at": struct.pack(">2d", 1, 2),
        "ids": bytes(32),
        "seconds": struct.pack(">2d", 0.1, 0.2),
        "asked": [["cost", 5, struct.pack(">2d", 0.1, 0.2)]],
        "begin": msgpack.packb(QUESTION)[:-1],
        "rest": [b"\x01", b"\x01"],
    },
]


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=True, allow_infinity=True),
    st.text(max_size=20),
    st.binary(max_size=20),
)
hostile = st.one_of(
    plain,
    st.recursive(plain, lambda one: st.lists(one, max_size=4) | st.dictionaries(st.text(max_size=5), one)),
    st.sampled_from(
        [
            *(deep(30), deep(60), deep(400), [[]] * 1000, {str(n): n for n in range(2000)}),
            *(
                math.nan,
                math.inf,
                -math.inf,
                2**60,
                -1,
                "",
                "x" * 70_000,
                "1e999980",
                "\x1b[2J\u202e",
                {1: 2},
            ),
            *({"seconds": math.nan}, [None], [[{}]], {"a": {"a": {"a": {}}}}, "⟦toolgate:redacted:0f⟧"),
            *(b"\xff" * 9, struct.pack(">2d", math.nan, math.inf), struct.pack(">2d", -1, 1e300)),
        ]
    ),
)


@st.composite
def facts(draw: st.DrawFn) -> dict[str, Any]:
    """A fact as it should be, in which one or several places are something else."""
    fact = dict(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(1, 2))):
        fact[draw(st.sampled_from([*fact, "cost", "orchestrator", "entry", "trace", "labels", "cut"]))] = (
            draw(hostile)
        )
    question = fact.get("question")
    if isinstance(question, dict) and question is QUESTION and draw(st.booleans()):
        question = {**question, draw(st.sampled_from([*question, "event", "verdicts"])): draw(hostile)}
    verdicts = fact.get("verdicts")
    if verdicts == [SAID, SHADOW] and draw(st.booleans()):
        fact["verdicts"] = [
            {**draw(st.sampled_from(verdicts)), draw(st.sampled_from([*SHADOW])): draw(hostile)}
        ]
    if isinstance(question, dict):
        fact["question"] = msgpack.packb(question)
    return fact


def through_the_door(fact: dict[str, Any]) -> list[dict[str, Any]]:
    """What readers are given of a fact, as `FactsReader` does."""
    raw = msgpack.packb([[1, bytes(16), 0, msgpack.packb(fact), None]])
    given_ = []
    try:
        for item in packing.items(raw):
            if not isinstance(item, CodecError):
                given_ += record.read_facts(item)
    except CodecError:
        return []
    return [{**one, "orchestrator": "o", "entry": "1000-0"} for one in given_]


ALL = Filters(("*",), "p", ("deny",), ("denied",), "s", "a", (("team", "x"),), 0.0, 1e12, "0")


def read_by_everybody(kept: list[dict[str, Any]]) -> None:
    """Each reader of facts in turn."""
    out = io.StringIO()
    terminal = Terminal(file=out, width=100)
    standing, fleet, ring, rates = ArchiveProgress(), FleetCounts(), Ring(), Rates()
    learned, delegations, totals = CostHistory(), Delegations(), dict[str, Any]()
    keeps = CostAware(check(CostAwareConfig, {"budgets": [{"name": "b", "limit": 1}]}, "c.yaml"))
    book = LedgerRules()
    for line in standing.take(kept, {"o": "1000-0"}, 5):
        archived(json.dumps(line, ensure_ascii=False, allow_nan=False).encode() + b"\n", "facts.jsonl", 1)
    for fact in kept:
        list(metrics_of(fact))
        fleet.take(fact)
        rates.add(fact, 2e9)
        ring.take(fact)
        learned.hear(fact)
        delegations.hear(fact, lambda _tool: 1)
        outcome_of(fact)
        payer_of(fact)
        keeps.otherwise(fact)
        keeps.learned.hear(fact)
        step = step_of(fact, keeps.otherwise)
        if isinstance(step, Step):
            book.take(step, 1.0)
    FleetCounts.read(fleet.text()).collectors()
    json.dumps(rates.over(3600, 10, 2e9), allow_nan=False)
    read_record(kept)
    for one in join_decisions(kept):
        ALL.match(one)
        print_decision(terminal, one)
        add_to_totals(totals, one)
        json.dumps(explain(one, aftermath(one, kept)).as_json(), allow_nan=False).encode()
        json.dumps(one, ensure_ascii=False, allow_nan=False).encode()
        with suppress(CodecError):
            print_disagreements(terminal, disagreements(one))
        with redirect_stdout(out):
            DecisionListView(Filters(), shadow=True, as_json=True).show(one)
    print_totals(terminal, totals)


def test_the_facts_that_the_others_are_made_of_are_read():
    for fact in GOOD:
        packed = {**fact, "question": msgpack.packb(QUESTION)} if "question" in fact else fact
        assert through_the_door(packed)


@given(st.lists(facts(), min_size=1, max_size=3))
def test_whatever_a_fact_holds_every_reader_survives_it(several):
    read_by_everybody([one for fact in several for one in through_the_door(fact)])


agents = st.dictionaries(
    st.sampled_from(["session", "root", "parent", "lineage", "doing", "turns", "cost", "age"]), hostile
)


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from(["pages", "all", "sessions", "roots", "by"]), hostile), agents)
def test_whatever_stands_for_live_agents_is_listed_or_left_out(told, agent):
    page = {"pages": [msgpack.packb([{"session": "s", "age": 1.0, **agent}])]}
    for raw in (msgpack.packb(told), msgpack.packb(page)):
        decode_stop(raw)
        living = forest(decode_agents("o", raw))
        json.dumps([one.as_json() for _, one in living], allow_nan=False)


@pytest.mark.parametrize(
    "line",
    [
        b'{"event": "decision"}',
        b'{"event": "tool:post", "cost": "x"}',
        b'{"event": "x", "at": 1e999}',
        b'{"event": "x", "words": "\\ud800"}',
        b'{"event": "x", "seq": true}',
        b'{"event": "archive:gap", "kind": "missing", "from": 1.5, "to": 3}',
        b'{"event": "x", "d": ' + b"[" * 900 + b"]" * 900 + b"}",
    ],
)
def test_a_line_of_an_archive_that_is_no_fact_is_one_clear_error(line):
    with pytest.raises(ConfigError, match=r"facts\.jsonl, line 3: "):
        archived(line, "facts.jsonl", 3)
