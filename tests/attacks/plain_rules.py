"""What the rules of a policy say of a call, read as plainly as can be: on the raw arguments, without bounds.

Written apart from the policy itself, and slow. A path is read as it goes and, where its text as a whole is
a key, as that key; a tool's name as it stands and in the form NFKC. A call is refused if any reading of it
is: if the first rule that fits denies or asks, or none fits and the default does.
"""

import json
import re
import unicodedata
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from itertools import product
from typing import Any

from jsonschema import Draft202012Validator

__all__ = ["refused"]

NOTHING: Any = object()


def refused(policy: dict[str, Any], tool: str, arguments: dict[str, Any]) -> bool:
    """Whether some reading of the call must not run."""
    paths = sorted({path for rule in policy["rules"] for path in rule.get("when", {})})
    dotted = [path for path in paths if "." in path and path in arguments]
    names = {tool, unicodedata.normalize("NFKC", tool)}
    for name, taken in product(names, product((False, True), repeat=len(dotted))):
        as_keys = {path for path, taken_so in zip(dotted, taken, strict=True) if taken_so}
        if _ruled(policy, name, arguments, as_keys) != "allow":
            return True
    return False


def _ruled(policy: dict[str, Any], tool: str, arguments: dict[str, Any], as_keys: set[str]) -> str:
    for rule in policy["rules"]:
        tools = [rule["tools"]] if isinstance(rule["tools"], str) else rule["tools"]
        if not any(fnmatchcase(tool, glob) for glob in tools):
            continue
        if not all(
            _holds(test, arguments[path] if path in as_keys else _at(path, arguments))
            for path, test in rule.get("when", {}).items()
        ):
            continue
        if "schema" in rule and not Draft202012Validator(rule["schema"]).is_valid(arguments):
            continue
        return rule["action"]
    return policy["default"]


def _at(path: str, value: Any) -> Any:
    for name in path.split("."):
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return NOTHING
    return value


def _holds(tests: dict[str, Any], value: Any) -> bool:
    return all(_one(kind, given, value) for kind, given in tests.items())


def _one(kind: str, given: Any, value: Any) -> bool:
    if value is NOTHING:
        return kind == "exists" and not given
    match kind:
        case "exists":
            return given
        case "equals":
            return _same(value, given)
        case "in":
            return any(_same(value, one) for one in given)
        case "glob":
            return (text := _text(value)) is not None and fnmatchcase(text, given)
        case "matches":
            return (text := _text(value)) is not None and re.search(given, text) is not None
    number = _number(value)
    if number is None:
        return False
    return {"gt": number > given, "gte": number >= given, "lt": number < given, "lte": number <= given}[kind]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return set(one) == set(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    return one == other


def _text(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, bool | int | float) else None


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if not isinstance(value, str):
        return value
    try:
        number = Decimal(value)
    except InvalidOperation:
        return None
    return None if number.is_nan() else number
