"""Read an archive: its facts in the order in which they were archived. Check that all are there.

It may run beside an archiver: it reads only what is committed, and finds a file that is compressed meanwhile
under its new name. Files without an `archive.json` (moved elsewhere, kept for years) are read whole.
"""

import gzip
import io
import json
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast

from toolgate_bus.commands.decisions.archive_disk import ArchiveDisk
from toolgate_bus.commands.decisions.archive_progress import GAP, words_of_gap
from toolgate_bus.commands.decisions.archive_store import (
    COMMITTED,
    ArchiveCheckpoint,
    data_files,
    hour_of,
    read_committed,
)
from toolgate_bus.errors import CodecError, ConfigError
from toolgate_bus.facts.sequence import SeenNumbers
from toolgate_bus.facts.validation import check_fact
from toolgate_bus.ledger.money.journal import is_entry
from toolgate_bus.transport.redis.clock import entry_order

Fact = dict[str, Any]

SLACK_S: Final = 7200.0
"""Files whose hour began more than this number of seconds before a wanted time are not opened."""
_GAP_ENDS: Final = {"away": ("from_ms", "to_ms"), "journal": ("count",)}
"""Keys of the numbers that a gap has, by its kind."""


class OpenArchive(NamedTuple):
    """Archive as it was committed when it was opened, without anything that came later."""

    directory: Path
    committed: ArchiveCheckpoint | None
    """None for files that were moved elsewhere, which are read whole."""
    names: list[str]
    """Names of its files, the oldest first."""

    def facts(self, since: float | None = None) -> Iterator[Fact]:
        """Read its lines. `since` (seconds since the epoch) leaves out files that are older."""
        committed = self.committed
        for name in self.names:
            if since is None or hour_of(name) + SLACK_S >= since:
                limit = committed.size if committed is not None and name == committed.file else None
                yield from _facts_of(self.directory, name, limit)


def open_archive(directory: Path) -> OpenArchive:
    """Open an archive for reading. Raise ConfigError if there is none."""
    disk, committed = _open_archive(directory)
    names = list(_once(data_files(disk.names())))
    if committed is not None:
        last = committed.file
        names = [] if last is None else [name for name in names if not _is_later(name, last)]
    return OpenArchive(directory, committed, names)


def read_archived_facts(directory: Path, since: float | None = None) -> Iterator[Fact]:
    """Read the facts of an archive. `since` (seconds since the epoch) leaves out files that are older.

    Gaps stand among them as facts of event `archive:gap`, entries of the ledgers' journals as `ledger`.
    Raise ConfigError if there is no archive.
    """
    yield from open_archive(directory).facts(since)


def _is_later(name: str, last: str) -> bool:
    """Return whether a file is later than the last committed file."""
    plain = name.removesuffix(".gz")
    return plain != last and data_files([plain, last])[-1] == plain


@dataclass(slots=True)
class ArchiveReport:
    """Result of a check of an archive."""

    files: int = 0
    facts: int = 0
    decisions: int = 0
    entries: int = 0
    """Number of entries of the ledgers' journals."""
    gaps: list[Fact] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    """Faults: a fact that is there twice, missing numbers without a gap line, a line that is not a fact."""

    @property
    def whole(self) -> bool:
        """True if nothing is missing and nothing is wrong."""
        return not (self.gaps or self.damage)

    def as_json(self) -> dict[str, Any]:
        """Return the report for scripts."""
        return {**asdict(self), "whole": self.whole}

    def words(self) -> list[str]:
        """Return the report for people, a line for each gap and fault."""
        return [*map(words_of_gap, self.gaps), *self.damage]


def check(directory: Path) -> ArchiveReport:
    """Read all of an archive and follow the numbers of every orchestrator. Raise ConfigError."""
    found, numbers, seen = ArchiveReport(), dict[str, int](), defaultdict[str, SeenNumbers](SeenNumbers)
    journals: dict[str, str] = {}
    disk, committed = _open_archive(directory)
    found.files = len(list(_once(data_files(disk.names()))))
    try:
        for fact in read_archived_facts(directory):
            if is_entry(fact):
                _follow_journal(found, journals, fact)
            else:
                _follow(found, numbers, seen, fact)
    except ConfigError as error:
        found.damage.append(str(error))
    if committed is not None and not found.damage:
        for name, number in committed.standing.numbers.items():
            if numbers.get(name, number) < number:
                found.damage.append(
                    f"orchestrator {name}: facts up to {number} were archived, but are missing now"
                )
    return found


def _follow(
    found: ArchiveReport, numbers: dict[str, int], seen: Mapping[str, SeenNumbers], fact: Fact
) -> None:
    name, number = fact.get("orchestrator"), fact.get("seq")
    if fact["event"] == GAP:
        found.gaps.append(fact)
        told_of = fact.get("from", 0) - 1
        if isinstance(name, str) and numbers.get(name, told_of) == told_of:
            numbers[name] = fact["to"]
        return
    found.facts += 1
    found.decisions += fact["event"] == "decision"
    if not isinstance(name, str) or type(number) is not int:
        return
    last = numbers.get(name, number - 1)
    try:
        new = seen[name].take(number)
    except CodecError:  # far off, and archived all the same: it counts as new
        new = True
    if not new:
        found.damage.append(f"orchestrator {name}: fact {number} is there twice")
    elif number > last + 1:
        found.damage.append(
            f"orchestrator {name}: facts {last + 1} to {number - 1} are missing, and no gap line says so"
        )
    numbers[name] = number  # it may be lower: the one before it may have been forged


def _follow_journal(found: ArchiveReport, journals: dict[str, str], entry: Fact) -> None:
    """Take one entry of a journal. Each entry of a book must be later than the one before it."""
    found.entries += 1
    book, last = entry["book"], entry["entry"]
    if entry_order(last) <= entry_order(journals.get(book, "0-0")):
        found.damage.append(f"journal of ledger {book}: entry {last} is there twice")
    journals[book] = last


def _open_archive(directory: Path) -> tuple[ArchiveDisk, ArchiveCheckpoint | None]:
    if not directory.is_dir():
        raise ConfigError(f"{directory}: there is no such directory")
    disk = ArchiveDisk(directory)
    committed = read_committed(disk)
    if committed is None and not data_files(disk.names()):
        raise ConfigError(
            f"{directory}: there is no archive (no {COMMITTED}, no facts-….jsonl); "
            f"make one: toolgate decisions archive {directory}"
        )
    return disk, committed


def _once(names: list[str]) -> Iterator[str]:
    """Give the names, a file that is there plain and compressed only once."""
    for name in names:
        if not name.endswith(".gz") or name.removesuffix(".gz") not in names:
            yield name


def _facts_of(directory: Path, name: str, limit: int | None) -> Iterator[Fact]:
    read, number = 0, 0
    try:
        with _open(directory, name) as file:
            for line in file:
                read, number = read + len(line), number + 1
                if limit is not None and read > limit:
                    return
                if limit is None and not line.endswith(b"\n"):
                    return  # it was being written when a process died
                yield _fact(line, name, number)
    except (OSError, EOFError, zlib.error) as error:
        raise ConfigError(f"{name}, after line {number}: the file is damaged ({error})") from None


def _open(directory: Path, name: str) -> BinaryIO:
    path = directory / name
    if not name.endswith(".gz"):
        with suppress(FileNotFoundError):
            return path.open("rb")
        path = directory / f"{name}.gz"  # compressed since the names were read
    return cast("BinaryIO", io.BufferedReader(cast("Any", gzip.open(path, "rb"))))


def _fact(line: bytes, name: str, number: int) -> Fact:
    try:
        fact = json.loads(line)
    except (ValueError, RecursionError):
        raise ConfigError(f"{name}, line {number}: not JSON") from None
    if not isinstance(fact, dict) or not isinstance(fact.get("event"), str):
        raise ConfigError(f"{name}, line {number}: not a fact")
    try:
        if b"\\ud" in line.lower():  # half a character cannot be shown, or written anywhere
            json.dumps(fact, ensure_ascii=False).encode()
        fact = check_fact(fact)
    except (CodecError, ValueError) as error:
        words = str(error).removeprefix("malformed: ")
        raise ConfigError(f"{name}, line {number}: {words}") from None
    ends = _GAP_ENDS.get(str(fact.get("kind")), ("from", "to"))
    for key in ends if fact["event"] == GAP else ():
        if type(fact.get(key)) is not int:
            raise ConfigError(f"{name}, line {number}: {fact['event']} needs {key}")
    return fact
