"""Placeholders for secrets and over-long values: what leaves the process, and what comes back.

`Redactor.redact_arguments` returns the arguments as they may travel, with the value of each placeholder.
`restore` puts the originals back into a modify that kept the placeholders. A placeholder is a whole string.
Its token is a digest of the hidden value by a key of this process. So equal values have equal placeholders,
and nobody who did not receive one can name it. A text that holds our mark never leaves as it is. A secret
stays secret in a replacement of the call, under whatever name a scheduler or a hook put it. Nothing is
dropped for its size: what does not fit travels as a placeholder, and the question is `truncated`. Arguments
that no rule can read have a `fault`, and the gate denies them. `question` writes the result.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, Literal

from toolgate_bus.errors import CodecError
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.json_values import holds_half
from toolgate_bus.protocol.placeholders import MARK, WHOLE, Kind, token
from toolgate_bus.ruling.conditions import globs

from toolgate_orchestrator.decision.config import MAX_CHARS, RedactConfig
from toolgate_orchestrator.decision.question.canonical import canonicalize
from toolgate_orchestrator.decision.question.plain_values import (
    MAX_INTEGER,
    MIN_INTEGER,
    copy_arguments,
    to_plain,
)
from toolgate_orchestrator.decision.question.scanning import Scanner, TextScan, secrets_within

_MARK_BYTES: Final = MARK.encode()
_KEY: Final = secrets.token_bytes(32)
"""Key of the placeholders of this process."""
_DEPTH: Final = packing.MAX_DEPTH - 4
TOO_DEEP: Final = f"its arguments are nested more than {_DEPTH} levels deep"
HALF: Final = (
    "a text in its arguments holds half a character (a lone surrogate, such as half an emoji): "
    "write the whole character, or leave it out"
)
_FEW_BYTES: Final = packing.MAX_NODES // 2
_WHOLE_BYTES: Final = WHOLE.encode()
_BRACKET: Final = _MARK_BYTES[0]
"""Byte that both begin with. One byte is found much faster than several."""
_CONTAINERS: Final = frozenset((dict, list))
_SCALARS: Final = frozenset((str, int, float, bool, type(None)))
_STRINGS: Final = frozenset((str,))
_NUMBERS: Final = frozenset((int, float, bool, type(None)))
_MAX_SIGNED: Final = 2**63 - 1
_WIDE: Final = 0xCF
"""Byte that begins a number in msgpack which may be larger."""
_REDACTED: Final = f"{MARK}redacted:"
HIDDEN: Final = "⟦redacted⟧"
"""Mark in the place of a hidden part of a text that is not restored: a reason, a result."""
_SHORT: Final = 4
"""Secrets with fewer characters are only found as whole values: short ones would be found in any text."""
_MAX_VALUES: Final = 200_000
_ROOM: Final = packing.MAX_QUESTION // 2
"""Bytes for arguments. The rest of a question has the other half."""

_MAX_SECRETS: Final = 256
"""Most hidden texts of a call that are searched for elsewhere. If there are more, all texts are hidden."""
_MAX_TOOLS: Final = 1024
_SHORT_NAME: Final = 64
"""Longest name of an argument, in characters, that is remembered as clear."""
_FEW_NAMES: Final = 64
"""Most arguments of which the names are remembered: those of a tool, and hardly data."""
_NO_TROUBLE: Final = {None}
_MAX_PLACEHOLDERS: Final = 1_000
"""Most placeholders in one question. If there would be more, one stands for all arguments."""

_MAX_TRAVELLING: Final = packing.MAX_NODES - 100
"""Most values in arguments that travel."""
_MAX_READ: Final = 2 * _ROOM
"""Characters of texts in which secret fields are searched. Longer arguments would hardly travel anyway."""


class _TooMany(Exception):  # noqa: N818 - it says what was found
    """There are more placeholders than one question may have."""


class BadPlaceholder(Exception):  # noqa: N818 - it says what was found
    """A modify holds a placeholder that it may not use."""


@dataclass(slots=True)
class RedactedArguments:
    """Arguments as they may travel."""

    value: dict[str, Any]
    placeholders: dict[str, Any] = field(default_factory=dict)
    truncated: bool = False
    fault: str = ""
    """Reason why no rule can read the arguments; empty if rules can."""
    known: tuple[str, ...] = ()
    """Secrets that are hidden wherever they stand: those of the call that this one replaces."""
    wary: bool = False
    """True if there are too many secrets to search for each: every text is hidden."""
    max_chars: int = MAX_CHARS
    plain: dict[str, Any] | None = None
    """All arguments as JSON, if that differs from their own form. It does not leave the process."""
    read: int = 0
    """Characters of texts in which secret fields were searched."""
    look: TextScan | None = None
    """Scan for the configured patterns."""
    _secrets: tuple[str, ...] | None = None

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts and numbers that were redacted and stand nowhere in clear, longest first."""
        if self._secrets is None:
            self._secrets = self._find_secrets()
        return self._secrets

    def _find_secrets(self) -> tuple[str, ...]:
        hidden = [value for name, value in self.placeholders.items() if name.startswith(_REDACTED)]
        if not (hidden or self.known):
            return ()
        found = set(islice(_texts(hidden), _MAX_SECRETS + 1))
        clear = "\0".join(text for text in _texts(self.value) if text not in self.placeholders)
        secret = {one for one in found if one not in clear}
        return tuple(sorted({*self.known, *secret}, key=len, reverse=True))

    @property
    def uncertain(self) -> bool:
        """True if more was redacted than can be searched for."""
        return self.wary or len(self.secrets) > _MAX_SECRETS


class Redactor:
    """Applies one `redact` configuration."""

    def __init__(self, config: RedactConfig, clock: Callable[[], float] = time.thread_time) -> None:
        self._fields = frozenset(name.casefold() for name in config.fields)
        self._scanner = Scanner(config.patterns, clock)
        by_tool = config.max_chars
        self._max_chars: int | None = by_tool if isinstance(by_tool, int) else None
        self._harmless = None if self._max_chars is None else min(self._max_chars, _FEW_BYTES)
        """Bytes in which no string can be too long and no node one too many. None: it depends on the tool."""
        self._by_tool = {} if isinstance(by_tool, int) else by_tool
        self._of_tools: dict[str, int] = {}
        self._clear_names: set[str] = set()
        """Names of arguments that were searched and are not hidden."""
        self.configured = bool(self._fields or self._scanner)
        """True if fields or patterns to hide are configured."""

    def redact_arguments(
        self, tool_input: Mapping[str, Any], before: RedactedArguments | None = None, tool: str = ""
    ) -> RedactedArguments:
        """Return the arguments of this tool as they may leave, in plain form. The original is not changed.

        `before` is what left of the call that this one replaces: its secrets are secret here too.
        """
        if not self.configured and not (before is not None and before.placeholders):
            with suppress(CodecError):
                if self.is_harmless(tool, tool_input, packing.pack(tool_input)):
                    return RedactedArguments(dict(tool_input))
        plain = to_plain(tool_input)
        if plain is tool_input:
            return self._redact(plain, before, tool)
        plain = copy_arguments(plain)  # a copy, which later changes of the caller do not reach
        out = self._redact(plain, before, tool)
        out.plain = plain
        return out

    def find_secrets(self, tool_input: Mapping[str, Any], tool: str) -> tuple[Sequence[str], bool]:
        """Return what is hidden of these arguments, and whether that is more than can be searched for."""
        if not self.configured and packing.within_bounds(tool_input, _DEPTH, _MAX_PLACEHOLDERS // 2):
            return (), False  # only what is too long is held back, and that is never too many
        out = self.redact_arguments(tool_input, None, tool)
        return out.secrets, out.uncertain

    def redact_fact(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a fact as they may leave. Values that are not JSON are hidden."""
        return self._redact(fields, None, "").value

    def _redact(
        self, tool_input: Mapping[str, Any], before: RedactedArguments | None, tool: str
    ) -> RedactedArguments:
        look = self._scanner.start_look() if self._scanner else None
        out = RedactedArguments({}, max_chars=self.max_chars(tool), look=look)
        if before is not None and before.placeholders:
            out.known, out.wary = before.secrets, before.uncertain
        excess = _find_excess(tool_input)
        if excess == "deep":
            out.fault = TOO_DEEP
        trouble = "truncated" if excess == "large" else self._container_trouble(tool_input, 0, out)
        try:
            if trouble is None:
                out.value = {key: self._value(key, value, out, 1) for key, value in tool_input.items()}
                self._fit(out)
                return out
        except _TooMany:
            out.placeholders, trouble, out.wary = {}, "truncated", True
        out.value = {WHOLE: _hide(dict(tool_input), trouble, out)}
        return out

    def max_chars(self, tool: str) -> int:
        """Return the longest text that the arguments of a tool may hold, in characters."""
        if self._max_chars is not None:
            return self._max_chars
        most = self._of_tools.get(tool)
        if most is None:
            if len(self._of_tools) >= _MAX_TOOLS:  # the names come from an LLM
                self._of_tools.clear()
            fitting = (most for glob, most in self._by_tool.items() if globs.fits((glob,), tool))
            most = self._of_tools[tool] = next(fitting, MAX_CHARS)
        return most

    def is_harmless(self, tool: str, arguments: Mapping[str, Any], body: bytes, beside: int = 0) -> bool:
        """Return whether arguments, packed in this body, may leave as they are if nothing is configured.

        `beside` is the number of bytes in the body that are a result, not arguments.
        """
        harmless = self._harmless
        if harmless is None:
            harmless = min(self.max_chars(tool), _FEW_BYTES)
        return (
            len(body) - beside <= harmless
            and (_BRACKET not in body or (_MARK_BYTES not in body and _WHOLE_BYTES not in body))
            and packing.within_bounds(arguments, _DEPTH)
        )

    def text(self, text: str | None, out: RedactedArguments | None) -> str | None:
        """Return a free text (a reason) for the record, without matches of patterns and redacted values."""
        if text is None or not (self._scanner or (out is not None and out.placeholders)):
            return text
        if out is None:
            return self.hide(text)
        if out.uncertain:
            return HIDDEN
        for original in (*out.secrets, *out.placeholders.values()):
            if isinstance(original, str) and original and original in text:
                text = text.replace(original, HIDDEN)
        return self.hide(text)

    def hide(self, text: str) -> str:
        """Return a text without its matches of patterns."""
        return self._scanner.hide_matches(text, HIDDEN)

    def hides_field(self, name: str) -> bool:
        """Return whether values under this name are hidden."""
        return bool(self._fields) and name.casefold() in self._fields

    def find_spans(self, text: str, secrets: Iterable[str] = ()) -> list[tuple[int, int]] | None:
        """Return the places in a text to hide, in order; None to hide all of it."""
        found = self._scanner.find_spans(text) if self._scanner else []
        if found is None or (self._fields and secrets_within(text, self._fields) is not None):
            return None
        for one in secrets:
            at = text.find(one) if len(one) >= _SHORT else 0 if text == one else -1
            while at >= 0:
                found.append((at, at + len(one)))
                at = text.find(one, at + 1)
        return sorted(found)

    def _value(self, key: str, value: Any, out: RedactedArguments, depth: int) -> Any:
        kind = type(value)
        if self._fields and key.casefold() in self._fields:
            return _hide(value, "redacted", out)
        if value is None or kind is bool:
            return value
        if kind is dict or kind is list:
            return self._container(value, out, depth)
        trouble = self._scalar_trouble(value, kind, out)
        if trouble is None and self._fields and kind is str:
            out.read += len(value)
            within = secrets_within(value, self._fields) if out.read <= _MAX_READ else []
            if within is not None:
                trouble = "redacted"
                out.wary = out.wary or len(within) > _MAX_SECRETS
                out.known = (*out.known, *(one for one in within[:_MAX_SECRETS] if len(one) >= _SHORT))
        return value if trouble is None else _hide(value, trouble, out)

    def _container(self, value: Any, out: RedactedArguments, depth: int) -> Any:
        trouble = self._container_trouble(value, depth, out)
        if trouble is not None:
            return _hide(value, trouble, out)
        if isinstance(value, list):
            return [self._value("", child, out, depth + 1) for child in value]
        return {key: self._value(key, child, out, depth + 1) for key, child in value.items()}

    def _container_trouble(self, value: Any, depth: int, out: RedactedArguments) -> Kind | None:
        """Return why a container must travel as a placeholder: its depth, its width, or one of its keys."""
        if depth > _DEPTH or len(value) > packing.MAX_ENTRIES:
            return "truncated"
        if isinstance(value, list):
            return None
        if WHOLE in value:
            return "truncated"
        # A name that was clear is clear again, unless this call hides more than the configuration does.
        is_usual = out.max_chars >= _SHORT_NAME and not (out.known or out.wary)
        if is_usual and self._clear_names.issuperset(value):
            return None
        troubles = {
            self._scalar_trouble(key, type(key), out) if type(key) is str else "truncated" for key in value
        }
        if is_usual and troubles == _NO_TROUBLE and len(value) <= _FEW_NAMES:
            if len(self._clear_names) >= _MAX_TOOLS:  # the names come from an LLM
                self._clear_names.clear()
            self._clear_names.update(name for name in value if len(name) <= _SHORT_NAME)
        return "redacted" if "redacted" in troubles else "truncated" if "truncated" in troubles else None

    def _scalar_trouble(self, value: Any, kind: type, out: RedactedArguments) -> Kind | None:
        if kind is str:
            if len(value) > out.max_chars:  # not searched, as no part of it leaves
                return "truncated"
            if self._matches(value, out):
                return "redacted"
            return "truncated" if MARK in value or not _fits(value) else None
        if kind is int or kind is float:
            if kind is int and not MIN_INTEGER <= value <= MAX_INTEGER:
                return "truncated"
            secret = (out.look or out.known or out.wary) and self._matches(str(value), out)
            return "redacted" if secret else None
        return "truncated"

    def _matches(self, text: str, out: RedactedArguments) -> bool:
        if out.wary:
            return True
        known: Sequence[str] = out.known
        if known and any(one == text or (len(one) >= _SHORT and one in text) for one in known):
            return True
        return out.look is not None and out.look.finds(text)

    def _fit(self, out: RedactedArguments) -> None:
        """Replace the largest arguments until the whole is within the wire's bounds."""
        if packing.fits(out.value, _ROOM):
            return
        weights = {key: (packing.size(value), _count(value)) for key, value in out.value.items()}
        size, count = (sum(column) for column in zip(*weights.values(), strict=True))
        size += packing.size(dict.fromkeys(out.value))
        for key, (bytes_, nodes) in sorted(weights.items(), key=lambda one: one[1], reverse=True):
            original = _reveal(out.value[key], out.placeholders)
            out.value[key] = _hide(original, "truncated", out)
            size, count = size - bytes_ + packing.size(out.value[key]), count - nodes + 1
            # Pack the whole only if that may be the end; else it would be packed for each argument.
            if size <= _ROOM and count <= _MAX_TRAVELLING and packing.fits(out.value, _ROOM):
                return
        whole = {key: _reveal(value, out.placeholders) for key, value in out.value.items()}
        out.value = {WHOLE: _hide(whole, "truncated", out)}

    def leaves_unread(self, body: bytes) -> bool:
        """Return whether a fact of plain fields, packed in `body`, may leave as it is."""
        return (
            not self.configured
            and len(body) <= min(self.max_chars(""), _FEW_BYTES)
            # A time may hold either byte too, for a quarter of an hour.
            and (_BRACKET not in body or (_MARK_BYTES not in body and _WHOLE_BYTES not in body))
        )

    def leaves_as_is(self, fields: Mapping[str, Any], body: bytes) -> bool:
        """Return whether a fact's fields, packed in `body`, may leave as they are, without a second look.

        A number of 64 bits may be too large to travel, so it gets a second look.
        """
        return (
            self.leaves_unread(body)
            and (_WIDE not in body or all(map(_is_narrow, fields.values())))
            and len(fields) <= packing.MAX_ENTRIES
            and _STRINGS.issuperset(map(type, fields))
            and all(
                type(value) in _CONTAINERS and packing.within_bounds(value, _DEPTH - 1)
                for value in fields.values()
                if type(value) not in _SCALARS
            )
        )


def _is_narrow(value: Any) -> bool:
    """Return whether a value is a scalar, and not a number that may be too large to travel."""
    return type(value) in _SCALARS and (type(value) is not int or value <= _MAX_SIGNED)


def _count(value: Any) -> int:
    """Return the number of values in a value, itself among them."""
    found, level = 1, [value]
    while level:
        deeper: list[Any] = []
        for node in level:
            if type(node) is dict or type(node) is list:
                found += len(node)
                children = node.values() if type(node) is dict else node
                deeper += [child for child in children if type(child) is dict or type(child) is list]
        level = deeper
    return found


def _find_excess(value: Any) -> Literal["deep", "large", ""]:
    """Return the bound that a value exceeds. A value that holds itself exceeds one of them."""
    level, seen = [value], 0
    for _ in range(_DEPTH + 1):
        deeper: list[Any] = []
        for item in level:
            if type(item) is dict:
                deeper.extend(item.values())
            elif type(item) is list:
                deeper.extend(item)
            if seen + len(deeper) > _MAX_VALUES:
                return "large"
        if not deeper:
            return ""
        seen, level = seen + len(deeper), deeper
    return "" if _CONTAINERS.isdisjoint(map(type, level)) else "deep"


def restore(value: Any, placeholders: Mapping[str, Any], *, allowed: bool) -> Any:
    """Put the originals back. Raise BadPlaceholder for one that is unknown, or not allowed here.

    Only a whole string is a placeholder. One inside a longer text, or used as a key, is refused.
    """
    if isinstance(value, str):
        if MARK not in value:
            return value
        if not allowed or value not in placeholders:
            raise BadPlaceholder(value)
        return placeholders[value]
    if isinstance(value, dict):
        if MARK in "\0".join(value):
            raise BadPlaceholder("as a key")
        whole = value.get(WHOLE)
        if len(value) == 1 and isinstance(whole, str) and whole in placeholders:
            return restore(whole, placeholders, allowed=allowed)
        clear = _find_clear(value.values())
        return {
            key: child if type(child) in clear else restore(child, placeholders, allowed=allowed)
            for key, child in value.items()
        }
    if isinstance(value, list):
        clear = _find_clear(value)
        return [
            child if type(child) in clear else restore(child, placeholders, allowed=allowed)
            for child in value
        ]
    return value


def _find_clear(values: Iterable[Any]) -> frozenset[Any]:
    """Return the types of those values that are certainly no placeholders: mostly all but containers."""
    return _SCALARS if MARK not in "\0".join([one for one in values if type(one) is str]) else _NUMBERS


def _reveal(value: Any, placeholders: Mapping[str, Any]) -> Any:
    """Replace our own placeholders by their values, wherever they are."""
    return restore(value, placeholders, allowed=True)


def _texts(value: Any) -> Iterator[str]:
    """Yield every text and number in a hidden value, keys as well."""
    if isinstance(value, str):
        yield from (value,) if value else ()
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from (text,) if len(text := _digits(value)) >= _SHORT else ()
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from _texts(child)
            yield from _texts(key) if isinstance(key, str) and len(key) >= _SHORT else ()
    elif isinstance(value, list):
        for child in value:
            yield from _texts(child)


def _digits(number: float) -> str:
    try:
        return str(number)
    except ValueError:  # more digits than Python writes
        return ""


def hide_value(value: Any, kind: Kind = "redacted") -> str:
    """Return a placeholder for a value: equal ones for equal values, within this process."""
    return f"{MARK}{kind}:{token(_KEY, value, canonicalize(value))}⟧"


def _hide(value: Any, kind: Kind, out: RedactedArguments) -> str:
    placeholder = hide_value(value, kind)
    if len(out.placeholders) >= _MAX_PLACEHOLDERS:
        raise _TooMany
    out.placeholders[placeholder] = value
    if not out.fault and holds_half(value, _MAX_VALUES):
        out.fault = HALF
    out.truncated = out.truncated or kind == "truncated"
    return placeholder


def _fits(text: str) -> bool:
    """Return whether a text can be encoded, and is then short enough."""
    try:
        return len(text.encode()) <= packing.MAX_STRING
    except UnicodeEncodeError:
        return False
