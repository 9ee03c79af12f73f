"""`toolgate scheduler try`: a scheduler rules on a call that was written by hand, without any bus."""

import json

import pytest

pytestmark = pytest.mark.acceptance

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
    assert ended.stdout == (
        'delete_file {"path": "a"}\n  policy: deny: deleting is for people (no deleting)\n'
    )


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
