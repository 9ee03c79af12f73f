"""The page in a real browser: LLM spend, revisions, rollouts, and words of others in all of them."""

import json
import sys
from contextlib import aclosing

import pytest
from chromium import CUT_OFF, PHONE, opened
from toolgate_bus.ledger.money.ledger import Account, Offer
from toolgate_bus.ledger.money.limits import BudgetDescription, describe
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.protocol.agents import LiveAgent
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.packing import pack
from toolgate_bus.state.config_record import Progress, Rollout, RolloutStage, encode_progress
from toolgate_bus.state.config_store import ReplicaReport
from toolgate_bus.state.rollout_rules import TrialCounts
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.agent_directory import AgentDirectory
from toolgate_bus.transport.redis.storage.store import RedisStore
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate
from toolgate_schedulers.commands.console.revisions import RevisionReader
from toolgate_schedulers.commands.scheduler_configs import ConfigCommands

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(180)]
ALLOW = b"default: allow\n"
DENY = b"default: deny\n"
STRANGE = "<img src=x onerror=alert(1)>\u202egnp.exe"


@pytest.fixture
async def commands(server_url):
    async with aclosing(RedisCommands(server_url, "test-console")) as made:
        yield made


@pytest.fixture
def desk(commands, namespace):
    return ConfigCommands(commands, namespace, "policy", None)


async def roll_out(desk, *stages, undo_if="veto_rate > 2x"):
    """v1 in force, v2 on its way."""
    await desk.push(ALLOW, "v1", "policy", stage=False)
    await desk.push(DENY, "v2", "policy", stage=True)
    return (await desk.begin("v2", Rollout("r-1", "", stages, undo_if, 5, "anna"))).rollout


async def pay(commands, namespace, decision, tool, amount):
    account = Account("daily/fleet", 10_000_000, 86_400)
    ledger = RedisLedger(commands, namespace)
    assert (await ledger.reserve(decision, 0, [Offer(tool, amount)], [account], "o1")).status == "reserved"
    await ledger.settle(decision, amount)


async def test_llm_spend_stands_apart_from_tools_by_model_with_the_windows_end(
    page, teller, commands, namespace
):
    budget = BudgetDescription("daily", "fleet", 10_000_000, 86_400, "USD")
    await describe(RedisStore(commands, namespace), "budget", [budget])
    told = {"provider": "openai", "model": "<b>gpt</b>", "input_tokens": 5}
    (request,) = await teller.tell(1, tool_name="llm:request", tool_input=told)
    await pay(commands, namespace, request, "llm:request", 2_000_000)
    await pay(commands, namespace, "d2", "write_file", 500_000)
    await page.go("budgets")
    line = page.page.locator("#budgets tbody tr").filter(has_text="daily fleet")
    await line.first.get_by_text("25 %").wait_for()
    cells = [await one.inner_text() for one in await line.first.locator("td").all()]
    assert cells[1:] == ["7.50 USD", "2.50 USD", "2.00 USD", "0.50 USD", "0.00 USD", "10.00 USD", ""]
    assert ", until " in await line.first.inner_text()
    model = page.page.get_by_role("row", name="openai/<b>gpt</b>")
    assert "2.00 USD" in await model.inner_text()
    await pay(commands, namespace, "d3", "llm:request", 1_000_000)  # it is seen without a reload
    await page.page.get_by_role("row", name="model not known").get_by_text("1.00 USD").wait_for()
    await line.first.get_by_text("3.00 USD").wait_for()


async def test_a_rollout_is_followed_to_its_undoing_and_what_was_pushed_can_be_compared(
    page, desk, process, server_url, namespace, tmp_path
):
    await page.go("revisions")
    await page.page.get_by_text("nothing was pushed").wait_for()
    (tmp_path / "own.yaml").write_bytes(ALLOW)
    where = ("--redis", server_url, "--namespace", namespace)
    process("toolgate", "scheduler", "run", "policy", "--config", tmp_path / "own.yaml", *where)
    await page.page.get_by_text("each replica's own file").wait_for()
    rollout = await roll_out(desk, RolloutStage(10, 0))
    panel = page.page.locator("[data-rollout=policy]")
    await panel.get_by_text("share 10 %").wait_for()
    await page.page.locator("#revisions tr.aside").filter(has_text="v1@").filter(has_text="v2@").wait_for()
    words = await panel.inner_text()
    for said in ("v1@", "v2@", "veto_rate > 2x", "of 0 alive", "until an operator advances it"):
        assert said in words
    await desk.store.count(rollout.id, 0, TrialCounts(asked=4, vetoes=1, was_asked=40, was_vetoes=2))
    await panel.get_by_text("25.0 % of 4").wait_for()
    await panel.get_by_text("5.0 % of 40").wait_for()

    await page.page.get_by_role("button", name="What v2@").click()
    dialog = page.page.locator("dialog#diff")
    await dialog.get_by_text("+default: deny").wait_for()
    assert await dialog.locator(".minus").filter(has_text="-default: allow").count() == 1
    await dialog.get_by_role("button", name="Close").click()

    # the replica judges it by itself: two of five are more than twice 2 of 40
    await desk.store.count(rollout.id, 0, TrialCounts(asked=1, vetoes=1))
    await panel.get_by_text("is undone").wait_for()
    assert "veto_rate 40.0%" in await panel.inner_text()
    last = page.page.locator("#changes tbody tr").first
    assert "rollout undone" in await last.inner_text()
    assert "veto_rate 40.0%" in await last.inner_text()


async def test_how_many_live_sessions_the_new_one_rules_on_is_counted(desk, commands, namespace):
    await roll_out(desk, RolloutStage(10, 0))
    living = [LiveAgent(f"s-{number}", root=f"r-{number // 2}") for number in range(2000)]

    async def agents():
        return living

    reader = RevisionReader(commands, namespace, agents)
    (told,) = (await reader.read())["schedulers"]
    assert told["rollout"]["sessions"] == 1000
    assert 60 <= told["rollout"]["sessions_new"] <= 140
    await desk.move(cancel=True)
    (told,) = (await reader.read())["schedulers"]
    assert told["last_rollout"]["ending"] == "cancelled"


async def test_rules_that_do_not_go_with_living_agents_are_named(
    page, desk, commands, server_url, namespace, wait_until
):
    await desk.push(b"rules: [{tools: serach, action: deny}]", "v1", "policy", stage=False)
    reader = RevisionReader(commands, namespace, AgentDirectory(commands, namespace).agents)
    (told,) = (await reader.read())["schedulers"]
    assert (told["doubts"], told["compared"]) == ([], False)
    async with Gate.open(redis=server_url, namespace=namespace) as gate:
        await gate.decide(Call("search", {}, {"search": {}, "fetch": {}}))

        async def is_said():
            (told,) = (await reader.read())["schedulers"]
            return told["doubts"]

        await wait_until(is_said)
        assert await is_said() == [
            "line:1: rules.0.tools: no living agent has a tool serach; did you mean search?"
        ]
        await page.go("revisions")
        await page.page.locator("[data-doubt=policy]").get_by_text("did you mean search?").wait_for()
        await desk.push(b"rules: [{tools: sear*, action: deny}]", "v2", "policy", stage=False)
        (told,) = (await reader.read())["schedulers"]
        assert (told["doubts"], told["compared"]) == ([], True)


async def test_a_console_imports_nothing_that_a_record_names(
    desk, commands, server_url, namespace, wait_until
):
    await desk.push(b"rules: [{tools: serach, action: deny}]", "v1", "antigravity:fly", stage=False)
    fleet = AgentDirectory(commands, namespace)
    async with Gate.open(redis=server_url, namespace=namespace) as gate:
        await gate.decide(Call("search", {}, {"search": {}, "fetch": {}}))

        async def are_told():
            return bool((await fleet.tools()).tools)

        await wait_until(are_told)
        (told,) = (await RevisionReader(commands, namespace, fleet.agents).read())["schedulers"]
    assert (told["doubts"], told["compared"]) == ([], False)
    assert "antigravity" not in sys.modules


async def test_whatever_stands_on_the_bus_is_text_and_bounded(
    chromium, console, token, desk, commands, namespace
):
    key = Keys(namespace).store_key
    rollout = await roll_out(desk, RolloutStage(0, 0), undo_if=STRANGE)
    for number in range(60):
        await commands.execute("SET", key(f"config:odd-{number}:record"), b"\xff" * 70_000)
    await commands.execute("SET", key("config:").encode() + b"\xff\xfe:record", b"x")
    await commands.execute("SADD", key("config:a-set:record"), "x")
    await commands.execute("SET", key("config:bad name:record"), b"x")
    shown = {"event": "config:pushed", "scheduler": STRANGE, "why": STRANGE, "author": "a" * 300}
    await commands.execute("XADD", key("notices:changes"), "*", "n", b"\xc1" * 2000)
    for number in range(300):
        await commands.execute("XADD", key("notices:changes"), "*", "n", pack({**shown, "why": str(number)}))
    for at in (float("nan"), float("inf"), -5, 1e300, 7.0):
        await commands.execute("XADD", key("notices:changes"), "*", "n", pack({**shown, "at": at}))
    progress = Progress(rollout.id, 2**52, 9e10, "", STRANGE)
    sealed = pack({"body": encode_progress(progress)})
    await commands.execute("SET", key("config:policy:run:progress"), sealed)
    await desk.store.report("r1", ReplicaReport(STRANGE * 20, STRANGE, 1, STRANGE))
    await commands.execute(
        "HSET",
        key(f"config:policy:run:counts:{rollout.id}:0"),
        "asked",
        "9" * 40,
        "vetoes",
        "-5",
        "x",
        STRANGE,
    )
    answer = await console.get("/api/revisions")
    assert answer.status == 200
    told = json.loads(answer.body, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (len(told["schedulers"]), len(told["changes"]), told["more"]) == (50, 100, 12)
    assert len(answer.body) < 200_000
    for query in ("?from=../x&to=v2", f"?from={'x' * 200}&to=v1", "?from=file&to=v1", ""):
        assert (await console.get(f"/api/revisions/policy/diff{query}")).status == 400
    assert (await console.get("/api/revisions/a%2Fb/diff?from=v1&to=v2")).status in (400, 404)
    await desk.move(cancel=True)
    long = b"".join(b"# %d\n" % number for number in range(3000))
    await desk.push(long, "v3", "policy", stage=True)
    refused = await console.get("/api/revisions/policy/diff?from=v1&to=v3")
    assert (refused.status, "more than 2000 lines" in refused.json["error"]) == (400, True)
    for options in ({}, PHONE):
        async with opened(chromium, f"{console.url}?token={token}", **options) as page:
            await page.go("revisions")
            await page.page.locator("#changes tbody tr").nth(99).wait_for()
            said = await page.page.locator("#changes").inner_text()
            assert "<img src=x onerror=alert(1)>\\u202egnp" in said
            assert "cannot be read" in await page.page.locator("#revisions").inner_text()
            assert await page.page.locator("#view-revisions img").count() == 0
            content, window = await page.width()
            assert content <= window
            assert not options or await page.page.evaluate(CUT_OFF) == []
            assert page.wrong == []
