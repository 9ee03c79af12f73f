"""Rules on the page: tried while they are typed, pushed as a shadow or for a share; in a real browser."""

from contextlib import aclosing

import pytest
from toolgate_bus.state.config_store import ConfigStore
from toolgate_bus.transport.redis.client.connection import RedisCommands

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(180)]
BOUND_S = 20
RULES = "rules:\n- name: no writes\n  tools: write_*\n  action: "


@pytest.fixture
async def store(server_url, namespace):
    """The configurations of `policy` on the test's server."""
    async with aclosing(RedisCommands(server_url, "test-console")) as commands:
        yield ConfigStore(commands, namespace, "policy")


async def test_rules_are_tried_while_they_are_typed_and_pushed_as_a_shadow(
    page, console, teller, store, wait_until
):
    heard = {"scheduler": "policy", "action": "continue", "phase": "select", "priority": 0, "seconds": 0.001}
    for tool in ("write_file", "read_file"):
        await teller.tell(500, tool_name=tool, verdicts=[heard], seconds=0.01)
    await wait_until(lambda: len(console.known.ring) == 1000, timeout=BOUND_S)
    await page.go("rules")
    text, shown = page.page.locator("#trial textarea"), page.page.locator("#trial-result")
    await shown.get_by_text("would have changed nothing").wait_for()
    await text.fill(RULES + "maybe")
    await page.page.locator("#trial-problem").get_by_text("line:4").wait_for()
    await text.fill(RULES)
    await text.press_sequentially("deny")
    row = shown.get_by_role("row", name="write_file")
    await row.get_by_text("no writes").wait_for()
    assert await row.locator("td").all_inner_texts() == ["clerk", "500", "500", "no writes", "example"]
    assert await shown.get_by_text("500 of 1,000").count() == 1
    await page.page.get_by_role("button", name="Push…").click()
    dialog = page.page.get_by_role("dialog")
    await dialog.get_by_label("Label").fill("v7")
    await dialog.get_by_role("button", name="Push").click()
    await page.page.locator("[data-rollout=policy]").get_by_text("shadow", exact=True).wait_for()
    record = (await store.read()).record
    assert (record.active, record.rollout.stages[0].share, record.rollout.author) == ("", 0, "anna (console)")
    assert await store.text(record.rollout.to) == (RULES + "deny").encode()


async def test_what_is_pushed_is_checked_and_a_signed_record_is_left_alone(console, store):
    push = {"scheduler": "policy", "text": "default: allow", "share": 10, "label": "v1"}
    assert (await console.publish("/api/policies/push", push, cookie="")).status == 401
    for wrong in ({"text": "rules: 7"}, {"undo_if": "maybe"}, {"scheduler": "in-process"}):
        assert (await console.publish("/api/policies/push", {**push, **wrong})).status == 400
    assert (await store.read()).record.number == 0
    assert (await console.publish("/api/policies/push", push)).json["stage"] == "share 10 %"
    again = await console.publish("/api/policies/push", {**push, "label": "v2", "text": "default: deny"})
    assert (again.status, "rollout of v1" in again.json["error"]) == (400, True)
    (told,) = (await console.get("/api/policies")).json["policies"]
    assert (told["scheduler"], told["in_force"]) == ("policy", "file")
