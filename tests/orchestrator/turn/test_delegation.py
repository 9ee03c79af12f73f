"""Agents hand work to agents: whole sessions, ruled on as their parents, and always one result."""

import asyncio
import json
from collections import defaultdict
from contextlib import asynccontextmanager

import pytest
from amplifier_core import AmplifierSession, HookResult
from amplifier_core.events import ALL_EVENTS
from four_loops import LOOPS
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator.commands.host.sub_agents import let_delegate
from toolgate_orchestrator.modules.tool_delegate import Delegate
from toolgate_orchestrator.turn.loop import DELEGATE_EVENTS


def call(agent, instruction="do it", **more):
    return {"name": "delegate", "arguments": {"agent": agent, "instruction": instruction, **more}}


def says(*turns, pace_s=0.0):
    """A scripted LLM: texts, and lists of calls."""
    script = [{"text": turn} if isinstance(turn, str) else {"tool_calls": turn} for turn in turns]
    return [{"module": "provider-scripted", "config": {"turns": script, "pace_s": pace_s}}]


def adds(expression="1 + 1"):
    return {"name": "calculate", "arguments": {"expression": expression}}


class Team:
    """A root session, and everything that was told in the sessions of its tree."""

    def __init__(self, plan):
        self.told = defaultdict(list)
        self.children = []
        self.session = AmplifierSession(plan, session_id="root")
        self._listen(self.session)
        let_delegate(self.session, self._child)

    def _child(self, child):
        self.children.append(child)
        self._listen(child)

    def _listen(self, session):
        async def hear(event, data):
            self.told[event].append((session.session_id, data))
            return HookResult()

        for event in (*ALL_EVENTS, *DELEGATE_EVENTS):
            session.coordinator.hooks.register(event, hear, name="test")

    def of(self, event):
        """Who told an event."""
        return [session for session, _ in self.told[event]]

    async def ask(self):
        return await self.session.execute("go")

    async def results(self):
        messages = await self.session.coordinator.get("context").get_messages()
        return [message["content"] for message in messages if message["role"] == "tool"]


@pytest.fixture
def team():
    """`async with team(says(…), {agent: plan}) as t`: an initialized tree's root."""

    @asynccontextmanager
    async def make(root, agents, loop="loop-basic", config=None, tools=("tool-calculator", "tool-delegate")):
        made = Team(
            {
                "session": {
                    "orchestrator": {"module": loop, "config": config or {}},
                    "context": {"module": "context-simple"},
                },
                "providers": root,
                "tools": [{"module": tool} for tool in tools],
                "hooks": [],
                "agents": agents,
            }
        )
        await made.session.initialize()
        try:
            yield made
        finally:
            await made.session.cleanup()

    return make


@pytest.mark.parametrize("loop", LOOPS[:3])
async def test_what_the_agent_answers_is_the_tools_result(team, loop):
    agents = {"adder": {"providers": says([adds("20 + 22")], "${last_result}")}}
    async with team(says([call("adder")], "it is ${last_result}"), agents, loop) as one:
        answer = await one.ask()
        (result,) = await one.results()
    assert json.loads(result)["answer"] == "42"
    assert answer == f"it is {result}"
    assert one.of("session:fork") == [one.children[0].session_id]
    assert [data["status"] for _, data in one.told["execution:end"]] == ["completed", "completed"]
    ((_, spawned),) = one.told["delegate:agent_spawned"]
    assert (spawned["agent"], spawned["sub_session_id"]) == ("adder", one.children[0].session_id)


async def test_agents_of_one_response_work_side_by_side(team):
    both = asyncio.Barrier(2)
    agents = {name: {"providers": says([adds()], "done")} for name in ("anna", "ben")}
    async with team(says([call("anna"), call("ben")], "fine"), agents) as one:

        async def meet(event, data):
            async with asyncio.timeout(20):
                await both.wait()  # passes only when the other's tool is about to run as well
            return HookResult()

        listen = one._child

        def child(made):
            listen(made)
            made.coordinator.hooks.register("tool:pre", meet, name="meet")

        let_delegate(one.session, child)
        assert await one.ask() == "fine"
        assert [json.loads(result)["answer"] for result in await one.results()] == ["done", "done"]


async def test_a_grandchild_knows_its_lineage_and_its_root(team):
    agents = {
        "middle": {"providers": says([call("last")], "${last_result}")},
        "last": {"providers": says([adds("6 * 7")], "${last_result}")},
    }
    config = {"toolgate": {"agent": "first"}}
    async with team(says([call("middle")], "${last_result}"), agents, config=config) as one:
        await one.ask()
    asked = [data for _, data in one.told["session:fork"]]
    assert [data["parent"] for data in asked] == ["root", one.children[0].session_id]
    assert "42" in (one.told["execution:end"][-1][1]["response"])


async def test_the_agent_is_told_first_what_it_is(team):
    agents = {"poet": {"system": {"instruction": "You rhyme."}, "providers": says("ok")}}
    async with team(says([call("poet", "go on")], "fine"), agents) as one:
        await one.ask()
    (request,) = [data for session, data in one.told["provider:request"] if session != "root"]
    assert [message["content"] for message in request["messages"]] == ["You rhyme.", "go on"]


async def test_an_agent_that_fails_is_one_result_that_says_so(team):
    agents = {"broken": {"providers": [{"module": "provider-scripted", "config": {"nonsense": 1}}]}}
    async with team(says([call("broken")], "${last_result}"), agents) as one:
        await one.ask()
        (result,) = await one.results()
    assert "the agent broken failed" in result
    assert "nonsense" in result
    assert len(one.told["delegate:error"]) == 1
    assert one.of("execution:end") == ["root"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (call("nobody"), "there is no agent 'nobody'; there are: adder"),
        (call("adder", "  "), "say what the agent is to do"),
        (call("adder", session_id="gone"), "there is no sub-agent 'gone' of this session to resume"),
        (call("adder", session_id="gone", budget=2), "budget: give it when the work begins"),
    ],
)
async def test_what_cannot_be_delegated_is_told_to_the_llm(team, asked, said):
    async with team(says([asked], "fine"), {"adder": {"providers": says("ok")}}) as one:
        assert await one.ask() == "fine"
        (result,) = await one.results()
    assert said in result


async def test_a_session_is_gone_on_with_by_the_agent_whose_it_is_and_by_one_at_a_time(team):
    """Schedulers agree to an agent's name: another's session behind it would be another agent."""
    agents = {"clerk": {"providers": says("half")}, "chief": {"providers": says("no")}}
    async with team(says([call("clerk", "begin")], "half"), agents) as one:
        await one.ask()
        kept = json.loads((await one.results())[0])["session_id"]
        again = one.session.coordinator.get_capability("session.resume")
        with pytest.raises(ConfigError, match=r"is a session of clerk, not of chief"):
            await again(sub_session_id=kept, instruction="go on", agent_name="chief")
        first, second = await asyncio.gather(
            *(again(sub_session_id=kept, instruction="go on", agent_name="clerk") for _ in range(2)),
            return_exceptions=True,
        )
    assert first["session_id"] == kept
    assert "is at work" in str(second)


async def test_an_agent_can_be_gone_on_with(team):
    agents = {"clerk": {"providers": says("first answer", "never said")}}
    async with team(says([call("clerk", "begin")], "half"), agents) as one:
        await one.ask()
        kept = json.loads((await one.results())[0])["session_id"]
        again = one.session.coordinator.get_capability("session.resume")
        finished = await again(sub_session_id=kept, instruction="go on", anything_else=1)
    assert finished["session_id"] == kept
    request = one.told["provider:request"][-1][1]
    told = [message["content"] for message in request["messages"]]
    assert [text if isinstance(text, str) else text[0]["text"] for text in told] == [
        "begin",
        "first answer",
        "go on",
    ]
    assert one.of("session:resume") == [kept]


@pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming"])
@pytest.mark.parametrize("now", [False, True])
async def test_cancelling_the_root_ends_the_whole_tree_with_one_result_each(team, now, loop):
    agents = {
        "middle": {"providers": says([call("last")], "fine")},
        "last": {"providers": says([adds()], "fine")},
    }
    async with team(says([call("middle")], "fine"), agents, loop) as one:
        reached = asyncio.Event()

        async def stop(event, data):
            if not reached.is_set():
                reached.set()
                token = one.session.coordinator.cancellation
                token.request_immediate() if now else token.request_graceful()
                if now:
                    await asyncio.sleep(30)  # what runs is not waited for
            return HookResult()

        listen = one._child

        def child(made):
            listen(made)
            made.coordinator.hooks.register("tool:pre", stop, name="stop")

        let_delegate(one.session, child)
        async with asyncio.timeout(30):
            await one.ask()
        (result,) = await one.results()
    # The kernel's hooks of the grandchild's parent saw tool:pre first: `last` never began, or was ended.
    ended = one.told["execution:end"]
    assert {data["status"] for _, data in ended} == {"cancelled"}
    assert len({session for session, _ in ended}) == len(ended)
    assert "root" in {session for session, _ in ended}
    assert "stopped" in result or "not run" in result or "not completed" in result


RULED = {"toolgate": {"agent": "boss", "required": ["ghost"]}}


@pytest.mark.parametrize("loop", LOOPS[:3])
async def test_a_childs_plan_cannot_do_without_whom_its_parent_requires(team, loop):
    """There is no bus, and the parent requires a scheduler: nobody down the tree may run anything."""
    loose = {"required": [], "on_bus_down": "continue", "agent": "rogue"}
    agents = {
        "rogue": {
            "providers": says([adds()], "${last_result}"),
            "session": {"orchestrator": {"module": loop, "config": {"toolgate": loose}}},
        }
    }
    async with team(says([call("rogue")], "fine"), agents, loop, RULED) as one:
        spawn = one.session.coordinator.get_capability("session.spawn")
        finished = await spawn(agent_name="rogue", instruction="add", orchestrator_config={"toolgate": loose})
    assert "denied" in finished["output"].lower()
    assert [data["tool_name"] for _, data in one.told["policy:violation"]] == ["calculate"]


async def test_a_child_whose_loop_asks_nobody_by_itself_is_ruled_on_as_well(team):
    agents = {
        "rogue": {
            "providers": says([adds()], "${last_result}"),
            "session": {"orchestrator": "loop-streaming"},
        }
    }
    async with team(says([call("rogue")], "fine"), agents, "loop-events", RULED) as one:
        spawn = one.session.coordinator.get_capability("session.spawn")
        finished = await spawn(agent_name="rogue", instruction="add", parent_session=one.session)
    assert "denied" in finished["output"].lower()


async def test_a_tool_that_nobody_hosts_says_what_is_missing():
    session = AmplifierSession(
        {
            "session": {
                "orchestrator": {"module": "loop-basic", "config": {}},
                "context": {"module": "context-simple"},
            },
            "providers": says([call("adder")], "${last_result}"),
            "tools": [{"module": "tool-delegate"}],
            "agents": {"adder": {}},
        }
    )
    await session.initialize()
    try:
        assert "it must register session.spawn" in await session.execute("go")
    finally:
        await session.cleanup()


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_leg_with_too_few_requests_reports_and_can_be_gone_on_with(team, loop):
    agents = {"worker": {"providers": says([adds()], [adds()], "so far")}}
    given = {"max_iterations": 2, "summary_style": "short", "reasoning_effort": None}
    async with team(says("hi"), agents, loop) as one:
        find = one.session.coordinator.get_capability
        leg = await find("session.spawn")(agent_name="worker", instruction="add", orchestrator_config=given)
        assert (leg["output"], leg["status"]) == ("so far", "budget_exhausted")
        assert leg["metadata"] == {
            "agent": "worker",
            "llm_calls": 3,
            "llm_call_budget": 2,
            "budget_exhausted": True,
            "resumable": True,
        }
        again = await find("session.resume")(sub_session_id=leg["session_id"], instruction="go on")
        assert again["metadata"]["llm_call_budget"] == 2


async def test_the_tool_gives_each_leg_its_requests_and_says_what_was_cut_short(team):
    agents = {"worker": {"providers": says([adds()], "so far")}}
    tools = ("tool-calculator",)
    async with team(says([call("worker")], "fine"), agents, tools=tools) as one:
        delegate = Delegate(one.session.coordinator, llm_call_budget=1)
        await one.session.coordinator.mount("tools", delegate, name="delegate")
        await one.ask()
        (result,) = map(json.loads, await one.results())
        assert (result["answer"], result["status"]) == ("so far", "budget_exhausted")
        assert "resume it by session_id" in result["note"]
