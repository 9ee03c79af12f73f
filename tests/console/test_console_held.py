"""Held calls on the page, in a real browser: each answer is for the call that was shown."""

import asyncio
import json

import pytest
from chromium import opened, rows

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(180)]
BOUND_S = 30.0

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
    async with opened(chromium, f"{console.url}?token={token}#live") as other:
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
