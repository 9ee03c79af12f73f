"""What a required scheduler signs of itself narrows nothing until that start has answered this gate."""

from dataclasses import replace

import pytest
from toolgate_bus.protocol.events import Continue, Deny
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.state.shared import make_shared_state
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.config import parse
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link.client import GateClient
from toolgate_schedulers import Scheduler, Worker

pytestmark = pytest.mark.pure

KEY = b"k" * 32
TOOLS = ["pay", "read"]


@pytest.fixture
def keys(tmp_path):
    """The keys file of gate and scheduler."""
    path = tmp_path / "keys.yaml"
    path.write_text(f"police: {KEY.hex()}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
async def fleet(world, keys):
    """`await fleet(…)`: a gate that requires `police`, which denies `pay`, and what its roster says of it."""

    async def make(own=(("select", "verify"), ("*",)), **told):
        asked = []

        async def decide(call):
            asked.append((call.phase, call.tool_name))
            return Deny(reason="no") if call.tool_name == "pay" else Continue()

        bus = world.hub.scheduler()
        phases, tools = own
        made = Scheduler(name="police", decide=decide, phases=phases, tools=tools)
        shared = replace(make_shared_state(), store=world.hub.store)
        worker = Worker(made, bus, shared=shared, keyring=Keyring({"police": KEY}, "default"))
        await worker.start()
        world._stack.push_async_callback(bus.aclose)
        client = GateClient(world.hub.orchestrator())
        await client.start()
        world._stack.push_async_callback(client.bus.aclose)
        gate = Gate(parse({"patience_ms": 30_000, "required": ["police"], "keys": str(keys)}), client)
        member = replace(bus.member, signed=True, **told)
        client.on_roster_change((member,))
        return gate, client, asked, bus

    return make


async def test_a_heartbeat_of_another_start_excuses_a_required_scheduler_from_nothing(fleet):
    gate, _, asked, _ = await fleet(replica="police-before", tools=("read",), started=1)
    for _ in range(2):
        decision = await gate.decide(Call("pay", {}, TOOLS))
        assert (decision.outcome, decision.reason) == ("deny", "no")
    assert asked == [("select", "pay")] * 2


async def test_its_own_word_counts_once_that_start_has_answered(fleet):
    gate, client, asked, bus = await fleet((("select", "verify"), ("read",)))
    assert not client.directory.announced["police"].signed
    assert (await gate.decide(Call("read", {}, TOOLS))).outcome == "continue"
    assert client.directory.announced["police"].signed
    assert not gate._audience("pay").names
    client.on_roster_change((replace(bus.member, signed=True, started=9, tools=("read",)),))
    assert gate._audience("pay").names == ("police",)  # it is another start
    assert asked == [("select", "read")]


async def test_who_gives_what_is_scarce_is_asked_last_whatever_an_older_heartbeat_says(fleet):
    gate, _, asked, _ = await fleet(
        (("admit",), ("*",)), replica="police-before", started=1, phases=("select", "verify")
    )
    assert (await gate.decide(Call("pay", {}, TOOLS))).outcome == "deny"
    assert asked == [("admit", "pay")]


async def test_who_is_asked_before_is_not_asked_again_at_the_end_once_it_has_answered(fleet):
    gate, *_ = await fleet()
    decision = await gate.decide(Call("read", {}, TOOLS))
    assert (decision.why, [heard.phase for heard in decision.verdicts]) == ("agreed", ["select"])
