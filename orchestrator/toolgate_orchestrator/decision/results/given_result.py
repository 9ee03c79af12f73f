"""A result, or an error, as the LLM gets it, and the sentences for one that it does not get."""

import builtins
import json
from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple, overload

from toolgate_bus.errors import ToolgateError
from toolgate_bus.protocol.events import MaskedPart
from toolgate_bus.ruling.results import SHORT, hide_texts

from toolgate_orchestrator.decision.question.question import UnreadableQuestion
from toolgate_orchestrator.decision.results.outgoing_result import OutgoingResult, own_words, read_result

ResultOutcome = Literal["released", "masked", "replaced", "withheld"]
"""What became of a result; `masked` and `replaced` also if both were done, by the stronger."""
ResultWhy = Literal[
    "unasked",  # nobody rules on results of this tool
    "agreed",  # all asked schedulers said continue
    "failed_open",  # an optional scheduler was silent, and none objected
    "masked",  # a scheduler hid parts of it
    "replaced",  # a scheduler gave another result
    "denied",  # a scheduler withheld it
    "silent",  # a required scheduler said nothing
    "expired",  # a hold or a question to a person ran out
    "refused",  # the person said no
    "no_approver",  # there was no person to ask
    "bus_down",  # the bus was away
    "gate_failed",  # the gate itself could not rule
]


class GivenResult(NamedTuple):
    """Result of a call, as the LLM, the history and hooks may see it."""

    value: Any
    """What to use in place of the tool's result; the very same object if nothing was changed."""
    outcome: ResultOutcome = "released"
    why: ResultWhy = "unasked"
    reason: str | None = None
    scheduler: str | None = None
    hidden: frozenset[str] = frozenset()
    """Texts that were hidden, so that copies of the result can be cleaned, too (`clean`)."""
    is_cut: bool = False
    """True if its end was cut off, as no rule has seen it."""

    def __repr__(self) -> str:
        """Return what a log may show: no hidden text."""
        told = (self.value, self.outcome, self.why, self.reason, self.scheduler)
        return f"GivenResult({', '.join(map(repr, told))})"

    @property
    def changed(self) -> bool:
        """True if the value is not the tool's own result."""
        return self.outcome != "released"

    def clean(self, copy: Any) -> Any:
        """Return a second copy of the result (an artifact, a cause) as it may be seen.

        Hidden texts are hidden in it as well. None if the result was withheld, replaced or cut, and for a
        copy that cannot be read.
        """
        if not self.changed:
            return copy
        if self.outcome != "masked" or self.is_cut:
            return None
        try:
            return hide_texts(read_result(copy), self.hidden)
        except UnreadableQuestion:
            return None


WITHHELD: Final = "The tool ran, but its result is withheld: {reason}"
CHANGED: Final = "it was changed while it was ruled on."


def withhold(why: ResultWhy, reason: str | None, scheduler: str | None = None) -> GivenResult:
    """Return the result that stands for a withheld one: a sentence for the LLM."""
    words = reason or f"no reason was given ({why})"
    return GivenResult(WITHHELD.format(reason=words), "withheld", why, words, scheduler)


def cut_mark(cut: int) -> str:
    """Return the mark at the end of a result of which the rest was seen by no rule."""
    return f"\n[cut off here: {cut:,} more bytes, which no rule has seen]"


def describe_parts(parts: Sequence[MaskedPart]) -> str:
    """Return the names of hidden parts, for people."""
    names = dict.fromkeys(part.name or "a part" for part in parts)
    return ", ".join(names)


def finish(outgoing: OutgoingResult, value: Any) -> Any:
    """Return a ruled value, with the mark if its end was cut off."""
    return f"{value}{cut_mark(outgoing.cut)}" if outgoing.cut and isinstance(value, str) else value


@overload
def show_error(error: Exception, given: GivenResult) -> Exception: ...
@overload
def show_error(error: str, given: GivenResult) -> str: ...
@overload
def show_error(error: BaseException, given: GivenResult) -> BaseException: ...
def show_error(error: BaseException | str, given: GivenResult) -> BaseException | str:
    """Return an error as it may be seen; the same one if nothing of it was hidden.

    Otherwise it is a new error of the same kind, or of the built-in kind below if the name of its kind tells
    what is hidden, else a ToolgateError. It has no cause, context or notes.
    """
    if not given.changed:
        return error
    text = given.value if isinstance(given.value, str) else json.dumps(given.value, ensure_ascii=False)
    if isinstance(error, str):
        return text
    kind = type(error)
    name = f"{kind.__module__}.{kind.__qualname__}"  # as a traceback prints it
    tells = hide_texts(name, given.hidden) != name
    if given.outcome == "masked":
        text, _, mark = text.rpartition("\n") if given.is_cut else (text, "", "")
        tells = tells or not text.startswith(kind.__name__)
        text = own_words(text.removeprefix(f"{kind.__name__}: "))
        text = f"{text}\n{mark}" if mark else text
    if tells:
        kind = next(one for one in kind.__mro__ if getattr(builtins, one.__name__, None) is one)
    return _make(kind, error, text) or ToolgateError(text)


def _make(kind: type[BaseException], error: BaseException, text: str) -> BaseException | None:
    """Return an error of this kind with this text and nothing of `error`; None if it cannot be made."""
    try:
        made = kind(text)
        says_more = made.args != (text,) or str(made) not in (text, repr(text))
        if type(made) is not kind or made is error or says_more:
            return None
        return made if all(_says_nothing(one) or one == text for one in vars(made).values()) else None
    except Exception:  # noqa: BLE001 - another's code may raise anything
        return None


def _says_nothing(value: Any) -> bool:
    """Return whether a value is too short to hold a hidden text: a flag, or a number such as 1.0."""
    return value is None or type(value) is bool or (type(value) in (int, float) and len(repr(value)) < SHORT)
