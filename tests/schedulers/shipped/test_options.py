"""Options of shipped schedulers that no other test here shows: by what a scheduler answers, in memory."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from toolgate_bus.config.check import check
from toolgate_bus.ledger.slots.queue import Cap
from toolgate_bus.protocol.events import AskUser, Deny, Hold
from toolgate_schedulers.shipped.approval.scheduler import ApprovalScheduler
from toolgate_schedulers.shipped.cost_aware.scheduler import CostAware
from toolgate_schedulers.shipped.heuristic import Heuristic
from toolgate_schedulers.shipped.policy.scheduler import Policy
from toolgate_schedulers.shipped.provenance import Provenance, ProvenanceConfig
from toolgate_schedulers.shipped.rate_limit import RateLimit
from toolgate_schedulers.shipped.router.router import Router
from toolgate_schedulers.shipped.slots.adapt import cut, is_signal, outcome_of
from toolgate_schedulers.shipped.slots.config import PoolConfig, SlotsConfig, request_of
from toolgate_schedulers.shipped.slots.scheduler import Slots
from toolgate_schedulers.testing import Question, Trial, question, trial

pytestmark = pytest.mark.pure

LONG = {"a": "⟦toolgate:truncated:0⟧"}
"""An argument that nobody sees whole."""


async def becomes(read: Callable[[], Awaitable[Any]], wanted: Any) -> None:
    """Wait for what a scheduler learns of facts."""
    async with asyncio.timeout(20):
        while await read() != wanted:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    ("written", "named", "otherwise"),
    [(Policy, {"action": "deny"}, "ask_user"), (ApprovalScheduler, {"via": "ask_user"}, "continue")],
)
async def test_of_arguments_that_cannot_be_seen_whole_a_rule_says_what_they_count_as(
    written: Any, named: dict[str, Any], otherwise: str
) -> None:
    fits = {"when": {"a": "*rm*"}, **named}
    rules = [{"tools": "say", "unknown": "allow", **fits}, {"tools": "run", **fits}]
    default = {"default": "ask"} if written is Policy else {}
    async with trial(written, config={"rules": rules, **default}) as here:
        lenient, strict = [await here.ask(tool, LONG) for tool in ("say", "run")]
    assert (lenient.action, strict.action) == (otherwise, named.get("action", "ask_user"))


async def test_an_approval_rule_lets_pass_or_asks_a_person_in_its_words() -> None:
    rules = [
        {"tools": "pay", "when": {"amount": {"lt": 10}}, "action": "allow"},
        {"tools": "pay", "via": "ask_user", "prompt": "Pay?", "options": ["Go", "Stop"], "expires_s": 30},
        {"tools": "mail"},
    ]
    async with trial(ApprovalScheduler, config={"rules": rules}) as here:
        assert (await here.ask("pay", {"amount": 9})).action == "continue"
        asked = await here.ask("pay", {"amount": 10})
        assert (asked.prompt, asked.options, asked.timeout_s) == ("Pay?", ("Go", "Stop"), 30.0)
        assert isinstance(await here.ask("mail"), Hold)


# ---------------------------------------------------------------------- rules on order

CONDITIONS: dict[str, tuple[Any, Any, Any]] = {
    # by name: the condition on the call before, an argument that fits it, one that does not
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
    "exists": ({"exists": True}, None, ...),
}


def ran(here: Trial, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> None:
    """Tell of a call that ran, well unless `success` says otherwise."""
    success = more.pop("success", True)
    told = {"id": secrets.token_hex(16), "final_tool": tool, "final_input": arguments or {}, "session": "s"}
    here.tell("decision", outcome="continue", **{**told, **more})
    here.tell("tool:post", decision_id=told["id"], success=success)


@pytest.mark.parametrize(("key", "first"), [("after", "deny"), ("unless_after", "continue")])
async def test_a_rule_on_order_is_about_calls_before_that_its_conditions_fit(key: str, first: str) -> None:
    rules = [
        {"tools": f"x_{name}", key: {"tool": name, "when": {"a": condition}}}
        for name, (condition, _, _) in CONDITIONS.items()
    ]
    then = "continue" if first == "deny" else "deny"
    async with trial(Policy, config={"rules": rules}) as here:
        for name, (_, fits, other) in CONDITIONS.items():
            ran(here, name, {} if other is ... else {"a": other})
            assert (await here.ask(f"x_{name}", session="s")).action == first, name
            ran(here, name, {"a": fits})
            assert (await here.ask(f"x_{name}", session="s")).action == then, name


async def test_what_was_done_without_a_label_counts_against_every_value_of_it() -> None:
    rule = {"tools": "send", "unless_after": {"tool": "look", "scope": "label:team"}}
    async with trial(Policy, config={"rules": [rule]}) as here:
        who: dict[str, Any] = {"session": "other", "labels": {"team": "red"}}
        assert (await here.ask("send", **who)).action == "continue"
        ran(here, "look", session="s")
        assert (await here.ask("send", **who)).action == "deny"


@pytest.mark.parametrize(("key", "first"), [("after", "deny"), ("unless_after", "continue")])
async def test_a_rule_on_order_says_whose_calls_how_they_ended_when_and_with_which_values(
    key: str, first: str
) -> None:
    rules = [
        {"tools": "any_end", key: {"tool": "test", "success": None}},
        {"tools": "failed", key: {"tool": "test", "success": False}},
        {"tools": "of_the_tree", key: {"tool": "look", "scope": "tree"}},
        {"tools": "of_the_team", key: {"tool": "look", "scope": "label:team"}},
        {"tools": "same", key: {"tool": "same_test", "same": {"$.a": "$.b"}}},
        {"tools": "brief", key: {"tool": "look", "within_s": 0.2}},
    ]
    then = "continue" if first == "deny" else "deny"
    async with trial(Policy, config={"rules": rules}) as here:

        async def action(tool: str, arguments: Any = None, **who: Any) -> str:
            return str((await here.ask(tool, arguments, **{"session": "s", **who})).action)

        assert await action("any_end") == await action("failed") == first
        ran(here, "test", success=False)
        assert await action("any_end") == await action("failed") == then
        ran(here, "look", root_session="r", labels={"team": "red"})
        child = {"session": "child", "root_session": "r", "labels": {"team": "red"}}
        apart = {"session": "apart", "root_session": "q", "labels": {"team": "blue"}}
        beside = {"session": "beside", "root_session": "z", "labels": {"team": "red"}}
        for tool, of_beside in (("of_the_tree", first), ("of_the_team", then)):
            assert (await action(tool, **child), await action(tool, **apart)) == (then, first), tool
            assert await action(tool, **beside) == of_beside, tool
        ran(here, "same_test", {"b": 1})
        assert (await action("same", {"a": 1}), await action("same", {"a": 2})) == (then, first)
        await becomes(lambda: action("brief"), first)  # in the end it was too long ago


async def test_a_rule_counts_calls_by_session_tree_or_label_within_its_time() -> None:
    rules = [
        {"tools": "once", "at_most": {"n": 1}},
        {"tools": "tree", "at_most": {"n": 1, "scope": "tree"}},
        {"tools": "alone", "at_most": {"n": 1, "scope": "own-session"}},
        {"tools": "team", "at_most": {"n": 1, "scope": "label:team"}},
        {"tools": "brief", "at_most": {"n": 1, "within_s": 0.2}},
    ]
    async with trial(Policy, config={"rules": rules}) as here:

        async def action(tool: str, **who: Any) -> str:
            return str((await here.ask(tool, **{"session": "s", "root_session": "r", **who})).action)

        for tool in ("once", "tree", "alone", "brief"):
            ran(here, tool, root_session="r")
        for tool in ("once", "tree"):
            below, apart = {"session": "t"}, {"session": "t", "root_session": "q"}
            assert (await action(tool, **below), await action(tool, **apart)) == ("deny", "continue")
        assert (await action("alone"), await action("alone", session="t")) == ("deny", "continue")
        red, blue = {"labels": {"team": "red"}}, {"labels": {"team": "blue"}}
        ran(here, "team", root_session="r", **red)
        told = [await action("team", **red), await action("team", **blue), await action("team")]
        assert told == ["deny", "continue", "deny"]  # a call without a team may be of any
        ran(here, "team", root_session="r")
        assert await action("team", **blue) == "deny"
        await becomes(lambda: action("brief"), "continue")


# ---------------------------------------------------------------------- what a call becomes

MAPPED = {
    "left": {"arguments": {"q": "$.query", "limit": {"value": 10}}},
    "right": {"arguments": {"words": ["$.text", {"value": "all"}]}},
}


@pytest.mark.parametrize(
    ("tool", "equivalent", "given", "made"),
    [
        ("right", "left", {"query": "x"}, {"q": "x", "limit": 10}),
        ("left", "right", {"text": "y"}, {"words": "y"}),
        ("left", "right", {}, {"words": "all"}),
    ],
)
@pytest.mark.parametrize("written", [Heuristic, CostAware])
async def test_an_equivalents_arguments_are_taken_from_the_call_or_are_literal(
    written: Any, tool: str, equivalent: str, given: dict[str, Any], made: dict[str, Any]
) -> None:
    config: dict[str, Any] = {"groups": [{"tools": MAPPED}]}
    tools = (equivalent,)
    if written is CostAware:
        costs = {tool: {"cost": 9}, equivalent: {"cost": 1}}
        config = {"tools": costs, "alternatives": config["groups"], "cost_weight": 1}
        tools = (tool, equivalent)
    async with trial(written, config=config) as here:
        verdict = await here.ask(tool, given, available_tools=tools)
        assert (verdict.tool, verdict.arguments) == (equivalent, made)


async def test_a_target_has_literal_arguments_of_its_own_and_an_agent() -> None:
    routes = [
        {"from": "mapped", "targets": [{"to": "one", "arguments": {"q": {"value": 1}}}]},
        {"from": "work", "targets": [{"to": "delegate", "agent": "cheap"}]},
        {
            "from": "shared",
            "name": "halves",
            "reason": "by team",
            "targets": [{"to": "one"}, {"to": "two", "weight": 2}, {"to": "three", "weight": 0}],
            "sticky": "label:team",
        },
    ]
    tools = {"available_tools": ("one", "two", "three", "delegate"), "available_agents": ("cheap",)}
    async with trial(Router, config={"routes": routes}) as here:
        assert (await here.ask("mapped", {"a": 1}, **tools)).arguments == {"q": 1}
        assert (await here.ask("work", **tools)).agent_target == "cheap"
        went: dict[str, set[str]] = {}
        for number in range(120):
            verdict = await here.ask("shared", labels={"team": f"t{number % 30}"}, **tools)
            went.setdefault(f"t{number % 30}", set()).add(verdict.tool)
            assert verdict.reason == "by team"
        assert {len(tools) for tools in went.values()} == {1}  # a team's calls stay together
        assert set().union(*went.values()) == {"one", "two"}
        assert sum(tools == {"two"} for tools in went.values()) > 15  # two of three, on average


async def test_a_target_that_fails_is_left_alone_as_its_fallback_says() -> None:
    spare = {"to": "spare", "arguments": {"q": {"value": 1}}}
    routes: dict[str, dict[str, Any]] = {
        "soon": {"to": "one", "fallback": {"after": 1, **spare}},
        "twice": {"to": "one", "fallback": {"after": 2}},
        "twice_quickly": {"to": "one", "fallback": {"after": 2, "within_s": 0.01}},
        "mostly": {"to": "two", "fallback": {"after": 1, "share": 0.6}},
        "ask": {"to": "ask", "agent": "senior", "fallback": {"after": 1, "to": "ask", "agent": "junior"}},
        "briefly": {"to": "three", "fallback": {"after": 1, "for_s": 0.2, "to": "spare"}},
    }
    tools = {
        "available_tools": ("one", "two", "three", "spare", "ask", *routes),
        "available_agents": ("senior", "junior"),
    }
    config = {"routes": [{"from": tool, **route} for tool, route in routes.items()]}
    async with trial(Router, config=config) as here:

        async def goes(tool: str) -> str:
            verdict = await here.ask(tool, **tools)
            return str(getattr(verdict, "tool", tool))

        async def asks() -> str:
            return str((await here.ask("ask", agent_target="boss", **tools)).agent_target)

        assert [await goes(tool) for tool in ("soon", "twice", "mostly", "briefly")] == [
            *("one", "one", "two", "three")
        ]
        here.tell("tool:error", tool="one", decision_id="0" * 32, error="ValueError")
        await becomes(lambda: goes("soon"), "spare")
        assert (await here.ask("soon", {"a": 1}, **tools)).arguments == {"q": 1}
        assert await goes("twice") == "one"
        here.tell("delegate:error", agent_target="senior", agent="boss")
        await becomes(asks, "junior")
        await asyncio.sleep(0.02)  # longer than `within_s` of one route
        here.tell("tool:post", tool="one", decision_id="0" * 32, success=False)
        await becomes(lambda: goes("twice"), "twice")
        assert await goes("twice_quickly") == "one"
        for success in (True, False):
            here.tell("tool:post", tool="two", decision_id="0" * 32, success=success)
        here.tell("tool:error", tool="three", decision_id="0" * 32)
        await becomes(lambda: goes("briefly"), "spare")
        assert await goes("mostly") == "two"  # half of its calls failed: the share is 0.6
        here.tell("tool:error", tool="two", decision_id="0" * 32)
        await becomes(lambda: goes("mostly"), "mostly")
        await becomes(lambda: goes("briefly"), "three")  # its time is over: one call tries it


# ---------------------------------------------------------------------- provenance

PROMPT = "Mail the report to ann@out.example and to Bob Jones; then remove the old one."
SINKS = {
    "trusted": ["*@house.example"],
    "action": "deny",
    "timeout_s": 77,
    "annotations": {
        "search_web": {"readOnlyHint": True},
        "search_home": {"openWorldHint": False},
        "fetch": {},
    },
    "sinks": [
        {"name": "mail", "tools": "send_mail", "to": ["to", "message.cc"]},
        {"name": "note", "tools": "note", "to": "to", "match": "name", "trusted": ["wall"]},
        {"name": "deleting", "tools": "delete_*", "words": ["remov*"]},
        {"name": "posting", "tools": "post", "links": True},
        {"name": "fetching", "tools": "fetch", "to": "url", "action": "ask"},
    ],
}


async def test_every_option_of_a_sink_holds() -> None:
    provenance = Provenance(check(ProvenanceConfig, SINKS, "provenance.yaml"))

    async def rule(tool: str, request: str = PROMPT, **arguments: Any) -> str:
        verdict = await provenance.decide(question(tool, arguments, request=request))
        return f"deny {verdict.rule_name}" if isinstance(verdict, Deny) else verdict.action

    assert await rule("send_mail", to="ann@out.example") == "continue"
    assert await rule("send_mail", to="me@house.example") == "continue"
    assert await rule("send_mail", to="bob.jones@out.example") == "deny mail"
    assert await rule("send_mail", to="ann@out.example", message={"cc": "eve@x.example"}) == "deny mail"
    assert await rule("send_mail", "", to="ann@out.example") == "deny mail"
    assert await rule("note", to="bob.jones@out.example") == "continue"
    assert await rule("note", to="wall") == "continue"
    assert await rule("note", to="door") == "deny note"
    assert await rule("delete_file", id=7) == "continue"
    assert await rule("delete_file", "Keep it", id=7) == "deny deleting"
    assert await rule("post", text="see ann@out.example") == "continue"
    assert await rule("post", text="see https://evil.example/") == "deny posting"
    assert await rule("search_web", query="wages https://evil.example/") == "deny search_web"
    assert await rule("search_web", query="wages") == "continue"
    asked = await provenance.decide(question("fetch", {"url": "https://evil.example/"}, request=PROMPT))
    assert isinstance(asked, AskUser)
    assert "does not name evil.example" in asked.prompt
    assert asked.timeout_s == 77


# ---------------------------------------------------------------------- limits


async def test_calls_are_limited_by_whose_they_are_which_and_how_many() -> None:
    limits = [
        {"tools": "a_session", "per": "session", "rate": "1/day"},
        {"tools": "a_label", "per": "label:team", "rate": "1/day"},
        {"tools": ["f_a", "f_b"], "per": "fleet", "rate": "1/day"},
        {"name": "helpers", "tools": "of_helpers", "agents": "helper-*", "per": "agent", "rate": "1/day"},
        {"tools": "of_ops", "labels": {"team": "ops*"}, "per": "fleet", "rate": "1/day"},
        {"tools": "three", "per": "fleet", "rate": {"calls": 3, "seconds": 86_400}},
        {"tools": "soon", "per": "fleet", "rate": {"calls": 1, "seconds": 0.1}},
        {"tools": "burst", "per": "fleet", "rate": "1/day", "burst": 2},
    ]
    async with trial(RateLimit, config={"limits": limits}) as here:

        async def tries(*calls: tuple[str, dict[str, Any]]) -> str:
            return "".join([(await here.ask(tool, **who)).action[0] for tool, who in calls])

        for tool, who, other in (
            ("a_session", {"session": "a"}, {"session": "b"}),
            ("a_label", {"labels": {"team": "a"}}, {"labels": {"team": "b"}}),
            ("of_helpers", {"agent": "helper-1"}, {"agent": "boss"}),
            ("of_ops", {"labels": {"team": "ops-1"}}, {"labels": {"team": "dev"}}),
        ):
            calls = [(tool, one) for one in (who, who, other, other)]
            assert await tries(*calls) == ("cdcd" if tool.startswith("a_") else "cdcc"), tool
        assert await tries(("f_a", {}), ("f_b", {})) == "cd"
        denied = await here.ask("of_helpers", agent="helper-1")
        assert "(helpers)" in denied.reason
        assert await tries(*[("three", {})] * 4) == "cccd"
        assert await tries(*[("burst", {})] * 3) == "ccd"
        assert await tries(("soon", {})) == "c"
        await becomes(lambda: tries(("soon", {})), "c")


# ---------------------------------------------------------------------- prices of an LLM

LLM = {
    "prices": {
        "a/large": {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 4, "cache_in_input": True},
        "b/small": {"input": 1, "output": 1},
    },
    "default": {"input": 2, "output": 1, "cache_read": 1, "cache_write": 4, "cache_in_input": True},
    "equivalents": [["a/large", "b/small"]],
    "max_output_tokens": 1000,
}
LISTED = ("llm:request", "a/large", "b/small", "c/other")


async def test_requests_to_an_llm_cost_what_its_prices_say() -> None:
    config = {"llm": LLM, "budgets": [{"name": "all", "limit": 0.08}], "learn": False}
    async with trial(CostAware, config=config) as here:

        def request(model: str, sent: int, most: int | None = None) -> Question:
            provider, _, name = model.partition("/")
            asked = {"provider": provider, "model": name, "input_tokens": sent, "max_output_tokens": most}
            return here.pose(
                "llm:request", {**asked, "purpose": "answer"}, available_tools=LISTED, session="s-1"
            )

        async def totals() -> tuple[int, int]:
            (one,) = await here.shared.ledger.balances()
            return one.spent, one.reserved

        async def costs(asked: Question, model: str, **used: int) -> int:
            before, (held,) = (await totals())[0], await here.shared.ledger.open()
            provider, _, name = model.partition("/")
            who = {"decision_id": asked.id, "provider": provider, "model": name, "session": "s-1"}
            here.tell("usage", orchestrator=held.owner, **who, **used)
            async with asyncio.timeout(20):
                while (await totals())[1]:
                    await asyncio.sleep(0.005)
            return (await totals())[0] - before

        first = request("a/large", 1000)  # the longest answer is the configured one
        assert (await first.next()).action == "continue"
        assert await totals() == (0, 1000 * 4 + 1000 * 15)
        used = {"input_tokens": 1000, "cache_read_tokens": 500, "cache_write_tokens": 10, "output_tokens": 10}
        assert await costs(first, "a/large", **used) == 500 * 3 + 150 + 40 + 150
        other = request("c/other", 1000, 10)
        assert (await other.next()).action == "continue"
        assert (await totals())[1] == 1000 * 4 + 10
        used = {"input_tokens": 1000, "cache_read_tokens": 900, "cache_write_tokens": 5, "output_tokens": 0}
        assert await costs(other, "c/other", **used) == 100 * 2 + 900 + 5 * 4
        replaced = await request("a/large", 20_000, 100).next()
        assert (replaced.action, replaced.tool) == ("modify", "llm:request")
        assert (replaced.arguments["provider"], replaced.arguments["model"]) == ("b", "small")
        refused = await request("a/large", 900_000).next()
        assert "Over budget: a request to a/large" in refused.reason


# ---------------------------------------------------------------------- slots


def wants(here: Trial, tool: str, arguments: Any = None, **who: Any) -> Question:
    """A call that is about to run."""
    return here.pose(tool, arguments, phase="admit", timeout_s=20.0, **who)


async def tries(here: Trial, *calls: tuple[Any, ...]) -> str:
    """What comes of calls that wait for nothing, one after the other, by first letter."""
    return "".join([(await wants(here, *call).next()).action[0] for call in calls])


async def test_so_many_calls_have_slots_by_key_and_readers_together() -> None:
    pools = [
        {"name": "pairs", "tools": "pair", "limit": 2, "wait_s": 0},
        {"name": "hosts", "tools": "fetch*", "key": "$.url#host", "wait_s": 0},
        {"name": "files", "tools": "*_file", "key": "$.path", "shared": {"tools": "read_*"}, "wait_s": 0},
        {"name": "few", "tools": ["brief"], "wait_s": 0.05},
    ]
    async with trial(Slots, config={"pools": pools}) as here:
        assert await tries(here, *[("pair",)] * 3) == "ccd"
        one, same, other = "https://a.b/1", "https://a.b:99/2", "https://b.c/1"
        assert await tries(here, *[("fetch", {"url": url}) for url in (one, same, other)]) == "cdc"
        read, write = ("read_file", {"path": "x"}), ("write_file", {"path": "x"})
        assert await tries(here, read, read, write, ("write_file", {"path": "y"}), read) == "ccdcc"
        first = wants(here, "brief")
        assert (await first.next()).action == "continue"
        second = wants(here, "brief")
        assert isinstance(await second.next(), Hold)
        assert "a slot of few, and all are in use. It waited 0.05 s" in (await second.final()).reason


def pool(**options: Any) -> PoolConfig:
    """One that is read as a file is."""
    return check(SlotsConfig, {"pools": [{"name": "p", "tools": "*", **options}]}, "slots.yaml").pools[0]


@pytest.mark.parametrize(
    ("options", "labels", "told"),
    [
        ({}, {"team": "red"}, ("", 1.0, 0, 30.0)),
        ({"share": {"by": "label:team", "weights": {"red": 3}}}, {"team": "red"}, ("red", 3.0, 0, 30.0)),
        ({"share": {"by": "label:team", "default": 0.5}}, {"team": "blue"}, ("blue", 0.5, 0, 30.0)),
        ({"priority": {"by": "label:x", "classes": {"up": 5}}}, {"x": "up"}, ("", 1.0, 5, 30.0)),
        ({"priority": {"by": "label:x", "default": 3}}, {}, ("", 1.0, 3, 30.0)),
        ({"priority": {"by": "label:x", "ageing_s": 0.5}}, {}, ("", 1.0, 0, 0.5)),
    ],
)
def test_whose_turn_it_is_goes_by_share_class_and_age(
    options: dict[str, Any], labels: dict[str, str], told: tuple[Any, ...]
) -> None:
    asked = request_of([pool(**options)], question("turn", labels=labels), "o")
    assert (asked.tenant, asked.weight, asked.level, asked.ageing_s) == told


def test_a_limit_follows_what_its_tool_says_as_the_pool_says() -> None:
    rule = pool(limit=8, adaptive={"min": 3, "signals": [418], "climb_s": 7, "pause_s": 9}).adaptive
    assert rule is not None
    failed = {"event": "tool:error", "decision_id": "a", "error": "RuntimeError"}
    signals = [is_signal(outcome_of({**failed, "signal": signal}), rule.names) for signal in ("418", "429")]
    assert signals == [True, False]
    assert cut(rule, 8, None, 4, 7, 0, 100.0) == Cap(3, 0.0, 107.0)
    assert cut(rule, 8, None, 8, 1, 600.0, 100.0) == Cap(4, 109.0, 700.0)
