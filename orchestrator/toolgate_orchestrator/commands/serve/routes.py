"""The paths of a sidecar, with their handlers and models: `app` serves them, `openapi` describes them.

A handler gets the body as a value, and a way to learn that its caller has gone. It returns a value to be
written as JSON, or raises `Problem`.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, NamedTuple

from pydantic import BaseModel, ValidationError
from toolgate_bus.config.check import explain
from toolgate_bus.errors import ConfigError

from toolgate_orchestrator.commands.serve import authzen
from toolgate_orchestrator.commands.serve.patience import Abandonment, Gone
from toolgate_orchestrator.commands.serve.problems import Problem
from toolgate_orchestrator.commands.serve.requests import (
    DecideRequest,
    ReportRequest,
    ResultRequest,
    TurnRequest,
    UsageRequest,
    WaitRequest,
)
from toolgate_orchestrator.commands.serve.rulings import (
    ReportResponse,
    ResultResponse,
    RulingResponse,
    TurnResponse,
)
from toolgate_orchestrator.commands.serve.service import SidecarService

Handler = Callable[[SidecarService, Any, Gone], Awaitable[Mapping[str, Any]]]
MAX_FAULTS: Final = 10
"""Maximum number of wrong fields of one body that are named."""


class SidecarRoute(NamedTuple):
    """One path to which bodies are posted."""

    handle: Handler
    request: type[BaseModel]
    response: tuple[type[BaseModel], ...]
    summary: str
    is_authzen: bool = False
    """True if errors follow AuthZEN: the words alone, and 400 for another content type."""


async def _decide(service: SidecarService, value: Any, gone: Gone) -> Mapping[str, Any]:
    return await service.decide(read_body(DecideRequest, value), gone, may_name_point=True)


async def _wait(service: SidecarService, value: Any, gone: Gone) -> Mapping[str, Any]:
    return await service.wait(read_body(WaitRequest, value), gone)


async def _result(service: SidecarService, value: Any, gone: Gone) -> Mapping[str, Any]:
    return await service.rule_on_result(read_body(ResultRequest, value), gone)


async def _report(service: SidecarService, value: Any, gone: Gone) -> Mapping[str, Any]:
    return service.reports.report(read_body(ReportRequest, value))


async def _usage(service: SidecarService, value: Any, gone: Gone) -> Mapping[str, Any]:
    return service.reports.usage(read_body(UsageRequest, value))


async def _turn(service: SidecarService, value: Any, gone: Gone) -> Mapping[str, Any]:
    return await service.turn(read_body(TurnRequest, value), gone)


async def _evaluation(service: SidecarService, value: Any, gone: Gone) -> Mapping[str, Any]:
    asked = authzen.read_evaluation(value)
    return authzen.evaluation_body(await _rule(service, asked, "", gone))


async def _evaluations(service: SidecarService, value: Any, gone: Gone) -> Mapping[str, Any]:
    asked = authzen.read_evaluations(value)
    if not asked.evaluations:
        return await _evaluation(service, value, gone)
    group, semantic = secrets.token_hex(8), asked.options.evaluations_semantic

    async def evaluate(one: Mapping[str, Any]) -> dict[str, Any]:
        try:
            request = authzen.read_evaluation(authzen.merge_defaults(asked, one), "the evaluation")
            return authzen.evaluation_body(await _rule(service, request, group, gone))
        except Problem as problem:
            return authzen.failure_body(problem)

    if semantic == "execute_all":
        return {"evaluations": await _evaluate_all(service, [evaluate(one) for one in asked.evaluations])}
    bodies: list[dict[str, Any]] = []
    try:
        for one in asked.evaluations:
            bodies.append(await evaluate(one))
            if authzen.is_last(semantic, bodies[-1]):
                break
    except Abandonment:
        _release(service, bodies)
        raise
    return {"evaluations": bodies}


async def _evaluate_all(
    service: SidecarService, work: list[Coroutine[Any, Any, dict[str, Any]]]
) -> list[dict[str, Any]]:
    """Evaluate all at once; if the caller leaves during one, release what the others let through."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        _release(service, [one for one in ended if isinstance(one, dict)])
        raise


def _release(service: SidecarService, bodies: list[dict[str, Any]]) -> None:
    for one in bodies:
        for ruling in rulings_in(one):
            service.release(ruling)


def rulings_in(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the rulings in an answer; AuthZEN's answers have them in `context`."""
    if "evaluations" in answer:
        return [ruling for one in answer["evaluations"] for ruling in rulings_in(one)]
    if "decision" in answer:
        return [answer["context"]]
    return [answer] if "outcome" in answer else []


async def _rule(
    service: SidecarService, asked: authzen.EvaluationRequest, group: str, gone: Gone
) -> Mapping[str, Any]:
    try:
        return await service.decide(authzen.call_of(asked, group), gone)
    except ConfigError as error:
        raise Problem(400, str(error)) from None


ROUTES: Final[Mapping[str, SidecarRoute]] = {
    "/v1/decide": SidecarRoute(_decide, DecideRequest, (RulingResponse,), "May this call run?"),
    "/v1/wait": SidecarRoute(_wait, WaitRequest, (RulingResponse,), "Wait again for a call that was pending"),
    "/v1/result": SidecarRoute(_result, ResultRequest, (ResultResponse,), "May this result be used?"),
    "/v1/report": SidecarRoute(_report, ReportRequest, (ReportResponse,), "Report on a call"),
    "/v1/usage": SidecarRoute(_usage, UsageRequest, (ReportResponse,), "Usage of a request to an LLM"),
    "/v1/turn": SidecarRoute(_turn, TurnRequest, (TurnResponse,), "Begin, end or watch a turn of an agent"),
    "/access/v1/evaluation": SidecarRoute(
        _evaluation,
        authzen.EvaluationRequest,
        (authzen.EvaluationResponse,),
        "AuthZEN: may this subject do this to that resource?",
        is_authzen=True,
    ),
    "/access/v1/evaluations": SidecarRoute(
        _evaluations,
        authzen.EvaluationsRequest,
        (authzen.EvaluationsResponse, authzen.EvaluationResponse),
        "AuthZEN: several at once",
        is_authzen=True,
    ),
}
PAGES: Final[Mapping[str, str]] = {
    "/openapi.json": "This description",
    "/healthz": "Health of the process",
    "/readyz": "Readiness: 503 while the bus is away",
    "/metrics": "Metrics of this process, for Prometheus",
    "/.well-known/authzen-configuration": "AuthZEN: metadata with its endpoints",
}
"""Pages that can be read, each with its summary."""
OPEN_PAGES: Final = frozenset({"/healthz", "/readyz", "/.well-known/authzen-configuration"})
"""Pages that need no token."""


def read_body(model: type[Any], value: Any) -> Any:
    """Read a body as its model. Raises Problem (400) that names each wrong field, and none of its values."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        words = [f"{'.'.join(map(str, loc)) or 'the body'}: {said}" for loc, said in explain(error, model)]
        raise Problem(400, "; ".join(words[:MAX_FAULTS])) from None
