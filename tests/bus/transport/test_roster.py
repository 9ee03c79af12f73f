"""Who is alive: what heartbeats say, and that nothing others wrote there can do harm."""

import asyncio

import msgpack
import pytest
from bus_strategies import texts
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.heartbeats import decode_member, encode_member
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.redis.roster.roster import (
    EXPIRY_SECONDS,
    READER_ROLES,
    Roster,
    decode_role,
    encode_reading,
    encode_role,
)
from toolgate_bus.transport.redis.roster.roster_sets import SET_MS

whole = st.integers(0, 2**31 - 1)
members = st.builds(
    Member,
    name=st.just("cost"),
    replica=st.just("r1"),
    priority=st.integers(-(2**31) + 1, 2**31 - 1),
    tools=st.lists(texts, max_size=5).map(tuple),
    shadow=st.booleans(),
    started=whole,
    pid=whole,
    host=texts,
    answered=whole,
    late=whole,
    age=st.just(0.0),
    extra=st.just({}),
)
FIELDS = {"priority": 1, "tools": ["*"], "shadow": False, "started": 1, "host": "h"}


@pytest.mark.pure
@given(members)
def test_a_heartbeat_says_all_of_a_member(member):
    assert decode_member("cost", "r1", encode_member(member)) == member


@pytest.mark.pure
@given(
    st.binary(max_size=100) | st.dictionaries(texts | st.sampled_from(list(FIELDS)), texts).map(msgpack.packb)
)
def test_any_other_bytes_are_a_member_or_none(raw):
    assert decode_member("cost", "r1", raw) is None or isinstance(decode_member("cost", "r1", raw), Member)


@pytest.mark.pure
@pytest.mark.parametrize("name", ["", "a b", "a:b", "../x", "é", "x" * 65, "new\n", "*"])
def test_a_name_that_fits_no_key_is_nobodys(name):
    raw = msgpack.packb(FIELDS)
    assert decode_member(name, "r1", raw) is None
    assert decode_member("cost", name, raw) is None


@pytest.mark.pure
@pytest.mark.parametrize("tools", [None, "*", 5, [1], {"*": 1}, [None]])
def test_without_a_list_of_globs_it_is_nobodys(tools):
    assert decode_member("cost", "r1", msgpack.packb(FIELDS | {"tools": tools})) is None


@pytest.mark.pure
@pytest.mark.parametrize("number", ["7", 7.5, True, None, 2**40, [1]])
def test_a_number_that_is_none_counts_as_zero(number):
    assert decode_member("cost", "r1", msgpack.packb(FIELDS | {"priority": number})).priority == 0


@pytest.mark.pure
@pytest.mark.parametrize("shadow", [1, "yes", None, 0])
def test_shadow_is_true_or_it_is_not(shadow):
    assert decode_member("cost", "r1", msgpack.packb(FIELDS | {"shadow": shadow})).shadow is False


@pytest.mark.pure
@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xa1k"])
def test_a_host_nested_a_thousand_deep_does_no_harm(opening):
    raw = b"\x82\xa5tools\x91\xa1*\xa4host" + opening * 1000 + b"\xc0"
    found = decode_member("cost", "r1", raw)
    assert found is None or isinstance(found.host, str)


@pytest.mark.pure
def test_a_heartbeat_that_is_too_long_is_nobodys():
    assert decode_member("cost", "r1", msgpack.packb(FIELDS | {"host": "x" * 20_000})) is None


async def beat(commands, roster, name, raw=None):
    await roster.write(name, raw or encode_member(Member("any", "r1")))


async def test_the_roster_tells_schedulers_orchestrators_and_readers_apart(commands, namespace):
    roster = Roster(commands, namespace)
    for name in ("s:cost:r1", "s:cost:r2", "s:router:r1", "o:0123abcd", "r:console", "r:ledger", "x:what"):
        await beat(commands, roster, name)
    view = await roster.read(ages=True)
    assert [(one.name, one.replica) for one in view.members] == [
        ("cost", "r1"),
        ("cost", "r2"),
        ("router", "r1"),
    ]
    assert (dict(view.orchestrators), view.readers) == ({"0123abcd": frozenset()}, 2)
    assert all(0 <= one.age < EXPIRY_SECONDS for one in view.members)


async def test_the_roster_tells_readers_apart_by_what_they_read_for(commands, namespace):
    readers = [FactsReader(commands, namespace, role) for role in ("exporter", "console", "console")]
    readers.append(FactsReader(commands, namespace))
    for reader in readers:
        await reader.join()
    view = await Roster(commands, namespace).read()
    assert view.readers == 4
    assert view.readers_by_role() == {"follower": 1, "exporter": 1, "archiver": 0, "console": 2}
    for reader in readers:
        await reader.leave()
    assert (await Roster(commands, namespace).read()).readers_by_role() == dict.fromkeys(READER_ROLES, 0)


@pytest.mark.pure
@pytest.mark.parametrize(
    ("raw", "role"),
    [
        (encode_role("archiver"), "archiver"),
        (b"\x80", "follower"),
        (msgpack.packb({"role": "spy"}), "other"),
        (msgpack.packb({"role": ["console"]}), "other"),
        (msgpack.packb(["console"]), "other"),
        (b"\xc1", "other"),
        (msgpack.packb({"role": "console", "more": "x" * 20_000}), "other"),
    ],
)
def test_a_reader_whose_role_is_none_is_of_no_role_that_is_known(raw, role):
    assert decode_role(raw) == role


async def test_an_empty_roster_is_nobody(commands, namespace):
    view = await Roster(commands, namespace).read(ages=True)
    assert (view.members, dict(view.orchestrators), view.readers) == ((), {}, 0)


@pytest.mark.parametrize(
    ("raw", "reading"),
    [
        (encode_reading(["router", "cost"]), {"cost", "router"}),
        (encode_reading([]), set()),
        (msgpack.packb({"reading": ["cost", 7, None]}), {"cost"}),
        (msgpack.packb({"reading": "cost"}), set()),
        (msgpack.packb(["cost"]), set()),
        (b"\xc1", set()),
        (encode_reading([f"scheduler-{number}-" + "x" * 50 for number in range(400)]), set()),
    ],
)
async def test_an_orchestrators_heartbeat_says_whom_it_asks(commands, namespace, raw, reading):
    roster = Roster(commands, namespace)
    await beat(commands, roster, "o:0123abcd", raw)
    assert (await roster.read()).orchestrators["0123abcd"] == reading


@pytest.mark.parametrize(
    ("raw", "required"),
    [
        (encode_reading(["cost", "router"], (1, 2), ["cost"]), {"cost"}),
        (encode_reading(["cost"], (1, 2), []), set()),
        (encode_reading(["cost"], (1, 2)), None),  # an older version, or a client of somebody else's
        (encode_reading([], (), [f"scheduler-{number}-" + "x" * 50 for number in range(400)]), None),
        (msgpack.packb({"required": ["cost", 7, None]}), {"cost"}),
        (msgpack.packb({"required": "cost"}), None),
        (b"\xc1", None),
    ],
)
async def test_an_orchestrators_heartbeat_says_whom_it_requires(commands, namespace, raw, required):
    roster = Roster(commands, namespace)
    await beat(commands, roster, "o:0123abcd", raw)
    assert (await roster.read()).required.get("0123abcd") == required


async def test_who_leaves_is_gone_at_once(commands, namespace):
    roster = Roster(commands, namespace)
    await beat(commands, roster, "s:cost:r1")
    await roster.leave("s:cost:r1")
    assert (await roster.read()).members == ()
    assert await commands.execute("EXISTS", Keys(namespace).member("s:cost:r1")) == 0


async def test_a_heartbeat_expires_on_the_servers_clock(commands, namespace):
    roster = Roster(commands, namespace)
    await beat(commands, roster, "s:cost:r1")
    left = await commands.execute("PTTL", Keys(namespace).member("s:cost:r1"))
    assert 0 < left <= EXPIRY_SECONDS * 1000


async def test_nobody_takes_another_off_its_set(commands, namespace):
    roster, keys = Roster(commands, namespace), Keys(namespace)
    await beat(commands, roster, "s:cost:r1")
    (named,) = await commands.execute("KEYS", f"{keys.roster}:schedulers:*")
    await commands.execute("SADD", named, "s:dead:r1", "r:not-here:r1")
    await commands.execute("SADD", keys.roster, "s:dead:r2", "o:dead", "r:dead")
    assert [one.name for one in (await roster.read()).members] == ["cost"]
    assert await commands.execute("SCARD", named) == 3
    assert await commands.execute("SCARD", keys.roster) == 4
    assert 0 < await commands.execute("PTTL", named) <= SET_MS


async def test_tasks_may_look_side_by_side(commands, namespace):
    roster = Roster(commands, namespace)
    await beat(commands, roster, "s:cost:r1")
    for _ in range(8):
        views = await asyncio.gather(*(roster.read(everything=each) for each in (True, False) * 4))
        assert {one.name for view in views for one in view.members} == {"cost"}


async def test_what_others_wrote_there_hides_nobody(commands, namespace):
    roster, keys = Roster(commands, namespace), Keys(namespace)
    await beat(commands, roster, "s:cost:r1")
    await beat(commands, roster, "s:rubbish:r1", b"\xc1")
    await beat(commands, roster, "s:no-replica")
    await beat(commands, roster, "s:")
    await commands.execute("SADD", keys.roster, b"\xff\xfe", "s:list:r1")
    await commands.execute("RPUSH", keys.member("s:list:r1"), "x")
    assert [one.name for one in (await roster.read(ages=True)).members] == ["cost"]


async def test_starts_are_counted_across_the_namespace(commands, namespace):
    one, other = Roster(commands, namespace), Roster(commands, namespace)
    assert [await one.next_start(), await other.next_start(), await one.next_start()] == [1, 2, 3]
