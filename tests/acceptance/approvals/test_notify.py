"""People are told once of what a fleet needs them for, whoever was away in between."""

import asyncio
import signal
import urllib.request

import pytest
from approval_world import People
from notify_world import PLANTED
from notify_world import tell_of_change as change
from toolgate_bus.ledger.money.ledger import Account, Offer
from toolgate_bus.ledger.money.limits import BudgetDescription, describe
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.store import RedisStore
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate

pytestmark = [pytest.mark.acceptance, pytest.mark.system]

TOOLS = ["transfer", "search"]


@pytest.fixture
async def approval(schedulers, tmp_path):
    file = tmp_path / "approval.yaml"
    file.write_text(f"rules:\n- {{name: '{PLANTED}', tools: transfer, prompt: 'is it {PLANTED}?'}}\n")
    await schedulers.start("approval", "--config", file)


@pytest.fixture
async def gate(schedulers, approval):
    options = {"redis": schedulers.url, "namespace": schedulers.namespace}
    async with Gate.open(**options, patience_ms=30_000, required=["approval"]) as opened:
        yield opened


def hold(gate, number=1):
    """Calls that wait for a person."""
    labels = {"team": "payments", "note": PLANTED}
    return [
        asyncio.create_task(
            gate.decide(
                Call("transfer", {"to": PLANTED, "n": n}, TOOLS, Caller("s", "teller", labels=labels))
            )
        )
        for n in range(number)
    ]


async def let_go(calls):
    for one in calls:
        one.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


@pytest.fixture
async def commands(server_url):
    made = RedisCommands(server_url, "test")
    yield made
    await made.aclose()


async def spend(commands, namespace, amount, decision):
    """Of a budget of ten."""
    store = RedisStore(commands, namespace)
    await describe(store, "budget", [BudgetDescription("daily", "label:team", 10_000_000, 0, "USD")])
    ledger = RedisLedger(commands, namespace)
    account = Account("daily/label:team/payments", 10_000_000)
    await ledger.reserve(decision, 0, [Offer("x", amount)], [account], "o")
    await ledger.settle(decision, None)


async def test_a_call_that_waits_is_told_with_a_link_and_its_end_too_and_nothing_secret(
    gate, notifiers, receiver, schedulers
):
    notifiers.config["labels"] = ["team"]
    await notifiers.lead()
    call = hold(gate)
    (post,) = await receiver.wait(cause="held", stage="open")
    told = post.json
    assert post.is_signed
    assert told["id"] == post.id
    assert told["link"] == "https://console.example/#approvals"
    assert "transfer of teller (approval) waits for a person, 15 min left" in told["text"]
    (incident,) = told["incidents"]
    assert (incident["tool"], incident["agent"], incident["labels"]) == (
        "transfer",
        "teller",
        {"team": "payments"},
    )
    people = People(schedulers.url, schedulers.namespace)
    assert (await people("approve", incident["call"])).code == 0
    assert (await call[0]).outcome == "continue"
    (end,) = await receiver.wait(cause="held", stage="closed")
    assert "approved" in end.json["text"]
    assert len(receiver.posts) == 2
    planted = "".join([notifiers.said(), *(one.body.decode() for one in receiver.posts)])
    assert PLANTED not in planted
    assert "planted-in-the-address" not in planted


async def test_many_calls_at_once_are_one_message_and_each_is_told_again_until_answered(
    gate, notifiers, receiver, wait_until
):
    notifiers.config |= {"group_s": 1.5, "causes": {"held": {"repeat_s": 2, "tell_end": False}}}
    await notifiers.lead()
    calls = hold(gate, 30)

    def told(stage):
        return [post.json for post in receiver.told(cause="held", stage=stage)]

    await wait_until(lambda: sum(one["count"] for one in told("open")) == 30)
    await wait_until(lambda: sum(one["count"] for one in told("repeat")) >= 60)
    assert len(told("open")) <= 3
    assert all(one["count"] == len(one["incidents"]) + one["left_off"] <= 30 for one in told("repeat"))
    assert all(len(one["incidents"]) <= 20 for one in told("open"))
    await let_go(calls)


async def test_what_happened_while_notify_was_killed_is_told_once_when_it_is_back(
    gate, notifiers, receiver, commands
):
    first = await notifiers.lead()
    calls = hold(gate)
    await receiver.wait(cause="held", stage="open")
    await notifiers.heard("was delivered")
    notifiers.kill(first)
    calls += hold(gate)
    await spend(commands, notifiers.namespace, 6_000_000, "d1")
    await change(commands, notifiers.namespace, "rollout:undone")
    await notifiers.lead()
    await receiver.wait(2, cause="held", stage="open")
    await receiver.wait(cause="budget")
    await receiver.wait(cause="change")
    await let_go(calls)
    await receiver.wait(cause="held", stage="closed")
    assert set(receiver.count().values()) == {1}
    assert PLANTED not in "".join(one.body.decode() for one in receiver.posts)


async def test_a_notify_that_is_killed_between_the_post_and_its_note_posts_again_under_the_same_id(
    notifiers, receiver, commands, wait_until
):
    child = await notifiers.lead()
    killed = []

    def kill_once(post):
        if not killed:
            killed.append(post.id)
            child.send_signal(signal.SIGKILL)
        return 204

    receiver.answer = kill_once
    await change(commands, notifiers.namespace, "rollout:undone")
    await asyncio.to_thread(child.wait, 10)
    assert receiver.count() == {killed[0]: 1}
    await notifiers.lead()
    await wait_until(lambda: len(receiver.posts) == 2)
    await change(commands, notifiers.namespace, "config:undone")
    await receiver.wait(2)
    assert receiver.count()[killed[0]] == 2
    assert len(receiver.posts) == 3
    bodies = [one.body for one in receiver.posts if one.id == killed[0]]
    assert bodies[0] == bodies[1]


@pytest.mark.system
async def test_of_two_one_posts_and_the_other_takes_over(notifiers, receiver, commands, wait_until):
    first = await notifiers.lead()
    await notifiers.start()
    for _ in range(3):
        await change(commands, notifiers.namespace, "config:undone")
    await wait_until(lambda: sum(one.json["count"] for one in receiver.posts) == 3)
    await wait_until(lambda: notifiers.said().count("was delivered") == len(receiver.posts))
    notifiers.kill(first)
    await change(commands, notifiers.namespace, "rollout:undone")
    await receiver.wait(severity="critical")
    assert sum(one.json["count"] for one in receiver.posts) == 4
    assert set(receiver.count().values()) == {1}


async def test_while_the_server_is_away_nothing_is_lost_and_nothing_told_twice(
    own_durable_server, notifiers_on, receiver, schedulers_on, wait_until
):
    notifiers = notifiers_on(own_durable_server.url)
    commands = RedisCommands(own_durable_server.url, "test")
    await notifiers.lead()
    await spend(commands, "default", 5_000_000, "d1")
    await receiver.wait(cause="budget")
    receiver.answer = lambda post: 503
    await spend(commands, "default", 4_000_000, "d2")
    await receiver.wait(2, cause="budget")
    await asyncio.to_thread(own_durable_server.restart)
    receiver.answer = lambda post: 204
    await commands.aclose()
    commands = RedisCommands(own_durable_server.url, "test")
    await change(commands, "default", "rollout:undone")
    await receiver.wait(cause="change")
    await commands.aclose()
    await wait_until(lambda: receiver.posts[-1].json["cause"] == "change")
    budgets = receiver.told(cause="budget")
    assert [one["threshold"] for post in budgets[:2] for one in post.json["incidents"]] == [50, 80]
    assert len({post.id for post in budgets}) == 2
    assert len(receiver.told(cause="change")) == 1


async def test_check_and_test_say_what_is_right_without_showing_a_secret(notifiers, receiver):
    done = await asyncio.to_thread(notifiers.run, "--check")
    assert (done.returncode, "signed" in done.stdout) == (0, True)
    assert receiver.posts == []
    done = await asyncio.to_thread(notifiers.run, "--test", "--json")
    assert (done.returncode, '"taken": true' in done.stdout or '"taken":true' in done.stdout) == (0, True), (
        done
    )
    assert receiver.posts[0].is_signed
    receiver.answer = lambda post: 500
    done = await asyncio.to_thread(notifiers.run, "--test")
    assert (done.returncode, "status 500" in done.stdout) == (1, True)
    assert "planted-in-the-address" not in done.stdout + done.stderr
    notifiers.config["receivers"]["ops"]["url_env"] = "NOT_THERE"
    done = await asyncio.to_thread(notifiers.run, "--check")
    assert done.returncode == 2
    assert "receivers.ops.url_env: the variable NOT_THERE is not set" in done.stderr


async def test_told_to_end_it_hands_over_at_once(notifiers, receiver, commands):
    child = await notifiers.lead()
    await change(commands, notifiers.namespace, "config:undone")
    await receiver.wait()
    child.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(child.wait, 10) == 0
    await change(commands, notifiers.namespace, "rollout:undone")
    await notifiers.lead()
    await receiver.wait(2)
    assert len(receiver.posts) == 2


async def test_a_server_that_forgets_everything_takes_nothing_of_what_was_still_to_be_posted(
    own_server, notifiers_on, receiver
):
    notifiers = notifiers_on(own_server.url)
    receiver.answer = lambda post: 503
    await notifiers.lead()
    commands = RedisCommands(own_server.url, "test")
    await change(commands, "default", "rollout:undone")
    await commands.aclose()
    await receiver.wait(cause="change")
    await asyncio.to_thread(own_server.restart)
    await notifiers.heard("the server lost its data")
    taken = []
    receiver.answer = lambda post: taken.append(post.id) or 204
    async with asyncio.timeout(20):
        while not taken:
            await asyncio.sleep(0.02)
    assert len(receiver.count()) == 1


async def test_what_was_posted_and_what_is_queued_can_be_scraped(notifiers, receiver, commands):
    receiver.answer = lambda post: 204 if post.json["severity"] == "critical" else 422
    await notifiers.lead("--metrics-port", "0")
    url = notifiers.ready["url"]
    await change(commands, notifiers.namespace, "rollout:undone")
    await receiver.wait()
    await change(commands, notifiers.namespace, "config:undone")
    await receiver.wait(2)
    await notifiers.heard("was refused")

    def fetch(path):
        with urllib.request.urlopen(url.replace("/metrics", path), timeout=10) as page:
            return page.status, page.read().decode()

    status, page = await asyncio.to_thread(fetch, "/metrics")
    own = f'namespace="{notifiers.namespace}"'
    for outcome in ("delivered", "refused"):
        told = f'cause="change",{own},outcome="{outcome}",receiver="ops"'
        assert f"toolgate_notifications_total{{{told}}} 1.0" in page
    assert f'toolgate_notifications_queued{{{own},receiver="ops"}} 0.0' in page
    assert f"toolgate_notify_leads{{{own}}} 1.0" in page
    assert (await asyncio.to_thread(fetch, "/healthz"))[0] == status == 200


async def test_a_server_that_will_never_do_ends_it_with_what_to_change(notifiers, commands, namespace):
    key = f"tg:{{{namespace}:ledger}}:notify:notify:outbox"
    await commands.execute("SET", key, "x")
    child = await notifiers.start()
    assert await asyncio.to_thread(child.wait, 20) == 2
    assert "Error:" in notifiers.said()
