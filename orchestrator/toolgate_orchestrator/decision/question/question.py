"""The question about a call: made of what a caller gives, and written so that every scheduler can read it.

Sessions, labels and ids come from an app, and often from its users. So fields are turned into true texts and
whole numbers. A question that no scheduler can read would be asked in vain, and optional schedulers would be
ignored because of it, for this call and those after it.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from operator import is_
from typing import Any, Final
from urllib.parse import unquote

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import codec, packing
from toolgate_bus.protocol.events import ToolQuestion
from toolgate_bus.protocol.names import MAX_LINEAGE, MAX_NAME
from toolgate_bus.protocol.placeholders import WHOLE
from toolgate_bus.ruling.delegation import target_of
from toolgate_bus.telemetry import tracing
from toolgate_bus.telemetry.printable import shorten

from toolgate_orchestrator.decision.config import ToolgateConfig
from toolgate_orchestrator.decision.question.call import NOBODY, Call, plain_text
from toolgate_orchestrator.decision.question.plain_values import copy_arguments
from toolgate_orchestrator.decision.question.redact import RedactedArguments, Redactor
from toolgate_orchestrator.decision.question.user_request import bound_request
from toolgate_orchestrator.decision.question.validation import Tools

TOO_DEEP: Final = f"the caller is more than {MAX_LINEAGE} agents deep, and a question cannot name all of them"
_TEXTS: Final = frozenset((str,))
_NAMES: Final = frozenset((list, tuple))
_CUT: Final = frozenset(("tool_input", "request"))
"""Fields that are cut to fit, whatever they hold."""
_UNREAD: Final = "⟦unreadable⟧"
MAX_INTEGER: Final = 2**63 - 1
_MAX_LEVELS: Final = 64
"""Levels of arguments in which defaults are filled in. Deeper ones cannot travel."""
_MAX_DEPTH: Final = 8
"""Levels of defaults within defaults."""
_MAX_PARTS: Final = 64
"""Number of schemas that may hold for one value."""
_BESIDE: Final = ("$ref", "allOf", "anyOf", "oneOf")
_WITHIN: Final = frozenset(("properties", "items", "additionalProperties", *_BESIDE))
_NOTHING: Final[Mapping[str, Any]] = {}
_MAX_SHOWN: Final = 256
"""Characters of a text, and entries of a collection, that are recorded of an unreadable question."""


class UnreadableQuestion(Exception):  # noqa: N818 - it says what was found
    """No scheduler could read the question about a call. The message says why."""


# ---------------------------------------------------------------------- what a caller gives


def make_question(call: Call, config: ToolgateConfig, ttl_ms: int, root: str) -> ToolQuestion:
    """Return the question about a call, under an id of its own.

    The configuration gives the agent and the labels that the call does not name. `root` is the session at
    the root of the tree.
    """
    tool, arguments, tools, at, id_, group, iteration, _, _, agents, target, trace, request, _, _ = call
    lineage: Any  # a program may give one name as a text
    session, agent, _, parent, lineage, labels, _ = at or NOBODY
    agent = agent or config.agent
    is_plain_name = type(tool) is str and len(tool) <= MAX_NAME and tool.isascii()
    if target is None and agents and isinstance(arguments, Mapping):
        target = target_of(arguments, agents)
    question = ToolQuestion(
        _draw_id().hex(),
        tool if is_plain_name else name_of(tool),
        copy_arguments(arguments) if type(arguments) is dict else arguments_of(arguments),
        names_of(tools),
        ttl_ms,
        agent,
        {**config.labels, **labels} if labels else config.labels,
        session,
        root,
        parent,
        list((lineage,) if isinstance(lineage, str) else lineage) if lineage else [],
        id_,
        iteration,
        group,
        None if agents is None else names_of(agents),
        target,
        tracing.filter_context(trace) if trace else {},
        len(tools) > packing.MAX_ENTRIES or len(agents or ()) > packing.MAX_ENTRIES,
        request=bound_request(request) if request else "",
    )
    if (
        not (type(session) is type(root) is type(agent) is type(id_) is type(group) is str)
        or type(iteration) is not int
        or ((labels or lineage) and not is_plain(question.labels, question.lineage))
        or (parent is not None and type(parent) is not str)
        or (target is not None and type(target) is not str)
    ):
        return make_plain(question)
    return question


def arguments_of(tool_input: Any) -> dict[str, Any]:
    """Return arguments as a map of its own. If they are no map, a placeholder stands for all of them."""
    if tool_input is None:
        return {}
    try:
        return copy_arguments(dict(tool_input)) if isinstance(tool_input, Mapping) else {WHOLE: tool_input}
    except Exception:  # noqa: BLE001 - another's mapping may raise anything
        return {WHOLE: tool_input}


def name_of(tool_name: Any) -> str:
    """Return a tool's name, as an LLM wrote it, in a form that fits the wire."""
    if not isinstance(tool_name, str):
        return _UNREAD
    return packing.make_readable(str.__str__(tool_name))[:MAX_NAME]


def names_of(names: Iterable[Any]) -> list[str]:
    """Return as many names as a question can hold, each as a text."""
    found = list(names)
    if len(found) > packing.MAX_ENTRIES:
        found = found[: packing.MAX_ENTRIES]
    return found if _TEXTS.issuperset(map(type, found)) else [plain_text(one) for one in found]


def is_plain(labels: Mapping[Any, Any], lineage: Iterable[Any]) -> bool:
    """Return whether all labels and names are true texts, not instances of a subclass."""
    plain = _TEXTS.issuperset
    return plain(map(type, labels)) and plain(map(type, labels.values())) and plain(map(type, lineage))


def to_number(value: Any) -> int:
    """Return a whole number that can travel; 0 for any other value."""
    return value if type(value) is int and abs(value) <= MAX_INTEGER else 0


def make_plain(question: ToolQuestion) -> ToolQuestion:
    """Return the question with each field of its true type; other values are turned into text."""
    return question._replace(
        agent=plain_text(question.agent),
        labels={plain_text(name): plain_text(value) for name, value in question.labels.items()},
        session=plain_text(question.session),
        root_session=plain_text(question.root_session),
        parent=None if question.parent is None else plain_text(question.parent),
        lineage=[plain_text(name) for name in question.lineage],
        tool_call_id=plain_text(question.tool_call_id),
        iteration=to_number(question.iteration),
        parallel_group_id=plain_text(question.parallel_group_id),
        agent_target=None if question.agent_target is None else plain_text(question.agent_target),
    )


# ---------------------------------------------------------------------- its id

ID_BYTES: Final = 16
_FETCH: Final = 256 * ID_BYTES
_pool: list[bytes] = []
"""Random ids. Many at a time are fetched from the system."""


def _draw_id() -> bytes:
    if not _pool:
        drawn = os.urandom(_FETCH)
        _pool.extend(drawn[at : at + ID_BYTES] for at in range(0, _FETCH, ID_BYTES))
    return _pool.pop()


def _empty() -> None:
    _pool.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_empty)  # a forked child must not repeat its parent's ids


# ---------------------------------------------------------------------- what leaves


def write_question(
    question: ToolQuestion, redactor: Redactor, before: RedactedArguments | None = None
) -> tuple[bytes, RedactedArguments | None]:
    """Return a question's body, and its arguments as they travel in it; None if nothing was held back.

    `before` is what left of the call that this one replaces. Raises UnreadableQuestion for fields that no
    scheduler could read. Most arguments need no second look: nothing is configured, they can be packed, and
    the whole is too small to hold anything too long or too many.
    """
    arguments = question.tool_input
    if not redactor.configured:
        try:
            body = codec.question_body(question, arguments, truncated=question.truncated)
            beside = 0 if question.result is None else len(question.result.data)
            if redactor.is_harmless(question.tool_name, arguments, body, beside):
                return body, None
        except CodecError:
            pass
    out = redactor.redact_arguments(arguments, before, question.tool_name)
    truncated = out.truncated or question.truncated
    try:
        body = codec.question_body(question, out.value, truncated=truncated)
    except CodecError:  # not the arguments: a name, an id or a label that cannot be encoded
        question = _make_readable(question)
        body = codec.question_body(question, out.value, truncated=truncated)
    if len(body) > packing.MAX_QUESTION:  # the names of the tools, most likely
        question = question._replace(available_tools=[question.tool_name])
        body = codec.question_body(question, out.value, truncated=True)
    _check(question)
    if len(body) > packing.MAX_QUESTION:
        raise UnreadableQuestion(f"it has {len(body)} bytes, and at most {packing.MAX_QUESTION} can be read")
    return body, out


def fill_defaults(tools: Tools, question: ToolQuestion) -> dict[str, Any]:
    """Return the arguments, with the schema's defaults for those that are left out.

    This is the same object if none is left out. A default of null counts as none.
    """
    given = question.tool_input
    if type(tools) in _NAMES:  # nearly always: they have no schemas
        return given
    schema = tools.get(question.tool_name) if isinstance(tools, Mapping) else None
    return given if schema is None or WHOLE in given else _fill(schema, given, _MAX_LEVELS, schema)


def _fill(schema: Any, given: Any, depth: int, root: Any) -> Any:
    kind = type(given)
    if not depth or not isinstance(schema, Mapping) or (kind is not dict and kind is not list):
        return given
    for part in _parts_of(schema, root):
        if kind is dict:
            given = _fill_map(part, given, depth, root)
        elif isinstance(items := part.get("items"), Mapping) and not items.keys().isdisjoint(_WITHIN):
            filled = [_fill(items, one, depth - 1, root) for one in given]
            given = given if all(map(is_, filled, given)) else filled
    return given


def _fill_map(part: Mapping[str, Any], given: dict[str, Any], depth: int, root: Any) -> dict[str, Any]:
    told, others, filled = part.get("properties"), part.get("additionalProperties"), {}
    known = told if isinstance(told, Mapping) else _NOTHING
    for name, one in known.items():
        if name in given:
            value = _fill(one, given[name], depth - 1, root)
            if value is not given[name]:
                filled[name] = value
        elif isinstance(one, Mapping) and (value := _default_of(one, root)) is not None:
            filled[name] = _fill(one, value, min(depth, _MAX_DEPTH) - 1, root)
    if isinstance(others, Mapping) and not others.keys().isdisjoint(_WITHIN):
        for name, one in given.items():
            if name not in known and (value := _fill(others, one, depth - 1, root)) is not one:
                filled[name] = value
    return {**given, **filled} if filled else given


def _default_of(schema: Mapping[str, Any], root: Any) -> Any:
    for part in _parts_of(schema, root):
        if (found := part.get("default")) is not None:
            return found
    return None


def _parts_of(schema: Mapping[str, Any], root: Any) -> Sequence[Mapping[str, Any]]:
    """Return a schema and those that hold with it: its references, and its one form that is not null."""
    if schema.keys().isdisjoint(_BESIDE):
        return (schema,)
    found = [schema]
    for part in found:  # it grows
        named = [_find_part(root, part["$ref"])] if "$ref" in part else []
        for name in _BESIDE:
            several = part.get(name)
            if isinstance(several, list):
                forms = [one for one in several if isinstance(one, Mapping)]
                forms = [one for one in forms if name == "allOf" or one.get("type") != "null"]
                named += forms if name == "allOf" or len(forms) == 1 else []
        new = [one for one in named if one is not None and not any(map(is_, found, repeat(one)))]
        found += new[: _MAX_PARTS - len(found)]
    return found


def _find_part(root: Any, pointer: Any) -> Mapping[str, Any] | None:
    """Return the schema that a reference within this one names; None for any other reference."""
    if not isinstance(pointer, str) or not pointer.startswith("#"):
        return None
    found = root
    for name in unquote(pointer[1:]).split("/")[1:]:
        found = found.get(name.replace("~1", "/").replace("~0", "~")) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else None


def clip(question: ToolQuestion) -> ToolQuestion:
    """Return the question with its fields cut short enough for the record."""
    return _with_each(question, _shorten)


def _make_readable(question: ToolQuestion) -> ToolQuestion:
    return _with_each(make_plain(question), _in_utf8)


def _with_each(question: ToolQuestion, make: Callable[[Any], Any]) -> ToolQuestion:
    """Return a question with `make` applied to each field but the arguments."""
    fields = question._asdict()
    made = {name: value if name == "tool_input" else make(value) for name, value in fields.items()}
    return question._replace(**made)


def _check(question: ToolQuestion) -> None:
    for name, value in zip(question._fields, question, strict=True):
        if name in _CUT:
            continue
        if isinstance(value, dict | list) and len(value) > packing.MAX_ENTRIES:
            raise UnreadableQuestion(f"{name} has more than {packing.MAX_ENTRIES} entries")
        if any(_is_long(text) for text in _texts(value)):
            raise UnreadableQuestion(f"a text in {name} is longer than {packing.MAX_STRING} bytes")


def _shorten(value: Any) -> Any:
    if isinstance(value, str):
        return shorten(value, _MAX_SHOWN)
    if isinstance(value, dict):
        return {_shorten(name): _shorten(one) for name, one in [*value.items()][:_MAX_SHOWN]}
    return [_shorten(one) for one in value[:_MAX_SHOWN]] if isinstance(value, list) else value


def _in_utf8(value: Any) -> Any:
    if isinstance(value, str):
        return packing.make_readable(value)
    if isinstance(value, dict):
        return {_in_utf8(name): _in_utf8(one) for name, one in value.items()}
    return [_in_utf8(one) for one in value] if isinstance(value, list) else value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for text in pair)
    elif isinstance(value, list):
        yield from value


def _is_long(text: str) -> bool:
    return len(text) * 4 > packing.MAX_STRING and len(text.encode("utf-8", "replace")) > packing.MAX_STRING
