"""A signed fleet of the releases that signed without the namespace meets this one: it is told, in words."""

import hmac

import msgpack
import pytest
import redis.asyncio as redis
from toolgate_bus.errors import ConfigError
from toolgate_bus.fleet.roster import roster_findings
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.signing import OTHER_SCHEME, Keyring
from toolgate_bus.state.config_record import NO_RECORD, StoredConfig, digest_of, push
from toolgate_bus.state.config_store import ConfigStore
from toolgate_bus.transport.heartbeats import encode_member
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.roster.roster import Roster
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate

pytestmark = pytest.mark.acceptance

KEY = "ab" * 32
OLD = {"gamma": bytes.fromhex(KEY)}


def sign_as_before(kind, orchestrator, message):
    """As releases signed that did not sign the namespace."""
    head = b"\0".join((b"toolgate-2", kind, orchestrator.encode(), b"gamma", b""))
    return hmac.digest(bytes.fromhex(KEY), head + message, "sha256")


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "keys.yaml"
    path.write_text(f"gamma: {KEY}\n")
    path.chmod(0o600)
    return path


@pytest.fixture
async def commands(server_url):
    made = RedisCommands(server_url, "test", connections=1)
    yield made
    await made.aclose()


async def announce_as_before(commands, namespace):
    """One heartbeat of a replica of an older release; gives the roster that it stands on."""
    roster = Roster(commands, namespace)
    await roster.learn_minute()
    told = {"wire": (1, 2), "tools": ("read_*",), "started": 1, "at": roster.seconds}
    fields = msgpack.unpackb(encode_member(Member("gamma", "old-1", **told)))
    fields["mac"] = sign_as_before(b"heartbeat", "", b"old-1\0" + fields["v2"])
    await commands.pipeline(roster.beat("s:gamma:old-1", packing.pack(fields)))
    return roster


async def test_an_agent_is_told_why_a_scheduler_of_an_older_release_does_not_answer(
    commands, server_url, namespace, keys
):
    await announce_as_before(commands, namespace)
    config = {"keys": keys, "required": ["gamma"], "patience_ms": 300}
    async with Gate.open(redis=server_url, namespace=namespace, **config) as gate:
        denied = await gate.decide(Call("bash", {}, ["bash"]))
    assert (denied.outcome, denied.why, denied.scheduler) == ("deny", "silent", "gamma")
    assert f"gamma is {OTHER_SCHEME}" in denied.reason


async def test_a_scheduler_says_that_agents_of_an_older_release_ask(
    schedulers, server_url, namespace, keys, wait_until
):
    child = schedulers.run("obedient:gamma", "--keys", keys)
    await schedulers.ready(child)
    orchestrator, body = "f" * 16, packing.pack({"phase": "select", "tool_name": "bash", "ttl_ms": 5000})
    mac = sign_as_before(b"question", orchestrator, packing.bytes_to_sign(bytes(16), 0, body))
    client = redis.from_url(server_url)
    inbox = Keys(namespace).inbox("gamma")
    for _ in range(2):
        frame = packing.frame([packing.item(bytes(16), 0, body, mac, 2)])
        await client.xadd(inbox, {"event": "tool:selecting", "orch": orchestrator, "frame": frame})
    await wait_until(lambda: OTHER_SCHEME in schedulers.said(child))
    await client.aclose()
    assert schedulers.said(child).count(OTHER_SCHEME) == 1
    assert schedulers.lines("asked") == []


async def test_the_doctor_names_who_is_signed_as_an_older_release_signs(commands, namespace):
    roster = await announce_as_before(commands, namespace)
    found = {one.name: one for one in roster_findings(await roster.read())}
    assert "gamma (pid 0 on its host) signs as another release" in found["roster-signatures"].what
    assert found["roster-signatures"].change.startswith("stop the whole fleet")


async def test_a_configuration_pushed_with_an_older_release_is_refused_in_words_and_pushed_again(
    commands, namespace
):
    store = ConfigStore(commands, namespace, "gamma", Keyring(OLD, namespace))
    pushed = StoredConfig(digest_of(b"rules: []"), "", "ann", 1.0, 9, "policy")
    await store.change(lambda record: push(record, pushed))
    key = Keys(namespace).store_key("config:gamma:record")
    body = packing.unpack(await commands.execute("GET", key))["body"]
    mac = sign_as_before(b"control", "", b"config\0config:gamma:\0record\0" + body)
    await commands.execute("SET", key, packing.pack({"body": body, "mac": mac}))
    with pytest.raises(ConfigError) as refused:
        await store.read()
    assert OTHER_SCHEME in str(refused.value)
    with pytest.raises(ConfigError):
        await store.change(lambda record: record)
    was, record = await store.change(lambda record: push(record, pushed), anew=True)
    assert was == NO_RECORD
    assert (await store.read()).record == record
