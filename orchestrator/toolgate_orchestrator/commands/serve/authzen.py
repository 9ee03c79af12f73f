"""AuthZEN's Authorization API 1.0: evaluation requests as calls, rulings as decisions. Pure.

    action.name            the tool
    action.properties      its arguments; beside them `subject`, `resource` and `context`, as they were sent
    subject.id             the agent; subject.type is the label `subject_type`
    context.session        the session

A decision is true where the very call that was asked about may run. Where another should run instead, or a
person is to be asked, it is false, and `context` has all of it. Unknown fields are passed over, as the
specification wants.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from toolgate_bus.config.check import explain
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.names import MAX_NAME

from toolgate_orchestrator.commands.serve.problems import Problem
from toolgate_orchestrator.commands.serve.requests import DecideRequest

MAX_EVALUATIONS: Final = 256
Semantic = Literal["execute_all", "deny_on_first_deny", "permit_on_first_permit"]
SEMANTICS: Final = ("execute_all", "deny_on_first_deny", "permit_on_first_permit")
ENTITIES: Final = ("subject", "action", "resource", "context")
_BESIDE: Final = ("subject", "resource", "context")
_IDENTIFIERS: Final = ("type", "id", "name")
Body = TypeVar("Body", bound=BaseModel)
Identifier = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]


class AuthzenBody(BaseModel):
    """A part of an evaluation request."""

    model_config = ConfigDict(
        extra="ignore", strict=True, hide_input_in_errors=True, use_attribute_docstrings=True
    )


class AuthzenEntity(AuthzenBody):
    """A subject or a resource."""

    type: Identifier
    """What kind it is."""
    id: Identifier
    """Which one it is."""
    properties: dict[str, Any] | None = None
    """What else is known of it."""


class AuthzenAction(AuthzenBody):
    """What is to be done."""

    name: Identifier
    """The tool."""
    properties: dict[str, Any] | None = None
    """Its arguments."""


class EvaluationRequest(AuthzenBody):
    """May this subject do this to that resource?"""

    subject: AuthzenEntity
    """Who."""
    action: AuthzenAction
    """What."""
    resource: AuthzenEntity
    """To which."""
    context: dict[str, Any] | None = None
    """Under which circumstances; `session` names the session."""


class EvaluationOptions(AuthzenBody):
    """How several are evaluated."""

    evaluations_semantic: Semantic = "execute_all"
    """All of them, or up to the first that is denied, or permitted."""


class EvaluationsRequest(AuthzenBody):
    """Several evaluations; what stands beside them is meant where one leaves it out."""

    subject: dict[str, Any] | None = None
    """Who, where an evaluation does not say."""
    action: dict[str, Any] | None = None
    """What, likewise."""
    resource: dict[str, Any] | None = None
    """To which, likewise."""
    context: dict[str, Any] | None = None
    """Under which circumstances, likewise."""
    evaluations: Annotated[list[dict[str, Any]], Field(max_length=MAX_EVALUATIONS)] | None = None
    """The requests; without any, the whole is one request."""
    options: EvaluationOptions = EvaluationOptions()
    """How they are evaluated."""


class EvaluationResponse(BaseModel):
    """Whether it may."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    decision: bool
    """Whether the call may run as it was asked about."""
    context: dict[str, Any] | None = None
    """`id`, `outcome`, `why`, `reason`, and what would run instead, or how a person is asked."""


class EvaluationsResponse(BaseModel):
    """Whether each may, in the order of the requests; fewer where the first decided for all."""

    evaluations: list[EvaluationResponse]


def read_evaluation(value: Any, where: str = "the body") -> EvaluationRequest:
    """One request; raises Problem (400) that names what is wrong."""
    return _read(EvaluationRequest, value, where)


def read_evaluations(value: Any) -> EvaluationsRequest:
    """Several; raises Problem (400) for what is wrong with the whole."""
    return _read(EvaluationsRequest, value, "the body")


def merge_defaults(shared: EvaluationsRequest, one: Mapping[str, Any]) -> dict[str, Any]:
    """An evaluation with what stands beside it: a whole entity, or the identifiers that its own leaves
    out."""
    merged: dict[str, Any] = {}
    for entity in ENTITIES:
        given, default = one.get(entity), getattr(shared, entity)
        if given is None:
            given = default
        elif isinstance(given, dict) and default is not None and entity != "context":
            names = {name: default[name] for name in _IDENTIFIERS if name in default and name not in given}
            given = {**given, **names}
        if given is not None:
            merged[entity] = given
    return merged


def call_of(asked: EvaluationRequest, group: str = "") -> DecideRequest:
    """The call that an evaluation asks about; raises Problem (400) where it cannot be told as one."""
    properties = asked.action.properties or {}
    hidden = [name for name in _BESIDE if name in properties]
    if hidden:
        raise Problem(
            400,
            f"action.properties.{hidden[0]}: the {hidden[0]} itself has that name; rename the property",
        )
    context = asked.context or {}
    session = context.get("session")
    beside = {
        "subject": asked.subject.model_dump(exclude_none=True),
        "resource": asked.resource.model_dump(exclude_none=True),
        "context": context,
    }
    fields = {
        "tool": asked.action.name,
        "arguments": {**properties, **beside},
        "agent": asked.subject.id,
        "labels": {"subject_type": asked.subject.type},
        "session": session if isinstance(session, str) else "",
        "group": group,
        "can": ("ask",),
    }
    return _read(DecideRequest, fields, "the call")


def evaluation_body(ruling: Mapping[str, Any]) -> dict[str, Any]:
    """A ruling as a decision: true where the call runs as it was asked about, and nowhere else."""
    outcome = ruling["outcome"]
    context = {
        name: ruling[name]
        for name in ("id", "outcome", "why", "reason", "scheduler", "token", "question", "stop")
        if ruling.get(name)
    }
    if outcome in ("modify", "ask"):
        context |= {"tool": ruling["tool"], "arguments": ruling["arguments"]}
    return {"decision": outcome == "continue", "context": context}


def failure_body(problem: Problem) -> dict[str, Any]:
    """An evaluation that could not be made, among others that can."""
    return {
        "decision": False,
        "context": {"error": {"status": problem.status, "message": problem.detail}},
    }


def is_last(semantic: Semantic, body: Mapping[str, Any]) -> bool:
    """Whether this decision decides for all that follow."""
    if semantic == "execute_all":
        return False
    return bool(body["decision"]) is (semantic == "permit_on_first_permit")


def _read(model: type[Body], value: Any, where: str) -> Body:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        words = [f"{'.'.join(map(str, loc)) or where}: {said}" for loc, said in explain(error, model)]
        raise Problem(400, "; ".join(words[:10])) from None
    except ConfigError as error:
        raise Problem(400, str(error)) from None
