"""The product in simulated worlds: nothing breaks; what is broken on purpose is found and made small."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from simulation_plan import make_plan, make_table_plan
from simulation_shrink import shrink
from simulation_watch import remove_keys
from simulation_world import simulate
from toolgate_bus.ledger.money.rules import LedgerRules
from toolgate_bus.ruling import round as rounds
from toolgate_bus.ruling.round import Round
from toolgate_bus.transport.redis.asking.publisher import Publisher
from toolgate_orchestrator.decision.gate import Gate
from virtual_time import StuckWorld, VirtualLoop

pytestmark = pytest.mark.pure

SIMULATE = Path(__file__).parent / "simulate.py"
FEW, MORE, MANY, TABLES = 6, 24, 80, 60
"""Worlds; of the last kind those in which local tables change."""


@pytest.fixture(scope="module", autouse=True)
def _no_keys_are_left():
    yield
    remove_keys()


def first_broken(seeds, make=make_plan):
    """The first of these worlds in which something breaks; None where all hold."""
    return next((found for found in map(simulate, map(make, seeds)) if found.broken is not None), None)


def told(found):
    """What broke, and how to see it again."""
    seed, kind = found.plan.seed, " --tables" if found.plan.has_tables else ""
    return f"seed {seed}: {found.broken} (python tests/simulation/simulate.py --seed {seed}{kind})"


def test_nothing_breaks_in_a_few_worlds():
    found = first_broken(range(FEW))
    assert found is None, told(found)


@pytest.mark.system
@pytest.mark.timeout(600)
def test_nothing_breaks_in_many_worlds():
    found = first_broken(range(MANY))
    assert found is None, told(found)


def test_no_call_runs_against_rules_in_force_in_a_few_worlds():
    found = first_broken(range(FEW), make_table_plan)
    assert found is None, told(found)


@pytest.mark.system
@pytest.mark.timeout(600)
def test_no_call_runs_against_rules_in_force_in_many_worlds():
    found = first_broken(range(TABLES), make_table_plan)
    assert found is None, told(found)


def test_tables_answer_and_rules_come_into_force_in_these_worlds():
    found = simulate(make_table_plan(0), readable=True)
    told = "\n".join(found.lines)
    assert "answers deny" in told
    assert "answers continue" in told
    assert "in force everywhere: v1" in told


def test_the_same_seed_gives_the_same_trace_in_another_process_too():
    plan = make_plan(6)
    first, second = simulate(plan, readable=True), simulate(plan, readable=True)
    assert first.lines == second.lines
    assert len(first.lines) > 100
    command = [sys.executable, str(SIMULATE), "--seed", "6", "--json"]
    other = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True
    )
    assert json.loads(other.stdout)["digest"] == first.digest


@pytest.mark.system
def test_runs_add_up_in_a_file_and_each_begins_after_the_last(tmp_path):
    place = tmp_path / "sum.json"
    command = [sys.executable, str(SIMULATE), "--seeds", "2", "--jobs", "1", "--into", str(place), "--json"]
    first, second = (
        json.loads(subprocess.run(command, capture_output=True, check=True).stdout) for _ in "12"
    )
    told = json.loads(place.read_text())
    assert (first["first"], second["first"], told["next_seed"]) == (0, 2, 4)
    assert told["worlds"] == 4
    assert told["decisions"] == first["decisions"] + second["decisions"]
    assert told["faults"] == dict(Counter(first["faults"]) + Counter(second["faults"]))


def test_another_seed_gives_another_world():
    assert simulate(make_plan(6)).digest != simulate(make_plan(7)).digest


def let_denied_run(patch):
    patch.setattr(rounds, "merge", lambda heard: rounds.NOTHING)
    patch.setattr(rounds.RoundResult, "denied", property(lambda self: False))


def keep_what_is_released(patch):
    patch.setattr(LedgerRules, "release", lambda self, decision, now, by="": self._stray("done"))


def hold_for_ever(patch):
    real = Round._hold

    def hold(self, name, digest, seconds, now):
        real(self, name, digest, seconds, now)
        holding = self._holds.get(name)
        if holding is not None:
            holding.until = now + 60

    patch.setattr(Round, "_hold", hold)


def forget_facts_on_reconnect(patch):
    patch.setattr(Publisher, "_write_unconfirmed", lambda self, most=None: self._facts._unconfirmed.clear())


def verify_nothing(patch):
    async def verify(self, call, ruling, local):
        return ruling

    patch.setattr(Gate, "_verify", verify)


@pytest.mark.system
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("plant", "begin"),
    [
        (let_denied_run, 0),
        (keep_what_is_released, 0),
        (hold_for_ever, 0),
        (forget_facts_on_reconnect, 20),  # few worlds lose what was written and not confirmed
        (verify_nothing, 0),
    ],
)
def test_what_is_broken_on_purpose_is_found(plant, begin, monkeypatch):
    plant(monkeypatch)
    assert first_broken(range(begin, begin + MORE)) is not None


@pytest.mark.system
@pytest.mark.timeout(300)
def test_a_broken_world_is_made_small_enough_to_be_read(monkeypatch):
    let_denied_run(monkeypatch)
    found = first_broken(range(MORE))
    small = shrink(found)
    assert found.broken.endswith("was not verified")
    assert small.broken.endswith("was not verified")
    assert simulate(small.plan).digest == small.digest
    assert small.plan.agents <= 2
    assert small.plan.faults == ()
    assert len(small.plan.schedulers) <= 2
    assert len(simulate(small.plan, readable=True).lines) < 60


def test_a_world_in_which_nothing_more_can_happen_is_no_endless_wait():
    loop = VirtualLoop(10)
    try:
        with pytest.raises(StuckWorld):
            loop.run_until_complete(loop.create_future())
    finally:
        loop.close()
