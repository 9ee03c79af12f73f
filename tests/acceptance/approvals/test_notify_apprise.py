"""`toolgate notify` tells people by apprise, whose own service `json://` posts to a server on loopback."""

import asyncio
import signal
import threading

import pytest
from notify_world import PLANTED
from notify_world import tell_of_change as change
from toolgate_bus.transport.redis.client.connection import RedisCommands

pytestmark = [pytest.mark.acceptance, pytest.mark.system]


@pytest.fixture
async def commands(server_url):
    made = RedisCommands(server_url, "test")
    yield made
    await made.aclose()


@pytest.fixture
def by_apprise(notifiers, receiver):
    """The processes, whose one receiver is a service of apprise's with secrets in its address."""
    address = receiver.url.replace("http://", "json://eve:planted-password@")
    notifiers.config["receivers"] = {"chat": {"kind": "apprise", "url_env": "CHAT", "timeout_s": 0.5}}
    notifiers.more = {"CHAT": f"{address}?+X-Key=planted-key&optional=yes&retry=5"}
    return notifiers


def planted(notifiers, receiver):
    """Everything that must not hold a secret."""
    return notifiers.said() + "".join(one.body.decode() for one in receiver.posts)


async def test_a_service_gets_plain_text_and_no_log_has_its_address(
    by_apprise, receiver, commands, wait_until
):
    await by_apprise.lead()
    await change(commands, by_apprise.namespace, "rollout:undone")
    await wait_until(lambda: receiver.posts)
    await by_apprise.heard("was delivered")
    (post,) = receiver.posts
    assert receiver.paths == ["/hook/planted-in-the-address"]
    assert post.headers["x-key"] == "planted-key"
    assert (post.json["title"], post.json["type"]) == (f"Toolgate {by_apprise.namespace}", "failure")
    assert post.json["message"] == "rollout undone: policy from v7 to v8\nhttps://console.example/"
    assert "planted" not in planted(by_apprise, receiver)
    assert PLANTED not in planted(by_apprise, receiver)


async def test_what_a_service_does_not_take_is_tried_again_also_by_the_next_process(
    by_apprise, receiver, commands, wait_until
):
    receiver.answer = lambda post: 503
    child = await by_apprise.lead()
    await change(commands, by_apprise.namespace, "rollout:undone")
    await by_apprise.heard("not delivered")
    by_apprise.kill(child)
    before = len(receiver.posts)
    receiver.answer = lambda post: 200
    await by_apprise.lead()
    await by_apprise.heard("was delivered")
    assert len(receiver.posts) == before + 1
    await change(commands, by_apprise.namespace, "config:undone")
    await wait_until(lambda: len(receiver.posts) == before + 2)
    assert "planted" not in planted(by_apprise, receiver)


async def test_a_process_that_is_killed_between_the_post_and_its_note_posts_again(
    by_apprise, receiver, commands, wait_until
):
    child = await by_apprise.lead()

    def kill_once(post):
        if len(receiver.posts) == 1:
            child.send_signal(signal.SIGKILL)
        return 200

    receiver.answer = kill_once
    await change(commands, by_apprise.namespace, "rollout:undone")
    await asyncio.to_thread(child.wait, 10)
    await by_apprise.lead()
    await by_apprise.heard("was delivered")
    assert [one.json["message"] for one in receiver.posts] == [receiver.posts[0].json["message"]] * 2


async def test_a_service_that_is_slow_gets_a_message_once_and_is_waited_for(by_apprise, receiver, commands):
    go_on = threading.Event()
    receiver.answer = lambda post: 200 if go_on.wait(20) else 500
    await by_apprise.lead()
    await change(commands, by_apprise.namespace, "rollout:undone")
    await by_apprise.heard("no answer in time")
    go_on.set()
    await by_apprise.heard("was delivered")
    assert len(receiver.posts) == 1


async def test_told_to_end_it_ends_although_a_service_does_not_answer(by_apprise, receiver, commands):
    go_on = threading.Event()
    receiver.answer = lambda post: 200 if go_on.wait(20) else 500
    child = await by_apprise.lead()
    await change(commands, by_apprise.namespace, "rollout:undone")
    await by_apprise.heard("no answer in time")
    child.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(child.wait, 10) == 0
    go_on.set()


async def test_check_reads_an_address_and_test_says_what_the_service_answers(by_apprise, receiver):
    done = await asyncio.to_thread(by_apprise.run, "--check")
    assert (done.returncode, "chat" in done.stdout, receiver.posts) == (0, True, []), done
    done = await asyncio.to_thread(by_apprise.run, "--test")
    assert (done.returncode, len(receiver.posts)) == (0, 1), done
    receiver.answer = lambda post: 404
    done = await asyncio.to_thread(by_apprise.run, "--test")
    assert (done.returncode, "took nothing: not delivered" in done.stdout) == (1, True), done
    by_apprise.more = {"CHAT": "planted://x"}
    done = await asyncio.to_thread(by_apprise.run, "--check")
    assert (done.returncode, "must be one that apprise knows" in done.stderr) == (2, True), done
    assert "planted" not in done.stdout + done.stderr
