"""AuthZEN's Authorization API 1.0: evaluation requests become calls, and rulings become decisions. Pure.

    action.name            the tool
    action.properties      its arguments; `subject`, `resource` and `context` are added as sent
    subject.id             the agent; subject.type is the label `subject_type`
    context.session        the session

A decision is true if the call may run exactly as it was sent. If another call should run instead, or a person
must be asked, it is false, and `context` has the details. Unknown fields are ignored, as the specification
requires.
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
    """Kind of the entity."""
    id: Identifier
    """Id of the entity."""
    properties: dict[str, Any] | None = None
    """Further properties of the entity."""


class AuthzenAction(AuthzenBody):
    """The action that the subject wants to take."""

    name: Identifier
    """Name of the tool."""
    properties: dict[str, Any] | None = None
    """Arguments of the tool."""


class EvaluationRequest(AuthzenBody):
    """May this subject do this to that resource?"""

    subject: AuthzenEntity
    """Who wants to act: its `id` is the agent."""
    action: AuthzenAction
    """The tool call."""
    resource: AuthzenEntity
    """The resource of the action."""
    context: dict[str, Any] | None = None
    """Circumstances; `session` names the session."""


class EvaluationOptions(AuthzenBody):
    """How several evaluations are made."""

    evaluations_semantic: Semantic = "execute_all"
    """Evaluate all, or stop at the first that is denied or permitted."""


class EvaluationsRequest(AuthzenBody):
    """Several evaluations. The fields beside them are defaults for those that leave them out."""

    subject: dict[str, Any] | None = None
    """Default subject."""
    action: dict[str, Any] | None = None
    """Default action."""
    resource: dict[str, Any] | None = None
    """Default resource."""
    context: dict[str, Any] | None = None
    """Default context."""
    evaluations: Annotated[list[dict[str, Any]], Field(max_length=MAX_EVALUATIONS)] | None = None
    """The evaluations; without any, the whole body is one request."""
    options: EvaluationOptions = EvaluationOptions()
    """How they are evaluated."""


class EvaluationResponse(BaseModel):
    """The answer to one evaluation."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    decision: bool
    """True if the call may run exactly as it was sent."""
    context: dict[str, Any] | None = None
    """`id`, `outcome`, `why`, `reason`, and the call to run instead, or the question to a person."""


class EvaluationsResponse(BaseModel):
    """Answers in the order of the requests; fewer if an early one decided for all."""

    evaluations: list[EvaluationResponse]


def read_evaluation(value: Any, where: str = "the body") -> EvaluationRequest:
    """Read one request. Raises Problem (400) that names what is wrong."""
    return _read(EvaluationRequest, value, where)


def read_evaluations(value: Any) -> EvaluationsRequest:
    """Read several requests. Raises Problem (400) for an error in the body as a whole."""
    return _read(EvaluationsRequest, value, "the body")


def merge_defaults(shared: EvaluationsRequest, one: Mapping[str, Any]) -> dict[str, Any]:
    """Return an evaluation with the defaults: whole entities, or the identifiers that its own entities leave
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
    """Return the call that an evaluation asks about. Raises Problem (400) if it cannot be expressed."""
    properties = asked.action.properties or {}
    hidden = [name for name in _BESIDE if name in properties]
    if hidden:
        raise Problem(
            400,
            f"action.properties.{hidden[0]}: the {hidden[0]} itself takes this name; rename the property",
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


_TOLD: Final = (
    "id",
    "outcome",
    "why",
    "reason",
    "scheduler",
    "token",
    "question",
    "stop",
    "rules_on_result",
)


def evaluation_body(ruling: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ruling as a decision: true only if the call runs exactly as it was sent."""
    outcome = ruling["outcome"]
    context = {name: ruling[name] for name in _TOLD if ruling.get(name)}
    if outcome in ("modify", "ask"):
        context |= {"tool": ruling["tool"], "arguments": ruling["arguments"]}
    return {"decision": outcome == "continue", "context": context}


def failure_body(problem: Problem) -> dict[str, Any]:
    """Return the answer for an evaluation that could not be made, among others that could."""
    return {
        "decision": False,
        "context": {"error": {"status": problem.status, "message": problem.detail}},
    }


def is_last(semantic: Semantic, body: Mapping[str, Any]) -> bool:
    """Return whether this decision also decides for all that follow."""
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
