"""Rules mean the same by whichever way a scheduler is given its file; what is unclear is refused there."""

import asyncio
import json

import pytest
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.revision import Revision
from toolgate_schedulers import Continue, Deny
from toolgate_schedulers.commands.policy import run_cases
from toolgate_schedulers.commands.rehearsals import rehearse_policy
from toolgate_schedulers.commands.scheduler_configs import read_checked
from toolgate_schedulers.commands.scheduler_run import SchedulerOptions
from toolgate_schedulers.shipped.policy.scheduler import Policy
from toolgate_schedulers.testing import question, trial
from toolgate_schedulers.worker.loading import load

pytestmark = pytest.mark.pure

RULES = "rules:\n- tools: ship\n  action: deny\n  when:\n    a: VALUE\n"


def push(file):
    read_checked(file, "policy", "policy")


def take_pushed(file):
    SchedulerOptions("policy", "policy", None, {}, True).load_text(file.read_bytes(), Revision("r-1", ""))


def hold_to_cases(file):
    (file.parent / "cases.yaml").write_text("cases: []\n")
    run_cases(file, file.parent / "cases.yaml")


async def begin_trial(file):
    async with trial(Policy, config=file):
        pass


DOORS = {
    "run": lambda file: load("policy", config=file),
    "push": push,
    "pushed": take_pushed,
    "policy test": hold_to_cases,
    "rehearse": rehearse_policy,
    "a trial": lambda file: asyncio.run(begin_trial(file)),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("1.10", ":5: rules.0.when.a.equals: 1.10 can be read as a text or as a number: write '1.10', in"),
        ("{in: [2, 0755]}", ":5: rules.0.when.a.in.1: 0755 can be read as a text or as a number"),
        ("{equals: {b: [+5]}}", ":5: rules.0.when.a.equals: +5 can be read as a text or as a number"),
        ("x\n    a: y", ":6: the key 'a' is given twice"),
        ("x\n    <<: {}", ":6: the merge key"),
        ("!!str x\n    b: !!int '1'", ":6: a tag"),
    ],
)
def test_what_is_unclear_is_refused_by_file_and_line_at_each_door(tmp_path, door, value, said):
    (tmp_path / "rules.yaml").write_text(RULES.replace("VALUE", value))
    with pytest.raises(ConfigError) as error:
        DOORS[door](tmp_path / "rules.yaml")
    assert said in str(error.value)


@pytest.mark.parametrize("door", DOORS)
def test_so_it_is_in_a_file_of_json(tmp_path, door):
    rule = '{"rules": [{"tools": "ship", "action": "deny",\n"when": {"a": 1.10}}]}'
    (tmp_path / "rules.json").write_text(rule)
    with pytest.raises(ConfigError, match=r":2: rules\.0\.when\.a\.equals: 1\.10 can be read as a text"):
        DOORS[door](tmp_path / "rules.json")


@pytest.mark.parametrize("text", ["NO", "off", "yes", "12:30", "1_000", "0b1", "2024-05-01"])
async def test_a_rule_on_a_text_fits_that_text(tmp_path, text):
    (tmp_path / "rules.yaml").write_text(RULES.replace("VALUE", text))
    policy = load("policy", config=tmp_path / "rules.yaml")
    assert isinstance(await policy.decide(question("ship", {"a": text})), Deny)
    assert isinstance(await policy.decide(question("ship", {"a": "another"})), Continue)


async def test_a_rule_in_a_file_of_json_fits_what_json_says(tmp_path):
    said = "\U0001f600\u2028\x85\x7f\ttab"
    for ascii_alone in (True, False):
        when = {"rules": [{"tools": "ship", "action": "deny", "when": {"a": said}}]}
        text = json.dumps(when, ensure_ascii=ascii_alone, indent="\t")
        (tmp_path / "rules.json").write_text(text, encoding="utf-8")
        policy = load("policy", config=tmp_path / "rules.json")
        assert isinstance(await policy.decide(question("ship", {"a": json.loads(json.dumps(said))})), Deny)
