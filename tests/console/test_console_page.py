"""The page in a real browser: decisions, held calls, a flood, keyboard, phone, themes."""

import asyncio
import json
import time

import pytest
from chromium import CUT_OFF, PHONE, browser, opened

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(180)]
BOUND_S = 30.0
VIEWS = ["live", "agents", "approvals", "rates", "budgets", "roster"]
LONG = {"path": "a/very/long/path/" * 20, "content": "word " * 400}


@pytest.fixture
def token():
    return "a-token-of-enough-letters"


@pytest.fixture
async def chromium():
    async with browser() as started:
        yield started


@pytest.fixture
async def page(chromium, console, token):
    async with opened(chromium, f"{console.url}?token={token}") as made:
        yield made
        assert made.wrong == []


def rows(page, more=""):
    return page.page.locator(f"#rows .row{more}")


async def has_rows(page, count):
    from playwright.async_api import expect

    await expect(rows(page)).to_have_count(count, timeout=20_000)


async def test_decisions_appear_without_a_reload(page, teller):
    await page.page.get_by_text("No decisions yet").wait_for()
    assert "token" not in page.page.url
    await page.page.evaluate("window.mark = 1")
    await teller.tell(3)
    await has_rows(page, 3)
    denied = {"reason": "<b>no</b> \u202e", "scheduler": "policy"}
    await teller.tell(1, "deny", tool_name="<img src=x onerror=alert(1)>", **denied)
    await has_rows(page, 4)
    first = await rows(page).first.inner_text()
    for words in ("deny", "policy", "<b>no</b> \\u202e", "<img src=x"):
        assert words in first
    assert await page.page.evaluate("window.mark") == 1
    assert await page.page.locator("#f-total").inner_text() == "4"


async def test_a_row_opens_to_why_it_came_out_so(page, teller):
    heard = [
        {
            "scheduler": "policy",
            "action": "deny",
            "phase": "select",
            "priority": 7,
            "seconds": 0.002,
            "reason": "no",
        },
        {
            "scheduler": "next",
            "action": "continue",
            "phase": "select",
            "priority": 0,
            "seconds": 0.003,
            "shadow": True,
        },
    ]
    (id_,) = await teller.tell(1, "deny", verdicts=heard, reason="no", scheduler="policy", silent=["quiet"])
    await rows(page).first.click()
    detail = page.page.locator("#rows .detail")
    await detail.wait_for()
    said = await detail.inner_text()
    for words in ("policy", "deny", "2.0", "7", "next", "shadow", "quiet", "silent", "clerk", id_, "4.0 ms"):
        assert words in said
    await detail.get_by_role("button", name="s-1").click()
    assert await page.page.locator("[name=session]").input_value() == "s-1"


async def test_filters_and_pause(page, teller):
    await teller.tell(2)
    await teller.tell(1, "deny", tool_name="send_mail")
    await has_rows(page, 3)
    await page.page.get_by_label("Outcome").select_option("deny")
    await has_rows(page, 1)
    await page.page.get_by_label("Tool").fill("nothing_*")
    await page.page.get_by_text("No decision fits").wait_for()
    await page.page.get_by_role("button", name="Clear").click()
    await has_rows(page, 3)
    await page.page.get_by_role("button", name="Pause").click()
    await teller.tell(5)
    await page.page.get_by_role("button", name="Go on (5 new)").click()
    await has_rows(page, 8)


async def test_the_list_goes_by_keys(page, teller):
    await teller.tell(3)
    await has_rows(page, 3)
    press = page.page.keyboard.press
    focused = "[...document.querySelectorAll('#rows .row')].indexOf(document.activeElement)"
    for key, at in (("j", 0), ("j", 1), ("ArrowDown", 2), ("j", 2), ("k", 1), ("ArrowUp", 0)):
        await press(key)
        assert await page.page.evaluate(focused) == at
    outline = await page.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    await press("Enter")
    await page.page.locator("#rows .detail").wait_for()
    await press("Escape")
    await page.page.locator("#rows .detail").wait_for(state="detached")
    await press("/")
    assert await page.page.evaluate("document.activeElement.name") == "text"
    await page.page.keyboard.type("jjp")
    assert await page.page.get_by_role("button", name="Pause").get_attribute("aria-pressed") == "false"
    await page.page.keyboard.press("Escape")
    await press("p")
    await page.page.get_by_role("button", name="Go on").wait_for()


async def test_a_wrong_token_sees_nothing(chromium, console, teller, namespace):
    await teller.tell(2, tool_name="launch_rockets")
    async with opened(chromium, f"{console.url}?token=wrong") as stranger:
        await stranger.page.get_by_role("heading", name="Sign in").wait_for()
        await stranger.page.goto(f"{console.url}#approvals")
        content = await stranger.page.content()
        for told in ("launch_rockets", namespace, "Approvals", "anna"):
            assert told not in content
        seen = await stranger.page.evaluate(
            "Promise.all(['/api/live', '/api/me', '/static/main.js'].map(p => fetch(p).then(r => r.status)))"
        )
        assert seen == [401, 401, 401]
        await stranger.page.get_by_label("Token").fill("a-token-of-enough-letters")
        await stranger.page.get_by_label("Your name").fill("Bert")
        await stranger.page.get_by_role("button", name="Sign in").click()
        await stranger.page.get_by_role("button", name="Bert").wait_for()
        await stranger.page.get_by_text("launch_rockets").first.wait_for()


async def test_ten_thousand_decisions_leave_the_page_responsive(page, teller, console):
    await teller.tell(1)
    await has_rows(page, 1)
    await page.page.evaluate(
        """window.longest = 0;
        new PerformanceObserver((list) => {
          for (const entry of list.getEntries()) window.longest = Math.max(window.longest, entry.duration);
        }).observe({ type: "longtask" });"""
    )
    slowest = 0.0

    async def flood():
        for _ in range(40):
            await teller.tell(250, reason="because", scheduler="policy", silent=["quiet"])

    flooding = asyncio.create_task(flood())
    async with asyncio.timeout(60):
        while await page.page.locator("#f-total").inner_text() != "10,001":
            begun = time.monotonic()
            await page.page.evaluate("new Promise((done) => requestAnimationFrame(() => done()))")
            slowest = max(slowest, time.monotonic() - begun)
    await flooding
    assert slowest < 3.0
    assert await page.page.evaluate("window.longest") < 2000
    assert await rows(page).count() == 200
    assert "more went by" in await page.page.locator("#skipped").inner_text()
    assert (await console.get("/api/rates")).json["all"]["decisions"] == 10_001
    await rows(page).first.click()
    await page.page.locator("#rows .detail").first.wait_for()


async def test_rates_budgets_and_roster_are_drawn_with_tables_beside(page, teller):
    heard = [
        {
            "scheduler": "policy",
            "action": "deny",
            "phase": "select",
            "priority": 0,
            "seconds": 0.01,
            "reason": "x",
        }
    ]
    await teller.tell(3, "deny", verdicts=heard, scheduler="policy")
    await teller.tell(1, verdicts=[{**heard[0], "action": "continue"}])
    await page.go("rates")
    line = page.page.get_by_role("row", name="policy")
    await line.get_by_text("75.0 %").wait_for()
    label = await page.page.locator("svg.chart").get_attribute("aria-label")
    assert "75.0 % of 4 decisions" in label
    await page.page.get_by_role("button", name="1 hour").click()
    await page.page.locator("svg.chart[aria-label*=hour]").wait_for()
    await page.go("budgets")
    await page.page.get_by_text("Nothing was spent yet").wait_for()
    await page.go("roster")
    await page.page.get_by_text("No scheduler is alive").wait_for()
    await page.page.get_by_text("console", exact=True).wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_is_readable_on_a_phone_in_both_themes(chromium, console, token, teller, scheme):
    await teller.tell(5, "deny", tool_name="t" * 200, tool_input=LONG, reason="r" * 900, agent="a" * 90)
    async with opened(chromium, f"{console.url}?token={token}", color_scheme=scheme, **PHONE) as page:
        await has_rows(page, 5)
        await rows(page).first.click()
        await page.page.locator("#rows .detail").wait_for()
        for view in VIEWS:
            await page.go(view)
            content, window = await page.width()
            assert content <= window == 375, view
            if view == "rates":
                await page.page.locator("#view-rates tbody tr").first.wait_for()
            assert await page.page.evaluate(CUT_OFF) == [], view
        background = "getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0] < 128"
        assert await page.page.evaluate(background) is (scheme == "dark")
        await page.page.get_by_role("button", name="Switch between light and dark").click()
        assert await page.page.evaluate(background) is (scheme == "light")
        await page.page.reload()
        assert await page.page.evaluate(background) is (scheme == "light")
        assert page.wrong == []


CONTRAST = """() => {
  const luminance = (text) => {
    const [r, g, b] = text.match(/[\\d.]+/g).map(Number).slice(0, 3).map((c) => c / 255)
      .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const found = getComputedStyle(node).backgroundColor;
      if (!/, 0\\)$/.test(found)) return found;
    }
    return "rgb(255, 255, 255)";
  };
  const bad = [];
  for (const node of document.querySelectorAll("body *")) {
    if (![...node.childNodes].some((one) => one.nodeType === 3 && one.data.trim())) continue;
    if (!node.checkVisibility() || node.closest("[disabled], .over, svg")) continue;
    const [a, b] = [luminance(getComputedStyle(node).color), luminance(behind(node))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) bad.push(`${node.tagName}.${node.className} ${ratio.toFixed(2)}`);
  }
  return bad;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_all_text_stands_out_from_what_is_behind_it(chromium, console, token, teller, scheme):
    for outcome in ("continue", "deny"):
        await teller.tell(1, outcome, silent=["quiet"], reason="why", scheduler="policy")
    async with opened(chromium, f"{console.url}?token={token}", color_scheme=scheme) as page:
        await has_rows(page, 2)
        await rows(page).first.click()
        await page.page.locator("#rows .detail").wait_for()
        for view in VIEWS:
            await page.go(view)
            assert await page.page.evaluate(CONTRAST) == [], view


async def test_a_console_that_ends_is_said_to_be_away_and_a_new_one_asks_to_sign_in(
    chromium, process, server_url, namespace, wait_until
):
    where = ("--redis", server_url, "--namespace", namespace, "--json")
    first = process("toolgate", "console", "--port", 0, *where)
    ready = await wait_until(lambda: first.stdout.strip() and json.loads(first.stdout), timeout=BOUND_S)
    async with opened(chromium, ready["url"]) as page:
        await page.page.get_by_text("No decisions yet").wait_for()
        first.signal(2)
        assert await asyncio.to_thread(first.wait) == 0
        await page.page.get_by_text("The console does not answer").wait_for()
        port = ready["address"].rstrip("/").rpartition(":")[2]
        second = process("toolgate", "console", "--port", port, *where)
        await wait_until(lambda: second.stdout.strip(), timeout=BOUND_S)
        await page.page.get_by_text("You are signed out").wait_for()
        await page.page.goto(json.loads(second.stdout)["url"])
        await page.page.get_by_text("No decisions yet").wait_for()
        assert "Traceback" not in first.stderr + second.stderr


# ---------------------------------------------------------------------- held calls

RULES = """\
rules:
- {name: writing, tools: write_file, prompt: "Is this the right file?"}
"""


def plan(url, namespace, root, *calls):
    turns = [{"tool_calls": [{"name": "write_file", "arguments": call}]} for call in calls]
    bus = {
        "redis": url,
        "namespace": namespace,
        "agent": "clerk",
        "required": ["approval"],
        "patience_ms": 5000,
    }
    return {
        "session": {"orchestrator": {"module": "loop-events", "config": {"toolgate": bus}}},
        "tools": [{"module": "tool-workspace", "config": {"root": str(root)}}],
        "providers": [
            {
                "module": "provider-scripted",
                "config": {"turns": [*turns, {"text": "That is all. ${last_result}"}]},
            }
        ],
    }


@pytest.fixture
async def held(process, server_url, namespace, tmp_path, wait_until):
    """`await held(call, …)`: an agent process whose calls a real scheduler holds; gives it and its folder."""
    rules = tmp_path / "approval.yaml"
    rules.write_text(RULES)
    where = ("--redis", server_url, "--namespace", namespace)
    scheduler = process("toolgate", "scheduler", "run", "approval", "--config", rules, *where, "--json")
    await wait_until(lambda: '"ready"' in scheduler.stdout, timeout=BOUND_S)

    def start(*calls):
        root = tmp_path / "root"
        root.mkdir(exist_ok=True)
        file = tmp_path / "plan.json"  # JSON is YAML
        file.write_text(json.dumps(plan(server_url, namespace, root, *calls)))
        return process("toolgate", "run", "write", "--plan", file), root

    return start


async def test_a_held_call_is_corrected_on_the_page_and_the_corrected_call_runs(page, held):
    agent, root = held({"path": "wrong.txt", "content": "secret"})
    await page.page.get_by_role("link", name="Approvals 1").click()
    card = page.page.locator("article.card")
    shown = await card.inner_text()
    for words in (
        "write_file",
        "Is this the right file?",
        '"path": "wrong.txt"',
        '"content": "secret"',
        "left",
    ):
        assert words in shown
    assert await page.page.title() == "(1) Toolgate console"
    await card.get_by_role("button", name="Correct").click()
    dialog = page.page.locator("dialog#answer")
    box, send = dialog.locator("[name=arguments]"), dialog.locator("[type=submit]")

    await box.fill('{"path": "right.txt", "content": }')
    await dialog.get_by_text("is not JSON").wait_for()
    await send.click()
    await dialog.locator("#e-arguments", has_text="is not JSON: Expecting value").wait_for()
    await box.fill('{"path": "right.txt", "content": 7}')
    await send.click()
    doubts = dialog.locator("#doubts")
    await doubts.get_by_text("content is a number; it was a text").wait_for()
    assert not (root / "right.txt").exists()
    await box.fill('{"path": "right.txt", "content": "public"}')
    await dialog.locator("[name=reason]").fill("the other one")
    await send.click()
    await card.get_by_text("corrected by anna@box (the other one): write_file").wait_for()

    assert await asyncio.to_thread(agent.wait) == 0
    assert [file.name for file in root.iterdir()] == ["right.txt"]
    assert (root / "right.txt").read_text() == "public"
    await page.go("live")
    await rows(page, ":has-text('right')").or_(rows(page)).first.click()
    said = page.page.locator("#rows .detail")
    await said.get_by_text("What ran instead").wait_for()
    assert "right.txt" in await said.inner_text()


async def test_calls_are_approved_and_refused_and_the_agent_is_told_why(page, held):
    agent, root = held({"path": "one.txt", "content": "1"}, {"path": "two.txt", "content": "2"})
    await page.go("approvals")
    one, two = (page.page.locator("article.card", has_text=f"{name}.txt") for name in ("one", "two"))
    await one.get_by_role("button", name="Approve").click()
    await one.get_by_text("approved by anna@box").wait_for()
    await two.get_by_role("button", name="Refuse").click()
    await page.page.locator("dialog#answer [name=reason]").fill("one is enough")
    await page.page.keyboard.press("Tab")
    await page.page.keyboard.press("Tab")
    await page.page.keyboard.press("Enter")
    await two.get_by_text("refused by anna@box (one is enough)").wait_for()
    assert await asyncio.to_thread(agent.wait) == 0
    assert "one is enough" in agent.stdout
    assert [file.name for file in root.iterdir()] == ["one.txt"]
    await page.page.get_by_role("heading", name="Lately").wait_for()


async def test_who_comes_second_is_told_who_was_first(page, held, chromium, console, token):
    agent, root = held({"path": "one.txt", "content": "1"})
    async with opened(chromium, f"{console.url}?token={token}") as other:
        for each in (page, other):
            await each.go("approvals")
            await each.page.locator("article.card").wait_for()
        await other.page.get_by_role("button", name="anna").click()
        await other.page.locator("dialog#name [name=user]").fill("bert")
        await other.page.get_by_role("button", name="Keep").click()
        await other.page.get_by_role("button", name="bert").wait_for()
        await page.page.get_by_role("button", name="Correct").click()
        await other.page.locator("article.card").get_by_role("button", name="Approve").click()
        taken = page.page.locator("dialog#answer .taken")
        await taken.get_by_text("approved by bert@box").wait_for()
        assert await page.page.locator("dialog#answer [type=submit]").is_disabled()
        await page.page.keyboard.press("Escape")
        await page.page.locator("article.card.over").get_by_text("approved by bert@box").wait_for()
    assert await asyncio.to_thread(agent.wait) == 0
    assert (root / "one.txt").read_text() == "1"


async def test_an_answer_is_bound_to_the_call_that_was_shown(console, held, wait_until):
    agent, root = held({"path": "one.txt", "content": "1"})

    async def waiting():
        return (await console.get("/api/approvals")).json["waiting"]

    (one,) = await wait_until(waiting, timeout=BOUND_S)
    path = f"/api/approvals/{one['id']}/answer"
    stale = await console.publish(path, {"action": "approve", "digest": "0" * 64})
    assert stale.status == 409
    assert "changed after it was shown" in stale.json["error"]
    for body in ({}, {"action": "approve"}, {"action": "run", "digest": one["digest"]}, {"x": 1}):
        assert (await console.publish(path, body)).status == 422
    for tool, arguments, field in (
        ("launch", "{}", "tool"),
        ("write_file", "[]", "arguments"),
        ("write_file", '{"a": NaN}', "arguments"),
        ("write_file", one["arguments"], "arguments"),
        ("write_file", "@/etc/hostname", "arguments"),
    ):
        body = {"action": "edit", "digest": one["digest"], "tool": tool, "arguments": arguments}
        refused = await console.publish(path, body)
        assert (refused.status, list(refused.json["fields"])) == (422, [field])
    assert (
        await console.publish("/api/approvals/zz/answer", {"action": "approve", "digest": "0"})
    ).status == 400
    assert list(root.iterdir()) == []
    done = await console.publish(path, {"action": "approve", "digest": one["digest"]})
    assert (done.status, done.json["done"]) == (200, True)
    again = await console.publish(path, {"action": "deny", "digest": one["digest"]})
    assert again.status == 409
    assert "approved by anna@box already" in again.json["error"]
    assert await asyncio.to_thread(agent.wait) == 0
