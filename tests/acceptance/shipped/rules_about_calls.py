"""One row for each condition that a rule may have: a call that it fits, and one that it does not."""

from typing import Any, Final, NamedTuple

__all__ = ["ROWS", "Row"]


class Row(NamedTuple):
    """A condition, in a rule about the tool that is called like it."""

    option: str
    rule: dict[str, Any]
    fits: dict[str, Any]
    other: dict[str, Any]


def given(**arguments: Any) -> dict[str, Any]:
    return {"tool_input": arguments}


ROWS: Final = (
    Row("equals", {"when": {"a": {"equals": 1}}}, given(a=1.0), given(a=True)),
    Row("in", {"when": {"a": {"in": ["x", 2]}}}, given(a=2), given(a="2")),
    Row("glob", {"when": {"a.b": {"glob": "x*"}}}, given(a={"b": "xy"}), given(a={"b": "y"})),
    Row("matches", {"when": {"a": {"matches": r"rm\s"}}}, given(a="sudo rm -r"), given(a="arm")),
    Row("gt", {"when": {"a": {"gt": 10}}}, given(a="10.5"), given(a=10)),
    Row("gte", {"when": {"a": {"gte": 10}}}, given(a=10), given(a=9)),
    Row("lt", {"when": {"a": {"lt": 10}}}, given(a=-1), given(a=10)),
    Row("lte", {"when": {"a": {"lte": 10}}}, given(a=10), given(a=11)),
    Row("exists", {"when": {"a": {"exists": False}}}, given(b=1), given(a=None)),
    Row("when", {"when": {"a": "x*", "b": 1}}, given(a="xy", b=1), given(a="xy", b=2)),
    Row(
        "schema",
        {"schema": {"properties": {"a": {"type": "array", "minItems": 2}}, "required": ["a"]}},
        given(a=[1, 2]),
        given(a=[1]),
    ),
    Row("agents", {"agents": ["intern-*", "temp"]}, {"agent": "intern-7"}, {"agent": "boss"}),
    Row("labels", {"labels": {"team": "ops-*"}}, {"labels": {"team": "ops-1"}}, {"labels": {"tem": "ops-1"}}),
    Row("sessions", {"sessions": "s7"}, {"session": "s8", "root_session": "s7"}, {"session": "s9"}),
    Row("agent_targets", {"agent_targets": "root*"}, {"agent_target": "root"}, {"agent_target": "leaf"}),
)
