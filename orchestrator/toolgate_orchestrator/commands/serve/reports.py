"""Takes what became of calls, and what LLMs used: the facts that settle what was reserved."""

from collections.abc import Callable, Mapping
from typing import Any

from toolgate_bus.protocol.llm import LLM_REQUEST

from toolgate_orchestrator.commands.serve.facts import report_fact, usage_fact
from toolgate_orchestrator.commands.serve.open_calls import OpenCall, OpenCalls, OtherReport, UnknownCall
from toolgate_orchestrator.commands.serve.problems import Problem
from toolgate_orchestrator.commands.serve.requests import PlaceBody, ReportRequest, UsageRequest
from toolgate_orchestrator.commands.serve.turns import OpenTurns
from toolgate_orchestrator.decision.fact_shapes import describe_place
from toolgate_orchestrator.decision.gate import Gate

Body = Mapping[str, Any]


def tell_whose(gate: Gate, asked: PlaceBody, agent: str) -> dict[str, Any]:
    """Whose call or request it is, as facts tell it: budgets of the agents above pay for it, too."""
    root = gate.find_root(asked.session, asked.parent, asked.root_session)
    return describe_place(asked.session, root, agent, asked.lineage)


class ReportDesk:
    """The reports to one sidecar."""

    def __init__(
        self,
        gate: Gate,
        calls: OpenCalls,
        turns: OpenTurns,
        name_agent: Callable[[PlaceBody], str],
        clock: Callable[[], float],
    ) -> None:
        self._gate, self._calls, self._turns, self._name_agent, self._clock = (
            gate,
            calls,
            turns,
            name_agent,
            clock,
        )

    def report(self, asked: ReportRequest) -> Body:
        """Take what became of a call."""
        call = self._close(asked.id, asked.outcome)
        if call is None:
            return {"recorded": False}
        event, fact = report_fact(asked.outcome, asked.id, call, asked, self._clock())
        self._gate.note(event, fact)
        turn = self._turns.get(call.session)
        if turn is None:
            return {"recorded": True}
        turn.presence.end_call(asked.id)
        turn.presence.add_cost(fact)
        return {"recorded": True, "stop": turn.stop}

    def usage(self, asked: UsageRequest) -> Body:
        """Take what a request to an LLM used."""
        agent = self._name_agent(asked)
        session = asked.session
        who: Mapping[str, Any] = tell_whose(self._gate, asked, agent)
        labels = {**self._gate.config.labels, **asked.labels}
        if asked.id is not None:
            found = self._calls.find(asked.id)
            if found is not None and found.tool != LLM_REQUEST:
                raise Problem(409, f"{asked.id} is a call of {found.tool}: report it to /v1/report")
            call = self._close(asked.id, "fail" if asked.error else "succeed")
            if call is None:
                return {"recorded": False}
            who, labels, session = call.who, dict(call.labels), call.session
        event, fact = usage_fact(asked, who, labels)
        self._gate.note(event, fact)
        turn = self._turns.get(session)
        if turn is None:
            return {"recorded": True}
        if asked.id is not None:
            turn.presence.end_call(asked.id)
        turn.presence.add_cost(fact)
        return {"recorded": True, "stop": turn.stop}

    def _close(self, id_: str, outcome: str) -> OpenCall | None:
        try:
            return self._calls.close(id_, outcome)
        except OtherReport as before:
            raise Problem(409, f"{id_} was reported before, as {before}: the first report counts") from None
        except UnknownCall:
            raise Problem(
                404,
                f"no call {id_} waits for a report here: it was not let through, or by another sidecar, or "
                "by one that has ended since; the ledger counts such a call as run after an hour",
            ) from None
