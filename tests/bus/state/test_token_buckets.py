"""Token buckets: from all or from none, once for each decision, exactly as many as there are."""

import asyncio
import secrets
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toolgate_bus.errors import ConfigError, OutcomeUnknown
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.state.token_buckets import (
    MAX_PARTS,
    MEMO_MS,
    TAKE,
    Bucket,
    MemoryBuckets,
    Pool,
    RedisBuckets,
    TakeResult,
)
from toolgate_bus.transport.redis.client.connection import RedisCommands

DAY = 86_400_000
MINE = Bucket("mine", 2, DAY, 2)
FLEET = Bucket("fleet", 3, DAY, 3)


@pytest.fixture(params=["memory", "redis"])
async def buckets(request: pytest.FixtureRequest, namespace: str) -> Any:
    """Each kind of buckets in turn, full."""
    if request.param == "memory":
        yield MemoryBuckets()
        return
    commands = RedisCommands(request.getfixturevalue("server_url"), "test")
    yield RedisBuckets(commands, namespace)
    await commands.aclose()


async def allowed(buckets: Any, decisions: str, *asked: Bucket) -> str:
    """Which of the decisions, a letter each, may go on."""
    return "".join([id_ for id_ in decisions if (await buckets.take(id_, asked)).allowed])


async def test_a_bucket_gives_as_many_tokens_as_it_holds(buckets):
    assert await allowed(buckets, "abcd", MINE) == "ab"


async def test_all_buckets_give_or_none_does(buckets):
    assert await allowed(buckets, "abc", MINE, FLEET) == "ab"
    assert await allowed(buckets, "de", FLEET) == "d"


async def test_asking_twice_takes_once_and_is_answered_as_the_first_time(buckets):
    answers = [await buckets.take(id_, [MINE]) for id_ in "aaabcc"]
    assert [one.allowed for one in answers] == [True, True, True, True, False, False]
    assert answers[-1] == answers[-2]


async def test_a_decision_takes_only_from_the_buckets_that_have_not_given_to_it(buckets):
    own = Bucket("own", 1, DAY, 1)
    assert (await buckets.take("a", [MINE, FLEET])).allowed
    assert (await buckets.take("a", [own, FLEET])).allowed
    assert not (await buckets.take("b", [own])).allowed
    assert await allowed(buckets, "cdef", FLEET) == "cd"


async def test_a_decision_that_was_denied_may_take_from_others(buckets):
    empty = Bucket("empty", 1, DAY, 1)
    await buckets.take("x", [empty])
    assert not (await buckets.take("a", [empty, MINE])).allowed
    assert (await buckets.take("a", [MINE])).allowed
    assert await allowed(buckets, "bc", MINE) == "b"


async def test_a_denial_says_which_bucket_is_short_longest_and_for_how_long(buckets):
    slow, quick = Bucket("slow", 1, 3_600_000, 1), Bucket("quick", 1, 60_000, 1)
    await buckets.take("a", [slow, quick])
    answer = await buckets.take("b", [quick, slow])
    assert (answer.allowed, answer.short) == (False, "slow")
    assert 3500 < answer.wait_s <= 3600
    assert (await buckets.take("b", [quick])).short == "quick"


async def test_tokens_come_back_one_by_one(buckets, wait_until):
    fast = Bucket("fast", 2, 1000, 2)
    assert await allowed(buckets, "abc", fast) == "ab"
    numbers = iter(range(1000))

    async def again():
        return (await buckets.take(f"later-{next(numbers)}", [fast])).allowed

    await wait_until(again)
    assert not (await buckets.take("z", [fast])).allowed


async def test_a_call_may_take_several_tokens(buckets):
    assert (await buckets.take("a", [FLEET._replace(take=2)])).allowed
    assert not (await buckets.take("b", [FLEET._replace(take=2)])).allowed
    assert (await buckets.take("c", [FLEET])).allowed


async def test_keys_may_hold_any_text(buckets):
    assert [(await buckets.take(id_, [MINE._replace(key="a:b c\nü")])).short for id_ in "abc"][
        -1
    ] == "a:b c\nü"


async def test_asked_by_many_at_once_exactly_as_many_as_there_are_may_go_on(buckets):
    wide = Bucket("wide", 40, DAY, 40)
    answers = await asyncio.gather(*(buckets.take(f"d{n % 150}", [wide]) for n in range(300)))
    assert sum(one.allowed for one in answers[:150]) == 40
    assert answers[:150] == answers[150:]


@pytest.mark.parametrize(
    ("bucket", "said"),
    [
        (MINE._replace(take=3), "take: from 1 to its burst, 2, not 3"),
        (MINE._replace(take=0), "take: from 1"),
        (MINE._replace(calls=0), "calls and period_ms: at least 1"),
        (MINE._replace(period_ms=0), "calls and period_ms: at least 1"),
        (MINE._replace(burst=MAX_PARTS), "at most"),
        (MINE._replace(calls=MAX_PARTS + 1), "at most"),
    ],
)
async def test_a_bucket_that_cannot_give_or_be_counted_is_refused(buckets, bucket, said):
    with pytest.raises(ConfigError, match=said):
        await buckets.take("a", [bucket])


async def test_a_key_named_twice_is_refused(buckets):
    with pytest.raises(ConfigError, match="once"):
        await buckets.take("a", [MINE, MINE])


# ---------------------------------------------------------------- the rules


@pytest.mark.pure
def test_the_wait_that_is_told_is_just_long_enough():
    seven = Bucket("seven", 7, 60_000, 3)
    for earlier in range(2):
        pool = Pool()
        for id_ in "abc":
            assert pool.take(id_, [seven], 0) == TakeResult(True)
        wait_ms = round(pool.take("d", [seven], 0).wait_s * 1000)
        assert wait_ms == 8572
        assert pool.take("e", [seven], wait_ms - earlier).allowed is (earlier == 0)


@pytest.mark.pure
def test_a_clock_that_is_set_back_gives_nothing_twice():
    pool, one = Pool(), Bucket("one", 1, 1000, 1)
    assert [pool.take(id_, [one], at).allowed for id_, at in (("a", 5000), ("b", 1000), ("c", 5999))] == [
        True,
        False,
        False,
    ]
    assert pool.take("d", [one], 6000).allowed


@pytest.mark.pure
def test_answers_are_forgotten_when_nobody_can_ask_again():
    pool = Pool()
    pool.take("a", [MINE], 0)
    pool.take("b", [MINE], MEMO_MS - 1)
    assert set(pool.memos) == {"a", "b"}
    pool.take("c", [MINE], MEMO_MS)
    assert set(pool.memos) == {"b", "c"}


steps = st.lists(
    st.tuples(
        st.integers(0, 15_000).map(lambda ms: ms if ms % 3 else -ms // 8),
        st.sampled_from("abcdefgh"),
        st.lists(
            st.builds(
                Bucket,
                st.sampled_from(["x", "y", "z"]),
                st.integers(1, 9),
                st.sampled_from([1, 700, 10_000, 60_001]),
                st.integers(2, 5),
                st.integers(1, 2),
            ),
            max_size=3,
            unique_by=lambda one: one.key,
        ),
    ),
    max_size=40,
)


@pytest.mark.pure
@given(
    rate=st.tuples(st.integers(1, 20), st.integers(1, 5000), st.integers(1, 10)),
    gaps=st.lists(st.integers(0, 900), max_size=60),
)
def test_in_any_span_no_more_pass_than_burst_and_rate_allow(rate, gaps):
    calls, period, burst = rate
    bucket, pool, now, passed = Bucket("one", calls, period, burst), Pool(), 0, []
    for number, gap in enumerate(gaps):
        now += gap
        if pool.take(str(number), [bucket], now).allowed:
            passed.append(now)
    for first, start in enumerate(passed):
        for last in range(first, len(passed)):
            assert last - first + 1 <= burst + (passed[last] - start) * calls / period


@settings(max_examples=60, deadline=None)
@given(taken=steps)
def test_the_server_keeps_the_same_buckets(
    server_url: str, taken: list[tuple[int, str, list[Bucket]]]
) -> None:
    asyncio.run(compare(server_url, taken))


class Clocked:
    """The server's commands, but that its clock shows what the test says."""

    def __init__(self, commands: RedisCommands) -> None:
        self.commands, self.now_ms = commands, 0

    async def execute(self, name: str, *words: Any) -> Any:
        assert name == "EVALSHA"
        seconds, ms = divmod(self.now_ms, 1000)
        script = TAKE.text.replace("redis.call('TIME')", f"{{{seconds}, {ms * 1000 + 7}}}")
        assert script != TAKE.text
        return await self.commands.execute("EVAL", script, *words[1:])


async def compare(url: str, taken: list[tuple[int, str, list[Bucket]]]) -> None:
    commands, pool = RedisCommands(url, "test"), Pool()
    clocked: Any = Clocked(commands)
    buckets = RedisBuckets(clocked, f"t{secrets.token_hex(6)}")
    clocked.now_ms = 1_000_000
    try:
        for ms, decision, asked in taken:
            if clocked.now_ms + ms < 1_000_000 + MEMO_MS:  # the server forgets by its own clock
                clocked.now_ms += ms
            expected = pool.take(decision, asked, clocked.now_ms)
            assert await buckets.take(decision, asked) == expected
    finally:
        await commands.aclose()


# ---------------------------------------------------------------- on the server


async def test_a_take_whose_outcome_is_unknown_is_asked_again_and_takes_once(server_url, namespace):
    commands = RedisCommands(server_url, "test")
    lost = iter([True, False])

    class Breaking:
        async def execute(self, *words: Any) -> Any:
            reply = await commands.execute(*words)
            if words[0] == "EVALSHA" and next(lost, False):
                raise OutcomeUnknown("the connection broke")
            return reply

    breaking: Any = Breaking()
    buckets = RedisBuckets(breaking, namespace)
    assert await allowed(buckets, "abcd", MINE) == "ab"
    await commands.aclose()


async def test_buckets_lie_in_the_ledgers_slot_and_all_keys_expire(server_url, namespace):
    commands = RedisCommands(server_url, "test")
    buckets = RedisBuckets(commands, namespace)
    await allowed(buckets, "abc", MINE, Bucket("quick", 100, 1000, 10))
    keys = await commands.execute("KEYS", f"*{namespace}*")
    assert len(keys) == 5
    left = {key: await commands.execute("PTTL", key) for key in keys}
    await commands.aclose()
    assert all(key.decode().startswith(Keys(namespace).store_key("buckets:")) for key in keys)
    assert all(0 < ms <= DAY + 60_000 for ms in left.values())


async def test_a_script_that_the_server_lost_is_loaded_again(server_url, namespace):
    commands = RedisCommands(server_url, "test")
    buckets = RedisBuckets(commands, namespace)
    assert (await buckets.take("a", [MINE])).allowed
    await commands.execute("SCRIPT", "FLUSH")
    assert await allowed(buckets, "bc", MINE) == "b"
    await commands.aclose()
