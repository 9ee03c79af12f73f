"""Make a report's lines from facts and entries of the ledger's journal, in any order. Values in, values out.

    decision          ─▶ denied, held, replaced; who decided, and the labels of its session
    decision, verdict ─▶ what rules and shadows would have denied, or asked a person about
    tool:post, usage  ─▶ a call that ran, whether it did its work, and what it says it cost
    ledger            ─▶ what was spent, to the unit; a cost that an entry has paid is not counted again

A replacement saves the average cost, in this report, of the call that the LLM wanted, less what was paid for
the call that ran. The memory that joins facts is bounded: if the entry of a cost comes after
`REMEMBERED` others, the report does not know that a budget paid it.
"""

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeVar

from toolgate_bus.commands.decisions.filters import time_of
from toolgate_bus.commands.report.figures import CallOrigin, ReportFigures
from toolgate_bus.commands.report.period import Period
from toolgate_bus.facts.observed_calls import ObservedCalls
from toolgate_bus.ledger.money.journal import is_entry
from toolgate_bus.ledger.money.limits import BudgetDescription
from toolgate_bus.ledger.money.rebuild import SeenEntries
from toolgate_bus.protocol.fact_events import TOOL_POST, TOOL_RESULT
from toolgate_bus.protocol.money import is_amount, micro
from toolgate_bus.state.ejections import Ejected
from toolgate_bus.telemetry.fact_metrics import is_local

Fact = Mapping[str, Any]
Row = tuple[str, ...]
Value = TypeVar("Value")

REMEMBERED: Final = 100_000
"""Maximum number of sessions that are remembered; also of rulings, of open costs, and of paid calls."""
MAX_ROWS: Final = 50_000
MORE: Final = "(others)"
"""Name of the line for all rows beyond `MAX_ROWS`."""
LLM_REQUEST: Final = "llm:request"
_NAMES: Final = ("agent", "session", "tool", "provider", "model", "scheduler")
_NOBODY: Final = CallOrigin()


class Memory(OrderedDict[str, Value]):
    """Newest values, at most `REMEMBERED`."""

    def keep(self, key: str, value: Value) -> Value | None:
        """Remember a value. Return the one that had to go for it."""
        self[key] = value
        return self.popitem(last=False)[1] if len(self) > REMEMBERED else None


class CallMemo(NamedTuple):
    """Call that was decided on, or request that was answered."""

    whose: CallOrigin
    wanted: str = ""
    """Call that the LLM had wanted, if another call ran."""


@dataclass(slots=True)
class CallCost:
    """Cost that a call reports."""

    row: Row
    amount: int
    keys: tuple[str, ...]
    """Ids under which the ledger may have paid it."""
    kind: str
    """Tool or model whose price it is."""


@dataclass(slots=True)
class CostSum:
    """Sum of the costs of calls of one kind."""

    amount: int = 0
    count: int = 0


@dataclass(slots=True)
class ReportBuilder:
    """Builder of one report. `rows` are its lines once `finish` was called."""

    by: tuple[str, ...]
    period: Period
    book: str = "budget"
    budget: str | None = None
    """Budget that is reported alone; then nothing is outside budgets."""
    rows: dict[Row, ReportFigures] = field(default_factory=dict)
    accounts: dict[tuple[str, int], int] = field(default_factory=dict)
    """Sum of the journal, by account and window, whatever the period."""
    first_entry: float | None = None
    """Time at which the first entry of the journal was written, in seconds since the epoch."""
    first_fact: float | None = None
    observed: ObservedCalls = field(default_factory=ObservedCalls)
    """Calls that rules and shadows would have denied, or asked a person about."""
    resets: dict[str, int] = field(default_factory=dict)
    """Amount that somebody has set to zero in this period, by account. It was spent all the same."""
    ejections: list[Ejected] | None = None
    """Alternatives that were left alone in this period; None if no server was read."""
    left_out: int = 0
    """Number of entries' accounts beyond `REMEMBERED`, which are not compared."""
    _labels: Memory[Mapping[str, str]] = field(default_factory=Memory)
    _calls: Memory[CallMemo] = field(default_factory=Memory)
    _paid: Memory[bool] = field(default_factory=Memory)
    _placed: Memory[bool] = field(default_factory=Memory)
    _open: Memory[CallCost] = field(default_factory=Memory)
    _once: SeenEntries = field(default_factory=SeenEntries)
    _waiting: Memory[list[Fact]] = field(default_factory=Memory)
    """Entries of calls of which no fact was read yet."""
    _prices: dict[str, CostSum] = field(default_factory=dict)
    _replaced: dict[tuple[Row, str], CostSum] = field(default_factory=dict)

    def use(self, budgets: Mapping[str, BudgetDescription]) -> None:
        """Set the budgets. Entries count by the windows of those that fit the period."""
        self.period = replace(self.period, budgets=budgets)

    def take(self, line: Fact) -> None:
        """Take a fact, or an entry of a journal."""
        if is_entry(line):
            self._take_entry(line)
            return
        at = time_of(line)
        self.first_fact = at if self.first_fact is None else min(self.first_fact, at)
        event = line["event"]
        if event != "decision" or self.period.has(at):
            self.observed.take(line)
        if event == "decision":
            self._take_decision(line, at)
        elif event in ("tool:post", "tool:error"):
            self._take_call(line, at)
        elif event == "usage":
            self._take_request(line, at)
        elif event == TOOL_RESULT and self.period.has(at):
            self._take_result(line)

    def finish(self, unsettled: Collection[str] = ()) -> None:
        """Put costs that no budget paid outside budgets, but for the decisions that still hold money."""
        self.observed.finish()
        for id_ in list(self._waiting):
            self._place_entries(id_)
        for cost in {id(one): one for one in self._open.values()}.values():
            if not any(key in unsettled for key in cost.keys):
                self._put_outside(cost)
        self._open.clear()
        for (row, wanted), paid in self._replaced.items():
            price = self._prices.get(wanted)
            if price is not None and price.count:
                self._row(row).saved += paid.count * price.amount // price.count - paid.amount
        self._replaced.clear()

    # ------------------------------------------------------------------ the ledger

    def _take_entry(self, entry: Fact) -> None:
        if entry["book"] != self.book or not self._once.take(entry):
            return
        at, id_ = float(entry["at"]), entry["id"]
        self.first_entry = at if self.first_entry is None else min(self.first_entry, at)
        self._add_up(entry)
        if not entry.get("unit"):
            self._pay(id_)
        names = {key.partition("/")[0] for key, _ in entry["accounts"]}
        if self.budget is not None and self.budget not in names:
            return
        if not self.period.has_entry(entry, self.budget):
            return
        kind = entry.get("of") or entry.get("kind")
        if kind == "part":
            return
        if kind == "reset":
            for key, _ in entry["accounts"]:
                if key in self.resets or len(self.resets) < MAX_ROWS:
                    self.resets[key] = self.resets.get(key, 0) - entry["amount"]
            return
        gone = self._waiting.keep(id_, [*self._waiting.get(id_, ()), entry])
        if id_ in self._calls:
            self._place_entries(id_)
        for one in gone or ():
            self._place_entry(one, one["id"])

    def _place_entries(self, id_: str) -> None:
        """Put payments for a call into its line, once its origin is known, or will not be."""
        for entry in self._waiting.pop(id_, ()):
            self._place_entry(entry, id_)

    def _place_entry(self, entry: Fact, id_: str) -> None:
        amount = entry["amount"]
        whose = self._whose(entry, id_)
        row = whose.key(self.by)
        figures = self._row(row)
        if unit := entry.get("unit"):
            figures.count(unit, amount)
        else:
            figures.spent += amount
        figures.orphans += entry.get("kind") == "orphan"
        reserved = entry.get("reserved")
        figures.overruns += entry.get("kind") == "settle" and is_amount(reserved) and 0 < reserved < amount
        if unit:
            return
        again = id_ in self._placed
        self._placed.keep(id_, True)
        self._learn(_kind(whose), amount, id_, row, again=again)

    def _add_up(self, entry: Fact) -> None:
        for key, number in entry["accounts"]:
            place = (key, number)
            if place in self.accounts or len(self.accounts) < REMEMBERED:
                self.accounts[place] = self.accounts.get(place, 0) + entry["amount"]
            else:
                self.left_out += 1

    def _pay(self, id_: str) -> None:
        self._paid.keep(id_, True)
        cost = self._open.get(id_)
        for key in cost.keys if cost is not None else ():
            self._open.pop(key, None)

    # ------------------------------------------------------------------ facts

    def _take_decision(self, fact: Fact, at: float) -> None:
        id_, whose = fact["id"], self._whose(fact, fact["id"])
        session, labels = fact.get("session"), fact.get("labels")
        if session and isinstance(labels, Mapping) and labels:
            self._labels.keep(session, labels)
        self._calls.keep(id_, CallMemo(_ran(fact, whose), _wanted(fact) if _is_replaced(fact) else ""))
        self._place_entries(id_)
        holding = [one.get("scheduler") for one in fact["verdicts"] if _holds(one)]
        by = fact.get("scheduler") or (holding[0] if holding else None)
        if not self.period.has(at):
            return
        tool = str(fact.get("tool_name") or "")
        figures = self._row(replace(whose, tool=tool, scheduler=str(by or "")).key(self.by))
        figures.denied += fact.get("outcome") == "deny"
        figures.local += _is_local(fact)
        figures.replaced += _is_replaced(fact)
        if holding:
            figures.held += 1
            figures.held_s += float(fact["seconds"])

    def _take_call(self, fact: Fact, at: float) -> None:
        id_ = str(fact.get("decision_id") or "")
        whose, cost = self._whose(fact, id_), fact.get("cost")
        if self.period.has(at):
            row = whose.key(self.by)
            figures = self._row(row)
            figures.calls += 1
            figures.succeeded += fact["event"] == TOOL_POST and fact.get("success") is not False
            if is_amount(cost) and cost:
                self._tell_cost(CallCost(row, cost, (id_,) if id_ else (), _kind(whose)))

    def _take_result(self, fact: Fact) -> None:
        whose, outcome = self._whose(fact, str(fact.get("decision_id") or "")), fact.get("outcome")
        figures = self._row(replace(whose, scheduler=str(fact.get("scheduler") or "")).key(self.by))
        figures.results += 1
        figures.masked += outcome in ("masked", "replaced")
        figures.withheld += outcome == "withheld"

    def _take_request(self, fact: Fact, at: float) -> None:
        id_, number = str(fact.get("decision_id") or ""), fact.get("seq")
        session, labels = fact.get("session"), fact.get("labels")
        if session and isinstance(labels, Mapping) and labels:
            self._labels.keep(session, labels)
        whose = replace(self._whose(fact, id_), tool=LLM_REQUEST)
        if not self.period.has(at):
            return
        row = whose.key(self.by)
        figures = self._row(row)
        figures.requests += 1
        figures.succeeded += not fact.get("partial")
        amount = micro(fact.get("cost_usd"))
        charge = f"usage-{fact.get('orchestrator')}-{number}"  # as the keeper charges it
        if amount or not id_:  # at prices of its own, where no cost is told
            self._calls.keep(charge, CallMemo(whose))
            self._place_entries(charge)
        if amount:
            self._tell_cost(CallCost(row, amount, (*((id_,) if id_ else ()), charge), _kind(whose)))

    def _tell_cost(self, cost: CallCost) -> None:
        if any(key in self._paid for key in cost.keys) or self.budget is not None:
            return
        for key in cost.keys:
            gone = self._open.keep(key, cost)
            if gone is not None and gone is not cost:
                for other in gone.keys:
                    self._open.pop(other, None)
                self._put_outside(gone)
        if not cost.keys:
            self._put_outside(cost)

    def _put_outside(self, cost: CallCost) -> None:
        self._row(cost.row).outside += cost.amount
        self._learn(cost.kind, cost.amount, cost.keys[0] if cost.keys else "", cost.row, again=False)

    # ------------------------------------------------------------------ replacements

    def _learn(self, kind: str, amount: int, id_: str, row: Row, *, again: bool) -> None:
        call = self._calls.get(id_)
        wanted = call.wanted if call is not None else ""
        if wanted:
            paid = self._replaced.setdefault((row, wanted), CostSum())
        elif kind in self._prices or len(self._prices) < MAX_ROWS:
            paid = self._prices.setdefault(kind, CostSum())
        else:
            return
        paid.amount, paid.count = paid.amount + amount, paid.count + (not again)

    # ------------------------------------------------------------------ whose

    def _whose(self, fact: Fact, id_: str) -> CallOrigin:
        """Return the origin that a line tells; where it tells nothing, that of its call."""
        call = self._calls.get(id_)
        known = call.whose if call is not None else _NOBODY
        told = {name: str(fact.get(name) or getattr(known, name)) for name in _NAMES}
        labels = fact.get("labels")
        if not (isinstance(labels, Mapping) and labels):
            labels = known.labels or self._labels.get(told["session"])
        return CallOrigin(**told, labels=labels)

    def _row(self, row: Row) -> ReportFigures:
        if row not in self.rows and len(self.rows) >= MAX_ROWS:
            row = (MORE,) * len(self.by)
        return self.rows.setdefault(row, ReportFigures())


def _kind(whose: CallOrigin) -> str:
    """Return the kind that has one price: a tool, or a model."""
    return f"{whose.provider}/{whose.model}" if whose.tool == LLM_REQUEST else whose.tool


def _ran(decision: Fact, whose: CallOrigin) -> CallOrigin:
    """Return the origin of the call that was to run after a decision."""
    tool = str(decision.get("final_tool") or decision.get("tool_name") or "")
    told, final = decision.get("tool_input"), decision.get("final_input")
    if tool != LLM_REQUEST or not isinstance(told, Mapping):
        return replace(whose, tool=tool)
    request = {**told, **(final if isinstance(final, Mapping) else {})}
    provider, model = (str(request.get(name) or "") for name in ("provider", "model"))
    return replace(whose, tool=tool, provider=provider, model=model)


def _wanted(decision: Fact) -> str:
    """Return the tool or model that the LLM, or the agent, had wanted."""
    if decision.get("tool_name") != LLM_REQUEST:
        return str(decision.get("tool_name") or "")
    told = decision.get("tool_input")
    request = told if isinstance(told, Mapping) else {}
    return f"{request.get('provider', '')}/{request.get('model', '')}"


def _is_replaced(decision: Fact) -> bool:
    """Return whether another tool, or another model, was to run."""
    if decision.get("outcome") != "modify":
        return False
    if decision.get("tool_name") != LLM_REQUEST:
        return decision.get("final_tool") not in (None, decision.get("tool_name"))
    told, final = decision.get("tool_input"), decision.get("final_input")
    if not isinstance(told, Mapping) or not isinstance(final, Mapping):
        return False
    return any(final.get(name, told.get(name)) != told.get(name) for name in ("provider", "model"))


def _is_local(decision: Fact) -> bool:
    """Return whether local tables gave all verdicts that count."""
    counted = [one for one in decision["verdicts"] if isinstance(one, Mapping) and not one.get("shadow")]
    return bool(counted) and all(is_local(one.get("revision")) for one in counted)


def _holds(verdict: Any) -> bool:
    return isinstance(verdict, Mapping) and verdict.get("action") == "hold" and not verdict.get("shadow")
