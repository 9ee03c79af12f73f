"""`toolgate notify` where receivers, networks and processes do their worst."""

import asyncio
import ssl

import pytest
import trustme
from notify_world import tell_of_change as change
from toolgate_bus.transport.redis.client.connection import RedisCommands

pytestmark = [pytest.mark.acceptance, pytest.mark.system]


@pytest.fixture
async def commands(server_url):
    made = RedisCommands(server_url, "test")
    yield made
    await made.aclose()


@pytest.mark.timeout(180)
async def test_in_a_storm_each_change_is_told_under_one_id_however_often_anybody_is_killed(
    own_durable_server, notifiers_on, receiver
):
    """Two at a time, of which one is killed every two seconds; receiver and server go away in between."""
    notifiers = notifiers_on(own_durable_server.url)
    notifiers.config |= {"group_s": 0, "receivers": {"ops": {"url_env": "HOOK", "timeout_s": 0.5}}}
    await notifiers.lead()
    caused = 0

    async def cause(seconds):
        nonlocal caused
        commands = RedisCommands(own_durable_server.url, "test")
        until = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < until:
            await change(commands, "default", "rollout:undone")
            caused += 1
            await asyncio.sleep(0.02)
        await commands.aclose()

    for round_ in range(6):
        await notifiers.start()
        await cause(2)
        notifiers.kill(notifiers.started[-2])
        if round_ == 2:
            receiver.stop()
            await cause(1)
            receiver.start()
        if round_ == 4:
            await asyncio.to_thread(own_durable_server.restart)

    def told():
        by_id = {post.id: post.json for post in list(receiver.posts)}
        return sum(one["count"] for one in by_id.values())

    async with asyncio.timeout(60):
        while told() < caused:
            await asyncio.sleep(0.1)
    assert told() == caused
    keys = [
        one["key"] for post in {p.id: p for p in receiver.posts}.values() for one in post.json["incidents"]
    ]
    assert len(keys) == len(set(keys)) > 100
    assert len({(post.id, post.body) for post in receiver.posts}) == len(receiver.count())


async def test_a_proxy_of_the_environment_is_gone_through(notifiers, receiver):
    address = receiver.url.partition("/hook")[0]
    notifiers.more = {"HTTP_PROXY": address, "http_proxy": address, "HOOK": "http://hooks.invalid/x"}
    done = await asyncio.to_thread(notifiers.run, "--test")
    assert (done.returncode, receiver.paths) == (0, ["http://hooks.invalid/x"]), done


async def test_a_certificate_that_nobody_trusts_is_posted_nothing(notifiers, receiver, tmp_path):
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    receiver.wrap(context)
    notifiers.more = {"HOOK": receiver.url.replace("http:", "https:")}
    done = await asyncio.to_thread(notifiers.run, "--test")
    assert (done.returncode, receiver.posts) == (1, []), done
    notifiers.config["receivers"]["ops"]["ca_file"] = str(tmp_path / "ca.pem")
    done = await asyncio.to_thread(notifiers.run, "--test")
    assert (done.returncode, len(receiver.posts)) == (0, 1), done


@pytest.mark.parametrize("wrong", ["endless", "silent"])
async def test_a_receiver_that_never_ends_its_answer_holds_nobody_up(notifiers, receiver, commands, wrong):
    endless = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"ffff\r\n" + b"x" * 65535 + b"\r\n"
    first = []

    def answer(post):
        if first:
            return 204
        first.append(post)
        return endless * (1 if wrong == "endless" else 0)

    receiver.answer = answer
    await notifiers.lead()
    await change(commands, notifiers.namespace, "rollout:undone")
    await receiver.wait()
    await change(commands, notifiers.namespace, "config:undone")
    await receiver.wait(2)
    assert len(receiver.posts) == (2 if wrong == "endless" else 3)


async def test_a_receiver_that_is_away_or_fails_gets_everything_once_it_is_back(
    notifiers, receiver, commands
):
    child = await notifiers.lead()
    receiver.stop()
    await change(commands, notifiers.namespace, "rollout:undone")
    await notifiers.heard("did not take")
    notifiers.kill(child)
    await change(commands, notifiers.namespace, "config:undone")
    await notifiers.lead()
    await notifiers.heard("did not take")
    failures = [500, 302, 429]
    receiver.answer = lambda post: failures.pop() if failures else 200
    receiver.start()
    await receiver.wait(2)
    await change(commands, notifiers.namespace, "config:undone")
    await receiver.wait(3)
    assert sorted(receiver.count().values()) == [1, 1, 4]
    assert not [path for path in receiver.paths if "elsewhere" in path]
