"""The shipped policy: the first rule that fits counts, and says who it was."""

import pytest
from toolgate_bus.config.check import check
from toolgate_bus.config.document import parse_document
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.names import MAX_REASON
from toolgate_schedulers import AskUser, Continue, Deny, ToolSelecting
from toolgate_schedulers.shipped.policy.scheduler import Policy, PolicyConfig, rule_on

pytestmark = pytest.mark.pure

POLICY = """
rules:
  - name: refunds above 100
    tools: [refund, "pay_*"]
    when: {amount: {gt: 100}}
    action: ask
    prompt: Pay this much?
    options: [Pay, Do not]
    timeout_s: 60
  - tools: cancel_reservation
    action: deny
  - name: no deletes
    tools: "delete_*"
    action: deny
    reason: nothing is deleted here
  - tools: [delete_me, "pay_*"]
    action: allow
default: allow
"""


def config(text):
    return check(PolicyConfig, parse_document(text.encode(), "policy.yaml").value, "policy.yaml")


def rule(text, tool, **arguments):
    return rule_on(config(text), ToolSelecting(id="0" * 32, tool_name=tool, tool_input=arguments))


def test_a_denial_names_its_rule_by_name_or_by_number():
    assert rule(POLICY, "delete_file") == Deny(
        reason="nothing is deleted here (no deletes)", rule_name="no deletes"
    )
    assert rule(POLICY, "cancel_reservation") == Deny(
        reason="cancel_reservation is not allowed (rule 2)", rule_name="rule 2"
    )


def test_the_first_rule_that_fits_counts():
    assert rule(POLICY, "delete_me").action == "deny"
    assert rule(POLICY, "pay_bill", amount=101).action == "ask_user"
    assert rule(POLICY, "pay_bill", amount=100) == Continue(reason="allowed by rule 4")


def test_an_ask_carries_prompt_options_and_time():
    assert rule(POLICY, "refund", amount="500") == AskUser(
        prompt="Pay this much?",
        options=("Pay", "Do not"),
        timeout_s=60,
        reason="refund needs approval (refunds above 100)",
        rule_name="refunds above 100",
    )


def test_the_default_rules_where_no_rule_does():
    assert rule(POLICY, "ls") == Continue()
    assert rule("default: deny", "ls") == Deny(reason="no rule allows ls (default)", rule_name="default")
    assert rule("default: ask", "ls").action == "ask_user"


OBSERVING = """
rules:
  - {name: dry run, tools: "*", action: deny, mode: observe}
  - {tools: pay, action: ask, mode: observe}
  - {tools: "delete_*", action: deny}
  - {tools: pay, action: allow, reason: paid by the house}
"""


def test_an_observing_rule_lets_the_call_go_on_to_the_next_and_is_told_of():
    assert rule(OBSERVING, "ls") == Continue(reason="dry run would have denied")
    assert rule(OBSERVING, "pay") == Continue(
        reason="paid by the house; dry run would have denied; rule 2 would have asked a person"
    )
    assert rule(OBSERVING, "delete_file") == Deny(
        reason="delete_file is not allowed (rule 3)", rule_name="rule 3"
    )


OBSERVED = """
mode: observe
rules:
  - {name: reads are fine, tools: "read_*", action: allow}
  - {name: watched, tools: "*", action: deny, mode: observe}
  - {name: no deletes, tools: "delete_*", action: deny}
  - {tools: pay, action: ask}
default: deny
"""


def test_a_policy_that_observes_lets_every_call_go_on_and_says_what_enforcing_would_have_done():
    assert rule(OBSERVED, "delete_file") == Continue(reason="no deletes would have denied")
    assert rule(OBSERVED, "pay") == Continue(reason="rule 4 would have asked a person")
    assert rule(OBSERVED, "ls") == Continue(reason="default would have denied")
    assert rule(OBSERVED, "read_file") == Continue(reason="allowed by reads are fine")
    enforced = OBSERVED.replace("mode: observe\nrules", "rules")
    assert [rule(enforced, tool).action for tool in ("delete_file", "pay", "ls", "read_file")] == [
        "deny", "ask_user", "deny", "continue",
    ]  # fmt: skip


def test_a_policy_that_says_nothing_but_its_mode_is_empty():
    with pytest.raises(ConfigError, match="is empty"):
        config("mode: observe")


BY_AGENT = """
rules:
  - {name: admins may, agents: admin, tools: "*", action: allow}
  - {name: clerks ask, agents: clerk, tools: pay, action: ask}
  - {name: interns read, agents: intern, tools: "[!r]*", action: deny}
"""


def asked(agent, *lineage, tool="pay"):
    return rule_on(config(BY_AGENT), ToolSelecting(id="0" * 32, tool_name=tool, agent=agent, lineage=lineage))


def test_what_is_denied_to_an_agent_it_cannot_have_done_by_another():
    assert asked("admin", "admin").action == "continue"
    denied = asked("admin", "intern", "clerk", "admin")
    assert denied == Deny(
        reason="pay is not allowed (interns read); this holds for admin, which works for intern",
        rule_name="interns read",
    )
    assert asked("admin", "intern", "admin", tool="read").action == "continue"
    assert asked("intern", "admin", "intern").action == "deny"


def test_a_call_about_which_a_person_is_asked_stays_one_further_down_the_tree():
    below = asked("admin", "clerk", "admin")
    assert below.action == "ask_user"
    assert below.prompt == "May pay run? (clerks ask)"
    assert asked("clerk", "intern", "clerk").action == "deny"


SHELL = """
rules:
  - {name: listings, tools: bash, when: {command: "ls*"}, action: allow}
  - {name: pushes, tools: bash, when: {command: "git push*"}, action: ask, prompt: "Push?"}
  - {name: removals, tools: bash, when: {command: "rm *"}, action: deny}
default: allow
"""
LONG = "⟦toolgate:truncated:4" + 31 * "a" + "⟧"


def test_of_rules_that_may_fit_a_call_that_cannot_be_seen_the_strictest_counts():
    denied = rule(SHELL, "bash", command=LONG)
    assert denied.action == "deny"
    assert denied.rule_name == "removals"
    assert "command could not be seen whole" in denied.reason
    asking = rule(SHELL.replace("action: deny", "action: deny, unknown: allow"), "bash", command=LONG)
    assert (asking.action, asking.rule_name) == ("ask_user", "pushes")
    rest = SHELL.replace('"rm *"}, action: deny', '"rm *"}, action: ask').replace(
        "default: allow", "default: deny"
    )
    assert rule(rest, "bash", command=LONG).rule_name == "default"


def test_an_allow_that_is_meant_for_what_cannot_be_seen_rules_on_it():
    text = "rules: [{tools: bash, when: {command: 'ls*'}, action: allow, unknown: allow}]\ndefault: deny"
    assert rule(text, "bash", command=LONG).action == "continue"


def test_a_list_is_denied_for_one_element_and_allowed_for_all_of_them():
    text = """
rules:
  - {tools: mail, when: {to: "*@evil.example"}, action: deny}
  - {tools: [mail, post], when: {to: "*@ok.example"}, action: allow}
default: ask
"""
    to = ["ann@ok.example", "bob@ok.example"]
    assert rule(text, "mail", to=to).action == "continue"
    assert rule(text, "mail", to=[*to, "eve@evil.example"]).action == "deny"
    assert rule(text, "mail", to=[*to, "zoe@far.example"]).action == "ask_user"
    assert rule(text, "mail", to=[]).action == "ask_user"
    assert rule(text, "mail", to=[{"email": "eve@evil.example"}]).action == "deny"
    assert rule(text, "post", to=[{"email": "ann@ok.example"}]).action == "ask_user"


def test_the_longest_reason_leaves_room_for_the_rules_name():
    text = f"rules: [{{name: {'n' * 128}, tools: x, action: deny, reason: {'r' * 800}}}]"
    verdict = rule(text, "x")
    assert verdict.reason.endswith(f"({'n' * 128})")
    assert len(verdict.reason) <= MAX_REASON


async def test_the_scheduler_answers_by_its_config():
    policy = Policy(config(POLICY))
    asked = ToolSelecting(id="0" * 32, tool_name="delete_file", phase="verify")
    assert await policy.decide(asked) == Deny(
        reason="nothing is deleted here (no deletes)", rule_name="no deletes"
    )
    assert (policy.name, policy.priority, policy.tools) == ("policy", 0, ("*",))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "top level: is empty: give rules, or a default"),
        ("rule: []", "rule: unknown key; allowed: default, mode, rules; did you mean rules?"),
        ("default: maybe", "default: Input should be 'allow', 'deny' or 'ask'"),
        ("rules: [{tools: x}]", "rules.0: action: is required: allow, deny or ask"),
        ("rules: [{action: deny}]", "rules.0.tools: Field required"),
        ("rules: [{tools: x, action: forbid}]", "rules.0.action: Input should be 'allow', 'deny' or 'ask'"),
        ("rules: [{tools: [], action: deny}]", "rules.0.tools: List should have at least 1 item"),
        ("rules: [{tools: [3], action: deny}]", "rules.0.tools.0: Input should be a valid string"),
        (
            "rules: [{tools: x, action: deny, prompt: y}]",
            "rules.0: prompt: only for action: ask, not for deny",
        ),
        (
            "rules: [{tools: x, action: ask, timeout_s: 0}]",
            "rules.0.timeout_s: Input should be greater than 0",
        ),
        (
            "rules: [{tools: x, action: deny, when: {a: {equal: 1}}}]",
            "rules.0.when.a.equal: unknown key; allowed: base, equals, exists, glob",
        ),
        (
            "rules: [{tools: x, action: deny, when: {a: {matches: '('}}}]",
            "rules.0.when.a.matches: not a regular expression",
        ),
        (
            "rules: [{tools: x, action: deny, mode: dry}]",
            "rules.0.mode: Input should be 'enforce' or 'observe'",
        ),
        (
            "rules: [{tools: x, action: allow, mode: observe}]",
            "rules.0: mode: observe is for deny and ask",
        ),
        (
            f"rules: [{{tools: x, action: deny, reason: {'r' * 801}}}]",
            "rules.0.reason: String should have at most 800 characters",
        ),
        (
            "rules: [{tools: x, action: deny, name: a}, {tools: y, action: deny, name: a}]",
            "rules: 0 and 1 (from 0) have the same name, a",
        ),
        ("rules: [{tools: x, action: ask, options: []}]", "rules.0.options: List should have at least 1"),
        ("rules: [{tools: x, action: ask, prompt: ''}]", "rules.0.prompt: String should have at least 1"),
        (
            "rules: [{tools: x, action: deny, agent: y}]",
            "rules.0.agent: unknown key; allowed: action, after, agent_targets, agents, at_most, label,",
        ),
        ("rules: [{tools: x, action: deny, agents: []}]", "rules.0.agents: List should have at least 1"),
        ("rules: [{tools: x, action: deny, sessions: 3}]", "rules.0.sessions: Input should be a list"),
        (
            "rules: [{tools: x, action: deny, agent_targets: [3]}]",
            "rules.0.agent_targets.0: Input should be a valid string",
        ),
        ("rules: [{tools: x, action: deny, labels: [a]}]", "rules.0.labels: Input should be a mapping"),
        (
            "rules: [{tools: x, action: deny, labels: {a: true}}]",
            "rules.0.labels.a: Input should be a list",
        ),
        (
            "rules: [{tools: x, action: deny, schema: {properties: {a: {minimun: 1}}}}]",
            "rules.0.schema: properties.a.minimun: unknown keyword; allowed: $comment, $defs",
        ),
    ],
)
def test_a_wrong_policy_is_refused_by_name(text, said):
    with pytest.raises(ConfigError) as error:
        config(text)
    assert f"policy.yaml: {said}" in str(error.value)


LISTS = """
rules:
  - {tools: send, when: {to: "*@partner.example"}, action: ask}
  - {tools: send, when: {to: "*@evil.example"}, action: deny}
  - {tools: send, when: {to: "*@ok.example"}, action: allow}
default: deny
"""


@pytest.mark.parametrize(
    ("to", "action"),
    [
        (["ann@partner.example", "eve@evil.example"], "deny"),
        ('["ann@partner.example", "eve@evil.example"]', "deny"),
        ("ann@partner.example, eve@evil.example", "deny"),
        (["ann@partner.example", "bob@partner.example"], "ask_user"),
        (["ann@partner.example", "bob@ok.example"], "ask_user"),
        ("ann@partner.example", "ask_user"),
        (["bob@ok.example"], "continue"),
        (["bob@other.example"], "deny"),
    ],
)
def test_a_rule_that_asks_about_one_element_has_no_other_denied_element_pass(to, action):
    assert rule(LISTS, "send", to=to).action == action
