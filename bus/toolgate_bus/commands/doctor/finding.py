"""Findings of checks: their values, order and summary, and their lines for people. Pure."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Final, Literal

from toolgate_bus.commands.markup import escape

Level = Literal["ok", "notice", "warning", "error"]
RANK: Final[Mapping[Level, int]] = {"error": 0, "warning": 1, "notice": 2, "ok": 3}
MARKS: Final = {"error": "bold red", "warning": "yellow", "notice": "cyan", "ok": "green"}
INDENT: Final = 11
NARROWEST: Final = 40


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Finding about one thing that was looked at."""

    level: Level
    subject: str
    """Subject for people. Findings are grouped by it."""
    name: str
    """Name by which scripts know it."""
    what: str
    """State of the thing, in plain words."""
    change: str = ""
    """Setting, option or command that fixes it."""

    def as_json(self) -> dict[str, str]:
        """Return the object that a script reads."""
        return asdict(self)


def fine(subject: str, name: str, what: str) -> Diagnostic:
    """Return a finding that all is well."""
    return Diagnostic("ok", subject, name, what)


def notice(subject: str, name: str, what: str, change: str = "") -> Diagnostic:
    """Return a finding that is good to know, and may be intended."""
    return Diagnostic("notice", subject, name, what, change)


def warning(subject: str, name: str, what: str, change: str) -> Diagnostic:
    """Return a finding that something works, and may stop working."""
    return Diagnostic("warning", subject, name, what, change)


def error(subject: str, name: str, what: str, change: str) -> Diagnostic:
    """Return a finding that something does not work, or that rules do not hold."""
    return Diagnostic("error", subject, name, what, change)


def group_by_subject(findings: Iterable[Diagnostic]) -> list[tuple[str, Sequence[Diagnostic]]]:
    """Return the findings by subject. Subjects and their findings are ordered, the worst first."""
    by_subject: dict[str, list[Diagnostic]] = {}
    for one in findings:
        by_subject.setdefault(one.subject, []).append(one)
    groups = [(subject, sorted(own, key=_rank)) for subject, own in by_subject.items()]
    return sorted(groups, key=lambda group: _rank(group[1][0]))


def summary(findings: Iterable[Diagnostic]) -> str:
    """Return the number of findings of each level: `1 error, 2 warnings, 14 checks fine`."""
    counted = dict.fromkeys(RANK, 0)
    for level, same in groupby(sorted(findings, key=_rank), key=lambda one: one.level):
        counted[level] = len(list(same))
    told = [how_many(counted[level], level) for level in RANK if level != "ok" and counted[level]]
    return ", ".join([*told, f"{how_many(counted['ok'], 'check')} fine"])


def how_many(number: int, what: str) -> str:
    """Return a number with its noun: `1 replica`, `2 replicas`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _rank(one: Diagnostic) -> int:
    return RANK[one.level]


def lines_of(findings: Iterable[Diagnostic], *, verbose: bool, width: int | None = None) -> Iterator[str]:
    """Give lines of markup. `verbose` adds what is fine. `width` None leaves every sentence on one line."""
    found = list(findings)
    for subject, own in group_by_subject(found):
        shown = [one for one in own if verbose or one.level != "ok"]
        if shown:
            yield f"[bold]{escape(subject)}[/]"
        for one in shown:
            mark = f"  [{MARKS[one.level]}]{one.level}[/]{' ' * (INDENT - 2 - len(one.level))}"
            for number, line in enumerate(_wrap(one.what, width)):
                yield f"{mark if number == 0 else ' ' * INDENT}{escape(line)}"
            for number, line in enumerate(_wrap(f"change: {one.change}", width) if one.change else ()):
                told = escape(line)
                yield " " * INDENT + (
                    told.replace("change:", "[green]change:[/]", 1) if number == 0 else told
                )
    yield f"[bold]{summary(found)}[/]"


def _wrap(text: str, width: int | None) -> list[str]:
    room = None if width is None else max(NARROWEST, width) - INDENT
    lines = text.splitlines() or [""]
    if room is None:
        return lines
    return [
        part
        for line in lines
        for part in textwrap.wrap(line, room, break_long_words=False, break_on_hyphens=False) or [""]
    ]
