"""The store of sessions' labels: one contract, kept by the server's and by the one in memory."""

import pytest
from toolgate_bus.protocol.names import MAX_SESSION_LABELS
from toolgate_bus.transport.memory import MemoryHub
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.session_labels import (
    ABOVE_REMEMBERED_MS,
    REMEMBERED_MS,
    LabelBoard,
    RedisLabelStore,
)
from toolgate_bus.transport.session_labels import OVERFLOW, LabelMark, give_labels, show_labels, show_required

UNTRUSTED = "source=untrusted"


@pytest.fixture
async def commands(server_url):
    made = RedisCommands(server_url, "toolgate-test")
    yield made
    await made.aclose()


@pytest.fixture(params=["memory", "redis"])
async def place(request, commands, namespace):
    """A store, and what an operator does in it."""
    if request.param == "memory":
        hub = MemoryHub()

        async def take(session, field, by):
            hub.labels.take(session, field, by)

        return hub.labels, take
    board = LabelBoard(commands, namespace)

    async def take_there(session, field, by):
        await board.take([session], field, by)

    return RedisLabelStore(commands, namespace), take_there


async def marks_of(store, session):
    return (await store.read([session])).marks[session]


async def test_what_was_kept_is_read_and_other_sessions_have_nothing(place):
    store, _ = place
    await store.keep({"s1": {UNTRUSTED: LabelMark()}, "s2": {"a=b": LabelMark(3)}})
    reading = await store.read(["s1", "s2", "s3"])
    assert reading.marks == {"s1": {UNTRUSTED: LabelMark()}, "s2": {"a=b": LabelMark(3)}, "s3": {}}
    assert reading.now_ms > 1_600_000_000_000


async def test_a_lower_count_changes_nothing(place):
    store, _ = place
    await store.keep({"s": {UNTRUSTED: LabelMark(3)}})
    await store.keep({"s": {UNTRUSTED: LabelMark(2, 7, "old"), "a=b": LabelMark()}})
    assert await marks_of(store, "s") == {UNTRUSTED: LabelMark(3), "a=b": LabelMark()}


async def test_what_an_operator_took_away_stays_away_until_a_verdict_gives_it_again(place):
    store, take = place
    await store.keep({"s": {UNTRUSTED: LabelMark()}})
    await take("s", UNTRUSTED, "ops")
    mark = (await marks_of(store, "s"))[UNTRUSTED]
    assert (mark.times, mark.by, mark.is_borne) == (2, "ops", False)
    reading = await store.read(["s"])
    assert 0 <= reading.now_ms - mark.at_ms < 60_000
    await store.keep({"s": {UNTRUSTED: LabelMark()}})
    assert show_labels(await marks_of(store, "s")) == {}
    await store.keep({"s": {UNTRUSTED: LabelMark(3)}})
    assert show_labels(await marks_of(store, "s")) == {"source": ["untrusted"]}
    await take("s", "never=given", "ops")
    assert "never=given" not in await marks_of(store, "s")


async def test_the_store_has_one_token_until_it_is_emptied(place, commands, namespace):
    store, _ = place
    token = (await store.read([])).token
    await store.keep({"s": {UNTRUSTED: LabelMark()}})
    assert (await store.read(["s"])).token == token
    if isinstance(store, RedisLabelStore):
        await commands.execute("DEL", store._keys.session_labels(""))
    else:
        store.clear()
    assert (await store.read([])).token not in (b"", token)


async def test_who_is_above_a_session_is_read_with_its_labels_nearest_first_and_is_no_label(place):
    store, take = place
    await store.note({"kid": ["mid", "a=b 1"], "mid": ["a=b 1"]})
    await store.note({"kid": ["a=b 1", "mid"]})
    await store.keep({"kid": {UNTRUSTED: LabelMark()}})
    reading = await store.read(["kid", "mid", "a=b 1"])
    assert reading.above == {"kid": ("mid", "a=b 1"), "mid": ("a=b 1",)}
    assert reading.marks == {"kid": {UNTRUSTED: LabelMark()}, "mid": {}, "a=b 1": {}}
    await take("kid", UNTRUSTED, "ops")
    assert (await store.read(["kid"])).above == {"kid": ("mid", "a=b 1")}


async def test_the_first_caller_alone_may_record_what_was_taken(place):
    store, _ = place
    assert [await store.claim("s", UNTRUSTED, 2) for _ in range(2)] == [True, False]
    assert await store.claim("s", UNTRUSTED, 4)


async def test_more_labels_than_are_kept_are_unknown(commands, namespace):
    store = RedisLabelStore(commands, namespace)
    for name in range(MAX_SESSION_LABELS + 1):
        await store.keep({"s": {f"n{name}=v": LabelMark()}})
    assert show_labels(await marks_of(store, "s")) is None


async def test_what_an_operator_takes_away_is_gone_whoever_gave_it(place):
    store, take = place
    marks = give_labels({}, {"source": ["untrusted"]}, by_required=True)
    await store.keep({"s": marks})
    assert show_required(await marks_of(store, "s")) == {"source": ["untrusted"]}
    await take("s", UNTRUSTED, "ops")
    await store.keep({"s": give_labels(await marks_of(store, "s"), {"source": ["untrusted"]})})
    assert show_labels(await marks_of(store, "s")) == {"source": ["untrusted"]}
    assert show_required(await marks_of(store, "s")) == {}


async def test_labels_expire_unless_they_are_written_again(commands, namespace):
    store = RedisLabelStore(commands, namespace)
    await store.read(["s"])
    await store.keep({"s": {UNTRUSTED: LabelMark()}})
    for session in ("s", ""):
        left = await commands.execute("PTTL", store._keys.session_labels(session))
        assert REMEMBERED_MS - 60_000 < left <= REMEMBERED_MS


async def test_who_is_above_a_session_expires_after_a_day_unless_there_are_labels(commands, namespace):
    store = RedisLabelStore(commands, namespace)
    key = store._keys.session_labels("s")
    for _ in range(2):
        await commands.execute("PERSIST", key)
        await store.note({"s": ["boss"]})
        left = await commands.execute("PTTL", key)
        assert ABOVE_REMEMBERED_MS - 60_000 < left <= ABOVE_REMEMBERED_MS
    await commands.execute("PEXPIRE", key, 1000)
    await store.note({"s": ["boss"]})
    assert await commands.execute("PTTL", key) > ABOVE_REMEMBERED_MS - 60_000
    await store.keep({"s": {UNTRUSTED: LabelMark()}})
    await store.note({"s": ["boss"]})
    assert await commands.execute("PTTL", key) > REMEMBERED_MS - 60_000


async def test_a_session_without_labels_is_not_listed_because_somebody_is_above_it(commands, namespace):
    store, board = RedisLabelStore(commands, namespace), LabelBoard(commands, namespace)
    await store.note({"kid": ["boss"]})
    await store.keep({"labelled": {UNTRUSTED: LabelMark()}})
    assert await board.list_sessions() == ["labelled"]


async def test_an_operator_sees_all_sessions_and_takes_one_label_one_name_or_all(commands, namespace):
    store, board = RedisLabelStore(commands, namespace), LabelBoard(commands, namespace)
    given = {"a=1": LabelMark(), "a=2": LabelMark(), "b=1": LabelMark(), OVERFLOW: LabelMark()}
    await store.read([])  # which marks the store
    await store.keep(dict.fromkeys(("s1", "s2", "s{3}*"), given))
    assert await board.list_sessions() == ["s1", "s2", "s{3}*"]
    assert await board.take(["s1", "s2"], "a=1", "ops") == {"s1": ["a=1"], "s2": ["a=1"]}
    assert await board.take(["s1"], "a=", "ops") == {"s1": ["a=2"]}
    assert await board.take(["s1"], "", "ops") == {"s1": [OVERFLOW, "b=1"]}
    assert await board.take(["s1"], "", "ops") == {}
    assert show_labels((await board.read(["s1"]))["s1"]) == {}
