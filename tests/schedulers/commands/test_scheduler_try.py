"""`toolgate scheduler try`: a scheduler rules on a call that was written by hand, without any bus."""

import json

import pytest

pytestmark = [pytest.mark.acceptance, pytest.mark.system]

RULES = "rules: [{name: no deleting, tools: delete_file, action: deny, reason: deleting is for people}]"
OWN = """
import asyncio
from toolgate_schedulers import AskUser, Continue, Deny, Hold, Modify, scheduler

seen = []

@scheduler(name="own", tools=["ask", "hold", "silent", "broken", "other", "again", "who"])
async def route(call):
    match call.tool_name:
        case "ask": return AskUser(prompt="May it?", reason="risky", timeout_s=5)
        case "other": return Modify(tool="cheap", arguments={"a": 1}, reason="cheaper")
        case "hold": return Hold(seconds=60, reason="wait for me")
        case "silent": await asyncio.sleep(60)
        case "broken": raise ValueError("my own words")
        case "who": return Deny(reason=f"{call.agent} of {call.labels}")
        case "again":
            seen.append(call)
            return Deny(reason=f"call {len(seen)}")
"""


@pytest.fixture
def tried(process, tmp_path):
    """`tried("policy", call, …)`: how `scheduler try` ended, in a folder with rules.yaml and own.py."""
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "own.py").write_text(OWN)

    def run(spec, *calls, options=()):
        words = [
            word for call in calls for word in ("--call", call if type(call) is str else json.dumps(call))
        ]
        running = process("toolgate", "scheduler", "try", spec, *words, *options, cwd=tmp_path)
        running.wait()
        return running

    return run


def test_a_policy_says_what_it_does_to_a_call_and_why(tried):
    call = {"tool": "delete_file", "arguments": {"path": "a"}}
    ended = tried("policy", call, options=["--config", "rules.yaml"])
    assert ended.wait() == 0
    assert ended.stdout.splitlines() == [
        'delete_file {"path": "a"}',
        "  policy: deny: deleting is for people (no deleting)",
        "  decided by no deleting (rules.yaml:1)",
        '  to allow it: a rule above no deleting that allows it: {tools: "delete_file", action: allow}',
    ]


RESULTS = """
rules:
  - {name: keys, on: result, tools: "*", mask: cards}
  - {name: orders, on: result, tools: fetch, when: {$result: "*ignore*"}, action: deny}
  - {name: secret, on: output, when: {text: "*falcon*"}, action: ask}
"""


def test_what_is_advised_about_a_result_or_an_answer_is_a_rule_on_that(tried, tmp_path):
    (tmp_path / "results.yaml").write_text(RESULTS)
    ended = tried(
        "policy",
        {"tool": "fetch", "phase": "result", "result": "4111 1111 1111 1111"},
        {"tool": "fetch", "phase": "result", "result": "ignore that"},
        {"tool": "turn:output", "arguments": {"text": "of falcon"}},
        options=["--config", "results.yaml"],
    )
    ways = [line.partition(": ")[2] for line in ended.stdout.splitlines() if "to allow it" in line]
    assert ways == [
        "`when` or `unless` in keys that does not fit it",
        'another result, or other arguments, which orders does not fit ($result: "*ignore*")',
        'a rule above orders that allows it: {on: result, tools: "fetch", action: allow}',
        "a person approves it",
        'other arguments, which secret does not fit (text: "*falcon*")',
        "a rule above secret that allows it: {on: output, action: allow}",
    ]


SHELL = """
default: deny
rules:
  - name: no removing
    tools: bash
    when: {command: "*rm*"}
    action: deny
  - tools: bash
    when: {command: "git *"}
    action: allow
  - tools: deploy
    after: {tool: run_tests}
    action: allow
  - {name: ask first, tools: pay, when: {amount: {gt: 100}}, action: ask}
  - {tools: pay, action: allow}
  - {name: no refunds, tools: refund, when: {order.amount: {gt: 100}}, action: deny}
"""


@pytest.fixture
def told(tried, tmp_path):
    """What `scheduler try --json` tells of a call under rules."""

    def ask(scheduler, rules, tool, code=0, **arguments):
        (tmp_path / "some.yaml").write_text(rules)
        call = {"tool": tool, "arguments": arguments}
        ended = tried(scheduler, call, options=["--config", "some.yaml", "--json", "--timeout", "0.5"])
        assert ended.wait() == code, ended.stderr
        return json.loads(ended.stdout)

    return ask


def test_it_is_said_which_rule_decided_by_what_it_saw_and_what_would_allow_the_call(told):
    found = told("policy", SHELL, "bash", command="rm -rf /")
    assert found["decided_by"] == {
        "rule": "no removing",
        "where": "some.yaml:4",
        "seen": True,
        "unseen": None,
    }
    assert found["to_allow"] == [
        'other arguments, which no removing does not fit (command: "*rm*"); but default denies it then',
        'a rule above no removing that allows it: {tools: "bash", action: allow}',
    ]


def test_it_is_said_that_a_rule_could_not_see_and_decided_all_the_same(told):
    found = told("policy", SHELL, "refund", order='{"amount": 5}')
    assert found["verdict"] == "deny"
    assert found["decided_by"]["seen"] is False
    assert "order.amount could not be seen whole" in found["decided_by"]["unseen"]
    assert "so that no refunds can see its values" in found["to_allow"][0]
    assert any("unknown: allow" in way for way in found["to_allow"])


def test_the_default_and_a_rule_that_allows_are_named_too(told):
    found = told("policy", SHELL, "search", q="x")
    assert (found["decided_by"]["rule"], found["decided_by"]["where"]) == ("default", "some.yaml:2")
    assert found["to_allow"] == ['a rule that allows it: {tools: "search", action: allow}']
    found = told("policy", SHELL, "bash", command="git status")
    assert (found["decided_by"]["rule"], found["decided_by"]["where"]) == ("rule 2", "some.yaml:8")
    assert found["to_allow"] == []


def test_what_a_person_or_an_earlier_call_would_allow_is_said(told):
    assert told("policy", SHELL, "pay", amount=500)["to_allow"][0] == "a person approves it"
    found = told("policy", SHELL, "deploy")
    assert found["decided_by"]["rule"] == "rule 3"
    assert found["to_allow"][0] == "first do what the reason asks for"


@pytest.mark.parametrize(
    ("scheduler", "rules", "rule", "way"),
    [
        ("approval", "rules: [{name: money, tools: pay}]", "money", "toolgate approvals approve"),
        ("provenance", "sinks: [{name: mails, tools: pay, to: to}]", "mails", "trusted"),
        ("rate-limit", "limits: [{name: few, tools: pay, per: fleet, rate: 1/day}]", "few", "a higher rate"),
    ],
)
def test_other_schedulers_say_it_as_well(tried, tmp_path, scheduler, rules, rule, way):
    (tmp_path / "some.yaml").write_text(rules)
    call = {"tool": "pay", "arguments": {"to": "eve@evil.example"}}
    ended = tried(scheduler, call, call, options=["--config", "some.yaml", "--timeout", "0.5"])
    assert f"decided by {rule} (some.yaml:1)" in ended.stdout, ended.stderr
    assert way in ended.stdout


def test_each_kind_of_answer_is_shown_and_counts_as_one(tried):
    calls = ({"tool": tool} for tool in ("ask", "other", "hold", "elsewhere"))
    ended = tried("own:route", *calls, options=["--timeout", "0.2"])
    assert ended.wait() == 0, ended.stderr
    assert ended.stdout.splitlines()[1::2] == [
        "  own: ask_user: 'May it?', Allow once or Deny, within 5 s; risky",
        '  own: modify: cheap {"a": 1}; cheaper',
        "  own: hold: for 60 s; wait for me",
        "  own: not asked: own rules on ask hold silent broken other again who, not on elsewhere",
    ]


@pytest.mark.parametrize(
    ("tool", "verdict", "reason"),
    [("silent", "none", "no answer within 0.2 s"), ("broken", "failed", "it raised ValueError")],
)
def test_no_answer_ends_with_1(tried, tool, verdict, reason):
    ended = tried("own:route", {"tool": tool}, options=["--timeout", "0.2", "--json"])
    assert ended.wait() == 1
    told = json.loads(ended.stdout)
    assert (told["scheduler"], told["tool"], told["verdict"], told["reason"]) == (
        "own",
        tool,
        verdict,
        reason,
    )


def test_calls_have_the_fields_of_a_question_and_meet_one_state(tried):
    who = {"tool_name": "who", "agent": "clerk", "labels": {"team": "docs"}}
    ended = tried("own:route", {"tool": "again"}, {"tool": "again"}, who, options=["--json"])
    assert [json.loads(line)["reason"] for line in ended.stdout.splitlines()] == [
        "call 1",
        "call 2",
        "clerk of {'team': 'docs'}",
    ]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("delete_file", "--call: is not JSON"),
        ("[" * 5000, "--call: is not JSON"),
        ('{"tool": "x", "arguments": {"a": 1, "a": 2}}', "--call: is not JSON: the key 'a' is given twice"),
        ("[]", "--call: must be an object"),
        ({"name": "x"}, "--call: must name a `tool`"),
        ({"tool": "x", "arguments": []}, "--call: must name a `tool`, and its `arguments`"),
        ({"tool": "x", "agnt": "y"}, "did you mean agent?"),
        ({"tool": "x", "agent": 1}, "--call: agent: Input should be a valid string"),
    ],
)
def test_a_wrong_call_is_told_with_a_sample(tried, call, said):
    ended = tried("own:route", call)
    assert ended.wait() == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_call_that_lacks_what_the_scheduler_needs_is_told_what_to_add(tried, tmp_path):
    (tmp_path / "slots.yaml").write_text("pools: [{name: deploy, tools: deploy}]")
    (tmp_path / "router.yaml").write_text("routes: [{from: search, to: cheap}]")
    early = tried("slots", {"tool": "deploy"}, options=["--config", "slots.yaml"]).stdout
    assert 'slots rules in the phase admit, not in select: add `"phase": "admit"`' in early
    search = {"tool": "search"}
    alone = tried("router", search, options=["--config", "router.yaml"]).stdout.splitlines()
    assert alone[1:] == [
        "  router: continue",
        '  `"available_tools": […]` in the call says which tools may replace it',
    ]
    offered = tried(
        "router", search | {"available_tools": ["search", "cheap"]}, options=["--config", "router.yaml"]
    )
    assert offered.stdout.splitlines()[1] == "  router: modify: cheap; routed from search to cheap"
