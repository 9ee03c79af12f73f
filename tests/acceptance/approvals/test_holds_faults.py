"""What happens to held calls, and to the answers of people, when processes die and connections break."""

import asyncio
import signal
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from approval_world import People
from bad_wire import BadWire
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate
from toolgate_schedulers.shipped.approval.messages import STORE_AWAY
from toolgate_schedulers.worker.holds import deny_unstored

pytestmark = [pytest.mark.acceptance, pytest.mark.system]

RULES = "rules: [{tools: transfer}]"
EVE = {"to": "eve", "amount": 900}
ENDED = 30.0


def deciding(gate, tool="transfer"):
    return asyncio.create_task(gate.decide(Call(tool, EVE, ["transfer", "other"], Caller("s"))))


async def ended(task):
    return await asyncio.wait_for(task, ENDED)


# ---------------------------------------------------------------------- kill -9


@pytest.mark.parametrize("when", ["before", "after"])
async def test_kill_9_while_an_answer_is_given_loses_it_never_and_runs_nothing_else(
    server_url, schedulers, tmp_path, monkeypatch, when
):
    monkeypatch.setenv("TOOLGATE_TEST_DIES", when)
    rules = tmp_path / "approval.yaml"
    rules.write_text(RULES)
    people = People(schedulers.url, schedulers.namespace)
    await schedulers.start("dying:Approval", "--config", rules)
    where = {"redis": schedulers.url, "namespace": schedulers.namespace}
    commands = RedisCommands(server_url, "test")
    async with Gate.open(**where, patience_ms=30_000, max_hold_s=60) as gate:
        task = deciding(gate)
        (one,) = await people.waiting()
        assert (await people("approve", one["id"], "--as", "anna", "--wait", 0)).code == 0
        assert await asyncio.to_thread(schedulers.started[0].wait, 20) == -signal.SIGKILL
        if when == "after":
            assert (await ended(task)).outcome == "continue"
        else:
            assert not task.done()
        assert len(await people.waiting()) == 1  # the hold is there for whoever goes on

        # The right of the dead to give this answer runs out after five seconds, or has done so by now.
        await commands.execute("DEL", Keys(people.namespace).store_key(f"approval:claim:{one['id']}"))
        await schedulers.start("approval", "--config", rules)
        decision = await ended(task)
        assert (decision.outcome, decision.tool_input) == ("continue", EVE)
        assert decision.verdicts[-1].verdict.reason.startswith("approved by anna")
        assert await people.waiting(0) == []
        shown = (await people("show", one["id"], "--json")).json[0]
        assert shown["answer"]["action"] == "approve"
    await commands.aclose()


# ---------------------------------------------------------------------- holds that cannot be kept


@pytest.fixture
def gate_on(own_server):
    """A gate that asks who is alive: everybody is optional."""

    @asynccontextmanager
    async def opened(**config):
        async with Gate.open(redis=own_server.url, **{"patience_ms": 30_000} | config) as gate:
            yield gate

    return opened


@pytest.fixture
async def commands(own_server):
    plain = RedisCommands(own_server.url, "test")
    yield plain
    await plain.aclose()


@pytest.fixture
async def wire(own_server, short_directory):
    async with BadWire(short_directory, Path(own_server.socket)) as made:
        yield made


async def held(commands, wait_until):
    """Until a call is held; its key."""
    pattern = Keys("default").store_key("hold:*").replace("[", "\\[")

    async def there():
        return await commands.execute("KEYS", pattern)

    await wait_until(there, timeout=ENDED)
    return (await there())[0].decode()


async def test_where_the_server_keeps_no_hold_the_call_is_denied_though_nobody_is_required(
    own_server, schedulers_on, gate_on, commands, tmp_path, wait_until
):
    """An account that may write verdicts and heartbeats, and not the store."""
    (tmp_path / "approval.yaml").write_text(RULES)
    schedulers = schedulers_on(own_server.url)
    await asyncio.gather(
        schedulers.start("approval", "--config", tmp_path / "approval.yaml"),
        schedulers.start("approver:Approver", "--tools", "other"),
    )
    async with gate_on() as gate:
        await commands.execute("ACL", "SETUSER", "default", "-set", "(~*roster* +set)")
        by_a_person, by_itself = [await ended(deciding(gate, tool)) for tool in ("transfer", "other")]
        assert (by_a_person.why, by_a_person.reason) == ("denied", STORE_AWAY)
        assert (by_itself.why, by_itself.reason) == ("denied", deny_unstored("approver").reason)
        await commands.execute("ACL", "SETUSER", "default", "clearselectors", "+set")
        task = deciding(gate, "other")
        await held(commands, wait_until)
        assert not task.done()
        (schedulers.directory / "approver.go").touch()
        assert (await ended(task)).reason.startswith("denied by ")


async def test_a_hold_and_its_answer_are_written_again_where_the_connection_broke(
    schedulers_on, gate_on, commands, wire, wait_until
):
    schedulers = schedulers_on(wire.url)
    await schedulers.start("approver:Approver")
    async with gate_on() as gate:
        wire.cut_after(b"hold:approver")
        task = deciding(gate)
        await held(commands, wait_until)
        assert wire._cut_after is None
        wire.cut_after(b"XADD")
        (schedulers.directory / "approver.go").touch()
        decision = await ended(task)
        assert wire._cut_after is None
    assert decision.reason.startswith("denied by ")


async def test_a_server_that_does_not_answer_a_hold_lets_no_call_run(schedulers_on, gate_on, wire):
    schedulers = schedulers_on(wire.url)
    await schedulers.start("approver:Approver")
    async with gate_on(patience_ms=1000, max_hold_s=1.5) as gate:
        wire.swallow("toolgate-sched-cmd")
        decision = await ended(deciding(gate))
    assert decision.outcome == "deny"
    assert decision.why == "expired" or decision.reason == deny_unstored("approver").reason
