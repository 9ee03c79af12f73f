"""Event of a coding agent's hook, in one form for all agents. Pure.

The programs that write these bodies change every week, and an LLM made the calls in them. So every field has
a limit, and an error for a wrong type names the field.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol

from toolgate_bus.errors import ToolgateError
from toolgate_bus.protocol.json_values import NotJson, UnreadableJson, read_json
from toolgate_bus.protocol.names import MAX_NAME
from toolgate_bus.ruling.conditions.arguments import BLANK

Ability = Literal["arguments", "tool", "ask"]
Outcome = Literal["succeed", "fail", "release"]

MAX_PATH: Final = 4096
MAX_ERROR: Final = 64
MAX_TEXT: Final = 1 << 25
PROBE: Final = "toolgate_probe"
"""Tool of the test call by which `toolgate hook status` checks that a hook answers. Its calls never run."""
PROBED: Final = "the hook of Toolgate works: this test call is never run, and not recorded"
"""Beginning of the reason by which a test call is denied. The rest tells why calls would not be ruled on."""


class MalformedEvent(ToolgateError):  # noqa: N818 - the name tells what is wrong
    """Error for an event that does not have its client's format; the message names the field."""


class HookEvent(NamedTuple):
    """One event of one client."""

    client: str
    name: str
    """Name of the event in the client's words."""
    kind: Literal["before", "after", "batch", "prompt", "other"]
    """Kind of the event: `before` a call, `after` a call, after a `batch` of calls (before the LLM is asked),
    a `prompt` of the user that is to begin a turn, or `other`, which Toolgate ignores."""
    tool: str = ""
    arguments: Mapping[str, Any] = {}
    session: str = ""
    call_id: str = ""
    """Id of the call. Empty if the client gives none; then the arguments identify the call."""
    group: str = ""
    """Id that calls of one response or turn share, if the client gives one."""
    cwd: str = ""
    agent_id: str = ""
    """Id of the sub-agent that makes the call, if the client gives one."""
    agent_type: str = ""
    can: frozenset[Ability] = frozenset()
    """Actions that the client supports for a ruling on this event. No client can run another tool."""
    outcome: Outcome = "succeed"
    """Outcome of the call, for `after`."""
    error: str = ""
    """Kind of the failure, in one word."""
    pair: Mapping[str, Any] | None = None
    """Part of the arguments that identifies a call without an id; None if all of them do."""
    above: str = ""
    """Id of the agent that started this sub-agent, if the client gives the sub-agent a session of its own."""
    result: Any = None
    """What the tool gave, or the words of its error, for `after`."""
    can_withhold: bool = False
    """True if an answer to this event can keep the result from the LLM, for `after`."""
    ends_turn: bool = False
    """True if only an answer to the `batch` that follows can keep the result from the LLM, for `after`."""
    text: str = ""
    """Words of the user, for `prompt`."""
    calls: tuple["HookEvent", ...] = ()
    """Calls of a `batch`, each as after it, with the result as the LLM is to get it."""


class HookDecision(NamedTuple):
    """Ruling on a call, as a client's answer expresses it."""

    outcome: Literal["continue", "modify", "deny", "ask"]
    tool: str = ""
    """Tool that would run, for `modify` and `ask`."""
    arguments: Mapping[str, Any] = {}
    reason: str = ""
    """Reason for the LLM, for `deny`; question to the person, for `ask`."""


class RuledResult(Protocol):
    """What an LLM may get of a call's result. (`GivenResult` is one.)"""

    @property
    def value(self) -> Any:
        """What to use in place of the tool's result."""

    @property
    def outcome(self) -> Literal["released", "masked", "replaced", "withheld"]:
        """What became of the result."""

    @property
    def hidden(self) -> frozenset[str]:
        """Texts that were hidden in it."""

    @property
    def changed(self) -> bool:
        """True if the value is not the tool's own result."""

    @property
    def is_cut(self) -> bool:
        """True if its end was cut off, as no rule has seen it."""


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body. Raise MalformedEvent if there is none."""
    try:
        found = read_json(body)
    except NotJson as error:
        raise MalformedEvent(f"the event is not JSON: {error}") from None
    except UnreadableJson as error:
        raise MalformedEvent(f"the event is ambiguous JSON: {error}") from None
    if not isinstance(found, dict):
        raise MalformedEvent("the event is not a JSON object")
    return found


def text_of(fields: Mapping[str, Any], *names: str, limit: int = MAX_NAME, needed: bool = False) -> str:
    """Return the first of these fields that is present, as text.

    Raise MalformedEvent for another type, for a text longer than `limit`, and for a missing field if it is
    `needed`.
    """
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
    """Return the call's arguments, and whether the client can take other ones in their place.

    Some clients write the arguments as a text that holds JSON. A value that is no object is returned as
    `input`, so that rules see it. Raise MalformedEvent for a text that begins as an object but cannot be read
    as one: the client may still read it, and rules would miss its arguments.
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
    """Return the kind of a failure in one word, because facts must not hold texts of tools."""
    text = value.strip() if isinstance(value, str) else ""
    return text if text and len(text) <= MAX_ERROR and text.replace("_", "").isalnum() else "tool_failed"


def _parse_object(text: str, names: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the object in a text; None if the text holds something else."""
    if text.strip(BLANK)[:1] != "{":
        return None
    try:
        found = read_json(text)
    except UnreadableJson as error:
        where = " or ".join(names)
        raise MalformedEvent(f"the arguments in {where} cannot be read: {error}") from None
    return found if isinstance(found, dict) else None
