"""Why calls would run unasked on a bus: who is there, who must be, and what becomes of calls meanwhile."""

from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.transport.memory import MemoryHub
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision import vacancy as vacancy_lines
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_schedulers import Continue, Scheduler, Worker

pytestmark = pytest.mark.pure

NOWHERE = "unix:///nonexistent/toolgate.sock"


async def agree(call):
    return Continue()


@pytest.fixture
async def stack():
    async with AsyncExitStack() as stack:
        yield stack


async def vacancy(stack, *alive, as_shadow=False, **config):
    """What a gate says of a bus on which these schedulers live."""
    hub = MemoryHub()
    for name in alive:
        bus = hub.scheduler()
        shared = replace(make_shared_state(), store=hub.store)
        await Worker(Scheduler(name=name, decide=agree, shadow=as_shadow), bus, shared=shared).start()
        stack.push_async_callback(bus.aclose)
    client = GateClient(hub.orchestrator())
    await client.start()
    stack.push_async_callback(client.bus.aclose)
    return await Gate(parse(config), client).vacancy.explain()


async def test_a_bus_on_which_somebody_rules_is_not_vacant(stack):
    assert await vacancy(stack, "policy") is None


async def test_a_bus_on_which_nobody_lives_is_vacant_unless_somebody_must_be_there(stack):
    assert "no scheduler is alive on the bus" in await vacancy(stack)
    assert await vacancy(stack, required=["policy"]) is None


@pytest.mark.parametrize(("as_shadow", "config"), [(True, {}), (False, {"shadow": ["policy"]})])
async def test_who_only_watches_does_not_count(stack, as_shadow, config):
    assert "no scheduler is alive" in await vacancy(stack, "policy", as_shadow=as_shadow, **config)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "cannot be reached"),
        ({"required": ["policy"]}, None),
        ({"on_bus_down": "deny"}, None),
        ({"required": ["policy"], "on_bus_down": "continue"}, "cannot be reached"),
    ],
)
async def test_with_the_bus_away_it_depends_on_what_becomes_of_calls(config, words):
    async with Gate.open(redis=NOWHERE, patience_ms=50, **config) as gate:
        said = await gate.vacancy.explain()
    assert said is None if words is None else words in said


async def test_where_no_bus_is_named_nobody_can_be_asked():
    assert "no server is named" in await Gate(parse({}), None).vacancy.explain()
    assert await Gate(parse({"required": ["policy"]}), None).vacancy.explain() is None


@pytest.fixture
def nowhere(monkeypatch, short_directory):
    """A user without a server: no address, and an empty runtime folder, which is given."""
    monkeypatch.delenv("TOOLGATE_REDIS_URL", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_directory))
    return short_directory / "toolgate"


async def decide_twice(gate):
    decisions = [await gate.decide(Call("pay", {}, ["pay"])) for _ in range(2)]
    assert decisions[0].outcome == decisions[1].outcome
    return decisions[0]


async def test_without_a_server_calls_run_and_one_line_says_where_was_looked_and_what_to_start(
    nowhere, fresh_lines
):
    for _ in range(2):
        async with Gate.open(agent="clerk") as gate:
            assert (await decide_twice(gate)).outcome == "continue"
    (line,) = fresh_lines.values()
    assert line.startswith("tool calls run without rulings: no server is named (`redis`, TOOLGATE_REDIS_URL)")
    assert str(nowhere) in line
    assert "toolgate scheduler run NAME" in line
    assert "required: [NAME]" in line


async def test_without_a_server_a_required_scheduler_denies_and_line_and_denial_say_how_to_start_it(
    nowhere, fresh_lines
):
    async with Gate.open(required=["policy"]) as gate:
        decision = await decide_twice(gate)
    (line,) = fresh_lines.values()
    assert (decision.outcome, decision.why) == ("deny", "bus_down")
    for words in (line, decision.reason):
        assert str(nowhere) in words
        assert "start it (toolgate scheduler run policy)" in words
    assert line.startswith("tool calls are denied: policy must rule, and no server is named")


@pytest.mark.parametrize(
    ("config", "outcome", "words"),
    [
        ({}, "continue", "tool calls run without rulings: "),
        ({"required": ["policy"]}, "deny", "tool calls are denied: policy must rule, and "),
    ],
)
async def test_a_server_that_is_away_is_one_line_that_names_it(config, outcome, words, fresh_lines):
    async with Gate.open(redis=NOWHERE, patience_ms=50, **config) as gate:
        decision = await decide_twice(gate)
    (line,) = fresh_lines.values()
    assert decision.outcome == outcome
    assert line.startswith(f"{words}/nonexistent/toolgate.sock cannot be reached")
    assert outcome == "continue" or "/nonexistent/toolgate.sock" in decision.reason


async def test_hooks_that_rule_in_the_process_are_somebody(stack, fresh_lines):
    async def hooks(question):
        return [Continue()]

    client = GateClient(MemoryHub().orchestrator())
    await client.start()
    stack.push_async_callback(client.bus.aclose)
    gate = Gate(parse({}), client)
    assert (await gate.decide(Call("pay", {}, ["pay"]), local=hooks)).why == "agreed"
    assert not fresh_lines
    assert (await gate.decide(Call("pay", {}, ["pay"]))).why == "unasked"
    (line,) = fresh_lines.values()
    assert line.startswith("tool calls run without rulings: no scheduler is alive")


def test_other_namespaces_are_named_by_who_is_there_and_by_their_likeness():
    found = {
        "staging": {"slots"},
        "production": {"policy", "slots"},
        "test": {"a", "b", "c", "d"},
        "x": {"y"},
    }
    said = vacancy_lines.describe_namespaces(found, "prodution", ["policy"])
    assert said.startswith(", but some are in namespaces production (policy, slots), ")
    assert said.endswith(", and others: check `namespace` and TOOLGATE_NAMESPACE")
    one = vacancy_lines.describe_namespaces({"prod": {"policy"}, "own": {"policy"}}, "own")
    assert one == ", but some are in namespace prod (policy): check `namespace` and TOOLGATE_NAMESPACE"
    assert vacancy_lines.describe_namespaces({"own": {"policy"}, "empty": set()}, "own") == ""
