"""The archive has each fact once, whenever its process or its machine dies; and tells what is missing."""

import gzip
import itertools
import json
import os

import pytest
from dying_disk import Died, DyingDisk
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.commands.decisions.archive_disk import ArchiveDisk, lock_directory
from toolgate_bus.commands.decisions.archive_progress import GAP, ArchiveProgress, words_of_gap
from toolgate_bus.commands.decisions.archive_store import COMMITTED, ArchiveStore, data_files, line_of
from toolgate_bus.errors import ConfigError

pytestmark = pytest.mark.pure

HOUR = 3_600_000
NOON = 1_795_262_400_000  # 2026-11-21T12:00Z


class Streams:
    """Facts of two orchestrators, entries numbered on; read from where a standing says."""

    def __init__(self, count):
        self.facts = [
            {"event": "usage", "orchestrator": "ab"[n % 2], "seq": n // 2 + 1, "entry": f"{n + 1}-0", "n": n}
            for n in range(count)
        ]

    def after(self, places, most):
        """The next facts, and how far one is then."""
        read = max((int(place.partition("-")[0]) for place in places.values()), default=0)
        facts = self.facts[read : read + most]
        return facts, (dict.fromkeys("ab", facts[-1]["entry"]) if facts else places)


def archived(store, streams, sizes):
    """Archive all that is there, in batches of these sizes, a quarter of an hour apart."""
    for number, most in enumerate(itertools.cycle(sizes)):
        standing = store.standing
        standing.begin([])
        facts, places = streams.after(standing.places, most)
        if not facts:
            return
        now = NOON + standing.facts * HOUR // 8 + number
        store.append(standing.take(facts, places, now), now)


def lines(disk):
    """All lines of the archive, the oldest first."""
    text = b""
    for name in data_files(disk.names()):
        raw = disk.read(name)
        text += gzip.decompress(raw) if name.endswith(".gz") else raw
    return [json.loads(line) for line in text.splitlines()]


def numbers(disk):
    return [line["n"] for line in lines(disk)]


@given(
    st.lists(st.tuples(st.integers(0, 60), st.booleans(), st.integers(0, 59)), max_size=6),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
    st.booleans(),
    st.sampled_from([100, 10**6]),
)
def test_whenever_it_dies_no_fact_is_missing_and_none_is_there_twice(deaths, sizes, compress, max_bytes):
    streams, disk = Streams(24), DyingDisk()
    for left, power, kept in deaths:
        disk.left = left
        try:
            archived(ArchiveStore(disk, "n", compress=compress, max_bytes=max_bytes), streams, sizes)
        except Died:
            disk = disk.after_death(power, kept)
    disk.left = 10**9
    archived(ArchiveStore(disk, "n", compress=compress, max_bytes=max_bytes), streams, sizes)
    assert numbers(disk) == list(range(24))


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("kept", range(4))
def test_it_may_die_at_each_single_operation(power, kept):
    whole = DyingDisk()
    archived(ArchiveStore(whole, "n", max_bytes=150), Streams(12), [3])
    assert whole.operations > 30
    for left in range(whole.operations):
        disk = DyingDisk(left)
        with pytest.raises(Died):
            archived(ArchiveStore(disk, "n", max_bytes=150), Streams(12), [3])
        disk = disk.after_death(power, kept)
        archived(ArchiveStore(disk, "n", max_bytes=150), Streams(12), [3])
        assert numbers(disk) == list(range(12))
        assert not [name for name in disk.names() if name.endswith(".tmp")]


def test_an_archive_from_before_there_were_journals_is_gone_on_with():
    kept = ArchiveProgress({"a": "1-0"}, {"a": 1}, set(), 5, 1, 0).as_json()
    del kept["journals"], kept["entries"]
    assert ArchiveProgress.of(kept).journals == {}


def test_a_closed_file_is_compressed_with_one_part_of_it_in_memory():
    disk = DyingDisk()
    store = ArchiveStore(disk, "n", max_bytes=500)
    disk.read = None  # it would return all of a file
    for number in range(12):
        store.append([{"event": "usage", "n": number, "text": "x" * 60}], NOON)
    del disk.read
    assert len(data_files(disk.names())) > 1
    assert numbers(disk) == list(range(12))


def test_there_is_a_file_for_each_hour_and_the_closed_ones_are_compressed(tmp_path):
    disk = ArchiveDisk(tmp_path / "archive")
    archived(ArchiveStore(disk, "n"), Streams(20), [4])
    names = data_files(disk.names())
    assert names == [
        "facts-2026-11-21T12Z-000.jsonl.gz",
        "facts-2026-11-21T13Z-000.jsonl.gz",
        "facts-2026-11-21T14Z-000.jsonl",
    ]
    assert numbers(disk) == list(range(20))
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "archive").iterdir()} == {0}


def test_a_file_that_is_long_enough_is_closed_and_a_clock_that_goes_back_changes_no_order():
    disk = DyingDisk()
    store = ArchiveStore(disk, "n", compress=False, max_bytes=40)
    for number, now in enumerate((NOON, NOON, NOON - HOUR, NOON + HOUR)):
        store.append([{"event": "usage", "n": number, "text": "x" * 30}], now)
    assert data_files(disk.names()) == [
        "facts-2026-11-21T12Z-000.jsonl",
        "facts-2026-11-21T12Z-001.jsonl",
        "facts-2026-11-21T12Z-002.jsonl",
        "facts-2026-11-21T13Z-000.jsonl",
    ]
    assert numbers(disk) == [0, 1, 2, 3]


# ------------------------------------------------------------------ gaps


def fact(orchestrator, seq, entry="5-0"):
    return {"event": "usage", "orchestrator": orchestrator, "seq": seq, "entry": entry}


def taken(standing, *facts, now=NOON):
    places = {**standing.places, **{one["orchestrator"]: one["entry"] for one in facts}}
    return [line for line in standing.take(facts, places, now) if line["event"] == GAP]


def test_numbers_that_are_not_there_are_told_in_their_place():
    standing = ArchiveProgress()
    standing.begin([])
    lines = standing.take([fact("a", 1), fact("a", 4), fact("b", 1)], {"a": "5-0", "b": "5-0"}, NOON)
    assert [line.get("seq", line["event"]) for line in lines] == [1, GAP, 4, 1]
    assert (lines[1]["from"], lines[1]["to"], lines[1]["orchestrator"]) == (2, 3, "a")
    assert (standing.gaps, standing.facts) == (1, 3)
    assert words_of_gap(lines[1]).startswith("2 facts of orchestrator a are missing, numbers 2 to 3")


def test_a_new_orchestrator_is_known_from_its_first_fact_on():
    standing = ArchiveProgress()
    standing.begin(["old"])
    assert taken(standing, fact("old", 500), fact("old", 501)) == []
    (gap,) = taken(standing, fact("new", 3))
    assert (gap["orchestrator"], gap["from"], gap["to"]) == ("new", 1, 2)
    (gap,) = taken(standing, fact("old", 503))
    assert (gap["from"], gap["to"]) == (502, 502)


def test_who_was_there_before_stays_so_over_a_restart():
    standing = ArchiveProgress()
    standing.begin(["old"])
    again = ArchiveProgress.of(json.loads(json.dumps(standing.as_json())))
    again.begin(["other"])
    assert again == standing
    assert taken(again, fact("old", 500)) == []
    assert len(taken(again, fact("other", 500))) == 1


def test_more_than_an_hour_without_reading_is_a_gap_as_nobody_knows_who_lived_then():
    standing = ArchiveProgress()
    standing.begin([])
    taken(standing, fact("a", 1), now=NOON)
    assert taken(standing, fact("a", 2), now=NOON + HOUR) == []
    (gap,) = taken(standing, now=NOON + 3 * HOUR)
    assert (gap["kind"], gap["from_ms"], gap["to_ms"]) == ("away", NOON + HOUR, NOON + 2 * HOUR)
    assert "60 min" in words_of_gap(gap)
    assert taken(standing, now=NOON + 3 * HOUR + 1) == []


def test_a_fact_without_a_number_is_kept_and_says_nothing_of_gaps():
    standing = ArchiveProgress()
    standing.begin([])
    odd = {"event": "usage", "orchestrator": "a", "seq": True, "entry": "1-0"}
    assert taken(standing, odd, fact("a", 1)) == []
    assert standing.facts == 2


def test_writers_that_are_no_longer_read_are_forgotten():
    standing = ArchiveProgress()
    standing.begin(["old"])
    standing.take([fact("a", 1)], {"a": "1-0", "old": "0-0"}, NOON)
    standing.take([], {"b": "0-0"}, NOON)
    assert (standing.numbers, standing.before, standing.places) == ({}, set(), {"b": "0-0"})


# ------------------------------------------------------------------ what is refused


def test_a_directory_with_facts_of_unknown_origin_is_left_alone():
    disk = DyingDisk()
    disk.append("facts-2026-11-21T12Z-000.jsonl", b"{}\n")
    with pytest.raises(ConfigError, match=f"no {COMMITTED}"):
        ArchiveStore(disk, "n")
    assert disk.names() == ["facts-2026-11-21T12Z-000.jsonl"]


def test_a_directory_belongs_to_one_namespace():
    disk = DyingDisk()
    ArchiveStore(disk, "n")
    with pytest.raises(ConfigError, match="namespace n, not m"):
        ArchiveStore(disk, "m")


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"[]",
        b'{"version": 2}',
        b'{"version": 1, "namespace": "n", "file": "../x", "size": 0, "standing": {}}',
        b'{"version": 1, "namespace": "n", "file": null, "size": 0, "standing": {"places": 7}}',
    ],
)
def test_a_standing_that_cannot_be_read_is_refused(wrong):
    disk = DyingDisk()
    disk.append(COMMITTED, wrong)
    with pytest.raises(ConfigError):
        ArchiveStore(disk, "n")


def test_a_file_that_somebody_shortened_or_took_away_is_refused():
    disk = DyingDisk()
    archived(ArchiveStore(disk, "n"), Streams(4), [4])
    (name,) = data_files(disk.names())
    disk.truncate(name, 10)
    with pytest.raises(ConfigError, match="has 10 bytes"):
        ArchiveStore(disk, "n")
    disk.remove(name)
    with pytest.raises(ConfigError, match="is missing"):
        ArchiveStore(disk, "n")


def test_files_that_are_not_ours_are_left_alone():
    disk = DyingDisk()
    disk.append("notes.txt", b"mine")
    disk.append("report.tmp", b"mine")
    archived(ArchiveStore(disk, "n"), Streams(4), [4])
    ArchiveStore(disk, "n")
    assert {"notes.txt", "report.tmp"} <= set(disk.names())


def test_a_directory_has_one_archiver(tmp_path):
    refused = pytest.raises(ConfigError, match=rf"another archiver \(process {os.getpid()}\)")
    with lock_directory(tmp_path), refused, lock_directory(tmp_path):
        pass
    with lock_directory(tmp_path):
        pass


def test_a_line_is_json_whatever_the_fact_holds():
    odd = {"event": "usage", "a": float("nan"), "b": [float("inf"), {"c": b"x"}], "d": "⟦x⟧\u2028\n"}
    line = line_of(odd)
    assert line.count(b"\n") == 1
    assert json.loads(line) == {"event": "usage", "a": "nan", "b": ["inf", {"c": "b'x'"}], "d": "⟦x⟧\u2028\n"}
