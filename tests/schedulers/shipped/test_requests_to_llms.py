"""The shipped schedulers on requests to an LLM: who is sent where, denied, counted, put to a person."""

import pytest
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Modify, ToolSelecting
from toolgate_schedulers.shipped.approval.config import ApprovalConfig, tools_of
from toolgate_schedulers.shipped.loop_guard import LoopGuard, LoopGuardConfig
from toolgate_schedulers.shipped.policy.scheduler import Policy, PolicyConfig, rule_on
from toolgate_schedulers.shipped.rate_limit import RateLimit, RateLimitConfig
from toolgate_schedulers.shipped.router.router import Router, RouterConfig, route

pytestmark = pytest.mark.pure


def request(model="large", provider="a", sent=1000, number=1, tool="llm:request"):
    asked = {"provider": provider, "model": model, "input_tokens": sent, "max_output_tokens": None}
    return ToolSelecting(
        id=f"{number:032x}",
        session=f"s-{number}",
        tool_name=tool,
        tool_input={**asked, "purpose": "answer"} if tool == "llm:request" else {},
        available_tools=("llm:request", "a/large", "b/small", "bash"),
    )


def to(provider, model, **more):
    arguments = {"provider": {"value": provider}, "model": {"value": model}}
    return {"to": "llm:request", "arguments": arguments, **more}


def test_a_route_sends_short_requests_to_a_small_model():
    config = RouterConfig.model_validate(
        {"routes": [{"from": "llm:request", "when": {"input_tokens": {"lt": 500}}, **to("b", "small")}]}
    )
    assert Router(config).tools == ("llm:request",)
    sent = route(config, request(sent=100))
    assert isinstance(sent, Modify)
    assert (sent.tool, sent.arguments) == ("llm:request", {"provider": "b", "model": "small"})
    assert "to b/small" in sent.reason
    assert isinstance(route(config, request(sent=900)), Continue)
    assert isinstance(route(config, request(tool="bash")), Continue)


def test_sessions_are_shared_between_models_and_who_is_there_already_stays():
    targets = [to("a", "large", weight=3), to("b", "small", weight=1)]
    config = RouterConfig.model_validate(
        {"routes": [{"from": "llm:request", "sticky": "session", "targets": targets}]}
    )
    verdicts = [route(config, request(number=number)) for number in range(400)]
    moved = [one for one in verdicts if isinstance(one, Modify)]
    assert {one.arguments["model"] for one in moved} == {"small"}
    assert 60 < len(moved) < 140
    assert verdicts == [route(config, request(number=number)) for number in range(400)]


def test_a_policy_denies_a_model_and_asks_for_requests_only_where_a_rule_names_them():
    config = PolicyConfig.model_validate(
        {"rules": [{"tools": "llm:request", "when": {"model": "*large*"}, "action": "deny"}]}
    )
    assert Policy(config).tools == ("*", "llm:*")
    assert isinstance(rule_on(config, request()), Deny)
    assert isinstance(rule_on(config, request("small")), Continue)
    every = PolicyConfig.model_validate({"rules": [{"tools": "*", "action": "deny"}]})
    assert Policy(every).tools == ("*",)
    assert isinstance(rule_on(every, request(tool="bash")), Deny)
    assert isinstance(rule_on(every, request()), Continue)


def test_a_policy_asks_a_person():
    config = PolicyConfig.model_validate({"rules": [{"tools": "llm:*", "action": "ask"}]})
    assert isinstance(rule_on(config, request()), AskUser)


def test_a_rate_limit_is_about_requests_only_where_it_names_them():
    limits = [{"tools": tools, "per": "fleet", "rate": "1/hour"} for tools in ("*", "llm:request")]
    every, named = (RateLimitConfig.model_validate({"limits": [limit]}) for limit in limits)
    assert not every.limits[0].fits(request())
    assert every.limits[0].fits(request(tool="bash"))
    assert named.limits[0].fits(request())
    assert RateLimit(named).tools == ("llm:request",)


def test_approval_holds_requests_only_where_a_rule_names_them():
    named = ApprovalConfig.model_validate({"rules": [{"tools": "llm:request"}]})
    assert tools_of(named) == ("llm:request",)
    assert named.rules[0].fits(request())
    every = ApprovalConfig.model_validate({"rules": [{"tools": "*"}]})
    assert not every.rules[0].fits(request())


def test_a_loop_guard_counts_no_requests():
    assert LoopGuard(LoopGuardConfig.model_validate({"calls_per_turn": 1})).tools == ("*",)
