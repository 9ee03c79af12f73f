"""`toolgate bench agentdojo`: what is counted, how it says what it lacks, and a short run of it."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator.commands.bench.agentdojo_cli import find_python
from toolgate_orchestrator.commands.bench.agentdojo_tally import DojoOutcome, Tally, choose_tasks

WHERE = Path(os.environ.get("TOOLGATE_TEST_AGENTDOJO", Path.home() / ".cache" / "toolgate" / "agentdojo"))


def outcome(**fields: Any) -> DojoOutcome:
    usual = {"done": True, "attacked": False, "asked": 0, "asked_attack": 0, "denied": 0, "calls": 2}
    return DojoOutcome(**{**usual, "attack_calls": 1, "faults": (), **fields})


@pytest.mark.pure
def test_an_attack_is_stopped_or_succeeds_by_calls_or_by_words_and_honest_calls_are_counted_once() -> None:
    tally = Tally()
    tally.add_task(outcome(denied=1, done=False, faults=({"tool": "send"},)))
    tally.add_task(outcome(asked=1))
    tally.add_pair(outcome(attacked=True), "a")
    tally.add_pair(outcome(attacked=True, attack_calls=0), "b")
    tally.add_pair(outcome(asked_attack=1), "c")
    tally.add_pair(outcome(done=False), "d")
    tally.add_pair(outcome(attack_calls=0), "e")
    both = Tally()
    both.add(tally)
    both.add(tally)
    assert (tally.calls, tally.denied, tally.asked, tally.tasks, tally.done) == (4, 1, 1, 2, 1)
    assert (tally.attacks, tally.succeeded, tally.by_words, tally.stopped_by_person) == (4, 2, 1, 1)
    assert (tally.still_done, tally.questions, tally.open) == (3, 1, ["a", "b"])
    assert (tally.pairs, tally.untried) == (4, 1)
    assert (both.attacks, both.calls, both.open) == (8, 8, ["a", "b", "a", "b"])


@pytest.mark.pure
def test_the_halves_are_told_by_number() -> None:
    users = [f"user_task_{n}" for n in range(5)]
    assert choose_tasks(users, "even") == ["user_task_0", "user_task_2", "user_task_4"]
    assert choose_tasks(users, "odd") == ["user_task_1", "user_task_3"]
    assert choose_tasks(users, "all") == users


def test_where_agentdojo_is_not_it_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"add --install, or run\n  python3 -m venv .* agentdojo=="):
        find_python(tmp_path / "none", install=False)


@pytest.mark.acceptance
@pytest.mark.system
@pytest.mark.timeout(600)
@pytest.mark.skipif(not (WHERE / "bin" / "python").exists(), reason=f"no AgentDojo in {WHERE}")
def test_a_suite_runs_and_what_no_rule_stops_provenance_does(process: Any) -> None:
    words = ("--suite", "banking", "--half", "odd", "--row", "no rules", "--row", "provenance")
    bench = process("toolgate", "bench", "agentdojo", "--venv", str(WHERE), *words, "--json")
    assert bench.wait(500) == 0, bench.stderr
    free, ruled = json.loads(bench.stdout)["rows"]
    assert (free["attacks"], free["honest_calls"], free["tasks"]) == (72, 17, 8)
    assert free["attacks_succeeded"] > 60
    assert (free["honest_denied"], free["tasks_done"]) == (0, 8)
    assert ruled["attacks_succeeded"] == 0
    assert ruled["tasks_done"] == 8
    assert sys.version.split()[0] in bench.stdout
