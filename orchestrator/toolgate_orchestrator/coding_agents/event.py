"""What a coding agent's hook tells, whatever the agent: one event, in our words. Pure.

The bodies are written by programs that change every week, about calls that an LLM made: everything is
bounded, and what is of another type than it should be is refused by the name of its field.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from toolgate_bus.errors import ToolgateError
from toolgate_bus.protocol.json_values import NotJson, UnreadableJson, read_json
from toolgate_bus.protocol.names import MAX_NAME
from toolgate_bus.ruling.conditions.arguments import BLANK

Ability = Literal["arguments", "tool", "ask"]
Outcome = Literal["succeed", "fail", "release"]

MAX_PATH: Final = 4096
MAX_ERROR: Final = 64
PROBE: Final = "toolgate_probe"
"""The tool of a call that nobody makes, by which `toolgate hook status` looks whether a hook answers."""


class MalformedEvent(ToolgateError):  # noqa: N818 - it says what the event is
    """An event that cannot be read as its client writes them; the message names the field."""


class HookEvent(NamedTuple):
    """One event of one client."""

    client: str
    name: str
    """As the client calls it."""
    kind: Literal["before", "after", "other"]
    """`before`: may this call run? `after`: what became of it. `other`: nothing of ours."""
    tool: str = ""
    arguments: Mapping[str, Any] = {}
    session: str = ""
    call_id: str = ""
    """Empty where the client tells none: then the call is known again by its arguments."""
    group: str = ""
    """Calls of one response or turn have the same, where the client says so."""
    cwd: str = ""
    agent_id: str = ""
    """Of a sub-agent, where the client tells."""
    agent_type: str = ""
    can: frozenset[Ability] = frozenset()
    """What the client can do with a ruling on this event; another tool, none can."""
    outcome: Outcome = "succeed"
    """Of `after`: what became of the call."""
    error: str = ""
    """Of one that failed: the kind, in a word."""
    pair: Mapping[str, Any] | None = None
    """By what a call without an id is known again, where that is not all its arguments."""
    above: str = ""
    """Id of the agent that started a sub-agent, where the client tells it and gives the sub-agent a session
    of its own."""


class HookDecision(NamedTuple):
    """What is to become of a call."""

    outcome: Literal["continue", "modify", "deny", "ask"]
    tool: str = ""
    """Of `modify` and `ask`: what would run."""
    arguments: Mapping[str, Any] = {}
    reason: str = ""
    """Of `deny`: for the LLM. Of `ask`: the question to the person."""


def read_object(body: bytes) -> dict[str, Any]:
    """Return the event as it came; raises MalformedEvent."""
    try:
        found = read_json(body)
    except NotJson as error:
        raise MalformedEvent(f"the event is not JSON: {error}") from None
    except UnreadableJson as error:
        raise MalformedEvent(f"programs read the event in several ways: {error}") from None
    if not isinstance(found, dict):
        raise MalformedEvent("the event is not a JSON object")
    return found


def text_of(fields: Mapping[str, Any], *names: str, limit: int = MAX_NAME, needed: bool = False) -> str:
    """The first of these fields that is there, as a text; raises MalformedEvent for others and long ones."""
    for name in names:
        value = fields.get(name)
        if type(value) is str and value and len(value) <= limit:
            return value
        if value is None:
            continue
        if not isinstance(value, str):
            raise MalformedEvent(f"{name} is not a text")
        if len(value) > limit:
            raise MalformedEvent(f"{name} has more than {limit} characters")
        if value or not needed:
            return value
    if needed:
        raise MalformedEvent(f"{names[0]} is missing")
    return ""


def arguments_of(fields: Mapping[str, Any], *names: str) -> tuple[dict[str, Any], bool]:
    """Return the call's arguments, and whether others can be given back in their place.

    Some clients write them as a text that holds JSON. What is no object is told as `input`, so that rules see
    it. Raises MalformedEvent for a text that begins as an object and cannot be read as one: the client may
    read it all the same, and rules would look for arguments that are not there.
    """
    value = next((fields[name] for name in names if fields.get(name) is not None), None)
    if value is None:
        return {}, True
    if isinstance(value, str):
        parsed = _parse_object(value, names)
        if parsed is not None:
            return parsed, True
    if isinstance(value, dict):
        return value, True
    return {"input": value}, False


def word_of(value: Any) -> str:
    """A failure in one word: facts tell no texts of tools."""
    text = value.strip() if isinstance(value, str) else ""
    return text if text and len(text) <= MAX_ERROR and text.replace("_", "").isalnum() else "tool_failed"


def _parse_object(text: str, names: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the object that a text holds; None where it is another text."""
    if text.strip(BLANK)[:1] != "{":
        return None
    try:
        found = read_json(text)
    except UnreadableJson as error:
        where = " or ".join(names)
        raise MalformedEvent(f"the arguments in {where} cannot be read: {error}") from None
    return found if isinstance(found, dict) else None
