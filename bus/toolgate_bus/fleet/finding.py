"""Findings of checks: their values, order and summary. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Final, Literal

Level = Literal["ok", "notice", "warning", "error"]
RANK: Final[Mapping[Level, int]] = {"error": 0, "warning": 1, "notice": 2, "ok": 3}


@dataclass(frozen=True, slots=True)
class Finding:
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


def fine(subject: str, name: str, what: str) -> Finding:
    """Return a finding that all is well."""
    return Finding("ok", subject, name, what)


def notice(subject: str, name: str, what: str, change: str = "") -> Finding:
    """Return a finding that is good to know, and may be intended."""
    return Finding("notice", subject, name, what, change)


def warning(subject: str, name: str, what: str, change: str) -> Finding:
    """Return a finding that something works, and may stop working."""
    return Finding("warning", subject, name, what, change)


def error(subject: str, name: str, what: str, change: str) -> Finding:
    """Return a finding that something does not work, or that rules do not hold."""
    return Finding("error", subject, name, what, change)


def group_by_subject(findings: Iterable[Finding]) -> list[tuple[str, Sequence[Finding]]]:
    """Return the findings by subject. Subjects and their findings are ordered, the worst first."""
    by_subject: dict[str, list[Finding]] = {}
    for one in findings:
        by_subject.setdefault(one.subject, []).append(one)
    groups = [(subject, sorted(own, key=_rank)) for subject, own in by_subject.items()]
    return sorted(groups, key=lambda group: _rank(group[1][0]))


def summary(findings: Iterable[Finding]) -> str:
    """Return the number of findings of each level: `1 error, 2 warnings, 14 checks fine`."""
    counted = dict.fromkeys(RANK, 0)
    for level, same in groupby(sorted(findings, key=_rank), key=lambda one: one.level):
        counted[level] = len(list(same))
    told = [how_many(counted[level], level) for level in RANK if level != "ok" and counted[level]]
    return ", ".join([*told, f"{how_many(counted['ok'], 'check')} fine"])


def how_many(number: int, what: str) -> str:
    """Return a number with its noun: `1 replica`, `2 replicas`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _rank(one: Finding) -> int:
    return RANK[one.level]
