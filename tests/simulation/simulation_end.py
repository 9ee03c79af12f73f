"""What must hold once a simulated world is at rest: the record and the books are exact."""

from collections.abc import Callable
from typing import Any

from simulated_replicas import SimulatedFacts
from simulated_server import Remote, SimulatedServer
from simulation_journal import Journal
from simulation_plan import TOOLS, Plan
from toolgate_bus.facts import record
from toolgate_bus.protocol import packing


async def check_end(plan: Plan, server: SimulatedServer, journal: Journal) -> None:
    """Read the whole record, and compare it, and the books, with the journal."""
    reader = SimulatedFacts(Remote(lambda: server, _Direct()))  # type: ignore[arg-type]
    facts = []
    while found := await reader.next():
        facts += found
    _check_record(server, journal, facts)
    if any(one.kind == "cost" for one in plan.schedulers):
        _check_money(server, journal, facts)
    if journal.open:
        journal.fail(f"open at the end: {sorted(id_.hex()[:8] for id_ in journal.open)}")


def forgotten_decisions(server: SimulatedServer) -> set[str]:
    """The decisions of which a failover forgot facts."""
    found: set[str] = set()
    for frames in server.lost_facts.values():
        for frame in frames:
            for item in packing.items(frame):
                if isinstance(item, packing.Item):
                    for fact in record.read_facts(item):
                        found.add(str(fact.get("id" if fact["event"] == "decision" else "decision_id")))
    return found


def _check_record(server: SimulatedServer, journal: Journal, facts: list[dict[str, Any]]) -> None:
    """Each decision once, as it was; of killed agents at most once."""
    forgotten = forgotten_decisions(server)
    told: dict[str, dict[str, Any]] = {}
    ended: dict[str, None] = {}
    for fact in facts:
        if fact["event"] == "decision":
            if fact["id"] in told:
                journal.fail(f"{fact['id'][:8]} is in the record twice")
            told[fact["id"]] = fact
        elif fact["event"] in ("tool:post", "tool:error"):
            ended[fact["decision_id"]] = None
    for id_, (orchestrator, decision) in journal.decided.items():
        fact = told.get(id_)
        if fact is None:
            if orchestrator not in journal.killed and id_ not in forgotten:
                journal.fail(f"{id_[:8]} is not in the record")
            continue
        if (fact["outcome"], fact["why"]) != (decision.outcome, decision.why):
            journal.fail(f"{id_[:8]} is in the record as {fact['outcome']} ({fact['why']})")
    for id_ in journal.ran:
        orchestrator = journal.decided[id_][0]
        if id_ not in ended and orchestrator not in journal.killed and id_ not in forgotten:
            journal.fail(f"that {id_[:8]} ran is not in the record")
    for id_ in set(told) - set(journal.decided):
        if told[id_]["orchestrator"] not in journal.killed:
            journal.fail(f"{id_[:8]} is in the record, and was never decided")


def _check_money(server: SimulatedServer, journal: Journal, facts: list[dict[str, Any]]) -> None:
    """What was spent is what ran, to the unit; and the estimates of what nobody tells any more."""
    costs: dict[str, int] = {}
    closed: set[str] = set()
    for fact in facts:
        if fact["event"] in ("tool:post", "tool:error"):
            costs[fact["decision_id"]] = fact["cost"]
        elif fact["event"] == "tool:unused":
            closed.add(fact["decision_id"])
        elif fact["event"] == "decision" and fact["outcome"] in ("deny", "cancelled"):
            closed.add(fact["id"])
    orphans = {
        id_: amount
        for id_, (owner, amount, _) in journal.reserved.items()
        if owner in journal.killed and id_ not in costs and id_ not in closed
    }
    (balance,) = server.ledger.book.balances() or (None,)
    spent, reserved = (balance.spent, balance.reserved) if balance is not None else (0, 0)
    archive = server.ledger.archive
    expected = sum(costs.values()) + sum(orphans.values()) - archive.accepted
    journal.note(f"spent {spent} of {expected}, reserved {reserved}; {archive.accepted} accepted as lost")
    if reserved:
        journal.fail(f"{reserved} are still reserved at the end")
    slack = _lost_money(server, journal)
    if abs(spent - expected) > slack:
        journal.fail(f"{spent} were spent by the books, {expected} in truth (may be off by {slack})")


def _lost_money(server: SimulatedServer, journal: Journal) -> int:
    """At most so much may be off: what was told in the time that failovers forgot."""
    emptied = [(at - 5, at) for at in server.ledger.archive.emptied]
    lost = [(first - 3, last) for first, last in server.forgotten] + emptied
    if not lost:
        return 0
    touched = forgotten_decisions(server)
    for id_, (owner, _, at) in journal.reserved.items():
        if any(first <= at <= last for first, last in lost):
            touched.add(id_)
        if owner in journal.killed and emptied and at <= emptied[-1][1]:
            touched.add(id_)  # who was to be paid for, and is not known any more
    return sum(max(TOOLS.values()) for _ in touched)


class _Direct:
    """Commands without a network."""

    cuts = 0

    async def run(self, act: Callable[[], Any]) -> Any:
        """Do it."""
        return act()
