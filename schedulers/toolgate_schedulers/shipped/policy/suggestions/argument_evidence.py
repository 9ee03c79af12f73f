r"""Finds what all values of one argument have in common, and says it as a condition of a rule. Pure.

    economy, business                   in: [business, economy]     nothing else is likely
    12, 340                             gte: 0, lte: 500
    ann@ok.example, bob@ok.example      glob: '*@ok.example'
    https://ok.example/a                matches: '^https://ok\.example(?:[/?#]|\Z)'
    /srv/data/a.csv, /srv/data/b.csv    under: /srv/data
    #W1234567, #W7654321                matches: '^#W[0-9]{7}\Z'    see `text_shape`

Each condition is known to hold for every value that was taken. Where values are hidden, may hold a secret, or
are free text, there is none. Values are taken one by one, and few are kept.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from toolgate_bus.protocol.placeholders import WHOLE
from toolgate_bus.ruling.conditions import paths, patterns
from toolgate_bus.ruling.conditions.json_texts import MAY_BEGIN

from toolgate_schedulers.shipped.policy.suggestions.census import LEAST, Census, Tally
from toolgate_schedulers.shipped.policy.suggestions.text_shape import FEW, SURE, TextShape, escape_pattern

MAX_CHOICES: Final = 12
"""Maximum number of values that a rule lists; more are no small enumeration."""
MAX_CHOICE: Final = 64
"""Maximum length of a text that a rule lists."""
MAX_TEXT: Final = 200
"""Maximum length of a text in which a form is looked for."""
MAX_HOSTS: Final = 4
MAX_NUMBER: Final = 10**15
"""Number up to which floats count whole numbers exactly, and beyond which no range is suggested."""
MIN_BOUND: Final = 1e-6
"""Smallest bound of a range other than 0."""
THIN: Final = LEAST
"""Number of sessions below which a range or a folder is taken wider than what was seen."""
BASE: Final = "/folder"
"""Folder that stands for the one in which relative paths begin."""
HIDDEN: Final = WHOLE[0]
"""Character with which each placeholder begins."""
_SECRET: Final = re.compile(
    r"pass(word|wd|phrase|code)|secret|token(?!s)|api_?key|private_?key|credential|authorization|cookie|cvv|(^|[_.])pin$",
    re.IGNORECASE,
)
_HOST: Final = r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}"
_ADDRESS: Final = re.compile(rf"[a-z0-9_+-]+(?:\.[a-z0-9_+-]+)*@({_HOST})")
_LINK: Final = re.compile(rf"(https?)://({_HOST})(?:[/?#].*)?")
_RELATIVE: Final = re.compile(r"(?:[\w.@+-]+/)*[\w.@+-]+/?", re.ASCII)
_LETTER: Final = re.compile(r"[A-Za-z]|^\.$")


class ArgumentCondition(NamedTuple):
    """Condition that all values of an argument meet."""

    condition: Mapping[str, Any]
    """Condition as `when` has it."""
    fragment: Mapping[str, Any] | None
    """The same in JSON Schema, for an argument that a call may leave out; None if it cannot say it."""
    words: str
    """Reason for it, for people."""
    is_shape: bool = False
    """True if it is about the form of texts, so that an argument of the same name may have it too."""


def may_be_secret(name: str) -> bool:
    """Return whether the values of an argument of this name are never shown."""
    return _SECRET.search(name) is not None


class ArgumentEvidence:
    """Values of one argument of one tool."""

    def __init__(self, name: str) -> None:
        self.calls = 0
        """Number of calls that have the argument, in each element of the lists that lead to it."""
        self.has_gaps = False
        """True if an element of a list lacks it, or if it is an empty list."""
        self.has_lists = self.has_scalars = False
        self.nulls = Tally()
        """Calls that had null in its place."""
        self.free = "may hold a secret" if may_be_secret(name) else ""
        """Reason why nothing is said about it; empty if something may be."""
        self._kinds: set[str] = set()
        self._choices = Census[tuple[str, Any]](MAX_CHOICES)
        self._sessions = Tally()
        self._low, self._high = math.inf, -math.inf
        self._domains, self._hosts = Census[str](MAX_HOSTS), Census[str](MAX_HOSTS)
        self._are_addresses = self._are_links = True
        self._folder = CommonFolder()
        self._shape = TextShape()

    def add(self, values: Iterable[Any], session: str) -> None:
        """Take the values that one call has for it: one, or the elements of a list."""
        self.calls += 1
        self._sessions.add(session)
        for value in values:
            if self.free:
                return
            if isinstance(value, bool):
                self._note("boolean", value, session)
            elif isinstance(value, int | float):
                self._add_number(value, session)
            elif isinstance(value, str):
                self._add_text(value, session)
            else:
                self.free = "null in lists"

    @property
    def is_sure(self) -> bool:
        """True if so many different values were seen that a form of them is no chance."""
        return self._distinct() >= SURE

    def find(self, *, by_call: bool, known: ArgumentCondition | None = None) -> ArgumentCondition | None:
        """Return what all values have in common; None if that is nothing, or too little was seen.

        `known` is the form of an argument of the same name in another tool. It counts where little was seen.
        """
        if (
            not (self.free or self._kinds)
            and self.nulls.count(by_call=by_call) >= THIN
            and not self.has_lists
        ):
            return ArgumentCondition({"equals": None}, {"type": "null"}, "always null")
        if self.free or len(self._kinds) != 1:
            return None
        (kind,) = self._kinds
        has_all = self._choices.has_all(by_call=by_call)
        if has_all and len(self._choices) == 1:
            return self._find_choice()
        if known is not None and kind == "text" and self._has_form(known.condition["matches"]):
            return known._replace(words="the form that it has in other tools")
        if has_all and self._are_choices(kind, by_call=by_call):
            return self._find_choice()
        if kind == "number":
            return self._find_range(by_call=by_call)
        return self._find_form(by_call=by_call) if kind == "text" else None

    @property
    def may_be_null(self) -> bool:
        """True if some calls had null in its place, and others a value."""
        return self.nulls.calls > 0 and bool(self._kinds)

    def why_free(self) -> str:
        """Return the reason why nothing is said about the argument, in words."""
        if self.free:
            return self.free
        if len(self._kinds) != 1:
            return "values of several types" if self._kinds else "no values"
        if not self.is_sure:
            return "one value, too seldom" if self._distinct() == 1 else f"{self._count()} values, too few"
        return "nothing in common"

    def _note(self, kind: str, value: Any, session: str) -> None:
        self._kinds.add(kind)
        self._choices.add((kind, value), session)

    def _add_number(self, value: float, session: str) -> None:
        if not abs(value) <= MAX_NUMBER:
            self.free = "numbers beyond all bounds"
            return
        self._note("number", value, session)
        self._low, self._high = min(self._low, value), max(self._high, value)

    def _add_text(self, text: str, session: str) -> None:
        if HIDDEN in text:
            self.free = "hidden values"
        elif not text or len(text) > MAX_TEXT or not text.isprintable() or text[0] in MAY_BEGIN:
            # A text that may hold JSON is read in two ways, and no condition would be certain.
            self.free = "free text"
        else:
            if len(text) > MAX_CHOICE:
                self._choices.close()
            self._note("text", text, session)
            if self._are_addresses:
                address = _ADDRESS.fullmatch(text)
                self._are_addresses = address is not None
                if address is not None:
                    self._domains.add(address[1], session)
            if self._are_links:
                link = _LINK.fullmatch(text)
                self._are_links = link is not None
                if link is not None:
                    self._hosts.add(f"{link[1]}://{link[2]}", session)
            self._folder.add(text)
            self._shape.add(text, session)

    def _distinct(self) -> int:
        return MAX_CHOICES + 1 if self._choices.is_full else len(self._choices)

    def _count(self) -> str:
        return f"more than {MAX_CHOICES}" if self._choices.is_full else str(len(self._choices))

    def _are_choices(self, kind: str, *, by_call: bool) -> bool:
        """Return whether the values are choices: numbers and ids are none, however often they come again."""
        form = self._shape.pattern(self._distinct(), by_call=by_call)
        return kind == "text" and (form is None or "0-9" not in form)

    def _has_form(self, pattern: str) -> bool:
        """Return whether all values match a pattern, and are too few for a form of their own."""
        search = patterns.compile_pattern(pattern).search
        return not self.is_sure and all(search(value) for _, value in self._choices)

    def _find_choice(self) -> ArgumentCondition:
        values = sorted(value for _, value in self._choices)
        if len(values) == 1:
            return ArgumentCondition({"equals": values[0]}, {"const": values[0]}, "always this value")
        return ArgumentCondition({"in": values}, {"enum": values}, f"{len(values)} values, each seen often")

    def _find_range(self, *, by_call: bool) -> ArgumentCondition | None:
        if self._sessions.calls < FEW or self._low == self._high:
            return None
        is_thin = self._sessions.count(by_call=by_call) < THIN
        room = 2 if is_thin else 1
        low = 0 if self._low >= 0 else -_round_up(-self._low * room)
        high = _round_up(self._high * room) if self._high > 0 else 0
        seen = f"seen: {self._low:g} to {self._high:g}{', in few sessions' if is_thin else ''}"
        fragment = {"type": "number", "minimum": low, "maximum": high}
        return ArgumentCondition({"gte": low, "lte": high}, fragment, seen)

    def _find_form(self, *, by_call: bool) -> ArgumentCondition | None:
        if self._are_addresses:
            return self._find_domain() if self._domains.has_all(by_call=by_call) else None
        if self._are_links:
            return self._find_host() if self._hosts.has_all(by_call=by_call) else None
        distinct = self._distinct()
        if distinct >= FEW and self._folder.is_known:
            return self._find_folder(is_thin=self._sessions.count(by_call=by_call) < THIN)
        pattern = self._shape.pattern(distinct, by_call=by_call)
        if pattern is None:
            return None
        # Several forms are a list, which another tool's values may add to.
        is_shape = "|" not in pattern
        return _matching(pattern, f"{self._count()} values of this form")._replace(is_shape=is_shape)

    def _find_domain(self) -> ArgumentCondition:
        domains = sorted(self._domains)
        pattern = rf"^[A-Za-z0-9._+-]+@{_either(domains)}\Z"
        if len(domains) > 1:
            return _matching(pattern, f"{self._count()} addresses at {len(domains)} domains")
        words = f"{self._count()} addresses at this domain"
        return ArgumentCondition({"glob": f"*@{domains[0]}"}, {"type": "string", "pattern": pattern}, words)

    def _find_host(self) -> ArgumentCondition:
        hosts = sorted(self._hosts)
        words = f"{self._count()} links to {len(hosts)} host{'s' if len(hosts) > 1 else ''}"
        return _matching(rf"^{_either(hosts)}(?:[/?#]|\Z)", words)

    def _find_folder(self, *, is_thin: bool) -> ArgumentCondition | None:
        condition = self._folder.condition(is_thin=is_thin)
        if condition is None:
            return None
        where = f"; {BASE} stands for where relative paths begin" if "base" in condition else ""
        return ArgumentCondition(condition, None, f"{self._count()} paths{where}")


class CommonFolder:
    """Folder in which all paths lie, if all texts are paths of one kind, from the root or relative."""

    def __init__(self) -> None:
        self._names: list[str] | None = None
        self._is_rooted: bool | None = None
        self._has_slash = False
        self._is_path = True

    @property
    def is_known(self) -> bool:
        """True if all texts so far are paths."""
        return self._is_path and self._has_slash

    def add(self, text: str) -> None:
        """Take one text."""
        if not self._is_path:
            return
        is_rooted = text[0] == "/"
        may_be = _LETTER.search(text) and (is_rooted or _RELATIVE.fullmatch(text))
        path = paths.canonical_path(text) if may_be else None
        if path is None or self._is_rooted not in (None, is_rooted) or path.startswith(".."):
            self._is_path = False
            return
        self._is_rooted = is_rooted
        self._has_slash = self._has_slash or "/" in text
        names = path.strip("/").split("/")[:-1]
        if self._names is None:
            self._names = names
        elif self._names != names[: len(self._names)]:
            pairs = zip(self._names, names, strict=False)
            same = next((number for number, (one, other) in enumerate(pairs) if one != other), None)
            self._names = self._names[: min(len(names), len(self._names)) if same is None else same]

    def condition(self, *, is_thin: bool) -> Mapping[str, Any] | None:
        """Return the condition that a path lies in this folder; None if that is the root.

        Where little was seen, the folder above counts, if there is one.
        """
        names = self._names or []
        if is_thin and len(names) > 1:
            names = names[:-1]
        inner = "".join(f"/{name}" for name in names)
        whole = inner if self._is_rooted else f"{BASE}{inner}"
        if not whole or paths.is_under(whole, whole) is not True:
            return None
        return {"under": whole} if self._is_rooted else {"under": whole, "base": BASE}


def _matching(pattern: str, words: str) -> ArgumentCondition:
    return ArgumentCondition({"matches": pattern}, {"type": "string", "pattern": pattern}, words)


def _either(texts: list[str]) -> str:
    escaped = [escape_pattern(text) for text in texts]
    return escaped[0] if len(escaped) == 1 else f"(?:{'|'.join(escaped)})"


def _round_up(number: float) -> float:
    """Return the next number of 1, 2 or 5 and zeros that is not below a positive number."""
    number = max(number, MIN_BOUND)
    exponent = math.floor(math.log10(number))
    unit: float = 10**exponent
    for digit in (1, 2, 5, 10):
        if digit * unit >= number:
            return digit * unit
    return 10 * unit
