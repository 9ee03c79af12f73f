"""What the console shows of slots: who has one, and who waits in which place, of a real scheduler."""

import asyncio

import pytest
from toolgate_orchestrator.gate.gate import Gate

pytestmark = pytest.mark.acceptance

POOLS = "pools: [{name: desk, tools: type, limit: 1, wait_s: 60}]"
HOSTILE = "<b>bob</b>\x1b[2J"


@pytest.fixture
async def desk(process, server_url, namespace, tmp_path, wait_until):
    """One call that has the desk, and one of somebody with a bad name that waits for it."""
    file = tmp_path / "slots.yaml"
    file.write_text(POOLS)
    where = ("--redis", server_url, "--namespace", namespace)
    scheduler = process("toolgate", "scheduler", "run", "slots", "--config", file, *where, "--json")
    await wait_until(lambda: '"ready"' in scheduler.stdout, timeout=20)
    opened = Gate.open(redis=server_url, namespace=namespace, patience_ms=20_000, required=["slots"])
    async with opened as gate:
        waits = asyncio.Event()
        taken = await gate.decide("type", {}, ["type"], agent="ada")
        task = asyncio.create_task(
            gate.decide("type", {}, ["type"], agent=HOSTILE, on_hold=lambda _: waits.set())
        )
        await asyncio.wait_for(waits.wait(), 20)
        yield taken
        task.cancel()
        await asyncio.wait([task])


async def test_a_queue_is_told_call_by_call(console, desk):
    (queue,) = (await console.get("/api/queue")).json["queues"]
    (pool,) = queue["pools"]
    assert (queue["scheduler"], queue["more"], pool["name"], pool["most"]) == ("slots", 0, "desk", 1)
    assert (pool["in_use"], pool["waits"], pool["ruled"]) == (1, 1, None)
    (holder,), (waiter,) = pool["held"], pool["waiting"]
    assert (holder["id"], holder["agent"], holder["fence"]) == (desk.id, "ada", desk.grants["slots"])
    assert (waiter["place"], waiter["agent"], waiter["tool"]) == (1, HOSTILE, "type")
    assert waiter["why"] == "its turn"


@pytest.mark.system
async def test_the_page_shows_who_has_a_slot_and_who_is_next(page, desk):
    await page.go("queue")
    await page.page.get_by_text("1 of 1 in use, 1 wait").wait_for()
    await page.page.get_by_role("row", name="has it").get_by_text("ada").first.wait_for()
    assert "<b>bob</b>\\u001b[2J" in await page.page.locator("#queue").inner_text()
