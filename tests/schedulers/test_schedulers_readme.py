"""What `schedulers/README.md` shows is true: its code runs, its configurations are read."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from toolgate_bus.shared import shared_in_memory
from toolgate_bus.store import MemoryStore
from toolgate_schedulers import AskUser, Continue, Deny, Modify, ToolSelecting
from toolgate_schedulers.api import as_scheduler
from toolgate_schedulers.config_file import check, parse_mapping
from toolgate_schedulers.loop_guard import LoopGuard, LoopGuardConfig
from toolgate_schedulers.policy import PolicyConfig, rule_on
from toolgate_schedulers.rate_limit import RateLimit, RateLimitConfig
from toolgate_schedulers.router import RouterConfig, route

pytestmark = pytest.mark.pure

README = Path(__file__).parents[2] / "schedulers" / "README.md"


def blocks(language):
    return re.findall(
        rf"^```{language}\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def call(tool, available=(), **arguments):
    return ToolSelecting(id="0" * 32, tool_name=tool, tool_input=arguments, available_tools=available)


def ran(code):
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    return names


async def test_the_first_function_rules_as_it_says():
    rule = ran(blocks("python")[0])["rule"]
    assert (rule.name, rule.priority, rule.tools) == ("my-rules", 10, ("web_*", "send_mail"))
    routed = await rule(call("web_search", available=("advanced_search",), query="x"))
    assert routed == Modify(tool="advanced_search", arguments={"query": "x"}, reason="cheaper index")
    assert await rule(call("send_mail", to="a@else.org")) == Deny(reason="mail stays in the house")
    assert await rule(call("send_mail", to="a@example.com")) == Continue()


async def test_the_class_limits_a_session_over_all_replicas():
    names = ran(blocks("python")[1])
    store = MemoryStore()
    limiters = [as_scheduler(names["Limiter"](names["Limits"](calls=2))) for _ in range(2)]
    for limiter in limiters:
        await limiter.start(SimpleNamespace(store=store))
    verdicts = [await limiters[number % 2].decide(call("web_search")) for number in range(4)]
    assert [verdict.action for verdict in verdicts] == ["continue", "continue", "deny", "deny"]


def test_the_policy_is_read_and_rules():
    config = check(PolicyConfig, parse_mapping(blocks("yaml")[0].encode(), "README"), "README")
    assert isinstance(rule_on(config, call("pay_bill", amount=101)), AskUser)
    assert rule_on(config, call("cancel_reservation")) == Deny(reason="cancelling is for people (rule 2)")
    assert rule_on(config, call("ls")) == Continue()


def test_the_router_is_read_and_routes():
    config = check(RouterConfig, parse_mapping(blocks("yaml")[1].encode(), "README"), "README")
    available = ("advanced_search", "search_onestop_flight")
    assert route(config, call("web_search", available, query="a paper")) == Modify(
        tool="advanced_search",
        arguments={"q": "a paper", "original": {"query": "a paper"}, "limit": 10},
        reason="cheaper index",
    )
    assert route(config, call("search_direct_flight", available)).tool == "search_onestop_flight"


async def started(scheduler, model, command):
    """A scheduler with the configuration that is shown for this command, on state in memory."""
    (text,) = (block for block in blocks("yaml") if f"# toolgate scheduler run {command} " in block)
    made = scheduler(check(model, parse_mapping(text.encode(), "README"), "README"))
    await made.start(SimpleNamespace(shared=shared_in_memory()))
    return made


async def test_the_limits_are_read_and_hold():
    limits = await started(RateLimit, RateLimitConfig, "rate-limit")
    fields = {"tool_name": "web_a", "agent": "helper-1", "labels": {"env": "prod"}, "session": "s"}
    verdicts = [await limits.decide(ToolSelecting(id=f"{n:032x}", **fields)) for n in range(4)]
    assert [verdict.action for verdict in verdicts] == ["continue"] * 3 + ["deny"]
    assert "10 times per minute in this session (searches). Try again in 6 seconds" in verdicts[-1].reason


async def test_the_guard_is_read_and_holds():
    guard = await started(LoopGuard, LoopGuardConfig, "loop-guard")
    asked = [
        ToolSelecting(id=f"{n:032x}", tool_name="a", session="s", iteration=n, tool_input={"n": n // 9})
        for n in range(1, 42)
    ]
    verdicts = [await guard.decide(one) for one in asked]
    assert [verdict.action for verdict in verdicts[:4]] == ["continue"] * 3 + ["deny"]
    assert "tool call 41 of this turn; 40 are allowed" in verdicts[40].reason
