"""The trees of agents on the page: seen as they are, stopped after a question; in a real browser."""

import asyncio

import pytest
from agent_trees import World, delegate, says, wait_for
from chromium import CUT_OFF, PHONE, browser, opened

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(180)]
BOUND_S = 30
TOKEN = "a-token-of-enough-letters"


class Bus:
    """Where the agents and the console meet."""

    def __init__(self, url, namespace):
        self.url, self.namespace = url, namespace


@pytest.fixture
async def world(server_url, namespace, process, tmp_path):
    made = World(Bus(server_url, namespace), process, tmp_path)
    yield made
    await made.aclose()


@pytest.fixture
async def page(console):
    async with browser() as chromium, opened(chromium, f"{console.url}?token={TOKEN}#agents") as made:
        await made.go("agents")
        yield made
        assert made.wrong == []


@pytest.fixture
def team(world, wait_until):
    """`await team()`: boss and worker are at work; gives their process."""

    async def start(worker="worker"):
        plan = world.plan(
            says([delegate(worker), wait_for("boss")], "no"),
            {worker: {"providers": says([wait_for("worker")], "no")}},
        )
        run = world.run(plan)
        await wait_until(lambda: world.has("boss.began", "worker.began"), timeout=BOUND_S)
        return run

    return start


def row(page, name):
    return page.page.locator("#agents tbody tr", has=page.page.get_by_role("rowheader", name=name))


async def test_the_tree_is_shown_and_an_agent_is_stopped_with_all_below_it_by_keys_alone(page, world, team):
    from playwright.async_api import expect

    await page.page.get_by_role("heading", name="No agent is alive").wait_for()
    run = await team()
    await row(page, "worker").get_by_text("tool wait").wait_for()
    names = await page.page.locator("#agents tbody th").all_inner_texts()
    assert [name.split()[0] for name in names] == ["boss", "worker"]
    indents = await page.page.locator("#agents tbody th").evaluate_all(
        "all => all.map(one => one.style.paddingLeft)"
    )
    assert indents == ["0rem", "1.25rem"]
    assert await row(page, "worker").locator("th").get_attribute("title") == "boss > worker"

    await row(page, "boss").get_by_role("button", name="Stop").focus()
    for _ in range(2):  # rows are drawn anew, and the focus stays
        age = row(page, "boss").locator("td").nth(5)
        await expect(age).not_to_have_text(await age.inner_text(), timeout=20_000)
    await page.page.keyboard.press("Enter")
    dialog = page.page.get_by_role("dialog")
    await dialog.get_by_text("2 agents end their turns").wait_for()
    await page.page.keyboard.press("Escape")
    await dialog.wait_for(state="hidden")
    assert run.alive
    assert not world.has("worker.cancelled")

    await page.page.keyboard.press("Enter")  # the focus came back
    await dialog.wait_for()
    await dialog.get_by_label("At once").check()
    await page.page.keyboard.press("Enter")
    await page.page.get_by_role("heading", name="No agent is alive").wait_for()
    assert await asyncio.to_thread(run.wait, BOUND_S) == 1
    assert world.has("boss.cancelled", "worker.cancelled")
    (stop,) = await world.toolgate.json("agents", "resume")
    assert await page.page.locator("#said").inner_text() == (
        f"Told 2 agents to stop; the stop stands until you lift it: toolgate agents resume {stop['id']}"
    )


async def test_all_are_stopped_after_the_tools_that_run(page, world, team):
    run = await team()
    await row(page, "worker").wait_for()
    await page.page.get_by_role("button", name="Stop all…").click()
    await page.page.get_by_role("dialog").get_by_role("button", name="Stop", exact=True).click()
    await row(page, "worker").get_by_text("stopping: tool wait").wait_for()
    assert run.alive
    world.go()
    assert await asyncio.to_thread(run.wait, BOUND_S) == 1
    assert world.has("boss.ended", "worker.ended")
    await page.page.get_by_role("heading", name="No agent is alive").wait_for()


async def test_agents_are_paused_and_resumed_on_the_page(page, world, team, wait_until):
    run = await team()
    await row(page, "worker").wait_for()
    await row(page, "boss").get_by_role("button", name="Pause").click()
    dialog = page.page.get_by_role("dialog")
    await dialog.get_by_text("2 agents wait with the next call").wait_for()
    await dialog.get_by_role("button", name="Pause", exact=True).click()
    await row(page, "worker").get_by_text("paused: tool wait").wait_for()
    order = page.page.locator("#orders tbody tr")
    assert "anna (console)" in await order.inner_text()
    await order.get_by_role("button", name="End the pause").click()
    await row(page, "worker").get_by_text("tool wait", exact=True).wait_for()
    await order.wait_for(state="detached")
    world.go()
    assert await asyncio.to_thread(run.wait, BOUND_S) == 0


async def test_a_name_that_an_agent_was_given_is_text_and_fits_a_phone(console, world, team):
    name = "<img src=x onerror=alert(1)>" + "x" * 100
    run = await team(name)
    async with browser() as chromium, opened(chromium, f"{console.url}?token={TOKEN}", **PHONE) as page:
        await page.go("agents")
        await page.page.locator("#agents tbody tr").nth(1).wait_for()
        assert name in await page.page.locator("#agents").inner_text()
        content, window = await page.width()
        assert content <= window == 375
        assert await page.page.evaluate(CUT_OFF) == []
        assert page.wrong == []
    world.go()
    assert await asyncio.to_thread(run.wait, BOUND_S) == 0


async def test_orders_are_given_by_the_page_alone_and_are_checked(console, world, team, wait_until):
    run = await team()

    async def there():
        found = (await console.get("/api/agents")).json["agents"]
        return found if [one["doing"] for one in found] == ["tool wait"] * 2 else None

    found = await wait_until(there, timeout=BOUND_S)
    assert [(one["agent"], one["depth"]) for one in found] == [("boss", 0), ("worker", 1)]
    order = {"session": found[0]["session"], "now": True}
    assert (await console.ask("GET", "/api/agents")).status == 401
    for headers in (
        {"origin": "http://elsewhere.example"},
        {"sec_fetch_site": "cross-site"},
        {"x_toolgate_console": "0"},
    ):
        assert (await console.publish("/api/agents/stop", order, **headers)).status == 403
    assert (await console.publish("/api/agents/stop", order, cookie="")).status == 401
    for wrong in ({}, {"session": "", "now": True}, {"session": None, "now": "yes"}, {**order, "more": 1}):
        assert (await console.publish("/api/agents/stop", wrong)).status == 422
    gone = await console.publish("/api/agents/stop", {"session": "nobody", "now": True})
    assert (gone.status, "is no live session" in gone.json["error"]) == (400, True)
    assert run.alive
    told = await console.publish("/api/agents/stop", order)
    (stop,) = await world.toolgate.json("agents", "resume")
    assert (told.status, told.json) == (200, {"turns": 2, "stop": stop["id"]})
    assert await asyncio.to_thread(run.wait, BOUND_S) == 1
