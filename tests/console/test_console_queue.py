"""What the console shows of slots, of a real scheduler, and what it changes: who has one, who waits."""

import asyncio

import pytest
from chromium import CUT_OFF, PHONE, opened
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance

POOLS = "pools: [{name: desk, tools: type, limit: 1, wait_s: 60}]"
HOSTILE = "<b>bob</b>\x1b[2J"


WHERE = {"scheduler": "slots"}


class Line:
    """Calls that want the desk, by the names of their agents."""

    def __init__(self, gate):
        self.gate, self.tasks = gate, {}

    async def want(self, agent):
        """Ask, and come back once it waits or is decided."""
        waits = asyncio.Event()
        deciding = self.gate.decide(
            Call("type", {}, ["type"], Caller(agent=agent)), on_hold=lambda _: waits.set()
        )
        self.tasks[agent] = asyncio.create_task(deciding)
        both = [self.tasks[agent], asyncio.create_task(waits.wait())]
        await asyncio.wait(both, return_when="FIRST_COMPLETED", timeout=20)
        both[1].cancel()

    async def served(self, agent):
        """What becomes of its call."""
        return await asyncio.wait_for(self.tasks[agent], 20)

    def end(self, agent):
        """Its call has ended."""
        decision = self.tasks[agent].result()
        self.gate.note("tool:post", {"decision_id": decision.id, "tool": "type", "success": True})


@pytest.fixture
async def line(slots, server_url, namespace):
    """Ada has the desk; bob, cleo and dora wait for it."""
    where = {"redis": server_url, "namespace": namespace}
    async with Gate.open(**where, patience_ms=20_000, required=["slots"]) as gate:
        made = Line(gate)
        for agent in ("ada", "bob", "cleo", "dora"):
            await made.want(agent)
        yield made
        for task in made.tasks.values():
            task.cancel()
        await asyncio.wait(made.tasks.values())


@pytest.fixture
async def slots(process, server_url, namespace, tmp_path, wait_until):
    """A real scheduler, for one desk."""
    file = tmp_path / "slots.yaml"
    file.write_text(POOLS)
    where = ("--redis", server_url, "--namespace", namespace)
    scheduler = process("toolgate", "scheduler", "run", "slots", "--config", file, *where, "--json")
    await wait_until(lambda: '"ready"' in scheduler.stdout)


@pytest.fixture
async def desk(slots, server_url, namespace):
    """One call that has the desk, and one of somebody with a bad name that waits for it."""
    where = {"redis": server_url, "namespace": namespace}
    async with Gate.open(**where, patience_ms=20_000, required=["slots"]) as gate:
        waits = asyncio.Event()
        taken = await gate.decide(Call("type", {}, ["type"], Caller(agent="ada")))
        task = asyncio.create_task(
            gate.decide(Call("type", {}, ["type"], Caller(agent=HOSTILE)), on_hold=lambda _: waits.set())
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


ORDERS = [
    ("move", {"call": "ID", "to": "first"}),
    ("drop", {"call": "ID", "reason": "No."}),
    ("limit", {"pool": "desk", "most": 1}),
]


async def waiting(console):
    """Who waits for the desk, by agent, and which call it is."""
    (queue,) = (await console.get("/api/queue")).json["queues"]
    return {one["agent"]: one["id"] for pool in queue["pools"] for one in pool["waiting"]}


@pytest.mark.parametrize(("act", "body"), ORDERS, ids=[act for act, _ in ORDERS])
async def test_orders_to_a_queue_are_given_by_the_page_alone_and_are_checked(console, desk, act, body):
    (id_,) = (await waiting(console)).values()
    order = {"scheduler": "slots", **body} | ({"call": id_} if "call" in body else {})
    for headers in ({"origin": "http://elsewhere.example"}, {"x_toolgate_console": "0"}):
        assert (await console.publish(f"/api/queue/{act}", order, **headers)).status == 403
    assert (await console.publish(f"/api/queue/{act}", order, cookie="")).status == 401
    assert (await console.get(f"/api/queue/{act}")).status == 405
    for name in order:
        assert (await console.publish(f"/api/queue/{act}", {**order, name: ["x"]})).status == 422
        less = {key: value for key, value in order.items() if key != name}
        assert (await console.publish(f"/api/queue/{act}", less)).status == 422
    assert (await console.publish(f"/api/queue/{act}", {**order, "more": 1})).status == 422
    strange = await console.publish(f"/api/queue/{act}", {**order, "scheduler": "config"})
    assert (strange.status, "gives slots here" in strange.json["error"]) == (400, True)
    if "call" in order:
        gone = await console.publish(f"/api/queue/{act}", {**order, "call": "nobody"})
        assert (gone.status, gone.json["error"]) == (400, "this call waits no longer")
    assert (await console.publish(f"/api/queue/{act}", order)).status == 200


async def test_what_the_page_orders_happens(console, line):
    assert list(await waiting(console)) == ["bob", "cleo", "dora"]
    ids = await waiting(console)
    post = console.publish
    assert (
        await post("/api/queue/move", {**WHERE, "call": ids["dora"], "before": ids["cleo"]})
    ).status == 200
    assert list(await waiting(console)) == ["bob", "dora", "cleo"]
    assert (await post("/api/queue/move", {**WHERE, "call": ids["cleo"], "to": "first"})).status == 200
    assert (await post("/api/queue/move", {**WHERE, "call": ids["bob"], "to": "last"})).status == 200
    assert (await post("/api/queue/move", {**WHERE, "call": ids["dora"], "to": 7})).status == 200
    assert list(await waiting(console)) == ["cleo", "dora", "bob"]
    assert (
        await post("/api/queue/drop", {**WHERE, "call": ids["cleo"], "reason": "Not today."})
    ).status == 200
    dropped = await line.served("cleo")
    assert dropped.reason.endswith("an operator took it out of the queue: Not today.")
    assert (await post("/api/queue/limit", {**WHERE, "pool": "desk", "most": 0})).status == 200
    (queue,) = (await console.get("/api/queue")).json["queues"]
    assert (queue["pools"][0]["most"], queue["pools"][0]["ruled"], queue["pools"][0]["limit"]) == (0, 0, 1)
    line.end("ada")
    assert (await post("/api/queue/limit", {**WHERE, "pool": "desk", "most": None})).status == 200
    assert (await line.served("dora")).allowed


@pytest.mark.system
async def test_an_operator_moves_drops_drains_and_limits_on_the_page_after_a_question(
    page, line, console, wait_until
):
    await page.go("queue")
    shown, dialog = page.page, page.page.get_by_role("dialog")
    row = shown.get_by_role("row", name="dora")
    await row.get_by_role("button", name="Move").focus()
    focused = "document.activeElement.getAttribute('aria-label')"
    held = await shown.evaluate(focused)
    has = shown.get_by_role("row", name="has it")
    drawn = await has.inner_text()

    async def is_drawn_anew():
        return await has.inner_text() != drawn

    await wait_until(is_drawn_anew)
    assert await shown.evaluate(focused) == held
    await shown.keyboard.press("Enter")
    await dialog.get_by_role("radio", name="Right before").check()
    await dialog.get_by_label("Before which call").select_option(label=await option_of(dialog, "bob"))
    await dialog.get_by_role("button", name="Move").click()
    for place, agent in enumerate(("dora", "bob", "cleo"), 1):
        head = shown.get_by_role("row", name=agent).get_by_role("rowheader", name=str(place), exact=True)
        await head.wait_for()
    assert await shown.evaluate(focused) == held  # the row went elsewhere, and the focus with it

    await shown.get_by_role("row", name="cleo").get_by_role("button", name="Drop").click()
    await dialog.get_by_role("button", name="Cancel").click()
    assert "cleo" in await waiting(console)
    await shown.get_by_role("row", name="cleo").get_by_role("button", name="Drop").click()
    await dialog.get_by_label("Reason, told to the LLM").fill("No.")
    await dialog.get_by_role("button", name="Drop").click()
    assert (await line.served("cleo")).reason.endswith("out of the queue: No.")
    await shown.get_by_role("row", name="cleo").wait_for(state="detached")

    await shown.get_by_role("button", name="Drain desk").click()
    await dialog.get_by_role("button", name="Drain").click()
    await shown.get_by_text("drained", exact=True).wait_for()
    await shown.get_by_role("row", name="dora").get_by_text("an operator: it is drained").wait_for()
    line.end("ada")
    await shown.get_by_text("0 of 0 in use, 2 wait").wait_for()
    await shown.get_by_role("button", name="Limit desk").click()
    await dialog.get_by_role("spinbutton", name="Calls at a time").fill("")
    await dialog.get_by_role("button", name="Limit").click()
    await dialog.get_by_text("valid integer").wait_for()
    await dialog.get_by_role("radio", name="As configured: 1").check()
    await dialog.get_by_role("button", name="Limit").click()
    assert (await line.served("dora")).allowed
    await shown.get_by_role("row", name="has it").get_by_text("dora").first.wait_for()
    line.end("dora")


async def option_of(dialog, agent):
    """The words of the choice that names an agent."""
    words = await dialog.get_by_label("Before which call").locator("option").all_inner_texts()
    return next(one for one in words if agent in one)


@pytest.mark.system
async def test_a_queue_fits_a_phone_and_is_readable(chromium, console, desk, token):
    async with opened(chromium, f"{console.url}?token={token}", **PHONE) as page:
        await page.go("queue")
        await page.page.get_by_role("row", name="has it").wait_for()
        content, window = await page.width()
        assert content <= window == 375
        assert await page.page.evaluate(CUT_OFF) == []
        await page.page.get_by_role("button", name="Move").click()
        content, window = await page.width()
        assert content <= window == 375
        assert page.wrong == []


@pytest.mark.system
async def test_the_page_shows_who_has_a_slot_and_who_is_next(page, desk):
    await page.go("queue")
    await page.page.get_by_text("1 of 1 in use, 1 wait").wait_for()
    await page.page.get_by_role("row", name="has it").get_by_text("ada").first.wait_for()
    assert "<b>bob</b>\\u001b[2J" in await page.page.locator("#queue").inner_text()
