"""Rulings on results, on a real server: each verdict comes from its own process."""

import os
import signal
from contextlib import aclosing

import pytest
import redis.asyncio as redis
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance

TEXT = "user ann, card 4111 1111, key sk-12345"
CARD, KEY = "4111 1111", "sk-12345"


class Ruled:
    """A gate on a bus with schedulers that rule on results."""

    def __init__(self, schedulers):
        self.schedulers = schedulers

    async def start(self, *names):
        """Start these schedulers; their process ids, by name."""
        children = {name: self.schedulers.run(f"result_rulers:{name}") for name in names}
        return {name: (await self.schedulers.ready(child))[0] for name, child in children.items()}

    def gate(self, **config):
        """A gate that asks them."""
        where = {"redis": self.schedulers.url, "namespace": self.schedulers.namespace}
        return Gate.open(**where, **{"patience_ms": 5000} | config)

    async def rule(self, rules, result=TEXT, ask=None, **config):
        """One ruling on the result of a call that carries these rules."""
        async with self.gate(**config) as gate:
            return await rule(gate, rules, result, ask)


async def rule(gate, rules, result=TEXT, ask=None):
    """The result that is given of a call that carries these rules."""
    call = Call("read", {"rules": rules}, ["read"])
    return await gate.rule_on_result(call, None, result, ask=ask)


@pytest.fixture
def ruled(schedulers):
    return Ruled(schedulers)


async def test_a_denial_and_silence_of_a_required_scheduler_and_an_expired_hold_withhold(ruled):
    await ruled.start("left", "holder")
    denied = await ruled.rule({"left": "deny"})
    assert denied.value == "The tool ran, but its result is withheld: it is not for you"
    silent = await ruled.rule({"left": "hang"}, required=["left"], patience_ms=300)
    assert (silent.outcome, silent.why, silent.scheduler) == ("withheld", "silent", "left")
    expired = await ruled.rule({"holder": "hold"})
    assert (expired.outcome, expired.why, expired.scheduler) == ("withheld", "expired", "holder")
    optional = await ruled.rule({"left": "hang"}, patience_ms=300)
    assert (optional.value, optional.why) == (TEXT, "failed_open")


async def test_a_person_who_refuses_withholds_and_one_who_agrees_releases(ruled):
    await ruled.start("left")
    for answer, outcome in (("refuse", "withheld"), ("allow", "released")):

        async def ask(asked, question, answer=answer):
            assert asked.prompt == "show it?"
            return answer

        made = await ruled.rule({"left": "ask"}, ask=ask)
        assert made.outcome == outcome
        assert (TEXT in str(made.value)) == (outcome == "released")


async def test_masks_of_two_schedulers_are_joined(ruled):
    await ruled.start("left", "right")
    made = await ruled.rule({"left": f"mask {CARD}", "right": f"mask {KEY}"})
    assert made.value == "user ann, card [withheld: secret], key [withheld: secret]"
    assert (made.outcome, made.scheduler, made.reason) == ("masked", "right", "found [withheld]")
    assert made.hidden == {CARD, KEY}


@pytest.mark.parametrize("second", ["continue", "hang"])
async def test_a_replacement_goes_round_to_all_and_no_redaction_is_lost_to_it(ruled, second):
    await ruled.start("left", "right")
    rules = {"left": [f"mask {KEY}", second], "right": [f"replace ann has {KEY}", "continue"]}
    made = await ruled.rule(rules, patience_ms=500)
    assert (made.value, made.outcome, made.scheduler) == ("ann has [withheld]", "replaced", "right")
    for name in ("left", "right"):
        assert len(ruled.schedulers.lines("again", scheduler=name)) == 1


async def test_a_second_replacement_withholds(ruled):
    await ruled.start("left", "right")
    made = await ruled.rule({"left": ["continue", "replace mine"], "right": ["replace one", "replace one"]})
    assert (made.outcome, made.why, made.scheduler) == ("withheld", "denied", "left")


async def test_who_announced_results_once_is_required_at_them_after_it_was_killed(ruled):
    pids = await ruled.start("left")
    async with ruled.gate(required=["left"], patience_ms=500) as gate:
        assert (await rule(gate, {})).outcome == "released"
        os.kill(pids["left"], signal.SIGKILL)
        made = await rule(gate, {})
        assert (made.outcome, made.why, made.scheduler) == ("withheld", "silent", "left")
    made = await ruled.rule({}, required=["left"], schedulers={"left": {"results": True}}, patience_ms=500)
    assert (made.outcome, made.why) == ("withheld", "silent")  # a gate that has never seen it


async def test_a_plan_may_say_that_a_scheduler_is_not_asked_about_results(ruled):
    await ruled.start("left")
    assert (await ruled.rule({"left": "deny"}, schedulers={"left": {"results": False}})).why == "unasked"


async def test_while_the_bus_is_away_a_required_scheduler_withholds_and_an_optional_one_does_not(
    own_server, schedulers_on, wait_until
):
    ruled = Ruled(schedulers_on(own_server.url))
    await ruled.start("left")
    async with (
        ruled.gate(required=["left"], patience_ms=300) as strict,
        ruled.gate(patience_ms=300) as lenient,
    ):
        assert (await rule(strict, {})).outcome == (await rule(lenient, {})).outcome == "released"
        own_server.kill()
        await wait_until(lambda: not (strict.is_connected or lenient.is_connected))
        made = await rule(strict, {})
        assert (made.outcome, made.why, made.scheduler) == ("withheld", "bus_down", "left")
        made = await rule(lenient, {})
        assert (made.value, made.why) == (TEXT, "failed_open")


async def test_a_result_that_is_too_long_is_cut_with_a_mark(ruled):
    await ruled.start("left")
    made = await ruled.rule({"left": f"mask {KEY}"}, result=TEXT + "x" * 5000, result_bytes=1024)
    assert made.value.startswith("user ann, card 4111 1111, key [withheld: secret]xxx")
    assert made.value.endswith("[cut off here: 4,014 more bytes, which no rule has seen]")


async def test_where_nobody_rules_on_results_no_command_is_sent_and_the_same_object_is_given(
    own_server, schedulers_on
):
    ruled = Ruled(schedulers_on(own_server.url))
    await ruled.start("calls_only")
    async with ruled.gate() as gate:
        call = Call("read", {}, ["read"])
        decision = await gate.decide(call)
        assert decision.outcome == "continue"
        await gate.flush(5)
        client = redis.from_url(own_server.url)
        async with client.monitor() as monitor:
            result = {"rows": [object()]}
            made = await gate.rule_on_result(call, decision, result)
            await client.echo("ruled")
            seen = []
            while "ECHO" not in (line := (await monitor.next_command())["command"]).upper():
                seen.append(line)
        await client.aclose()
    assert made.value is result
    assert [line for line in seen if line.startswith("XADD")] == []  # no question, and no fact
    assert len(ruled.schedulers.lines("asked")) == 1


async def test_what_was_hidden_or_given_instead_is_nowhere_in_the_record(ruled):
    await ruled.start("left", "right")
    async with ruled.gate() as gate:
        await rule(gate, {"left": f"mask {KEY}", "right": [f"replace in short {CARD}", "continue"]})
        await gate.flush(5)
    async with aclosing(RedisCommands(ruled.schedulers.url, "test")) as commands:
        facts = await FactsReader(commands, ruled.schedulers.namespace).read_all()
    assert [fact["outcome"] for fact in facts if fact["event"] == "tool:result"] == ["replaced"]
    assert KEY not in str(facts)
    assert CARD not in str(facts)
