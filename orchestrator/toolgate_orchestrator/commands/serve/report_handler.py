"""Takes reports on calls and on LLM requests, and writes the facts that settle reservations."""

from collections.abc import Callable, Mapping
from typing import Any

from toolgate_bus.protocol.fact_events import PROVIDER_ERROR, USAGE
from toolgate_bus.protocol.llm import LLM_REQUEST

from toolgate_orchestrator.calls.call_session import CallSession
from toolgate_orchestrator.calls.open_call import OpenCall, Outcome, describe_place
from toolgate_orchestrator.commands.serve.facts import describe_report, describe_usage
from toolgate_orchestrator.commands.serve.open_calls import OpenCalls, OtherReport, UnknownCall
from toolgate_orchestrator.commands.serve.problems import Problem
from toolgate_orchestrator.commands.serve.requests import PlaceBody, ReportRequest, UsageRequest
from toolgate_orchestrator.commands.serve.turns import OpenTurns
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.question.call import Caller

Body = Mapping[str, Any]


def tell_whose(gate: Gate, asked: PlaceBody, agent: str) -> dict[str, Any]:
    """Return the place of a call or request for its fact: budgets of the agents above pay for it, too."""
    at = gate.complete(Caller(asked.session, agent, asked.root_session, asked.parent, asked.lineage))
    root = gate.find_root(at.session, at.parent, at.root)
    return describe_place(at.session, root, agent, at.lineage)


class ReportHandler:
    """The reports to one sidecar."""

    def __init__(
        self,
        gate: Gate,
        calls: OpenCalls,
        turns: OpenTurns,
        name_agent: Callable[[PlaceBody], str],
        clock: Callable[[], float],
        forget: Callable[[str], None],
    ) -> None:
        """`forget` is called with the id of each call whose end was reported."""
        self._gate, self._calls, self._turns, self._name_agent, self._clock = (
            gate,
            calls,
            turns,
            name_agent,
            clock,
        )
        self._forget = forget

    def report(self, asked: ReportRequest) -> Body:
        """Take the report on a call."""
        call = self._close(asked.id, asked.outcome)
        if call is None:
            return {"recorded": False}
        told = describe_report(asked, is_request=call.tool == LLM_REQUEST)
        return self._tell_end(call, asked.outcome, told, asked.seconds)

    def usage(self, asked: UsageRequest) -> Body:
        """Take the usage of a request to an LLM."""
        outcome: Outcome = "fail" if asked.error else "succeed"
        if asked.id is not None:
            found = self._calls.find(asked.id)
            if found is not None and found.tool != LLM_REQUEST:
                raise Problem(409, f"{asked.id} is a call of {found.tool}; report it to /v1/report")
            call = self._close(asked.id, outcome)
            return (
                {"recorded": False} if call is None else self._tell_end(call, outcome, describe_usage(asked))
            )
        who = tell_whose(self._gate, asked, self._name_agent(asked))
        fact = {**who, "labels": {**self._gate.config.labels, **asked.labels}, **describe_usage(asked)}
        self._gate.note(PROVIDER_ERROR if asked.error else USAGE, fact)
        turn = self._turns.get(asked.session)
        if turn is None:
            return {"recorded": True}
        turn.presence.add_cost(fact)
        return {"recorded": True, "stop": turn.stop}

    def _tell_end(
        self, call: OpenCall, outcome: Outcome, told: dict[str, Any], seconds: float | None = None
    ) -> Body:
        turn = self._turns.get(call.session)
        live = None if turn is None else turn.presence
        CallSession(self._gate, live, clock=self._clock).close(call, outcome, told, seconds)
        return {"recorded": True} if turn is None else {"recorded": True, "stop": turn.stop}

    def _close(self, id_: str, outcome: str) -> OpenCall | None:
        try:
            call = self._calls.close(id_, outcome)
            self._forget(id_)
            return call
        except OtherReport as before:
            raise Problem(409, f"{id_} was already reported as {before}; the first report counts") from None
        except UnknownCall:
            raise Problem(
                404,
                f"no call {id_} waits for a report here: it was not let through, or another sidecar let it "
                "through, or one that has ended; the ledger counts such a call as run after an hour",
            ) from None
