"""A policy with rules on what came before, on the bus's twin in memory; tests/acceptance has the real one."""

import asyncio
from dataclasses import replace

import pytest
from steps import count_steps
from toolgate_bus.config.check import check
from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.protocol.events import Continue, Deny, Hold
from toolgate_bus.state.claims import MemoryClaims
from toolgate_bus.state.shared import MemoryFacts, make_shared_state
from toolgate_schedulers.shipped.policy.scheduler import Policy, PolicyConfig, rule_on
from toolgate_schedulers.shipped.policy.verdicts import GRACE_S, Past
from toolgate_schedulers.testing import question, trial

KEEPER = "toolgate_schedulers.shipped.policy.keeper"
PROGRESS = "toolgate_schedulers.shipped.policy.progress"
AFTER = {"tools": "deploy", "after": {"tool": "test"}, "wait_s": 60}


def decided(here, tool, id_, session="", **more):
    """Tell of a call that was allowed."""
    told = {"id": id_, "outcome": "continue", "final_tool": tool, "final_input": {}, "session": session}
    here.tell("decision", **told, **more)


async def test_a_policy_without_rules_on_order_reads_no_facts():
    shared = make_shared_state()
    async with trial(
        Policy, config={"rules": [{"tools": "x", "action": "deny"}]}, shared=replace(shared, facts=None)
    ) as here:
        assert isinstance(await here.ask("x"), Deny)


async def test_who_waits_is_told_when_its_producer_ends_fails_or_is_denied():
    ends = {
        "ended": ("tool:post", {"success": True}, "continue"),
        "failed": ("tool:error", {}, "deny"),
        "unused": ("tool:unused", {}, "deny"),
    }
    async with trial(Policy, config={"rules": [AFTER]}) as here:
        for session, (event, more, action) in ends.items():
            decided(here, "test", f"t-{session}", session)
            asked = here.pose("deploy", session=session)
            assert isinstance(await asked.next(), Hold)
            here.tell(event, decision_id=f"t-{session}", **more)
            assert (await asked.final()).action == action
        test = here.pose("test", session="s", parallel_group_id="g")
        asked = here.pose("deploy", session="s", parallel_group_id="g")
        assert isinstance(await asked.next(), Hold)
        here.tell("decision", id=test.id, outcome="deny", final_tool=None, session="s")
        assert isinstance(await asked.final(), Deny)


async def test_what_is_written_a_moment_after_a_question_counts():
    """An orchestrator writes its facts within 15 ms, and asks at once."""
    async with trial(Policy, config={"rules": [{"tools": "mail", "unless_after": {"tool": "read"}}]}) as here:
        asked = here.pose("mail")
        asyncio.get_running_loop().call_later(0.015, decided, here, "read", "r")
        assert isinstance(await asked.next(), Deny)


async def test_who_waits_too_long_is_told_what_for():
    async with trial(Policy, config={"rules": [{**AFTER, "wait_s": 0.05}]}) as here:
        decided(here, "test", "t")
        denied = await here.pose("deploy").final()
        told = "It is under way: call this again when it has ended; it waited 0.05 s in vain"
        assert told in denied.reason


@pytest.fixture
def patient(monkeypatch):
    """What ends within seconds, as tests do on a busy machine, counts as ending in a moment."""
    monkeypatch.setattr(f"{KEEPER}.SOON_S", 20.0)
    monkeypatch.setattr(f"{KEEPER}.SOON_SHARE", 1000.0)


@pytest.mark.parametrize(("event", "action"), [("tool:post", "continue"), ("tool:error", "deny")])
async def test_what_ends_in_a_moment_is_waited_for_and_nothing_is_said_or_stored(patient, event, action):
    async with trial(Policy, config={"rules": [AFTER]}) as here:
        decided(here, "test", "t")
        asked = here.pose("deploy", timeout_s=60)
        with pytest.raises(TimeoutError):
            await asked.next(0.2)
        assert [key for key in await here.shared.store.keys("") if not key.startswith("table:")] == []
        here.tell(event, decision_id="t", success=True)
        assert (await asked.next()).action == action


async def test_of_many_that_wait_for_a_moment_the_last_are_held_at_once(patient, monkeypatch):
    monkeypatch.setattr(f"{KEEPER}.MAX_SOON", 2)
    async with trial(Policy, config={"rules": [AFTER]}) as here:
        decided(here, "test", "t")
        asked = [here.pose("deploy", timeout_s=60) for _ in range(3)]
        assert isinstance(await asked[2].next(), Hold)
        assert [one.answers for one in asked[:2]] == [[], []]
        here.tell("tool:post", decision_id="t", success=True)
        assert [(await one.final()).action for one in asked] == 3 * ["continue"]
        decided(here, "test", "u", "s")
        last = here.pose("deploy", session="s", timeout_s=60)
        with pytest.raises(TimeoutError):
            await last.next(0.2)  # there is room again
        here.withdraw(last)
        assert isinstance(await last.next(), Deny)


async def test_who_is_asked_twice_in_that_moment_says_the_same_twice(patient):
    async with trial(Policy, config={"rules": [AFTER]}) as here:
        decided(here, "test", "t")
        asked = here.pose("deploy", timeout_s=60)
        again = here.pose("deploy", timeout_s=60, id=asked.id)
        with pytest.raises(TimeoutError):
            await again.next(0.2)
        here.tell("tool:post", decision_id="t", success=True)
        assert [(await again.next()).action for _ in range(2)] == 2 * ["continue"]


async def test_peers_are_told_of_what_is_decided_late_and_of_nothing_else(monkeypatch):
    monkeypatch.setattr(f"{KEEPER}.TELL_S", 0.1)
    async with trial(Policy, config={"rules": [AFTER]}) as here:
        soon = here.pose("test", session="a", parallel_group_id="g")
        decided(here, "test", soon.id, "a")
        assert (await soon.next()).action == "continue"
        await asyncio.sleep(0.3)
        assert await here.shared.store.keys("order:") == []
        late = here.pose("test", session="b", parallel_group_id="g")
        assert (await late.next()).action == "continue"
        await asyncio.sleep(0.3)
        assert len(await here.shared.store.keys("order:")) == 1


async def test_calls_of_an_orchestrator_that_died_are_waited_for_no_longer(monkeypatch):
    monkeypatch.setattr("toolgate_schedulers.shipped.policy.keeper.LINGER_S", 0.0)
    monkeypatch.setattr("toolgate_schedulers.shipped.policy.keeper.TICK_S", 0.05)
    async with trial(Policy, config={"rules": [AFTER]}) as here:
        decided(here, "test", "t", orchestrator="gone")
        asked = here.pose("deploy")
        assert isinstance(await asked.next(), Hold)
        here.shared.facts.living.clear()
        assert isinstance(await asked.final(), Deny)


@pytest.mark.parametrize("scope", ["session", "label:team"])
async def test_of_many_that_two_replicas_are_asked_at_once_no_more_run_than_may(scope):
    config = {
        "rules": [
            {"tools": "pay", "when": {"amount": {"gt": 9}}, "at_most": {"n": 3, "scope": scope}},
            {"tools": "pay", "when": {"amount": 13}, "action": "deny"},
        ]
    }
    one = make_shared_state()
    other = replace(one, facts=MemoryFacts(), store=make_shared_state().store)
    async with trial(Policy, config=config, shared=one) as a, trial(Policy, config=config, shared=other) as b:
        for team in ("red", "blue"):
            who = {"session": f"s-{team}", "labels": {"team": team}}
            denied = a.pose("pay", {"amount": 13}, timeout_s=20, **who)
            assert (await denied.next(20)).action == "deny"  # and counts for nothing, decided or not
            asked = [
                (a, b)[number % 2].pose("pay", {"amount": 10}, timeout_s=20, **who) for number in range(10)
            ]
            small = [
                (a, b)[number % 2].pose("pay", {"amount": 1}, timeout_s=20, **who) for number in range(4)
            ]
            said = [(await one.next(20)).action for one in asked]
            assert (said.count("continue"), said.count("deny")) == (3, 7)
            assert [(await one.next(20)).action for one in small] == 4 * ["continue"]


async def test_a_call_that_waits_for_room_goes_on_when_one_before_it_on_another_replica_does_not_run():
    config = {"rules": [{"tools": "pay", "at_most": {"n": 1}, "wait_s": 60}]}
    one = make_shared_state()
    other = replace(one, facts=MemoryFacts(), store=make_shared_state().store)
    async with trial(Policy, config=config, shared=one) as a, trial(Policy, config=config, shared=other) as b:
        first = a.pose("pay", timeout_s=20)
        assert (await first.next(20)).action == "continue"  # and somebody else thinks about it
        second = b.pose("pay", timeout_s=20)
        assert isinstance(await second.next(20), Hold)
        for replica in (a, b):
            replica.tell(
                "decision", id=first.id, outcome="deny", tool_name="pay", final_tool=None, session=""
            )
        assert (await second.final()).action == "continue"


async def test_where_it_cannot_be_told_who_else_is_decided_a_call_that_counts_is_denied():
    class Away(MemoryClaims):
        async def claim(self, keys, who, words):
            raise TransportError("away")

    shared = replace(make_shared_state(), claims=Away())
    rules = [{"tools": "pay", "at_most": {"n": 1}}, {"tools": "mail", "unless_after": {"tool": "read"}}]
    async with trial(Policy, config={"rules": rules}, shared=shared) as here:
        assert "are not known yet. Try again" in (await here.ask("pay", timeout_s=20)).reason
        assert (await here.ask("mail", timeout_s=20)).action == "continue"


async def test_nobody_waits_for_what_was_withdrawn():
    async with trial(Policy, config={"rules": [AFTER]}) as here:
        decided(here, "test", "t")
        asked = here.pose("deploy")
        assert isinstance(await asked.next(), Hold)
        here.withdraw(asked)
        await asyncio.sleep(0.05)
        here.tell("tool:post", decision_id="t", success=True)
        with pytest.raises(TimeoutError):
            await asked.final(0.2)


class DeafFacts(MemoryFacts):
    """A read that waits for others, and does not hear of who is new."""

    def __init__(self):
        super().__init__()
        self.known = set()

    def expect(self, orchestrator):
        is_new = orchestrator not in self.known
        self.known.add(orchestrator)
        return is_new

    async def next(self, wait_ms=None):
        await asyncio.sleep(3600)

    async def glance(self, *orchestrators):
        return await super().next() if orchestrators else []


async def test_the_first_facts_of_an_agent_that_is_new_are_heard_while_others_are_waited_for():
    shared = replace(make_shared_state(), facts=DeafFacts())
    async with trial(Policy, config={"rules": [AFTER]}, shared=shared) as here:
        test = here.pose("test", parallel_group_id="g", timeout_s=20)
        deploy = here.pose("deploy", parallel_group_id="g", timeout_s=20)
        assert (await test.next(20)).action == "continue"
        decided(here, "test", test.id)
        here.tell("tool:post", decision_id=test.id, success=True)
        assert (await deploy.final(20)).action == "continue"


class RestingFacts(MemoryFacts):
    """A read for which nobody waits takes its time."""

    async def next(self, wait_ms=None):
        if wait_ms is None:
            await asyncio.sleep(3600)
        return await super().next(wait_ms)


async def test_who_comes_after_a_rest_does_not_wait_for_a_read_that_takes_its_time():
    rule = {"tools": "mail", "unless_after": {"tool": "read"}}
    shared = replace(make_shared_state(), facts=RestingFacts())
    async with trial(Policy, config={"rules": [rule]}, shared=shared) as here:
        assert not isinstance(await here.ask("mail"), Deny)
        decided(here, "read", "r")
        here.tell("tool:post", decision_id="r", success=True)
        assert "after read has ended well" in (await here.ask("mail")).reason


class SlowFacts(MemoryFacts):
    """What is read comes late: a reader that lags."""

    late_s = 0.1

    async def next(self, wait_ms=None):
        facts = await super().next(wait_ms)
        await asyncio.sleep(self.late_s)
        return facts

    async def glance(self, *orchestrators):
        await asyncio.sleep(self.late_s)
        return await super().glance()


@pytest.mark.parametrize(
    ("late_s", "lag_s", "told"), [(0.1, 60.0, "rule 1"), (60.0, 0.4, "are not known yet. Try again")]
)
async def test_a_reader_that_lags_lets_nothing_pass_that_may_not_follow(monkeypatch, late_s, lag_s, told):
    monkeypatch.setattr(f"{PROGRESS}.MAX_LAG_S", lag_s)
    monkeypatch.setattr(SlowFacts, "late_s", late_s)
    rule = {"tools": "mail", "unless_after": {"tool": "read"}}
    shared = replace(make_shared_state(), facts=SlowFacts())
    async with trial(Policy, config={"rules": [rule]}, shared=shared) as here:
        decided(here, "read", "r")
        here.tell("tool:post", decision_id="r", success=True)
        verdict = await here.ask("mail")
        assert isinstance(verdict, Deny)
        assert told in verdict.reason or told in str(verdict.rule_name)


async def test_while_the_facts_of_a_shard_cannot_be_read_nothing_passes_that_may_not_follow(monkeypatch):
    rule = {"tools": "mail", "unless_after": {"tool": "read"}}
    facts = MemoryFacts()
    async with trial(
        Policy, config={"rules": [rule]}, shared=replace(make_shared_state(), facts=facts)
    ) as here:
        assert not isinstance(await here.ask("mail"), Deny)
        monkeypatch.setattr(f"{PROGRESS}.MAX_LAG_S", 0.1)
        facts.is_whole = False
        verdict = await here.ask("mail")
        assert isinstance(verdict, Deny)
        assert "are not known yet. Try again" in verdict.reason


async def test_a_policy_that_observes_makes_no_call_wait_and_denies_none_whose_past_it_does_not_know(
    monkeypatch,
):
    rules = [AFTER, {"tools": "mail", "unless_after": {"tool": "read"}}]
    facts = MemoryFacts()
    shared = replace(make_shared_state(), facts=facts)
    async with trial(Policy, config={"mode": "observe", "rules": rules}, shared=shared) as here:
        assert await here.ask("deploy") == Continue(reason="rule 1 would have denied")
        decided(here, "test", "t")
        assert await here.ask("deploy") == Continue(reason="rule 1 would have made it wait")
        here.tell("tool:post", decision_id="t", success=True)
        assert await here.ask("deploy") == Continue()
        monkeypatch.setattr(f"{PROGRESS}.MAX_LAG_S", 0.1)
        facts.is_whole = False
        told = "not knowing the calls before it would have denied"
        assert await here.ask("mail") == Continue(reason=told)


def test_of_several_in_one_response_one_waits_to_hear_of_the_others():
    config = PolicyConfig(rules=[AFTER])
    alone, one_of = question("deploy"), question("deploy", parallel_group_id="g")
    assert isinstance(rule_on(config, alone), Deny)
    assert isinstance(rule_on(config, one_of, Past(waited=GRACE_S / 2)), Hold)
    assert isinstance(rule_on(config, one_of, Past(waited=GRACE_S)), Deny)


def test_a_rule_that_observes_says_what_it_would_have_done_and_one_without_action_passes_on():
    config = PolicyConfig(
        rules=[
            {"tools": "deploy", "after": {"tool": "test"}, "mode": "observe"},
            {"tools": "*", "unless_after": {"tool": "x"}},
            {"tools": "deploy", "action": "ask"},
        ]
    )
    assert rule_on(config, question("deploy")).action == "ask_user"
    only = PolicyConfig(rules=config.rules[:2])
    assert rule_on(only, question("deploy")).reason == "rule 1 would have denied"


def test_a_call_touches_only_the_rules_that_name_its_tool():
    def cost(count):
        rules = [{"tools": f"t{number}", "after": {"tool": "x"}} for number in range(count)]
        config, call = PolicyConfig(rules=rules), question("t5")
        rule_on(config, call)  # what is made once for a configuration is made
        return count_steps(rule_on, config, call)

    assert cost(1000) == cost(10)


def after(tools, tool, **more):
    return {"tools": tools, "after": {"tool": tool}, **more}


@pytest.mark.parametrize(
    ("rules", "named"),
    [
        ([after("a", "a")], "a"),
        ([after("a", "b"), after("b", "c", wait_s=5), after("c", ["a", "b"]), after("d", "e")], "a, b, c"),
        ([after("a", "b"), after("b", ["a", "c"])], ""),  # c can run
        ([after("a", "a", when={"x": 1})], ""),  # another a can begin
        ([{"tools": "a", "agents": "boss", "action": "allow"}, after("a", "a")], ""),
        ([after("a", "a*")], ""),
        ([{"tools": "*", "when": {"x": 1}, "action": "allow"}, after("a", "a")], ""),
        ([after("a", "b", mode="observe", action="ask"), after("b", "a")], ""),
    ],
)
def test_tools_that_could_never_run_as_each_waits_for_the_other_are_refused_by_name(rules, named):
    if not named:
        check(PolicyConfig, {"rules": rules}, "policy.yaml")
        return
    with pytest.raises(ConfigError, match=f"after: {named} could never run: each may run only after one"):
        check(PolicyConfig, {"rules": rules}, "policy.yaml")


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"tools": "x", "after": {"tool": "y"}, "action": "deny"}, "deny by themselves"),
        ({"tools": "x", "wait_s": 1, "action": "deny"}, "wait_s: goes with after"),
        ({"tools": "x", "after": {"tool": "y"}, "wait_s": 1, "mode": "observe"}, "only observes"),
        ({"tools": "x", "at_most": {"n": 1}, "schema": {"required": ["a"]}}, "does not go with schema"),
        ({"tools": "x", "after": {"tool": "y", "scope": "fleet"}}, "session, tree or label:NAME"),
        ({"tools": "x", "after": {"tool": "y", "same": {"a": "b"}}}, "$.path in this call"),
    ],
)
def test_a_wrong_rule_on_order_is_refused_in_words(rule, said):
    with pytest.raises(ConfigError) as error:
        check(PolicyConfig, {"rules": [rule]}, "policy.yaml")
    assert said in str(error.value)
