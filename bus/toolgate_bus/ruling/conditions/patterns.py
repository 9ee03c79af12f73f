r"""Regular expressions that a stranger's text cannot slow down: Python's meaning, a linear engine. Pure.

Only this module imports `re2`. `compile_pattern` reads a pattern with Python's own parser, so that its parts
have the same meaning: `\w`, `\d`, `\s` and `\b` of Unicode, `$` before a last newline, `\Z`, `\uXXXX`, flags,
regard of case. Parts that a linear engine cannot do (looking ahead or behind, a group repeated by its number,
possessive repeats) are refused by name: `Unknown`, a ValueError.

A pattern tells few characters apart. All characters that it does not tell apart become one byte, in the
pattern and in the text alike; word characters become bytes that the engine takes for word characters. So
programs are small, each character is one byte, and a lone surrogate is a character like any other.
"""

import bisect
import contextlib
import fnmatch
import importlib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import re2

from toolgate_bus.ruling.conditions import code_points
from toolgate_bus.ruling.conditions.code_points import EVERY, Ranges

MAX_PATTERN: Final = 1024
"""Maximum number of characters of a pattern."""
MAX_SIZE: Final = 20_000
"""Maximum number of steps of a compiled pattern, with its repeats multiplied."""
_MEMORY: Final = 4 * 1024 * 1024
_MAX_MATCHES: Final = 256
"""Maximum number of parts of a text that are replaced one by one."""
_MAX_REPEAT: Final = 1000
_MAX_CACHED: Final = 4096
_MAX_SHARED: Final = 65_536
"""Maximum number of characters whose bytes are remembered: by a pattern, and by a group."""

_sre: Any = importlib.import_module("re._constants")
_parser: Any = importlib.import_module("re._parser")

_ANYWHERE: Final = re2._Anchor.UNANCHORED
_NEWLINE: Final = 0x0A
"""Byte of the newlines that `^` or `$` look for; other newlines have another."""
_WORD_BYTES: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
_OTHER_BYTES: Final = bytes(byte for byte in range(256) if byte not in (*_WORD_BYTES, _NEWLINE))
_EMPTY_IS_NO_BOUNDARY: Final = re.search(r"\B", "") is not None
r"""True if `\B` matches an empty text: not in Python before 3.14, but in the engine."""

_NEITHER: Final = {
    _sre.ASSERT: "a look ahead or behind, (?=…) or (?<=…)",
    _sre.ASSERT_NOT: "a look ahead or behind, (?!…) or (?<!…)",
    _sre.GROUPREF: r"a group repeated by its number or name, \1 or (?P=name)",
    _sre.GROUPREF_EXISTS: "a choice by a group, (?(1)…)",
    _sre.ATOMIC_GROUP: "an atomic group, (?>…)",
    _sre.POSSESSIVE_REPEAT: "a possessive repeat, such as *+",
}
_REPEATS: Final = {_sre.MAX_REPEAT: "", _sre.MIN_REPEAT: "?"}


class Unknown(ValueError):  # noqa: N818 - it says what a pattern is
    """Error for a pattern that cannot be used; the message says why."""


class Pattern:
    """One pattern, ready for any text."""

    def __init__(
        self, text: str, program: bytes, alphabet: "_Alphabet", on_empty: bytes, literal: str = ""
    ) -> None:
        self.text = text
        self._literal = literal
        """Text that is all the pattern looks for; empty if it looks for more."""
        self._alphabet = alphabet
        self._engine = _engine(program)
        # `search` makes an object of each result; it is called often, and nearly always there is none.
        self._match: Callable[..., Sequence[tuple[int, int]]] = self._engine._regexp.Match
        self.size: int = self._engine.programsize
        """Number of steps of the program: a search takes at most that many for each character."""
        if self.size > MAX_SIZE:
            raise Unknown("too large: its repeats multiply to more than can be bounded; write it shorter")
        self._on_empty = _engine(on_empty).search(b"") is not None

    def search(self, text: str) -> bool:
        """Return whether the pattern is found anywhere in a text (`re.search`)."""
        if self._literal:
            return self._literal in text
        return self.search_bytes(self._alphabet.bytes_of(text))

    def search_bytes(self, encoded: bytes) -> bool:
        """Return whether the pattern is found in bytes that its group made of a text."""
        if not encoded:
            return self._on_empty
        return self._match(_ANYWHERE, encoded, 0, len(encoded))[0][0] >= 0

    def substitute(self, text: str, by: str) -> str:
        """Return the text with each match replaced; after very many, the whole rest is replaced, too."""
        parts, start = list[str](), 0
        for first, last in self._spans(self._alphabet.bytes_of(text)):
            parts += [text[start:first], by]
            start = last
            if len(parts) > 2 * _MAX_MATCHES:
                return "".join(parts)
        return "".join([*parts, text[start:]]) if parts else text

    def find_spans(self, text: str) -> list[tuple[int, int]]:
        """Return the places of the matches that are not empty: first character, and the one behind."""
        return list(self._spans(self._alphabet.bytes_of(text)))

    def _spans(self, encoded: bytes) -> Iterator[tuple[int, int]]:
        for match in self._engine.finditer(encoded) if encoded else ():
            first, last = match.span()
            if first < last:
                yield first, last


class PatternGroup:
    """Patterns that read the same bytes, so that a text is converted once."""

    def __init__(self, alphabet: "_Alphabet", patterns: Sequence[Pattern], joined: Pattern | None) -> None:
        self.patterns, self.joined = patterns, joined
        """Pattern that finds everything that any of them finds; None if it would be too large."""
        self.bytes_of = alphabet.bytes_of
        self.bytes_of_parts = alphabet.bytes_of_parts


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Pattern:
    """Compile a pattern as Python reads it. Raises Unknown with the reason, and what to write instead."""
    if len(pattern) > MAX_PATTERN:
        raise Unknown(f"a pattern may have at most {MAX_PATTERN} characters")
    return _group([pattern], [_parse(pattern)], atomic=False).patterns[0]


@lru_cache(maxsize=4096)
def glob(written: str) -> Pattern:
    """Compile a glob (`*`, `?`, `[…]`, with regard to case) to a pattern that a whole text must match."""
    # Its atomic groups only save work: the first place where a fixed part fits is as good as any.
    return _group([written], [_parse(rf"\A{fnmatch.translate(written)}")], atomic=True).patterns[0]


def _parse(pattern: str) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _parser.parse(pattern)
    except re.error as error:
        raise Unknown(f"not a regular expression: {error}") from None
    except (RecursionError, OverflowError):
        raise Unknown("not a regular expression: nested too deeply, or a number too large") from None


def together(written: Sequence[str]) -> list[PatternGroup]:
    """Compile patterns to as few groups as possible. Each must be one that `compile_pattern` accepts."""
    if not written:
        return []
    try:
        return [_group(written, [_parse(one) for one in written], atomic=False)]
    except Unknown:
        if len(written) == 1:
            raise
        half = len(written) // 2
        return [*together(written[:half]), *together(written[half:])]


def _group(texts: Sequence[str], trees: Sequence[Any], *, atomic: bool) -> PatternGroup:
    seen = _Writer(lambda _ranges: b"", atomic)
    try:
        for tree in trees:
            seen.sequence(tree, tree.state.flags)
        alphabet = _Alphabet(seen, _MAX_CACHED if len(trees) == 1 else _MAX_SHARED)
        writer, on_empty = (_Writer(alphabet.format_class, atomic, empty=empty) for empty in (False, True))
        programs = [writer.sequence(tree, tree.state.flags) for tree in trees]
        on_empties = [on_empty.sequence(tree, tree.state.flags) for tree in trees]
    except RecursionError:
        raise Unknown("nested too deeply") from None
    patterns = [
        Pattern(text, program, alphabet, empty, _find_literal(tree))
        for text, program, empty, tree in zip(texts, programs, on_empties, trees, strict=True)
    ]
    joined = patterns[0] if len(patterns) == 1 else None
    if joined is None:
        with contextlib.suppress(Unknown):
            either = b"|".join(b"(?:%s)" % program for program in programs)
            joined = Pattern("", either, alphabet, b"|".join(b"(?:%s)" % one for one in on_empties))
    return PatternGroup(alphabet, patterns, joined)


def _find_literal(tree: Any) -> str:
    """Return the text that a pattern without any sign looks for; empty for every other pattern."""
    if tree.state.flags & re.IGNORECASE or any(op is not _sre.LITERAL for op, _ in tree):
        return ""
    return "".join(chr(of) for _, of in tree)


def _engine(program: bytes) -> Any:
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.log_errors = False
    options.never_capture = True
    options.dot_nl = True
    options.max_mem = _MEMORY
    try:
        return re2.compile(program, options)
    except re2.error:
        raise Unknown(
            "too large: its repeats multiply to more than can be bounded; write it shorter"
        ) from None


class _Alphabet:
    """The bytes that stand for the groups of characters that one pattern's sets tell apart."""

    def __init__(self, seen: "_Writer", most: int) -> None:
        if seen.boundaries == {True, False}:
            raise Unknown(r"\b both with and without (?a); give one of them in a pattern of its own")
        if seen.lines and seen.dollar:
            raise Unknown(r"$ both with and without (?m); write \Z for the end of the text")
        sets = tuple(seen.sets)
        word = code_points.words(ascii_only=seen.boundaries == {True}) if seen.boundaries else ()
        free = {True: list(_WORD_BYTES), False: list(_OTHER_BYTES)}
        if not seen.boundaries:
            free[False] += _WORD_BYTES
        self._bytes_of: dict[Ranges, list[int]] = {ranges: [] for ranges in sets}
        starts: list[tuple[int, int]] = []
        for inside, ranges in code_points.partition([word, ((_NEWLINE, _NEWLINE),), *sets]).items():
            is_word, is_newline = 0 in inside, 1 in inside
            if not free[is_word]:
                raise Unknown("tells too many characters apart; split it into several patterns")
            byte = free[is_word].pop()
            for number in inside - {0, 1}:
                self._bytes_of[sets[number - 2]] += [byte, _NEWLINE] if is_newline else [byte]
            starts += [(first, _NEWLINE if is_newline and seen.lines else byte) for first, _ in ranges]
        self._ends_lines = seen.dollar
        self._cached = _ByteCache(sorted(starts), most)
        self._ascii = bytes(self._cached[point] for point in range(128)) + bytes(128)

    def bytes_of(self, text: str) -> bytes:
        """Convert a text for the engine: one byte for each character."""
        if not text:
            return b""
        if text.isascii():
            encoded = text.encode("ascii").translate(self._ascii)
        else:
            encoded = text.translate(self._cached).encode("latin-1")
        return encoded[:-1] + b"\n" if self._ends_lines and text[-1] == "\n" else encoded

    def bytes_of_parts(self, text: str, size: int) -> Iterator[bytes]:
        """Convert a text in parts of `size` characters, so that the caller can check the time in between."""
        for start in range(0, len(text), size):
            part, last = text[start : start + size], start + size >= len(text)
            yield self.bytes_of(part) if last else part.translate(self._cached).encode("latin-1")

    def format_class(self, ranges: Ranges) -> bytes:
        """Return a set as a class of bytes."""
        chosen = sorted(self._bytes_of[ranges])
        if not chosen:
            return rb"[^\x00-\xff]"
        return b"[%s]" % b"".join(rb"\x%02x" % byte for byte in chosen)


class _ByteCache(dict[int, int]):
    """The byte of each code point, found when the code point is first seen."""

    def __init__(self, starts: list[tuple[int, int]], most: int) -> None:
        super().__init__()
        self._starts, self._most = starts, most

    def __missing__(self, point: int) -> int:
        if len(self) >= self._most:
            self.clear()
        at = bisect.bisect_right(self._starts, (point, 256)) - 1
        byte = self[point] = self._starts[at][1]
        return byte


class _Writer:
    """Writes a parsed pattern for the engine, and notes its sets and anchors. `put` writes a set."""

    def __init__(self, put: Callable[[Ranges], bytes], atomic: bool, *, empty: bool = False) -> None:
        self._put, self._atomic, self._empty = put, atomic, empty
        self.sets: dict[Ranges, None] = {}
        self.boundaries: set[bool] = set()
        r"""Flags of the `\b` and `\B` seen: True for one with the flag `a`, False for one without."""
        self.lines = self.dollar = False
        """True if there are anchors of lines (`lines`), or a `$` of the whole text (`dollar`)."""

    def sequence(self, tree: Any, flags: int) -> bytes:
        """Write the parts of a sequence one after the other."""
        return b"".join(self._one(op, of, flags) for op, of in tree)

    def _one(self, op: Any, of: Any, flags: int) -> bytes:
        if op in (_sre.LITERAL, _sre.NOT_LITERAL, _sre.IN, _sre.ANY):
            ranges = _set(op, of, flags)
            self.sets[ranges] = None
            return self._put(ranges)
        if op in _REPEATS:
            least, most, inner = of
            endless = most is _sre.MAXREPEAT
            if max(least, 0 if endless else most) > _MAX_REPEAT:
                raise Unknown(f"repeats more than {_MAX_REPEAT} times: not known to the linear engine")
            times = b"{%d,%s}%s" % (least, b"" if endless else b"%d" % most, _REPEATS[op].encode())
            return b"(?:%s)%s" % (self.sequence(inner, flags), times)
        if op is _sre.BRANCH:
            return b"(?:%s)" % b"|".join(self.sequence(branch, flags) for branch in of[1])
        if op is _sre.SUBPATTERN:
            _, more, less, inner = of
            if more & (re.ASCII | re.UNICODE):
                flags &= ~(re.ASCII | re.UNICODE)
            return b"(?:%s)" % self.sequence(inner, (flags | more) & ~less)
        if op is _sre.ATOMIC_GROUP and self._atomic:
            return b"(?:%s)" % self.sequence(of, flags)
        if op is _sre.AT:
            return self._anchor(of, flags)
        if op is _sre.FAILURE or (op is _sre.ASSERT_NOT and not of[1]):  # (?!): fits nowhere
            return rb"[^\x00-\xff]"
        raise Unknown(
            f"{_NEITHER.get(op, str(op).lower())}: not known to the linear engine; write it without"
        )

    def _anchor(self, at: Any, flags: int) -> bytes:
        lines = bool(flags & re.MULTILINE)
        if at in (_sre.AT_BOUNDARY, _sre.AT_NON_BOUNDARY):
            self.boundaries.add(bool(flags & re.ASCII))
            if at is _sre.AT_BOUNDARY:
                return rb"\b"
            return rb"[^\x00-\xff]" if self._empty and not _EMPTY_IS_NO_BOUNDARY else rb"\B"
        if at is _sre.AT_BEGINNING and lines:
            self.lines = True
            return b"(?m:^)"
        if at is _sre.AT_END:
            self.lines, self.dollar = self.lines or lines, self.dollar or not lines
            return b"(?m:$)"
        return rb"\z" if at is _sre.AT_END_STRING else rb"\A"


def _set(op: Any, of: Any, flags: int) -> Ranges:
    """Return the characters that one place of a pattern matches."""
    if op is _sre.ANY:
        return EVERY if flags & re.DOTALL else code_points.minus(((_NEWLINE, _NEWLINE),))
    written = [(_sre.LITERAL, of)] if op is not _sre.IN else list(of)
    negated = op is _sre.NOT_LITERAL or written[0][0] is _sre.NEGATE
    chosen, categories = list[Ranges](), list[Ranges]()
    ascii_only = bool(flags & re.ASCII)
    for kind, value in written:
        if kind is _sre.LITERAL:
            chosen.append(((value, value),))
        elif kind is _sre.RANGE:
            chosen.append((tuple(value),))
        elif kind is _sre.CATEGORY:
            name = str(value).removeprefix("CATEGORY_")
            known = {"DIGIT": code_points.digits, "SPACE": code_points.spaces, "WORD": code_points.words}
            category = known[name.removeprefix("NOT_")](ascii_only=ascii_only)
            categories.append(code_points.minus(category) if name.startswith("NOT_") else category)
    ranges = code_points.union(chosen)
    if flags & re.IGNORECASE:
        ranges = code_points.caseless(ranges, categories, ascii_only=ascii_only)
    else:
        ranges = code_points.union([ranges, *categories])
    return code_points.minus(ranges) if negated else ranges
