"""`hooks-toolgate-required`: no session, and no sub-agent, whose calls nobody would be asked about."""

from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from amplifier_core import HookResult
from amplifier_core.events import PROVIDER_REQUEST
from bundle_session import MODULES, bundle_plan, bundle_session, write_foreign_loop
from toolgate_bus.protocol.events import Deny
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.transport.memory import MemoryHub
from toolgate_orchestrator.commands.host.child_plan import child_plan
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_orchestrator.modules.hooks_required import SESSION_UNGATED, RefusalLoop
from toolgate_orchestrator.turn.loop import LoopBase
from toolgate_schedulers import Scheduler, Worker

pytestmark = pytest.mark.pure

OWN = "loop-toolgate-streaming"
RULED = {"toolgate": {"required": ["policy"]}}


def guard(**config):
    return {"module": "hooks-toolgate-required", "config": config}


def own_loop(config=None, module=OWN):
    return {"module": module, "source": str(MODULES / module), "config": RULED if config is None else config}


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """`foreign(config)`: the entry of another's loop, by upstream's id and a source of its own."""
    folder = write_foreign_loop(tmp_path_factory.mktemp("bundles"))  # the kernel refuses a second place

    def spec(config=None):
        return {"module": "loop-streaming", "source": str(folder), "config": config or {}}

    return spec


def heard(session, event):
    """The payloads of an event, as they come."""
    found = []

    async def hear(_event, data):
        found.append(data)
        return HookResult()

    session.coordinator.hooks.register(event, hear, name="test")
    return found


async def refusal(session, prompt="go"):
    with pytest.raises(RuntimeError, match="UngatedError: ") as raised:  # the kernel's own wrapping
        await session.execute(prompt)
    return str(raised.value)


# ---------------------------------------------------------------------- the session's own loop


async def test_a_session_on_one_of_our_loops_by_whose_section_calls_are_denied_or_asked_about_begins():
    async with bundle_session(bundle_plan(own_loop(), hooks=[guard()])) as session:
        assert await session.execute("hi") == "hello"


async def test_a_session_on_anothers_loop_is_refused_and_says_why(foreign):
    plan = bundle_plan(foreign(RULED), hooks=[guard()])
    async with bundle_session(plan) as session:
        told, asked = heard(session, SESSION_UNGATED), heard(session, PROVIDER_REQUEST)
        why = await refusal(session)
        assert why == await refusal(session)
    assert "the mounted loop is not one of Toolgate's" in why
    assert "policy would not be asked" in why
    assert "amplifier_module_loop_streaming_elsewhere.ForeignLoop" in why
    assert f"(source {foreign()['source']})" in why
    assert 'write `module: loop-toolgate-streaming` and `source: ""`' in why
    assert [data["refused"] for data in told] == [True]
    assert asked == []


async def test_without_the_hook_that_session_would_run_ungated(foreign):
    async with bundle_session(bundle_plan(foreign(RULED))) as session:
        assert await session.execute("go") == "ungated: go"


@pytest.mark.parametrize("loop", ["loop-toolgate-streaming", "loop-basic"])
async def test_without_the_hook_a_loop_of_ours_begins_no_session_whose_plan_misplaces_required(loop):
    plan = bundle_plan({"module": loop, "config": {"toolgate": {}}})
    plan["session"]["required"] = ["policy"]
    with pytest.raises(RuntimeError, match=r"session\.required in the plan: it has no effect here"):
        async with bundle_session(plan):
            pass


async def test_an_id_of_ours_does_not_help_where_an_inherited_source_is_anothers(foreign):
    plan = bundle_plan({**foreign(), "module": OWN}, hooks=[guard()])
    async with bundle_session(plan) as session:
        assert "not one of Toolgate's" in await refusal(session)


async def test_an_empty_source_takes_the_installed_loop_whatever_was_inherited():
    plan = bundle_plan({"module": OWN, "source": "", "config": RULED}, hooks=[guard()])
    async with bundle_session(plan) as session:
        assert isinstance(session.coordinator.get("orchestrator"), LoopBase)
        assert await session.execute("hi") == "hello"


async def test_warn_lets_anothers_loop_run_and_tells_once(foreign, caplog):
    async with bundle_session(bundle_plan(foreign(), hooks=[guard(on_ungated="warn")])) as session:
        told = heard(session, SESSION_UNGATED)
        assert await session.execute("go") == "ungated: go"
        assert await session.execute("on") == "ungated: on"
    assert [data["refused"] for data in told] == [False]


@pytest.mark.parametrize("where", ["section", "hook"])
async def test_who_is_required_is_not_done_without_for_a_warning(foreign, where):
    spec, required = (foreign(RULED), ()) if where == "section" else (foreign(), ("policy",))
    hook = guard(on_ungated="warn", required=required)
    async with bundle_session(bundle_plan(spec, hooks=[hook])) as session:
        assert "not one of Toolgate's" in await refusal(session)


async def test_one_of_our_loops_without_a_section_is_refused():
    async with bundle_session(bundle_plan(own_loop({}), hooks=[guard()])) as session:
        assert "has no `toolgate:` section and asks nobody; add `toolgate: {required" in await refusal(
            session
        )


async def test_a_section_that_got_lost_is_noticed_by_who_is_required():
    plan = bundle_plan(own_loop({"toolgate": {}}), hooks=[guard(required=["policy"])])
    plan["orchestrators"] = [own_loop()]  # a plan's form, which bundles do not know
    async with bundle_session(plan) as session:
        assert "hooks-toolgate-required requires policy" in await refusal(session)


async def test_a_loop_that_is_exchanged_before_the_first_turn_is_seen(foreign):
    async with bundle_session(bundle_plan(own_loop(), hooks=[guard()])) as session:
        loop = session.coordinator.get("orchestrator")

        class Stranger:
            async def execute(self, prompt, *args, **kwargs):
                return "ungated"

        await session.coordinator.mount("orchestrator", Stranger())
        assert "Stranger" in await refusal(session)
        await loop.aclose()


# ---------------------------------------------------------------------- whether anybody would be asked


@asynccontextmanager
async def vacant_session(**config):
    """A session on a bus on which nobody lives yet; with the hub."""
    hub = MemoryHub()
    client = GateClient(hub.orchestrator())
    await client.start()
    try:
        async with bundle_session(
            bundle_plan(own_loop({"toolgate": {}}), hooks=[guard(**config)])
        ) as session:
            session.coordinator.get("orchestrator").gate = Gate(parse({}), client)
            yield session, hub
    finally:
        await client.bus.aclose()


async def test_where_nobody_rules_the_session_is_refused_until_somebody_does():
    async def decide(call):
        return Deny(reason="no")

    async with vacant_session() as (session, hub):
        why = await refusal(session)
        assert "no scheduler is alive on the bus" in why
        assert "toolgate scheduler run NAME" in why
        bus = hub.scheduler()
        shared = replace(make_shared_state(), store=hub.store)
        await Worker(Scheduler(name="policy", decide=decide), bus, shared=shared).start()
        assert await session.execute("go") == "hello"
        assert not isinstance(session.coordinator.get("orchestrator"), RefusalLoop)
        await bus.aclose()


async def test_where_nobody_rules_and_that_is_only_told_the_session_runs():
    async with vacant_session(on_ungated="warn") as (session, _):
        told = heard(session, SESSION_UNGATED)
        assert await session.execute("go") == "hello"
        assert "no scheduler is alive on the bus" in told[0]["reason"]


async def test_schedulers_in_the_agents_own_process_are_somebody():
    hooks = [guard(), {"module": "hooks-toolgate-cost-aware", "config": {}}]
    async with bundle_session(bundle_plan(own_loop({"toolgate": {}}), hooks=hooks)) as session:
        assert await session.execute("go") == "hello"


async def test_a_hook_that_listens_to_everything_is_nobody():
    async with vacant_session() as (session, _):
        heard(session, "tool:selecting")
        assert "no scheduler is alive on the bus" in await refusal(session)


async def test_what_cannot_be_looked_at_is_refused():
    async with vacant_session() as (session, _):
        session.coordinator.get("orchestrator").gate = object()
        assert "it cannot be checked whether calls are ruled on: AttributeError" in await refusal(session)


# ---------------------------------------------------------------------- sub-agents


def delegates(to):
    return [
        {"tool_calls": [{"name": "delegate", "arguments": {"agent": to, "instruction": "do it"}}]},
        {"text": "${last_result}"},
    ]


def team(foreign, **config):
    """A plan whose agents are: `own`, on our loop by inheritance; `stranger`, which brings another's."""
    plan = bundle_plan(own_loop({"toolgate": {"on_bus_down": "continue"}}), hooks=[guard(**config)])
    plan["providers"][0]["config"]["turns"] = delegates("stranger")
    plan["tools"] = [{"module": "tool-toolgate-delegate"}]
    plan["agents"] = {
        "own": {"description": "works", "session": {"orchestrator": {"config": {"max_iterations": 3}}}},
        "stranger": {"description": "strays", "session": {"orchestrator": foreign()}},
    }
    return plan


@asynccontextmanager
async def at_work(plan):
    """A session whose host makes children as a bundle's host does: the plan of an agent is laid over."""
    children = []
    async with bundle_session(plan, session_id="parent") as session:

        async def spawn(agent_name, instruction, parent_session, **_):
            overlay = plan["agents"][agent_name]["session"]["orchestrator"]
            loop = {**plan["session"]["orchestrator"], **overlay}
            own = {**plan, "tools": [], "session": {**plan["session"], "orchestrator": loop}}
            own["providers"] = bundle_plan({})["providers"]
            async with bundle_session(own, session_id="child", parent_id="parent") as child:
                children.append(agent_name)
                return {"output": await child.execute(instruction), "session_id": "child"}

        session.coordinator.register_capability("session.spawn", spawn)
        yield session, children


@pytest.mark.parametrize("to", ["own", "stranger"])
async def test_work_is_not_handed_to_an_agent_that_brings_anothers_loop(foreign, to):
    plan = team(foreign)
    plan["session"]["orchestrator"]["config"] = {"toolgate": {}}
    plan["providers"][0]["config"]["turns"] = delegates(to)
    plan["hooks"].append({"module": "hooks-toolgate-cost-aware", "config": {}})
    async with at_work(plan) as (session, children):
        answer = await session.execute("go")
    if to == "own":
        assert children == ["own"]
        assert "hello" in answer
    else:
        assert children == []
        assert "the agent stranger would run on a loop that asks nobody: loop-streaming comes from" in answer


async def test_with_warn_it_is_told_and_done(foreign):
    async with at_work(team(foreign, on_ungated="warn")) as (session, children):
        told = heard(session, SESSION_UNGATED)
        assert "ungated: do it" in await session.execute("go")
    assert children == ["stranger"]
    assert any("the agent stranger would run" in data["reason"] for data in told)


async def test_a_child_made_without_any_call_is_refused_by_its_own_hook(foreign):
    plan = team(foreign)
    plan["hooks"].append({"module": "hooks-toolgate-cost-aware", "config": {}})
    async with at_work(plan) as (session, _):
        spawn = session.coordinator.get_capability("session.spawn")
        with pytest.raises(RuntimeError, match=r"UngatedError: .* not one of Toolgate's"):
            await spawn("stranger", "do it", session)


async def test_a_childs_config_does_not_loosen_its_parents(foreign):
    async with bundle_session(bundle_plan(own_loop(), hooks=[guard()]), session_id="strict"):
        child = bundle_plan(foreign(), hooks=[guard(on_ungated="warn")])
        async with bundle_session(child, session_id="loose", parent_id="strict") as session:
            await refusal(session)
    async with bundle_session(child, session_id="later", parent_id="strict") as session:
        assert await session.execute("go") == "ungated: go"


def test_no_inheritance_takes_the_hook_from_a_child():
    parent = bundle_plan(own_loop(), hooks=[guard(), {"module": "hooks-toolgate-logging", "config": {}}])
    plan = child_plan(parent, "own", {}, hook_inheritance={"inherit_hooks": []})
    assert [hook["module"] for hook in plan["hooks"]] == ["hooks-toolgate-required"]
