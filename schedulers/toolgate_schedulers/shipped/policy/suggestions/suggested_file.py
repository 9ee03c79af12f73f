"""Writes suggested rules as a policy's file, each with its calls, examples and reasons as comments. Pure.

Texts of others stand in it as YAML's scalars, quoted where a reader could take them for anything else, and in
comments on one line. No text of others ends its scalar or its comment.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from toolgate_bus.telemetry.printable import shorten, visible

from toolgate_schedulers.shipped.policy.suggestions.suggestions import SuggestedRule

MAX_TOLD: Final = 8
"""Maximum number of arguments, or tools, that a comment lists."""
MAX_COMMENT: Final = 400
MAX_FILE: Final = 1_000_000
"""Maximum length of the file with its comments, in bytes; a policy is read up to a little more."""
_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*(?: [A-Za-z0-9_][A-Za-z0-9_./-]*)*")
_WORDS: Final = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))
"""Texts that some reader of YAML takes for another value."""
THIN: Final = (
    "Thin evidence: too few calls to say anything about arguments. Remove the tools about which a person "
    "should be asked."
)
LAST: Final = "To have the rules rule, remove `mode: observe`: then a person is asked about each other call."


def format_policy(rules: Sequence[SuggestedRule], about: Iterable[str]) -> str:
    """Return the file. `about` are lines of text for its top."""
    head = [_comment("", line) for line in about]
    text = _format(head, rules, _comments)
    # A policy's file has a limit. Rules fit into it, and comments nearly always.
    return text if len(text.encode()) <= MAX_FILE else _format(head, rules, lambda one: iter(()))


def _format(
    head: Sequence[str], rules: Sequence[SuggestedRule], comments: Callable[[SuggestedRule], Iterator[str]]
) -> str:
    lines = [f"  {line}" for one in rules for line in (*comments(one), *_rule(one))]
    return "\n".join([*head, "rules:", *lines, "default: allow", ""])


def format_value(value: Any) -> str:
    """Return a value of JSON as YAML on one line."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{format_value(name)}: {format_value(one)}' for name, one in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_value, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    if value.isascii() and value.isprintable() and "'" not in value:
        return f"'{value}'"
    return json.dumps(value).replace("\x7f", "\\u007f")


def _rule(one: SuggestedRule) -> Iterator[str]:
    rule = one.rule
    first = "- "
    for key, value in rule.items():
        if key == "when":
            yield f"{first}when:"
            for path, condition in value.items():
                why = _comment("", one.reasons.get(path, ""))
                yield f"    {format_value(path)}: {format_value(condition)}  {why}"
        elif key == "schema":
            yield f"{first}schema:"
            yield from _schema(one, value)
        else:
            yield f"{first}{key}: {format_value(value)}"
        first = "  "


def _schema(one: SuggestedRule, schema: Mapping[str, Any]) -> Iterator[str]:
    for key, value in schema.items():
        if key == "properties":
            yield "    properties:"
            for name, fragment in value.items():
                why = _comment("", one.reasons.get(name, ""))
                yield f"      {format_value(name)}: {format_value(fragment)}  {why}"
        else:
            yield f"    {key}: {format_value(value)}  # no call had another argument"


def _comments(one: SuggestedRule) -> Iterator[str]:
    if not one.calls:
        yield f"# {LAST}"
        return
    if one.is_thin:
        yield f"# {THIN}"
    total = sum(one.calls.values())
    by_tool = (
        "" if len(one.calls) == 1 else f": {_list([f'{name} {count}' for name, count in one.calls.items()])}"
    )
    calls = "1 call" if total == 1 else f"{total} calls"
    sessions = f" in {one.sessions} sessions" if one.sessions > 1 and len(one.calls) == 1 else ""
    yield _comment("", f"{calls}{sessions}{by_tool}")
    for example in one.examples:
        yield _comment("  ", example)
    if one.free:
        yield _comment("", f"Any value: {_list([f'{name} ({why})' for name, why in one.free.items()])}")


def _list(words: Sequence[str]) -> str:
    more = f", and {len(words) - MAX_TOLD} more" if len(words) > MAX_TOLD else ""
    return f"{', '.join(words[:MAX_TOLD])}{more}"


def _comment(margin: str, text: str) -> str:
    return f"# {margin}{shorten(visible(text), MAX_COMMENT)}"
