"""The config of `loop-reactive`."""

from typing import Annotated, Any

from jsonschema import Draft202012Validator, SchemaError, validators
from pydantic import Field, field_validator

from toolgate_orchestrator.gate.schema_check import Checker, Uncheckable, foreign_pointers
from toolgate_orchestrator.turn.loop_config import AskingConfig

__all__ = ["ReactiveConfig", "checked_schema"]


class ReactiveConfig(AskingConfig):
    """What a mount plan can tell `loop-reactive`."""

    parallel_tools: bool = True
    output_schema: dict[str, Any] | None = None
    """JSON Schema of the final output; None: a response without calls ends the turn with its text."""
    output_tool: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] = "final_output"
    """The name under which the LLM gives the final output."""
    input: dict[str, Any] = Field(default_factory=dict)
    """What calls can refer to as `†input.…`."""
    state: dict[str, Any] = Field(default_factory=dict)
    """What `†state.…` holds when the session begins."""

    @field_validator("parallel_tools")
    @classmethod
    def _parallel(cls, value: bool) -> bool:
        if not value:
            raise ValueError(
                "loop-reactive starts every call as soon as what it refers to is there; "
                "loop-basic and loop-streaming can run calls one after another"
            )
        return value

    @field_validator("output_schema")
    @classmethod
    def _applicable(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if value is None else checked_schema(value)


def checked_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """An output schema that can be applied; raises ValueError that says why one cannot."""
    if foreign := foreign_pointers(schema):
        raise ValueError(f"$ref must stay within the schema: {foreign[0][:80]!r}")
    try:
        validators.validator_for(schema, default=Draft202012Validator).check_schema(schema)
        Checker(schema).problems(None)
    except SchemaError as error:
        raise ValueError(f"is no JSON Schema: {error.message[:200]}") from None
    except (Uncheckable, RecursionError) as error:
        raise ValueError(f"is no JSON Schema that can be applied: {error}") from None
    return schema
