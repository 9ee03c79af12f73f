"""`toolgate decisions` on an archive, and what its commands refuse; no server is needed for either."""

import gzip
import json

import pytest
from toolgate_bus.commands.decisions.archive_disk import ArchiveDisk
from toolgate_bus.commands.decisions.archive_reader import check, read_archived_facts
from toolgate_bus.commands.decisions.archive_store import COMMITTED, ArchiveStore, line_of
from toolgate_bus.commands.main import app as frame
from toolgate_bus.errors import ConfigError, ToolgateError
from typer.testing import CliRunner

pytestmark = pytest.mark.pure

NOON = 1_795_262_400_000  # 2026-11-21T12:00Z
HOUR = 3_600_000


def decision(number, **fields):
    return {
        "event": "decision",
        "id": f"{'ab' if number < 2 else 'cd'}{number:030x}",
        "orchestrator": "o",
        "seq": number + 1,
        "entry": f"{NOON + number * HOUR // 2}-0",
        "at": (NOON + number * HOUR // 2) / 1000,
        "outcome": "continue",
        "why": "agreed",
        "tool_name": f"tool{number}",
        "tool_input": {"n": number},
        "verdicts": [],
        "silent": [],
        "scheduler": None,
        "reason": None,
        "seconds": 0.001,
        **fields,
    }


def kept(directory, facts, **options):
    """An archive with these facts, each read at the time of its entry."""
    store = ArchiveStore(ArchiveDisk(directory), "default", **options)
    store.standing.begin([])
    for fact in facts:
        at = int(fact["entry"].partition("-")[0])
        store.append(store.standing.take([fact], {fact["orchestrator"]: fact["entry"]}, at), at)
    return directory


@pytest.fixture(name="archive")
def _archive(tmp_path):
    late = {
        "event": "verdict",
        "id": decision(1)["id"],
        "orchestrator": "o",
        "seq": 5,
        "entry": f"{NOON + 2 * HOUR}-0",
        "scheduler": "slow",
        "action": "deny",
        "phase": "select",
        "priority": 0,
        "seconds": 2.0,
        "reason": "no",
        "late": True,
    }
    facts = [decision(0), decision(1, outcome="deny", why="denied"), decision(2), decision(3), late]
    return kept(tmp_path / "archive", facts)


def toolgate(*words, code=0):
    result = CliRunner().invoke(frame, ["decisions", *map(str, words)])
    if isinstance(result.exception, ToolgateError):
        return str(result.exception)
    assert result.exit_code == code, result.output
    return result.stdout


def shown(*words):
    return [json.loads(line) for line in toolgate(*words).splitlines()]


def numbers(found):
    return [one["tool_input"]["n"] for one in found]


def test_an_archive_is_listed_with_filters_and_late_verdicts(archive):
    assert numbers(shown("--json", "--from", archive)) == [0, 1, 2, 3]
    assert numbers(shown("--json", "--from", archive, "--limit", 2)) == [2, 3]
    (denied,) = shown("--json", "--from", archive, "--outcome", "deny")
    assert [one["scheduler"] for one in denied["verdicts"]] == ["slow"]
    since = ("--since", "2026-11-21T12:30Z", "--until", "2026-11-21T13:00Z")
    assert numbers(shown("--json", "--from", archive, *since)) == [1, 2]
    assert numbers(shown("--json", "--from", archive, "--id", "ab", "--tool", "*1")) == [1]


def test_files_that_are_older_are_not_opened(archive):
    (archive / "facts-2026-11-21T12Z-000.jsonl.gz").write_bytes(b"no gzip")
    assert [fact["seq"] for fact in read_archived_facts(archive, since=NOON / 1000 + 4 * 3600)] == [5]
    with pytest.raises(ConfigError, match="facts-2026-11-21T12Z-000"):
        list(read_archived_facts(archive, since=NOON / 1000))


def test_one_is_explained(archive):
    text = toolgate("show", decision(1)["id"], "--from", archive)
    assert "wanted to call tool1" in text
    assert "Too late to count: slow" in text
    told = json.loads(toolgate("show", "ab" + "0" * 29 + "1", "--from", archive, "--json"))
    assert set(told) == {"decision", "after", "explained"}
    assert set(told["explained"]) == {"asked", "heard", "why", "result", "after", "beside"}


def test_of_several_that_begin_so_all_are_named(archive):
    told = toolgate("show", "CD", "--from", archive)
    assert told.startswith("cd: 2 decisions match")
    assert decision(2)["id"] in told
    assert decision(3)["id"] in told


def test_of_one_that_is_not_there_it_says_what_is_kept(archive):
    assert "No decision in the record has an id that begins with 99" in toolgate(
        "show", "99", "--from", archive
    )


def test_an_export_is_there_whole_and_replaces_what_was_there(archive, tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text("old")
    toolgate("export", out, "--from", archive, "--outcome", "continue")
    assert numbers(map(json.loads, out.read_text().splitlines())) == [0, 2, 3]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out.jsonl"]
    assert len(toolgate("export", "-", "--facts", "--from", archive).splitlines()) == 5


def test_an_export_that_fails_leaves_what_was_there(archive, tmp_path):
    out = tmp_path / "out.jsonl"
    out.write_text("old")
    rewritten(archive, "facts-2026-11-21T13Z-000.jsonl.gz", lambda lines: [*lines, b"x\n"])
    assert "not JSON" in toolgate("export", out, "--from", archive)
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out.jsonl"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--outcome", "denied"), "--outcome: unknown value 'denied'"),
        (("--since", "soon"), "--since"),
        (("--follow", "--until", "1m"), "--follow"),
        (("--follow", "--from", "x"), "--follow"),
        (("--limit", "2", "show", "ab"), "--limit: put this option after `show`"),
        (("--from", "x", "export", "-"), "--from: put this option after `export`"),
        (("--from", "/no/such"), "/no/such: there is no such directory"),
        (("show", "xyz"), "ID: 'xyz'"),
        (("export", "-", "--facts", "--tool", "x"), "--facts"),
        (("archive", "/no/such", "--check"), "there is no such directory"),
        (("archive", "x", "--json"), "--json: needs --check"),
        (("archive", "x", "--check", "--once"), "--check"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(words, told):
    assert told in toolgate(*words)


def test_an_empty_directory_is_no_archive(tmp_path):
    assert "there is no archive" in toolgate("--from", tmp_path)


# ------------------------------------------------------------------ checks


def test_a_check_says_what_is_there(archive):
    found = json.loads(toolgate("archive", archive, "--check", "--json"))
    told = {"files": 3, "facts": 5, "decisions": 4, "entries": 0, "gaps": [], "damage": [], "whole": True}
    assert found == told
    assert "5 facts (4 of them decisions); files: 3. Nothing is missing." in toolgate(
        "archive", archive, "--check"
    )


def test_a_gap_that_was_told_ends_a_check_with_1(tmp_path):
    archive = kept(tmp_path / "a", [decision(0), decision(4, entry=f"{NOON + 1}-0")])
    text = toolgate("archive", archive, "--check", code=1)
    assert "3 facts of orchestrator o are missing, numbers 2 to 4" in text
    assert len(check(archive).gaps) == 1
    assert check(archive).damage == []
    assert len(shown("--json", "--from", archive)) == 2


def rewritten(archive, name, change):
    path = archive / name
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(change(lines))))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda lines: [lines[0], lines[0], *lines[1:]], "fact 1 is there twice"),
        (lambda lines: lines[:1], "facts 2 to 2 are missing, and no gap line says so"),
        (lambda lines: [*lines, b"{\n"], "line 3: not JSON"),
        (lambda lines: [*lines, b"7\n"], "line 3: not a fact"),
        (lambda lines: [*lines, b'{"event": "decision"}\n'], "line 3: decision needs id"),
        (lambda lines: [*lines, b'{"event": "archive:gap"}\n'], "line 3: archive:gap needs from"),
    ],
)
def test_a_check_finds_what_somebody_changed(archive, change, told):
    rewritten(archive, "facts-2026-11-21T12Z-000.jsonl.gz", change)
    found = check(archive)
    assert not found.whole
    assert told in " ".join(found.damage)


def test_a_check_finds_that_the_newest_facts_are_gone(tmp_path):
    archive = kept(tmp_path / "a", [decision(0), decision(1), decision(2)], compress=False)
    name = "facts-2026-11-21T12Z-000.jsonl"
    (archive / name).write_bytes(line_of(decision(0)))
    (archive / "facts-2026-11-21T13Z-000.jsonl").unlink()
    assert "facts up to 3 were archived" in " ".join(check(archive).damage)


def test_old_files_may_be_removed(archive):
    (archive / "facts-2026-11-21T12Z-000.jsonl.gz").unlink()
    assert check(archive).whole
    assert numbers(shown("--json", "--from", archive)) == [2, 3]


def test_files_alone_are_an_archive_too_and_a_torn_last_line_is_left_out(archive):
    (archive / COMMITTED).unlink()
    newest = archive / "facts-2026-11-21T14Z-000.jsonl"
    newest.write_bytes(newest.read_bytes() + b'{"event": "deci')
    assert numbers(shown("--json", "--from", archive)) == [0, 1, 2, 3]


def test_what_is_not_committed_yet_is_not_read(archive):
    newest = archive / "facts-2026-11-21T14Z-000.jsonl"
    newest.write_bytes(newest.read_bytes() + line_of(decision(9)))
    (archive / "facts-2026-11-21T15Z-000.jsonl").write_bytes(line_of(decision(10)))
    assert numbers(shown("--json", "--from", archive)) == [0, 1, 2, 3]
    assert check(archive).whole


def test_what_became_of_a_result_stands_below_its_decision_and_is_filtered_by(tmp_path):
    def ruled(number, outcome, seq, **fields):
        told = {
            "event": "tool:result",
            "decision_id": decision(number)["id"],
            "orchestrator": "o",
            "seq": seq,
        }
        entry = f"{NOON + 3 * HOUR + seq}-0"
        return {**told, "entry": entry, "at": 2.0, "tool": "x", "outcome": outcome, "why": outcome, **fields}

    mask = {"scheduler": "pii", "action": "mask", "phase": "result", "priority": 0, "seconds": 0.002}
    parts = {"masks": [["/a/0", 2, 9, "card"], ["", None, None, ""]]}
    facts = [
        *map(decision, range(3)),
        ruled(0, "masked", 5, scheduler="pii", reason="cards", verdicts=[{**mask, **parts}], silent=["slow"]),
        ruled(1, "released", 6, verdicts=[]),
    ]
    archive = kept(tmp_path / "results", facts)
    where = ("--from", archive, "--json")
    assert [one["tool_name"] for one in shown(*where, "--result", "masked")] == ["tool0"]
    both = shown(*where, "--result", "masked", "--result", "released")
    assert [one["result"]["outcome"] for one in both] == ["masked", "released"]
    assert [one["tool_name"] for one in shown(*where, "--scheduler", "pii")] == ["tool0"]
    assert "choose one of: released, masked, replaced, withheld" in toolgate("--result", "lost", *where)
    printed = toolgate("--from", archive, "--result", "masked")
    assert "result masked  pii: cards" in printed
    assert "pii  mask  2.0 ms  card at /a/0, characters 2 to 9, all of it" in printed
    assert "slow  silent" in printed
    facts[4]["disagreeing"] = ["trial"]
    trials = ("--from", kept(tmp_path / "trials", facts), "--shadow", "--json")
    assert [one["tool_name"] for one in shown(*trials) if "totals" not in one] == ["tool1"]
    assert [one for one in shown(*trials, "--scheduler", "other") if "totals" not in one] == []
    printed = toolgate("--from", tmp_path / "trials", "--shadow")
    assert "trial would have withheld the result, or changed it" in printed
    told = toolgate("show", decision(0)["id"], "--from", archive)
    assert "Its result" in told
    assert "pii masked parts of it: card at /a/0, characters 2 to 9, all of it." in told
    [explained] = shown("show", decision(0)["id"], *where)
    assert explained["explained"]["result"][0].startswith("The result was given without what was masked")
