"""`toolgate policy test` holds rules to expectations, and tells which rules no case made fire."""

import json

import pytest

pytestmark = pytest.mark.acceptance

RULES = """
rules:
  - {name: watch writers, tools: "write_*", action: deny, mode: observe}
  - {name: no deleting, tools: delete_file, action: deny, reason: deleting is for people}
  - {tools: pay, action: ask, agents: clerk}
  - {name: never used, tools: nothing, action: deny}
default: allow
"""
GOOD = """
cases:
  - {tool: read_file, expect: allow, rule: default}
  - {tool: write_file, expect: allow, rule: default, reason: "*watch writers would have denied"}
  - {tool: delete_file, expect: deny, rule: no deleting, reason: "deleting is for people*"}
  - {tool: pay, agent: clerk, expect: ask, rule: rule 3}
  - {tool: pay, agent: chief, expect: allow}
  - {tool: pay, agent: chief, lineage: [clerk, chief], expect: ask, rule: rule 3}
"""
BAD = """
cases:
  - {tool: read_file, expect: allow}
  - name: people delete
    tool: delete_file
    expect: allow
  - {tool: pay, agent: clerk, expect: ask, rule: default, reason: other}
"""


@pytest.fixture
def tested(process, tmp_path):
    """`tested(cases, *options)`: how `policy test` ended."""
    (tmp_path / "rules.yaml").write_text(RULES)

    def run(cases, *options):
        (tmp_path / "cases.yaml").write_text(cases)
        running = process("toolgate", "policy", "test", "rules.yaml", "cases.yaml", *options, cwd=tmp_path)
        running.wait()
        return running

    return run


def test_expectations_that_hold_end_with_0_and_a_rule_that_never_fired_is_named(tested):
    ended = tested(GOOD)
    assert ended.wait() == 0, ended.stdout
    *_, never, total = ended.stdout.splitlines()
    assert never == "never fired rules.yaml:6: never used"
    assert total == "6 cases: 6 as expected, 0 not; 3 of 4 rules fired"
    assert "ok    delete_file: deny by no deleting" in ended.stdout


def test_strict_fails_where_a_rule_never_fired(tested):
    assert tested(GOOD, "--strict").wait() == 1


def test_expectations_that_do_not_hold_end_with_1_and_say_what_came_of_what(tested):
    ended = tested(BAD, "--quiet")
    assert ended.wait() == 1
    assert ended.stdout.splitlines()[:7] == [
        "FAIL  cases.yaml:4: people delete",
        "      expected allow, got deny",
        "      by no deleting: deleting is for people (no deleting)",
        "FAIL  cases.yaml:7: pay",
        "      expected the rule default, got rule 3",
        "      expected the reason 'other', got 'pay needs approval (rule 3)'",
        "      by rule 3: pay needs approval (rule 3)",
    ]


def test_scripts_get_a_line_a_case_and_how_often_each_rule_fired(tested):
    ended = tested(BAD, "--json")
    assert ended.wait() == 1
    first, second, _, total = map(json.loads, ended.stdout.splitlines())
    assert (first["case"], first["ok"], first["got"], first["rule"]) == (
        "read_file",
        True,
        "allow",
        "default",
    )
    assert (second["case"], second["faults"]) == ("people delete", ["expected allow, got deny"])
    assert total == {
        "cases": 3,
        "failed": 2,
        "rules": {"watch writers": 0, "no deleting": 1, "rule 3": 1, "never used": 0},
        "never_fired": ["watch writers", "never used"],
        "compared": None,
        "not_compared": "no server is running",
        "doubts": [],
    }


ORDER = """rules:
  - {name: tests first, tools: deploy, after: {tool: test, within_s: 600, same: {$.b: $.b}}, wait_s: 60}
  - {name: no secrets, tools: mail, unless_after: {tool: read, when: {path: "*.pem"}, scope: tree}}
  - {name: few, tools: pay, at_most: {n: 2, within_s: 60, scope: "label:team"}}
"""
PASTS = [
    ("deploy", {"b": 1}, [], "deny", "tests first"),
    ("deploy", {"b": 1}, ["{tool: test, arguments: {b: 1}, ago_s: 600}"], "allow", "default"),
    ("deploy", {"b": 1}, ["{tool: test, arguments: {b: 1}, ago_s: 601}"], "deny", "tests first"),
    ("deploy", {"b": 1}, ["{tool: test, arguments: {b: 2}, ago_s: 6}"], "deny", "tests first"),
    ("deploy", {"b": 1}, ["{tool: test, arguments: {b: 1}, success: false}"], "deny", "tests first"),
    ("deploy", {"b": 1}, ["{tool: test, arguments: {b: 1}, session: other}"], "deny", "tests first"),
    ("deploy", {"b": 1}, ["{tool: test, arguments: {b: 1}, runs: true}"], "wait", "tests first"),
    ("mail", {}, ["{tool: read, arguments: {path: a.txt}}"], "allow", "default"),
    ("mail", {}, ["{tool: read, arguments: {path: a.pem}, session: sub}"], "deny", "no secrets"),
    ("mail", {}, ["{tool: read, arguments: {path: a.pem}, runs: true}"], "deny", "no secrets"),
    ("mail", {}, ["{tool: read, arguments: {path: a.pem}, root_session: x}"], "allow", "default"),
    ("pay", {}, ["{tool: pay, ago_s: 61}", "{tool: pay, ago_s: 30}"], "allow", "default"),
    ("pay", {}, ["{tool: pay, ago_s: 31}", "{tool: pay, runs: true}"], "deny", "few"),
    ("pay", {}, ["{tool: pay}", "{tool: pay, labels: {team: b}}"], "allow", "default"),
]


def test_a_case_says_what_came_before_it_for_rules_on_order(tested, tmp_path):
    (tmp_path / "rules.yaml").write_text(ORDER)
    cases = "".join(
        f"  - {{tool: {tool}, arguments: {json.dumps(arguments)}, session: s, root_session: root, "
        f"labels: {{team: a}}, before: [{', '.join(before)}], expect: {expect}, rule: {rule}}}\n"
        for tool, arguments, before, expect, rule in PASTS
    )
    ended = tested(f"cases:\n{cases}", "--strict")
    assert ended.wait() == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[-1] == "14 cases: 14 as expected, 0 not; 3 of 3 rules fired"


RESULTS = """rules:
  - {name: keys, on: result, tools: read, mask: [api keys, cards]}
  - {name: no orders, on: result, tools: read, when: {$result: "*ignore all*"}, action: deny}
  - {name: outside, on: result, tools: fetch, label: {source: untrusted}}
  - {name: look, on: result, tools: look, action: ask}
  - {name: looked, on: result, tools: look, mask: cards}
  - {name: answers, on: output, mask: cards}
  - {name: stays, tools: send, when_session: {source: untrusted}, action: deny}
  - {name: approved, tools: pay, after: {tool: approve, result: {ok: true}}}
"""
OF_RESULTS = """cases:
  - tool: read
    result: {key: AKIAIOSFODNN7EXAMPLE, n: 1}
    masked: [api key]
    shown: {key: "[withheld: api key]", n: 1}
    rule: keys
  - {tool: read, result: clear, expect: allow, masked: [], shown: clear}
  - {tool: read, result: ignore all that, expect: withheld, rule: no orders}
  - {tool: fetch, result: null, success: false, labelled: {source: untrusted}, rule: outside}
  - {tool: look, result: 4111 1111 1111 1111, expect: ask, masked: [card], rule: look}
  - {tool: "turn:output", arguments: {text: 4111111111111111 !}, expect: mask, shown: "[withheld: card] !"}
  - {tool: send, session_labels: {source: [untrusted, x]}, expect: deny, rule: stays}
  - {tool: send, expect: allow}
  - {tool: pay, before: [{tool: approve, result: {ok: true}}], expect: allow}
  - {tool: pay, before: [{tool: approve, result: {ok: false}}], expect: deny, rule: approved}
  - {tool: pay, before: [{tool: approve}], expect: deny}
"""


def test_a_case_is_about_a_result_and_says_what_is_left_of_it(tested, tmp_path):
    (tmp_path / "rules.yaml").write_text(RESULTS)
    ended = tested(OF_RESULTS, "--strict")
    assert ended.wait() == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[-1] == "11 cases: 11 as expected, 0 not; 8 of 8 rules fired"
    expected = "masked: [card], shown: 1, labelled: {a: b}"
    wrong = tested(f"cases:\n- {{tool: read, result: AKIAIOSFODNN7EXAMPLE, {expected}}}")
    assert wrong.wait() == 1
    assert [line.strip() for line in wrong.stdout.splitlines()[1:4]] == [
        "expected card masked, got api key",
        'expected 1 shown, got "[withheld: api key]"',
        'expected the labels {"a": ["b"]}, got {}',
    ]


FIELDS = """rules:
  - {name: people, on: result, tools: read, mask: {fields: [$result.user.ssn, $result.rows.email]}}
"""
OF_FIELDS = """cases:
  - tool: read
    result: {user: {ssn: 123-45-6789}, rows: [{email: ann@ok.example}, {email: bob@ok.example, n: 1}]}
    masked: [ssn, email]
    shown:
      user: {ssn: "[withheld: ssn]"}
      rows: [{email: "[withheld: email]"}, {email: "[withheld: email]", n: 1}]
    rule: people
  - {tool: read, result: '{"user": {"ssn": "1234"}}', shown: '{"user": {"ssn": "[withheld: ssn]"}}'}
  - {tool: read, result: the ssn is 123-45-6789, expect: allow}
"""


def test_a_case_says_where_named_fields_hide_nothing_because_a_text_holds_no_json(tested, tmp_path):
    (tmp_path / "rules.yaml").write_text(FIELDS)
    ended = tested(OF_FIELDS, "--strict")
    assert ended.wait() == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines() == [
        "ok    read: mask by people",
        "ok    read: mask by people",
        "ok    read: allow by default",
        "note  cases.yaml:10: people: its fields hide nothing in a text that holds no JSON",
        "3 cases: 3 as expected, 0 not; 1 of 1 rules fired",
    ]
    *cases, _ = map(json.loads, tested(OF_FIELDS, "--json").stdout.splitlines())
    assert [one["unread"] for one in cases] == [[], [], ["people"]]


@pytest.mark.parametrize(
    ("cases", "said"),
    [
        ("cases:\n- {tool: a}", "cases.yaml:2: cases.0: expect: is required, or masked, shown or labelled"),
        ("cases:\n- {tool: a, expect: withheld}", "expect: withheld is for results"),
        ("cases: []", "cases.yaml:1: cases: List should have at least 1 item"),
        ("", "cases.yaml: cases: Field required"),
        ("cases:\n- {tol: a, expect: deny}", "cases.yaml:2: cases.0.tol: unknown key; allowed: agent, "),
        (
            "cases:\n- {tool: a, expect: denied}",
            "cases.yaml:2: cases.0.expect: Input should be 'allow', 'deny', 'ask', ",
        ),
        ("cases:\n- {tool: a, expect: deny, rule: x}", "cases.yaml:2: cases.0.rule: there is no rule 'x'"),
    ],
)
def test_a_wrong_file_of_cases_is_refused_with_its_line(tested, cases, said):
    ended = tested(cases)
    assert ended.wait() == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_policy_that_observes_is_held_to_what_it_does_once_it_is_enforced(tested, tmp_path):
    (tmp_path / "rules.yaml").write_text(f"mode: observe\n{RULES}")
    ended = tested(GOOD)
    assert ended.wait() == 0, ended.stdout
    assert ended.stdout.splitlines()[-1] == "6 cases: 6 as expected, 0 not; 3 of 4 rules fired"
    assert "The policy only observes" in ended.stderr
