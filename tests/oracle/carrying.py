"""What doors need to know of a call: whether JSON can tell it, and who stands above its agent."""

from collections.abc import Mapping
from typing import Any

from readings import Call, Who

__all__ = ["chain", "is_json", "schemas", "setting"]

OTHER = "sandbox"
"""The tool that may run in the place of another."""


def is_json(value: Any) -> bool:
    """Whether a value is one of JSON, and of no other type than JSON's reader gives."""
    kind = type(value)
    if kind is dict:
        return all(type(key) is str and is_json(one) for key, one in value.items())
    if kind is list:
        return all(map(is_json, value))
    return kind in (str, int, bool, type(None)) or (kind is float and value - value == 0)


def chain(who: Who) -> list[tuple[str, str]]:
    """Session and agent of each in the lineage, from the root down to the caller."""
    if not who.lineage:
        return [(who.session, who.agent)]
    between = [f"{who.tree}-{depth}" for depth in range(1, len(who.lineage))]
    return list(zip((who.tree, *between, who.session), (*who.lineage, who.agent), strict=True))


def schemas(call: Call) -> Mapping[str, dict[str, Any]]:
    """The tools that there are, with the schemas of their arguments."""
    return {call.tool: call.schema or {}, OTHER: {}}


def setting(who: Who) -> dict[str, Any]:
    """The section `toolgate:` of a program whose every call comes from this agent."""
    above = {"root_session": who.root_session, "parent_session": who.parent or "", "lineage": who.lineage}
    return {"agent": who.agent, "labels": dict(who.labels), **(above if who.lineage else {})}
