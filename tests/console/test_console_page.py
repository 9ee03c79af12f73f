"""The page in a real browser: decisions, a flood, keyboard, phone, themes."""

import asyncio
import json

import pytest
from chromium import CUT_OFF, PHONE, opened, rows
from toolgate_schedulers.commands.console import hub

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(180)]
BOUND_S = 30.0
VIEWS = [
    "glance", "live", "agents", "approvals", "queue", "rates", "budgets", "rules", "revisions", "roster",
]  # fmt: skip
LONG = {"path": "a/very/long/path/" * 20, "content": "word " * 400}
GAPS = """(bar) => {
  const lines = new Map();
  for (const one of bar.children) {
    const at = one.getBoundingClientRect();
    if (at.width) lines.set(Math.round(at.top), (lines.get(Math.round(at.top)) ?? 0) + at.width);
  }
  return [...lines.values()].filter((width) => Math.abs(width - innerWidth) > 2);
}"""
"""The lines of the bar that do not fill the window."""


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
    async with opened(chromium, f"{console.url}?token=wrong#live") as stranger:
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
        await stranger.go("live")
        await stranger.page.get_by_text("launch_rockets").first.wait_for()


async def test_ten_thousand_decisions_leave_the_page_usable(page, teller, console):
    await teller.tell(1)
    await has_rows(page, 1)

    async def flood():
        for _ in range(40):
            await teller.tell(250, reason="because", scheduler="policy", silent=["quiet"])

    flooding = asyncio.create_task(flood())
    async with asyncio.timeout(60):
        while await page.page.locator("#f-total").inner_text() != "10,001":
            await page.page.evaluate("new Promise((done) => requestAnimationFrame(() => done()))")
    await flooding
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
    label = await page.page.locator("#rates-chart [role=img]").get_attribute("aria-label")
    assert "75.0 % of 4 decisions" in label
    await page.page.get_by_role("button", name="1 hour").click()
    await page.page.locator("#rates-chart [aria-label*=hour]").wait_for()
    await page.go("budgets")
    await page.page.get_by_text("Nothing was spent yet").wait_for()
    await page.go("queue")
    await page.page.get_by_text("Nobody has a slot or waits for one").wait_for()
    await page.go("roster")
    await page.page.get_by_text("No scheduler is alive").wait_for()
    await page.page.get_by_text("console", exact=True).wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_is_readable_on_a_phone_in_both_themes(chromium, console, token, teller, scheme):
    await teller.tell(5, "deny", tool_name="t" * 200, tool_input=LONG, reason="r" * 900, agent="a" * 90)
    async with opened(chromium, f"{console.url}?token={token}#live", color_scheme=scheme, **PHONE) as page:
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
    async with opened(chromium, f"{console.url}?token={token}#live", color_scheme=scheme) as page:
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
    async with opened(chromium, f"{ready['url']}#live") as page:
        await page.page.get_by_text("No decisions yet").wait_for()
        first.signal(2)
        assert await asyncio.to_thread(first.wait) == 0
        await page.page.get_by_text("The console has not answered").wait_for()
        port = ready["address"].rstrip("/").rpartition(":")[2]
        second = process("toolgate", "console", "--port", port, *where)
        await wait_until(lambda: second.stdout.strip(), timeout=BOUND_S)
        await page.page.get_by_text("You are signed out").wait_for()
        await page.page.goto(f"{json.loads(second.stdout)['url']}#live")
        await page.page.get_by_text("No decisions yet").wait_for()
        assert "Traceback" not in first.stderr + second.stderr


async def test_the_first_page_draws_the_fleet_in_both_themes(chromium, console, token, teller):
    await teller.tell(20)
    await teller.tell(5, "deny", scheduler="policy")
    async with opened(chromium, f"{console.url}?token={token}") as page:
        await page.page.locator("#glance-decisions canvas").wait_for()
        label = await page.page.locator("#glance-decisions [role=img]").get_attribute("aria-label")
        assert label == "25 decisions in the last 15 minutes, 5 vetoed, 0 replaced"
        await page.page.locator("#glance-figures").get_by_text("20.0 %").wait_for()
        await page.page.locator("#glance-latency canvas").wait_for()
        await page.page.get_by_text("No budget with a limit is in use.").wait_for()
        await page.page.get_by_text("Nobody waits.").wait_for()
        await page.page.evaluate("document.querySelector('#glance-decisions canvas').old = true")
        await page.page.get_by_role("button", name="Switch between light and dark").click()
        fresh = "() => !document.querySelector('#glance-decisions canvas')?.old"
        await page.page.wait_for_function(fresh)
        await page.page.get_by_role("button", name="1 hour").click()
        await page.page.locator("#glance-decisions [aria-label*=hour]").wait_for()
        assert page.wrong == []


async def test_nothing_moves_while_a_row_is_open(page, teller):
    await teller.tell(3)
    await has_rows(page, 3)
    await rows(page).first.click()
    await page.page.locator("#rows .detail").wait_for()
    await teller.tell(5)
    await page.page.get_by_role("button", name="Go on (5 new)").wait_for()
    await has_rows(page, 3)
    await page.page.get_by_role("button", name="Go on (5 new)").click()
    await has_rows(page, 8)
    assert await page.page.locator("#rows .detail").count() == 0
    await page.page.get_by_role("button", name="Pause").wait_for()


async def test_a_stream_that_stands_still_is_told_to_be_stale(page, teller, monkeypatch):
    monkeypatch.setattr(hub, "HEARTBEAT_S", 3600.0)
    await page.page.clock.install()
    await page.page.reload()
    pulse = page.page.locator("#pulse-words")
    await pulse.get_by_text("live", exact=True).wait_for()
    await page.page.clock.fast_forward(13_000)
    await pulse.get_by_text("stale").wait_for()
    await page.page.get_by_text("has sent nothing since").wait_for()
    await teller.tell(1)
    await pulse.get_by_text("live", exact=True).wait_for()


async def test_the_bar_of_a_phone_has_no_gaps_and_leads_to_every_view(chromium, console, token):
    async with opened(chromium, f"{console.url}?token={token}", **PHONE) as page:
        bar = page.page.locator("#nav")
        assert await bar.evaluate(GAPS) == []
        await bar.get_by_role("button", name="More").click()
        assert await bar.evaluate(GAPS) == []
        await bar.get_by_role("link", name="Revisions").click()
        await page.page.locator("#view-revisions").wait_for()
        await bar.get_by_role("button", name="Revisions").click()
        await bar.get_by_role("link", name="Roster").wait_for()
