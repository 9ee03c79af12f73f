"""`rate-limit` and `loop-guard` as processes of their own: exact across replicas."""

import asyncio

import pytest
from amplifier_core import AmplifierSession, ToolResult
from questions import decide as decide_on
from toolgate_bus.state.shared import connect_shared_state
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.modules.provider_scripted import ProviderScripted
from toolgate_schedulers.author.scheduler import SchedulerContext
from toolgate_schedulers.shipped.loop_guard import LoopGuard, LoopGuardConfig
from toolgate_schedulers.shipped.rate_limit import RateLimit, RateLimitConfig
from toolgate_schedulers.testing import question
from toolgate_schedulers.worker.holds import StoredHolds

pytestmark = pytest.mark.acceptance


@pytest.fixture
def start(schedulers, tmp_path):
    """`await start("rate-limit", CONFIG, "--name", …)`: one that is ready."""

    def written(text):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"
        path.write_text(text)
        return path

    async def started(spec, config, *options, replicas=1):
        return await schedulers.start(spec, "--config", written(config), *options, replicas=replicas)

    return started


@pytest.fixture
def gate_on(schedulers):
    """`async with gate_on() as gate`: one that waits long, and has no ruling without the limits."""

    def opened(*required, **config):
        where = {"redis": schedulers.url, "namespace": schedulers.namespace}
        return Gate.open(**where, patience_ms=20_000, required=required, **config)

    return opened


async def outcomes(gate, *calls):
    """What came of each, one after the other, by first letter."""
    return "".join([(await decide(gate, **call)).outcome[0] for call in calls])


async def decide(gate, tool="search", arguments=None, **who):
    return await decide_on(gate, tool, arguments or {}, ["search", "dear", "cheap", tool], **who)


# ---------------------------------------------------------------------- rate-limit


async def test_three_replicas_let_exactly_as_many_pass_as_the_limit_says(start, gate_on):
    config = "limits: [{name: fifty, tools: search, per: fleet, rate: 50/day}]"
    pids = await start("rate-limit", config, replicas=3)
    assert len(pids) == 3

    async def many():
        async with gate_on("rate-limit") as gate:
            return await asyncio.gather(*(decide(gate, session=f"s{n % 7}") for n in range(150)))

    def elsewhere():
        return asyncio.run(many())  # a gate on an event loop of its own is an orchestrator of its own

    decisions = [*await asyncio.gather(asyncio.to_thread(elsewhere), many())]
    told = [one for each in decisions for one in each]
    assert sum(one.allowed for one in told) == 50
    denied = [one for one in told if not one.allowed]
    assert {(one.why, one.scheduler) for one in denied} == {("denied", "rate-limit")}
    assert all("50 times per day by all agents together (fifty)" in one.reason for one in denied)


async def test_schedulers_of_the_same_limits_count_apart_by_their_names(start, gate_on):
    """Two names of each, one after the other, with the same configuration; the second begins from nothing."""
    limits, guard = "limits: [{tools: '*', per: fleet, rate: 4/day}]", "calls_per_session: 4"
    names = [("rate-limit", limits, "search"), ("loop-guard", guard, "dear")]
    began = [
        start(spec, text, "--name", f"{spec}-{n}", "--tools", f"{tool}_{n}", replicas=2)
        for spec, text, tool in names
        for n in (1, 2)
    ]
    await asyncio.gather(*began)
    for spec, _, tool in names:
        async with gate_on(f"{spec}-1", f"{spec}-2") as gate:
            for n in (1, 2):
                calls = [{"tool": f"{tool}_{n}", "session": "s", "iteration": at} for at in range(1, 7)]
                assert (spec, n, await outcomes(gate, *calls)) == (spec, n, "ccccdd")


async def test_what_a_shadow_lets_pass_counts_nowhere_else(server_url, namespace):
    """A shadow and the live one on one server: not even the same name makes them count together."""
    commands = RedisCommands(server_url, "test")
    limits = RateLimit(
        RateLimitConfig.model_validate({"limits": [{"tools": "*", "per": "fleet", "rate": "2/day"}]})
    )
    guard = LoopGuard(LoopGuardConfig(calls_per_session=2))
    for scheduler in (limits, guard):
        for shadow in (True, False):
            shared = connect_shared_state(server_url, commands, namespace, shadow=shadow)
            holds = StoredHolds(shared.store, "one", lambda *_: None)
            await scheduler.start(SchedulerContext(shared, holds, namespace, "r", "one", shadow))
            calls = [question("search", session="s") for _ in range(3)]
            said = [(await scheduler.decide(call)).action for call in calls]
            assert (scheduler.name, shadow, *said) == (scheduler.name, shadow, "continue", "continue", "deny")
            await shared.aclose()
    await commands.aclose()


@pytest.mark.parametrize("admission", [True, False])
async def test_with_admission_a_call_that_others_deny_uses_up_nothing(start, gate_on, admission, wait_until):
    limits = "{tools: search, per: fleet, rate: 2/day}"
    await start("rate-limit", f"{{admission: {str(admission).lower()}, limits: [{limits}]}}")
    await start("policy", "{default: allow, rules: [{tools: search, agents: rogue, action: deny}]}")
    async with gate_on("rate-limit", "policy") as gate:
        late = []
        gate.subscribe_late(lambda _, heard: late.append(heard.scheduler))
        denied = [await decide(gate, agent="rogue") for _ in range(3)]
        assert not any(one.allowed for one in denied)
        assert denied[0].scheduler == "policy"
        if not admission:  # a denial ends the round: rate-limit may still be counting
            said = [heard.scheduler for one in denied for heard in one.verdicts]
            await wait_until(lambda: [*said, *late].count("rate-limit") == 3)
        assert await outcomes(gate, *[{"agent": "good"}] * 3) == ("ccd" if admission else "ddd")


async def test_a_call_that_is_replaced_by_one_to_a_limited_tool_does_not_slip_by(start, gate_on):
    limits = """
limits:
  - {name: all, tools: "*", per: fleet, rate: 3/day}
  - {name: dear, tools: dear, per: fleet, rate: 1/day}
"""
    await start("rate-limit", limits)
    await start("router", "routes: [{from: search, to: dear}]")
    async with gate_on("rate-limit", "router") as gate:
        first, second = [await decide(gate) for _ in range(2)]
        assert (first.outcome, first.tool_name) == ("modify", "dear")
        assert second.outcome == "deny"
        assert "(dear)" in second.reason
        assert await outcomes(gate, {"tool": "cheap"}, {"tool": "cheap"}) == "cd"


# ---------------------------------------------------------------------- loop-guard


class Counter:
    """A tool that counts how often it ran."""

    name, description, input_schema = "search", "counts", {"type": "object"}

    def __init__(self):
        self.ran = 0

    async def execute(self, arguments):
        self.ran += 1
        return ToolResult(success=True, output="nothing new")


class Listening(ProviderScripted):
    """A scripted LLM that stops when it is told to."""

    def _next(self, request):
        told = str(request.messages[-1].content)
        if "Stop calling tools" in told:
            self._turns = [type(self._turns[0])(text="I was told to stop.")]
        return super()._next(request)


@pytest.fixture
def runaway(schedulers):
    """`await runaway(turns)`: what came of a session whose LLM calls `search` again and again."""

    async def ran(turns, provider=ProviderScripted):
        where = {"redis": schedulers.url, "namespace": schedulers.namespace, "patience_ms": 20_000}
        plan = {
            "session": {
                "orchestrator": {
                    "module": "loop-events",
                    "config": {"max_iterations": -1, "toolgate": {**where, "required": ["loop-guard"]}},
                },
                "context": "context-simple",
            },
            "providers": [{"module": "provider-scripted", "config": {}}],
        }
        async with AmplifierSession(plan) as session:
            tool, llm = Counter(), provider({"turns": turns})
            await session.coordinator.unmount("providers", "scripted")
            await session.coordinator.mount("providers", llm, name="scripted")
            await session.coordinator.mount("tools", tool, name=tool.name)
            answer = await session.execute("go")
            messages = await session.coordinator.get("context").get_messages()
        return answer, tool.ran, [one["content"] for one in messages if one["role"] == "tool"]

    return ran


def search(*queries):
    return {"tool_calls": [{"name": "search", "arguments": {"q": query}} for query in queries]}


async def test_a_runaway_agent_runs_no_more_calls_than_it_may_and_is_told_to_stop(start, runaway):
    await start("loop-guard", "calls_per_turn: 12")
    turns = [search(number) for number in range(150)]
    _, ran, results = await runaway(turns)
    assert (ran, len(results)) == (12, 150)
    assert all("Stop calling tools, and answer now" in result for result in results[12:])
    assert "This is tool call 150 of this turn; 12 are allowed" in results[-1]
    answer, ran, results = await runaway(turns, Listening)
    assert (answer, ran, len(results)) == ("I was told to stop.", 12, 13)


async def test_of_many_calls_at_once_three_replicas_let_exactly_as_many_run(start, runaway):
    await start("loop-guard", "calls_per_turn: 20", replicas=3)
    _, ran, results = await runaway([search(*range(60)), search(*range(60, 80))])
    assert (ran, len(results)) == (20, 80)
    assert sum("20 are allowed (calls_per_turn)" in result for result in results) == 60
