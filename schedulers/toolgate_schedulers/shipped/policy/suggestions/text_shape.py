r"""Finds a regular expression that all of several texts match: an id, a date, a code. Pure.

    #W1234567, #W7654321            ^#W[0-9]{7}\Z
    gift_card_12345, visa_54321     ^(?:gift_card|visa)_[0-9]{5}\Z   written as one branch for each
    ann_li_3668, omar_davis_3817    ^[a-z]+_[a-z]+_[0-9]{4}\Z
    8JX2WO, HATHAT, 5RJ7UH          ^[A-Z0-9]{6}\Z
    152 + 103, 2 * (3 + 4)          ^[0-9 .,+*/()%-]+\Z

The most exact form that all texts have is taken. A form in which letters vary needs digits, or capitals of
one length: else it would be a guess about words. Texts are taken one by one; none is kept.
"""

import re
from typing import Final

from toolgate_schedulers.shipped.policy.suggestions.census import Census

MAX_FORMS: Final = 8
"""Maximum number of forms in which only digits vary."""
MAX_RUNS: Final = 24
"""Maximum number of parts of a form in which letters vary as well."""
MAX_PATTERN: Final = 512
FEW: Final = 3
"""Fewest different texts of which a form is made."""
SEVERAL: Final = 4
"""The same for forms in which letters vary."""
SURE: Final = 8
"""Number of different texts from which on the length of a short part is taken as it was seen."""
_SPECIAL: Final = re.compile(r"([.^$*+?{}\[\]\\|()])")
_DIGITS: Final = re.compile("([0-9]+)")
_LEVELS: Final = tuple(
    re.compile(classes)
    for classes in (
        "([0-9]+)|([A-Z]+)|([a-z]+)|.",
        "([A-Z0-9]+)|([a-z]+)|.",
        "([a-z0-9]+)|([A-Z]+)|.",
        "([A-Za-z0-9]+)|.",
    )
)
"""Ways to cut a text into parts, the most exact first. A class of characters is a group."""
_CLASSES: Final = (
    ("[0-9]", "[A-Z]", "[a-z]"),
    ("[A-Z0-9]", "[a-z]"),
    ("[a-z0-9]", "[A-Z]"),
    ("[A-Za-z0-9]",),
)
_SUM: Final = re.compile(r"[0-9 .,+*/()%-]+")
_ID: Final = re.compile(r"[A-Za-z0-9_-]+")


class TextShape:
    """Forms that all texts so far have had."""

    def __init__(self) -> None:
        self._forms = Census[str](MAX_FORMS)
        self._levels: list[list[tuple[str, int, int]] | None] = [None] * len(_LEVELS)
        """Parts of a form by level: class or character, shortest and longest length."""
        self._left = set(range(len(_LEVELS)))
        self._is_sum = self._is_id = True
        self._texts = self._with_digit = 0

    def add(self, text: str, session: str) -> None:
        """Take one text of printable characters, not empty."""
        has_digit = _DIGITS.search(text) is not None
        self._texts += 1
        self._with_digit += has_digit
        self._is_sum = self._is_sum and has_digit and _SUM.fullmatch(text) is not None
        self._is_id = self._is_id and has_digit and _ID.fullmatch(text) is not None
        if not self._forms.is_full:
            self._forms.add(_form(text), session)
        if " " in text:
            self._left.clear()
        for level in tuple(self._left):
            self._narrow(level, text)

    def pattern(self, distinct: int, *, by_call: bool) -> str | None:
        """Return the pattern for texts of which so many were different; None if no form is to be trusted."""
        found = self._of_forms(distinct, by_call=by_call) or self._of_levels(distinct)
        if found is None and distinct >= FEW and self._is_sum:
            found = _SUM.pattern
        if found is None and distinct >= SEVERAL and self._is_id:
            found = _ID.pattern
        return rf"^{found}\Z" if found is not None and len(found) <= MAX_PATTERN else None

    def _narrow(self, level: int, text: str) -> None:
        """Compare the parts of a text with the form of a level; give the level up if they differ."""
        parts = list(_LEVELS[level].finditer(text))
        runs = self._levels[level]
        if len(parts) > MAX_RUNS or (runs is not None and len(runs) != len(parts)):
            self._left.discard(level)
            return
        made = []
        for number, part in enumerate(parts):
            kind = _CLASSES[level][part.lastindex - 1] if part.lastindex else part[0]
            low = high = len(part[0])
            if runs is not None:
                before, least, most = runs[number]
                if before != kind:
                    self._left.discard(level)
                    return
                low, high = min(low, least), max(high, most)
            made.append((kind, low, high))
        self._levels[level] = made

    def _of_forms(self, distinct: int, *, by_call: bool) -> str | None:
        """Return the forms in which only digits vary, if they are all that there are."""
        if self._forms.is_full or not self._with_digit or distinct < FEW:
            return None
        forms = sorted(self._forms)
        if len(forms) == 1:
            short = re.fullmatch(r"\[0-9\](?:\{([0-9]+)\})?", forms[0])
            return "[0-9]+" if short is not None and int(short[1] or 1) < 6 else forms[0]
        return f"(?:{'|'.join(forms)})" if self._forms.has_all(by_call=by_call) else None

    def _of_levels(self, distinct: int) -> str | None:
        if distinct < SEVERAL:
            return None
        often = 2 * self._with_digit >= self._texts
        for level in sorted(self._left):
            runs = self._levels[level]
            if runs is None:
                continue
            is_code = len(runs) == 1 and runs[0][0] == "[A-Z]" and runs[0][1] == runs[0][2] > 1
            if often or is_code:
                return "".join(_run(*run, distinct) for run in runs)
        return None


def _form(text: str) -> str:
    """Return the pattern of a text in which only the digits vary."""
    parts = _DIGITS.split(text)
    return "".join(
        _repeat("[0-9]", len(part)) if number % 2 else escape_pattern(part)
        for number, part in enumerate(parts)
    )


def _run(kind: str, low: int, high: int, distinct: int) -> str:
    if len(kind) == 1:
        return escape_pattern(kind)
    is_fixed = low == high and (distinct >= SURE or (kind == "[0-9]" and low >= 3))
    return _repeat(kind, low) if is_fixed else f"{kind}+"


def _repeat(kind: str, times: int) -> str:
    return kind if times == 1 else f"{kind}{{{times}}}"


def escape_pattern(text: str) -> str:
    """Return the pattern that a text alone matches. Unlike `re.escape`, it leaves `#`, `-` and blanks."""
    return _SPECIAL.sub(r"\\\1", text)
