"""One optional scheduler floods its verdict stream: denials of others stand, and it is counted."""

import asyncio
import os

import pytest
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.usefixtures("schedulers_with_alpha")
TOOLS = ["bash"]
DENIED = {"alpha": {"action": "deny", "reason": "no"}}


MANY = "for _ = 1, 300 do redis.call('XADD', KEYS[1], '*', 'event', 'verdict', 'frame', ARGV[1]) end"


async def flood(client, key, kind):
    """80 MB in one entry, in entries that are each within the bounds; or nothing but fields."""
    if kind == "one entry":
        await client.xadd(key, {"event": "verdict", "frame": b"x" * 80_000_000})
    elif kind == "many entries":
        frame = packing.frame([packing.item(os.urandom(16), 0, b"x" * 4000) for _ in range(64)])
        await client.eval(MANY, 1, key, frame)
    else:
        await client.xadd(key, {str(number): b"" for number in range(100_000)})


@pytest.mark.parametrize("kind", ["one entry", "many entries", "many fields"])
async def test_who_floods_its_verdict_stream_hides_no_denial_of_another(
    server_url, rogue, wait_until, counted, monkeypatch, kind
):
    # However slowly a busy machine reads it, it comes within one window.
    monkeypatch.setattr("toolgate_bus.transport.redis.asking.quarantine.WINDOW_S", 600.0)
    flooder = await rogue("flooder", "lone-alpha")
    async with Gate.open(redis=server_url, namespace="lone-alpha", patience_ms=50_000) as gate:
        bus = gate._client.bus
        await wait_until(lambda: {"flooder", "alpha"} <= bus.read_set)
        key = Keys("lone-alpha").verdicts(bus.orchestrator, "flooder")
        flooding = asyncio.create_task(flood(flooder.client, key, kind))
        asked = 0
        while asked < 5 or not flooding.done():
            decision = await gate.decide(Call("bash", {"n": asked, "rules": DENIED}, TOOLS))
            assert decision.outcome == "deny", decision
            asked += 1
        await flooding

        def dropped():
            return counted("toolgate_bad_messages_total", sender="flooder", reason="flood")

        await wait_until(dropped)
        assert (await gate.decide(Call("bash", {"rules": DENIED}, TOOLS))).outcome == "deny"
