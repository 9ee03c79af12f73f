"""Whoever runs a plan is told whose silence would let a call pass that should not."""

import json

import pytest
from toolgate_bus.transport.heartbeats import encode_member
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_orchestrator.commands.host.plan import Plan
from toolgate_orchestrator.commands.host.warnings import warn_unrequired, warnings_for


def plan(ours=True, **toolgate):
    return Plan(
        {"session": {"orchestrator": {"module": "loop-events", "config": {"toolgate": toolgate}}}}, (), ours
    )


@pytest.fixture
async def alive(server_url, namespace):
    """`await alive(name)`: a scheduler of this name is on the roster."""
    commands = RedisCommands(server_url, "test")

    async def announce(name):
        member = Member(name, "r-1")
        await commands.pipeline(Roster(commands, namespace).beat(f"s:{name}:r-1", encode_member(member)))

    yield announce
    await commands.aclose()


async def test_a_living_cost_aware_that_is_not_required_is_warned_of(alive, server_url, namespace):
    await alive("cost-aware")
    (warning,) = await warnings_for(plan(redis=server_url, namespace=namespace))
    assert "cost-aware is alive and not required" in warning
    assert "required: [cost-aware]" in warning


@pytest.mark.pure
def test_who_gives_slots_and_is_not_required_is_said_not_to_be_exact():
    (warning,) = warn_unrequired([Member("pools", "r-1", phases=("admit",))], ())
    assert "pools is alive and not required" in warning
    assert "its limits are not exact" in warning
    assert "required: [pools]" in warning
    assert warn_unrequired([Member("pools", "r-1", phases=("admit",))], ["pools"]) == []


async def test_a_living_approval_that_is_not_required_is_warned_of(alive, server_url, namespace):
    await alive("approval")
    (warning,) = await warnings_for(plan(redis=server_url, namespace=namespace))
    assert "calls run without the person" in warning
    assert "required: [approval]" in warning


async def test_any_living_scheduler_that_may_deny_and_is_not_required_is_warned_of(
    alive, server_url, namespace
):
    await alive("house-rules")
    (warning,) = await warnings_for(plan(redis=server_url, namespace=namespace))
    assert "house-rules is alive and not required: while it is silent, calls run" in warning


async def test_otherwise_there_is_nothing_to_warn_of(alive, server_url, namespace):
    where = {"redis": server_url, "namespace": namespace}
    await alive("router")  # it denies nothing
    assert await warnings_for(plan(**where)) == []
    await alive("cost-aware")
    await alive("approval")
    assert await warnings_for(plan(**where, required=["cost-aware", "approval"])) == []
    assert await warnings_for(plan(**where, required=["cost-aware"], shadow=["approval"])) == []
    assert await warnings_for(plan(ours=False, **where)) == []
    assert await warnings_for(plan()) == []


async def test_a_server_that_is_away_is_no_warning(short_directory):
    assert await warnings_for(plan(redis=f"unix://{short_directory}/none.sock")) == []


@pytest.mark.pure
def test_a_rehearsal_is_not_warned_of():
    assert warn_unrequired([Member("cost-aware", "r", shadow=True)], ()) == []
    assert len(warn_unrequired([Member("cost-aware", "r"), Member("approval", "r")], ())) == 2


@pytest.mark.acceptance
@pytest.mark.system
@pytest.mark.parametrize("command", ["run", "chat"])
async def test_the_commands_tell_it_before_the_first_turn(
    command, process, alive, server_url, namespace, tmp_path, wait_until
):
    """On the stream that is no result; heartbeats last a moment, so that it is said again until it ends."""
    turns = {"module": "provider-scripted", "config": {"turns": [{"text": "hello"}]}}
    for required in (["policy"], ["policy", "approval"]):
        path = tmp_path / f"{len(required)}.json"
        asking = {"config": {"toolgate": {"required": required, "patience_ms": 100}}}
        mount = {"session": {"orchestrator": "loop-events"}, "orchestrator": asking, "providers": [turns]}
        path.write_text(json.dumps(mount))
        where = ("--plan", path, "--redis", server_url, "--namespace", namespace)
        prompts = tmp_path / "prompts"
        prompts.write_text("hi\n")
        with prompts.open("rb") as stdin:
            running = process("toolgate", command, *(["hi"] if command == "run" else []), *where, stdin=stdin)

        async def ended(running=running):
            await alive("approval")
            return not running.alive

        await wait_until(ended, timeout=30)
        assert running.wait() == 0, running.stderr
        assert running.stdout == "hello\n"
        warned = "approval is alive and not required" in running.stderr
        assert warned is ("approval" not in required), running.stderr
