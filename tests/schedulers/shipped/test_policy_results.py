"""Rules of a policy on results, on the user's words and on the answer; and on the labels of a session."""

import pytest
from toolgate_bus.config.check import check
from toolgate_bus.config.document import parse_document
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Mask, Modify, Replace
from toolgate_bus.ruling.local_table import LocalTable
from toolgate_bus.ruling.results import mask_parts
from toolgate_schedulers.shipped.policy import masks
from toolgate_schedulers.shipped.policy.scheduler import Policy, PolicyConfig, explain_ruling, rule_on
from toolgate_schedulers.shipped.rule_listing import list_subjects
from toolgate_schedulers.testing import question, trial

pytestmark = pytest.mark.pure

KEY = "AKIAIOSFODNN7EXAMPLE"
HIDDEN = "⟦toolgate:redacted:40000000000000000000000000000000⟧"
RULES = """
rules:
  - {name: keys, on: result, tools: [read_file, "fetch_*"], mask: [api keys, private keys]}
  - on: result
    tools: read_file
    mask: {pattern: "ACME-[0-9]{8}", name: customer number}
  - {on: result, tools: "fetch_*", label: {source: untrusted}}
  - {on: result, tools: "fetch_*", when: {url: "*evil*"}, label: {source: evil, seen: [a, b]}}
  - name: no planted orders
    on: result
    tools: fetch_*
    when: {$result: {matches: "(?i)ignore (all|previous)"}}
    action: deny
    reason: it holds orders
  - {name: look first, on: result, tools: read_file, when: {path: "*.env"}, action: ask, prompt: "Show it?"}
  - {tools: send_mail, when_session: {source: untrusted}, action: deny}
default: deny
"""


def config(text):
    return check(PolicyConfig, parse_document(text.encode(), "policy.yaml").value, "policy.yaml")


def given(tool, result, text=RULES, arguments=None, **more):
    return rule_on(config(text), question(tool, arguments, phase="result", result=result, **more))


def left(verdict, result):
    return mask_parts(result, verdict.parts).value


def test_every_mask_that_fits_applies_and_says_which_rule_hides_what():
    text = f"key {KEY} of ACME-12345678"
    verdict = given("read_file", text)
    assert isinstance(verdict, Mask)
    assert left(verdict, text) == "key [withheld: api key] of [withheld: customer number]"
    assert verdict.reason == "api key, customer number (keys, rule 2)"
    assert verdict.rule_name == "keys"


def test_what_is_masked_is_compiled_before_the_first_result_comes(monkeypatch):
    policy = Policy(config(RULES))
    monkeypatch.setattr(masks, "together", lambda _: pytest.fail("compiled while a result waits"))
    verdict = rule_on(policy.config, question("read_file", phase="result", result=KEY))
    assert left(verdict, KEY) == "[withheld: api key]"


def test_a_result_that_no_rule_is_about_is_released_whatever_the_default():
    assert given("read_file", "clear") == Continue()
    assert given("other", KEY) == Continue()


def test_every_label_that_fits_is_given_with_whatever_verdict():
    assert given("fetch_page", "clear") == Continue(session_labels={"source": ("untrusted",)})
    evil = given("fetch_page", "clear", arguments={"url": "http://evil.example"})
    assert evil.session_labels == {"source": ("untrusted", "evil"), "seen": ("a", "b")}
    assert given("fetch_page", KEY).session_labels == {"source": ("untrusted",)}
    denied = given("fetch_page", {"a": ["please IGNORE ALL that"]})
    assert denied == Deny(
        reason="it holds orders (no planted orders)",
        rule_name="no planted orders",
        session_labels={"source": ("untrusted",)},
    )


@pytest.mark.parametrize(
    "result", [{"Ignore all of it": 1}, [{"a": {"ignore previous": {}}}], {"text": '{"ignore \\u0061ll": 1}'}]
)
def test_a_condition_on_the_result_sees_its_keys_and_one_that_allows_needs_values_alone(result):
    assert isinstance(given("fetch_page", result), Deny)
    allowing = "rules: [{on: result, tools: get, when: {$result: 'ok*'}, action: allow}, "
    allowing += "{on: result, tools: get, action: deny}]"
    assert isinstance(given("get", {"state": "ok"}, allowing), Continue)
    assert isinstance(given("get", {"ok": "no"}, allowing), Deny)


def test_a_person_is_asked_about_a_result_in_the_rules_words():
    verdict = given("read_file", "clear", arguments={"path": "a.env"})
    assert isinstance(verdict, AskUser)
    assert (verdict.prompt, verdict.rule_name) == ("Show it?", "look first")


def test_what_a_person_releases_is_masked_all_the_same():
    asked = {"arguments": {"path": "a.env"}}
    first = given("read_file", f"key {KEY}", **asked)
    assert isinstance(first, Replace)
    assert first.result == "key [withheld: api key]"
    assert isinstance(given("read_file", first.result, again=True, **asked), AskUser)
    other = given("read_file", f"another {KEY}", again=True, **asked)
    assert isinstance(other, Deny)
    assert "both cannot be done" in other.reason


ORDERED = """
rules:
  - {on: result, tools: get, when: {$result.public: true}, action: allow}
  - {on: result, tools: get, when: {$result.owner: bob}, unless: {$result.shared: true}, action: deny}
  - {on: result, tools: get, success: false, action: ask}
  - {on: result, tools: get, labels: {team: red}, agents: clerk, action: deny, reason: not for clerks}
  - {on: result, tools: get, mask: mail addresses}
"""


@pytest.mark.parametrize(
    ("result", "more", "action"),
    [
        ({"owner": "bob"}, {}, "deny"),
        ({"owner": "bob", "public": True}, {}, "continue"),
        ({"owner": "bob", "shared": True}, {}, "continue"),
        ({"owner": "bob", "shared": "yes"}, {}, "deny"),
        ({"owner": "ann"}, {"success": False}, "ask_user"),
        ({"owner": "ann"}, {"labels": {"team": "red"}, "agent": "clerk"}, "deny"),
        ({"owner": "ann"}, {"labels": {"team": "red"}, "agent": "x", "lineage": ("clerk", "x")}, "deny"),
        ({"owner": "ann"}, {"labels": {"team": "blue"}, "agent": "clerk"}, "continue"),
        ({"owner": "ann@ok.example", "public": True}, {}, "mask"),
        ({"owner": ["ann", "bob"]}, {}, "deny"),
        ({"owner": HIDDEN}, {}, "deny"),
        ({"owner": "bob", "shared": HIDDEN}, {}, "deny"),
        ({"owner": "bob", "public": HIDDEN}, {}, "deny"),
    ],
)
def test_the_first_rule_that_fits_decides_and_what_is_unseen_counts_against_the_result(result, more, action):
    assert given("get", result, ORDERED, **more).action == action


def test_an_exception_that_was_not_seen_lets_no_result_pass():
    text = (
        "rules:\n"
        "  - {on: result, tools: get, unless: {$result.secret: true}, action: allow}\n"
        "  - {on: result, tools: get, action: deny}\n"
    )
    told = [given("get", {"secret": one}, text).action for one in (False, True, HIDDEN)]
    assert told == ["continue", "deny", "deny"]


def test_what_could_not_be_seen_is_named():
    reason = given("get", {"owner": HIDDEN}, ORDERED).reason
    assert reason == "nobody may see what get gave (rule 2; $result.owner could not be seen whole)"


def test_with_unknown_allow_a_rule_fits_only_what_it_sees():
    lenient = ORDERED.replace("owner: bob}", "owner: bob}, unknown: allow")
    assert given("get", {"owner": HIDDEN}, lenient).action == "continue"


def test_a_mask_applies_for_each_agent_above():
    text = "rules:\n  - {on: result, tools: get, agents: boss, mask: api keys, label: {by: boss}}"
    mine = given("get", KEY, text, agent="helper", lineage=("boss", "helper"))
    assert (mine.action, mine.session_labels) == ("mask", {"by": ("boss",)})
    assert given("get", KEY, text, agent="helper") == Continue()


def test_a_result_that_cannot_be_searched_is_withheld():
    lines = [{"pattern": f"x{number}[a-z]{{900}}"} for number in range(60)]
    rules = [{"on": "result", "tools": "get", "mask": lines} for _ in range(3)]
    checked = check(PolicyConfig, {"rules": rules}, "rules")
    verdict = rule_on(checked, question("get", phase="result", result="abc " * 40_000))
    assert isinstance(verdict, Deny)
    assert "cannot be searched" in verdict.reason


def test_the_last_word_of_a_result_that_was_cut_off_is_hidden_with_the_rest():
    text = "all is clear and AKIAIOSF"
    verdict = given("read_file", text, result_cut=True)
    assert left(verdict, text) == "all is clear and [withheld: cut off]"
    assert given("other", text, result_cut=True) == Continue()


CONDITIONS = {
    # by name: the condition on a value, one that fits it, one that does not
    "equals": ({"equals": 1}, 1, 2),
    "in": ({"in": ["x"]}, "x", "y"),
    "glob": ({"glob": "x*"}, "xy", "y"),
    "matches": ({"matches": "rm"}, "rm -r", "ls"),
    "gt": ({"gt": 10}, 11, 10),
    "gte": ({"gte": 10}, 10, 9),
    "lt": ({"lt": 10}, 9, 10),
    "lte": ({"lte": 10}, 10, 11),
    "under": ({"under": "/srv"}, "/srv/a", "/srv/../a"),
    "base": ({"under": "/srv", "base": "/srv"}, "a", "../a"),
    "exists": ({"exists": False}, ..., 1),
}


def test_a_rule_does_not_fit_a_result_that_all_conditions_of_unless_fit():
    for name, (condition, fits, other) in CONDITIONS.items():
        rule = {"on": "result", "tools": "get", "unless": {"$result.a": condition, "b": 1}, "action": "deny"}
        rules = check(PolicyConfig, {"rules": [rule]}, "rules")

        def action(value, b=1, rules=rules):
            result = {} if value is ... else {"a": value}
            return rule_on(rules, question("get", {"b": b}, phase="result", result=result)).action

        assert (action(fits), action(other), action(fits, 2)) == ("continue", "deny", "deny"), name


async def test_every_option_of_a_rule_on_results_holds():
    rules = [
        {"on": "result", "tools": "a", "success": False, "action": "deny"},
        {"on": "result", "tools": "b", "mask": [{"kind": "cards", "name": "number"}, {"pattern": "x+"}]},
        {"on": "result", "tools": "b", "mask": {"pattern": "y+", "name": "why"}, "label": {"seen": "b"}},
        {"tools": "c", "when_session": {"seen": "b"}, "action": "deny"},
        {"on": "output", "when": {"text": "no*"}, "action": "deny"},
    ]
    async with trial(Policy, config={"rules": rules}) as here:
        ended = [await here.ask("a", phase="result", result="", success=one) for one in (True, False)]
        assert [one.action for one in ended] == ["continue", "deny"]
        text = "4111111111111111 xx yy"
        masked = await here.ask("b", phase="result", result=text)
        assert left(masked, text) == "[withheld: number] [withheld: text] [withheld: why]"
        assert masked.session_labels == {"seen": ("b",)}
        for labels, action in (({}, "continue"), ({"seen": ("b",)}, "deny")):
            assert (await here.ask("c", session_labels=labels)).action == action
        assert (await here.ask("turn:output", {"text": "no way"})).action == "deny"
        assert (await here.ask("c", {"text": "no way"})).action == "continue"


# ---------------------------------------------------------------------- words and answers

POINTS = """
rules:
  - {name: keys in answers, on: output, mask: [api keys, cards]}
  - {on: output, when: {text: {matches: "(?i)secret plan"}}, action: deny, reason: not that}
  - {on: input, when: {text: {matches: "jailbreak"}}, action: ask}
  - {on: input, label: {asked: by-user}}
default: deny
"""


def said(point, text, rules=POINTS, **more):
    return rule_on(config(rules), question(f"turn:{point}", {"text": text}, **more))


def test_words_and_answers_are_denied_asked_about_masked_and_labelled():
    assert said("output", "all is well") == Continue()
    assert said("output", f"it is {KEY}") == Modify(
        tool="turn:output",
        arguments={"text": "it is [withheld: api key]"},
        reason="api key (keys in answers)",
        rule_name="keys in answers",
    )
    assert said("output", "the Secret Plan").reason == "not that (rule 2)"
    assert said("input", "hello").session_labels == {"asked": ("by-user",)}
    asked = said("input", "a jailbreak")
    assert (asked.action, asked.session_labels) == ("ask_user", {"asked": ("by-user",)})


def test_an_answer_that_must_be_masked_is_denied_where_that_cannot_be_done():
    for unseen in (HIDDEN, ["x"], 7):
        assert "could not be seen whole" in said("output", unseen).reason
    changed = said("output", f"it is {KEY}", phase="verify")
    assert isinstance(changed, Deny)
    assert "changed" in changed.reason
    asks = f"{POINTS[:-14]}  - {{on: output, action: ask}}\n"
    assert "both cannot be done" in said("output", KEY, asks).reason
    assert said("output", "clear", asks).action == "ask_user"


def test_a_rule_on_calls_that_names_the_point_counts_as_well():
    rules = f"{POINTS[:-14]}  - {{tools: 'turn:*', when: {{text: '*stop*'}}, action: deny}}\ndefault: deny\n"
    assert said("output", "stop", rules).action == "deny"
    assert said("output", KEY, rules).action == "deny"  # by default, as a rule on calls names the point
    assert said("output", KEY, rules.replace("default: deny", "default: allow")).action == "modify"


# ---------------------------------------------------------------------- labels of the session


@pytest.mark.parametrize("order", [{}, {"unless_after": {"tool": "lock"}}], ids=["plain", "ordered"])
def test_a_label_of_an_optional_scheduler_may_restrict_a_call_and_not_allow_it(order):
    labels = {"trust": ("vetted",)}

    def ruled(action, default, required, **more):
        rule = {"tools": "send", "when_session": {"trust": "vetted"}, "action": action, **more}
        policy = Policy(PolicyConfig.model_validate({"rules": [rule], "default": default}))
        call = question("send", session_labels=labels, required_labels=required)
        answer = LocalTable.read(policy.local_table).answer(call)
        verdict = rule_on(policy.config, call)
        assert answer is None or answer.verdict == verdict
        return verdict.action

    assert ruled("deny", "allow", {}) == "deny"
    assert ruled("allow", "deny", {}, **order) == "deny"
    assert ruled("allow", "deny", {"trust": ("other",)}, **order) == "deny"
    if not order:  # (what is not known of earlier calls denies)
        assert ruled("allow", "deny", labels) == "continue"


@pytest.mark.parametrize(
    ("labels", "deny", "allow"),
    [
        ({}, "continue", "deny"),
        ({"source": ("untrusted",)}, "deny", "continue"),
        ({"source": ("house", "untrusted")}, "deny", "deny"),
        ({"other": ("untrusted",)}, "continue", "deny"),
        (None, "deny", "deny"),
    ],
)
def test_a_rule_on_a_label_restricts_for_any_value_allows_for_all_and_unknown_labels_count_against(
    labels, deny, allow
):
    rules = "rules:\n  - {tools: send, when_session: {source: untrust*}, action: %s}\ndefault: %s\n"
    for action, default, told in (("deny", "allow", deny), ("allow", "deny", allow)):
        policy = Policy(config(rules % (action, default)))
        call = question("send", session_labels=labels, required_labels=labels or {})
        verdict = rule_on(policy.config, call)
        assert verdict.action == told
        answer = LocalTable.read(policy.local_table).answer(call)
        assert (answer is None) is (labels is None)
        assert answer is None or answer.verdict == verdict
    assert (
        "labels of its session are not known"
        in rule_on(config(RULES), question("send_mail", session_labels=None)).reason
    )


def test_a_rule_on_results_may_test_what_the_session_bears_already():
    text = "rules:\n  - {on: result, tools: get, when_session: {source: untrusted}, mask: api keys}"
    assert given("get", KEY, text) == Continue()
    assert given("get", KEY, text, session_labels={"source": ("untrusted",)}).action == "mask"
    assert given("get", KEY, text, session_labels=None).action == "mask"


# ---------------------------------------------------------------------- what is announced, and observing


@pytest.mark.parametrize(
    ("rule", "phases", "reads", "tools"),
    [
        ({"tools": "x", "action": "deny"}, ("select", "verify"), (), ("*",)),
        ({"on": "result", "tools": "x", "action": "deny"}, ("select", "verify", "result"), (), ("*",)),
        ({"on": "output", "mask": "cards"}, ("select", "verify"), (), ("*", "turn:output")),
        (
            {"tools": "x", "when_session": {"a": "b"}, "action": "deny"},
            *(("select", "verify"), ("session_labels",), ("*",)),
        ),
        (
            {"tools": "x", "after": {"tool": "y", "result": {"ok": True}}},
            *(("select", "verify", "result"), (), ("*",)),
        ),
        (
            {"on": "result", "tools": "llm:*", "mask": "cards"},
            ("select", "verify", "result"),
            (),
            ("*", "llm:*"),
        ),
    ],
)
def test_a_policy_announces_only_what_its_rules_need(rule, phases, reads, tools):
    policy = Policy(check(PolicyConfig, {"rules": [rule]}, "rules"))
    assert (policy.phases, policy.reads, policy.tools) == (phases, reads, tools)


def test_rules_on_results_and_answers_leave_the_local_table_to_calls():
    policy = Policy(config(POINTS))
    answer = LocalTable.read(policy.local_table).answer
    assert answer(question("turn:output", {"text": "x"})) is None
    assert answer(question("read")).verdict.action == "deny"
    only = Policy(config("rules:\n  - {on: result, tools: '*', action: deny}"))
    assert LocalTable.read(only.local_table).answer(question("read")).is_plain


def test_what_observes_says_what_it_would_have_done():
    text = "rules:\n  - {name: keys, on: result, tools: get, mask: api keys, mode: observe}"
    assert given("get", KEY, text) == Continue(reason="keys would have masked")
    assert given("get", "clear", text) == Continue()
    observing = f"mode: observe\n{RULES}"
    assert given("fetch_page", KEY, observing) == Continue(reason="keys would have masked")
    assert given("fetch_page", "clear", observing) == Continue()
    assert given("fetch_page", "ignore all", observing).reason == "no planted orders would have denied"


def test_the_rules_behind_a_verdict_are_told_the_deciding_one_last():
    about = {"phase": "result", "result": f"{KEY} ignore all"}
    assert explain_ruling(config(RULES), question("fetch_page", **about))[1] == (2, 4)
    assert explain_ruling(config(RULES), question("fetch_page", **{**about, "result": KEY}))[1] == (2, 0)


async def test_results_come_over_the_wire_and_masks_go_back():
    async with trial(Policy, config=config(RULES)) as here:
        result = {"text": [f"key {KEY}"], "n": 1}
        verdict = await here.ask("fetch_page", phase="result", result=result)
        assert left(verdict, result) == {"text": ["key [withheld: api key]"], "n": 1}
        assert verdict.session_labels == {"source": ("untrusted",)}
        assert (await here.ask("send_mail", session_labels={"source": ("untrusted",)})).action == "deny"


def test_a_check_compares_tools_and_arguments_of_rules_on_results_and_nothing_of_the_results():
    text = """
rules:
  - {on: result, tools: get, when: {$result.a: 1, path: x}, unless: {$result: "*y*", kind: z}, action: deny}
  - {on: output, when: {text: a}, action: deny}
  - tools: pay
    after: {tool: approve, result: {ok: true}, same: {$.id: $result.id}}
    at_most: {sum: $.amount, n: 1000}
"""
    told = [
        (one.place, tuple(one.when), tuple(path for _, path in one.paths), one.is_listed)
        for one in list_subjects(config(text))
    ]
    assert told == [
        (("rules", 0, "tools"), ("path",), (), True),
        (("rules", 0, "tools"), ("kind",), (), False),
        (("rules", 2, "tools"), (), ("$.id", "$.amount"), True),
        (("rules", 2, "after", "tool"), (), (), True),
    ]


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"tools": "x", "mask": "cards"}, "mask: is for results: give on: result, input or output"),
        ({"tools": "x", "label": {"a": "b"}}, "label: is for results"),
        ({"tools": "x", "unless": {"a": 1}, "action": "deny"}, "unless: is for results"),
        (
            {"tools": "x", "when": {"$result.a": 1}, "action": "deny"},
            "only a rule with on: result sees a result",
        ),
        ({"tools": "x", "success": True, "action": "deny"}, "success: is for results"),
        ({"on": "input", "tools": "x", "action": "deny"}, "tools: a rule on input is about no tool"),
        ({"on": "output", "when": {"$result": 1}, "action": "deny"}, "only a rule with on: result sees"),
        ({"on": "result", "tools": "x"}, "action: is required: allow, deny or ask, or give mask or label"),
        ({"on": "result", "tools": "x", "action": "deny", "mask": "cards"}, "write two rules"),
        ({"on": "result", "tools": "x", "action": "deny", "at_most": {"n": 1}}, "are for calls"),
        ({"on": "result", "tools": "x", "mask": "keys"}, "Input should be 'api keys', "),
        ({"on": "result", "tools": "x", "mask": {"pattern": "(?=a)"}}, "look ahead"),
        ({"on": "result", "tools": "x", "mask": {"name": "n"}}, "give one of api keys, "),
        ({"on": "result", "tools": "x", "label": {"a b": "c"}}, "match pattern"),
        ({"on": "input", "when": {"txt": "*x*"}, "action": "deny"}, "sees `text`, and nothing else"),
        ({"on": "output", "unless": {"body.text": "x"}, "mask": "cards"}, "sees `text`, and nothing else"),
        (
            {"on": "result", "tools": ["x", "turn:output"], "mask": "cards"},
            "gives no result: give on: output",
        ),
        ({"on": "result", "tools": "x", "when": {"$results": "x"}, "action": "deny"}, "write $result, or"),
        ({"tools": "x", "when_session": {"source": "un trusted"}, "action": "deny"}, "no label of a session"),
        ({"tools": "x", "when_session": {"sou rce": "x"}, "action": "deny"}, "no label of a session"),
        ({"on": "result", "tools": "x", "label": {"a": "b"}, "mode": "observe"}, "observing a label"),
        ({"on": "results", "tools": "x", "action": "deny"}, "Input should be 'call', 'result', 'input' or"),
    ],
)
def test_a_rule_that_says_nothing_or_too_much_is_refused(rule, said):
    with pytest.raises(ConfigError) as refused:
        check(PolicyConfig, {"rules": [rule]}, "rules")
    assert said in str(refused.value)


@pytest.mark.parametrize(
    "label", [lambda at: {"source": [f"v{at}", f"w{at}"]}, lambda at: {f"n{at}": "v", f"m{at}": "v"}]
)
def test_rules_that_give_more_labels_than_a_session_can_bear_are_refused(label):
    rules = [{"on": "result", "tools": "x", "label": label(at)} for at in range(33)]
    with pytest.raises(ConfigError, match="a session can bear 64 labels, and as many values of each"):
        check(PolicyConfig, {"rules": rules}, "rules")
    fewer = check(PolicyConfig, {"rules": rules[:32]}, "rules")
    given = rule_on(fewer, question("x", phase="result", result="")).session_labels
    assert sum(map(len, given.values())) == 64


def test_a_kind_that_needs_a_detector_is_refused_before_the_first_call(monkeypatch):
    def missing():
        raise ConfigError("mask: secrets needs detect-secrets")

    monkeypatch.setattr("toolgate_schedulers.shipped.policy.scheduler.load_detectors", missing)
    with pytest.raises(ConfigError, match="needs detect-secrets"):
        Policy(config("rules:\n  - {on: result, tools: x, mask: secrets}"))
