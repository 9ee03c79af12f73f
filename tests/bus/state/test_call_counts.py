"""Counting an agent's calls: once each, in session, tree and turn, whoever asks how often."""

import asyncio
import secrets
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.state.call_counts import (
    COUNT,
    KEPT_MS,
    MAX_WINDOW,
    CallCountRules,
    CallCounts,
    CountedCall,
    DelegationResult,
    MemoryCallCounter,
    RedisCallCounter,
)
from toolgate_bus.transport.redis.client.connection import RedisCommands

CALL = CountedCall("s", "t", "c", 1, "g1")


@pytest.fixture(params=["memory", "redis"])
async def tally(request: pytest.FixtureRequest, namespace: str) -> Any:
    """Each kind of tally in turn, empty."""
    if request.param == "memory":
        yield MemoryCallCounter()
        return
    commands = RedisCommands(request.getfixturevalue("server_url"), "test")
    yield RedisCallCounter(commands, namespace)
    await commands.aclose()


async def counted(tally: Any, *made: CountedCall, field: str, window: int = 0) -> list[Any]:
    """One field of the answers to these calls, each of a decision of its own."""
    answers = [await tally.count("x", secrets.token_hex(4), one, window) for one in made]
    return [getattr(each, field) for each in answers]


def called(letters: str, **fields: Any) -> list[CountedCall]:
    """A call for each letter, each in an iteration of its own."""
    return [
        CALL._replace(call=each, iteration=n, group=f"g{n}", **fields) for n, each in enumerate(letters, 1)
    ]


async def test_calls_are_counted_in_their_session_and_in_their_tree(tally):
    other = CALL._replace(session="s2")
    assert await counted(tally, CALL, CALL, other, CALL, field="session") == [1, 2, 1, 3]
    assert await counted(tally, CALL, other, field="tree") == [5, 6]
    assert await counted(tally, CALL._replace(session="s3", tree="t2"), field="tree") == [1]


async def test_a_decision_is_counted_once_and_answered_as_the_first_time(tally):
    first = await tally.count("x", "a", CALL)
    await tally.count("x", "b", CALL)
    assert await tally.count("x", "a", CALL) == first == CallCounts(1, 1, 1, 1, 0, 0.0)
    assert await tally.count("x", "a", CALL._replace(call="another", iteration=7)) == first
    assert (await tally.count("x", "c", CALL)).session == 3


async def test_scopes_count_by_themselves(tally):
    await tally.count("x", "a", CALL)
    assert (await tally.count("y", "a", CALL)).session == 1
    assert (await tally.count("y", "b", CALL)).session == 2


async def test_the_same_call_in_a_row_is_counted_until_another_comes(tally):
    assert await counted(tally, *called("aaabaa"), field="row") == [1, 2, 3, 1, 1, 2]


async def test_the_same_call_is_counted_among_the_last_few(tally):
    assert await counted(tally, *called("ababaccca"), field="recent", window=4) == [1, 1, 2, 2, 2, 1, 2, 3, 1]
    assert await counted(tally, *called("aaa"), field="recent") == [0, 0, 0]


async def test_calls_of_one_response_and_of_later_ones_are_of_one_turn(tally):
    later = CALL._replace(iteration=2, group="g2")
    assert await counted(tally, CALL, CALL, later, later, field="turn") == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "next_turn", [CALL._replace(iteration=1, group="g9"), CALL._replace(iteration=2, group="g9")]
)
async def test_a_lower_iteration_or_the_same_one_in_another_group_begins_a_turn(tally, next_turn):
    before = [CALL, CALL._replace(iteration=2, group="g2")]
    assert await counted(tally, *before, next_turn, next_turn, field="turn") == [1, 2, 1, 2]
    assert await counted(tally, next_turn, field="session") == [5]


async def test_what_is_repeated_is_counted_anew_in_each_turn(tally):
    again = CALL._replace(group="g9")
    assert await counted(tally, CALL, CALL, again, field="row", window=9) == [1, 2, 1]
    assert await counted(tally, CALL, CALL, again, field="recent", window=9) == [1, 2, 1]


async def test_where_neither_iteration_nor_group_is_told_a_session_is_one_turn(tally):
    bare = CALL._replace(iteration=0, group="")
    assert await counted(tally, bare, bare, bare, field="turn") == [1, 2, 3]


async def test_a_group_without_an_iteration_begins_no_turn(tally):
    groups = [CALL._replace(iteration=0, group=f"g{number}") for number in range(3)]
    assert await counted(tally, *groups, field="turn") == [1, 2, 3]
    told = CALL._replace(iteration=2, group="g")
    assert await counted(tally, told, CALL._replace(iteration=0, group="x"), told, field="turn") == [4, 5, 6]


async def test_seconds_are_counted_from_the_first_call_of_the_tree(tally, wait_until):
    assert await counted(tally, CALL, field="seconds") == [0.0]

    async def later():
        return (await counted(tally, CALL, field="seconds"))[0] >= 0.02

    await wait_until(later)
    assert (await counted(tally, CALL._replace(session="s2"), field="seconds"))[0] >= 0.02
    assert await counted(tally, CALL._replace(tree="t2"), field="seconds") == [0.0]


async def test_many_at_once_are_each_counted_once(tally):
    answers = await asyncio.gather(*(tally.count("x", f"d{n % 100}", CALL) for n in range(200)))
    assert answers[:100] == answers[100:]
    assert sorted(one.session for one in answers[:100]) == list(range(1, 101))


@pytest.mark.parametrize("window", [-1, MAX_WINDOW + 1])
async def test_a_window_that_is_not_kept_is_refused(tally, window):
    with pytest.raises(ConfigError, match="from 0 to 1000 calls"):
        await tally.count("x", "a", CALL, window)


# ---------------------------------------------------------------- delegations


async def test_delegations_are_counted_in_their_session_and_in_their_tree_where_there_is_room(tally):
    child = CALL._replace(session="s2")
    first = [await tally.delegate("x", f"a{n}", CALL, 2, 4) for n in range(3)]
    assert first == [
        DelegationResult(True, 0, 0),
        DelegationResult(True, 1, 1),
        DelegationResult(False, 2, 2),
    ]
    # What was refused is no agent of the tree.
    below = [await tally.delegate("x", f"b{n}", child, None, 4) for n in range(3)]
    assert below == [
        DelegationResult(True, 0, 2),
        DelegationResult(True, 1, 3),
        DelegationResult(False, 2, 4),
    ]
    assert await tally.delegate("x", "c", CALL._replace(tree="t2"), None, 4) == DelegationResult(True, 2, 0)
    assert await tally.delegate("y", "c", CALL, 1, 1) == DelegationResult(True, 0, 0)


async def test_a_delegation_asked_about_again_is_answered_as_the_first_time(tally):
    first = await tally.delegate("x", "a", CALL, 1, None)
    assert await tally.delegate("x", "b", CALL, 1, None) == DelegationResult(False, 1, 1)
    assert await tally.delegate("x", "a", CALL, 1, None) == first == DelegationResult(True, 0, 0)
    assert await tally.delegate("x", "b", CALL, 9, None) == DelegationResult(False, 1, 1)
    assert (await tally.count("x", "a", CALL)).session == 1


async def test_of_many_delegations_at_once_exactly_as_many_pass(tally):
    sessions = [CALL._replace(session=f"s{n % 7}") for n in range(100)]
    asked = (tally.delegate("x", f"d{n % 50}", one, None, 20) for n, one in enumerate(sessions))
    found = await asyncio.gather(*asked)
    assert sum(one.counted for one in found[:50]) == 20
    assert found[:50] == found[50:]


# ---------------------------------------------------------------- on the server

steps = st.lists(
    st.tuples(
        st.integers(-500, 5000),
        st.sampled_from("xy"),
        st.sampled_from("abcdefghijklmnop"),
        st.builds(
            CountedCall,
            st.sampled_from(["s1", "s2"]),
            st.sampled_from(["t1", "t2"]),
            st.sampled_from(["p", "q"]),
            st.integers(0, 3),
            st.sampled_from(["", "g", "h"]),
        ),
        st.integers(0, 4),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(taken=steps)
def test_the_server_counts_the_same(
    server_url: str, taken: list[tuple[int, str, str, CountedCall, int]]
) -> None:
    asyncio.run(compare(server_url, taken))


class Watched:
    """The server's commands, but that its clock shows what the test says."""

    def __init__(self, commands: RedisCommands) -> None:
        self.commands, self.now_ms = commands, 1_000_000

    async def execute(self, name: str, *words: Any) -> Any:
        assert name == "EVALSHA"
        seconds, ms = divmod(self.now_ms, 1000)
        script = COUNT.text.replace("redis.call('TIME')", f"{{{seconds}, {ms * 1000 + 7}}}")
        assert script != COUNT.text
        return await self.commands.execute("EVAL", script, *words[1:])


async def compare(url: str, taken: list[tuple[int, str, str, CountedCall, int]]) -> None:
    commands, counting = RedisCommands(url, "test"), CallCountRules()
    watched: Any = Watched(commands)
    tally = RedisCallCounter(watched, f"t{secrets.token_hex(6)}")
    try:
        for ms, scope, decision, made, window in taken:
            watched.now_ms += ms
            expected = counting.count(scope, decision, made, window, watched.now_ms)
            assert await tally.count(scope, decision, made, window) == expected
    finally:
        await commands.aclose()


async def test_counts_lie_in_the_ledgers_slot_and_all_keys_expire(server_url, namespace):
    commands = RedisCommands(server_url, "test")
    tally = RedisCallCounter(commands, namespace)
    await counted(tally, *called("abcdef"), field="session", window=3)
    await tally.delegate("x", "d", CALL, 1, 1)
    keys = await commands.execute("KEYS", f"*{namespace}*")
    left = [await commands.execute("PTTL", key) for key in keys]
    (list_,) = [key for key in keys if b":r:" in key]
    length = await commands.execute("LLEN", list_)
    await commands.aclose()
    assert len(keys) == 4 + 6 + 3
    assert length == 3
    assert all(key.decode().startswith(Keys(namespace).store_key("tally:")) for key in keys)
    assert all(0 < ms <= KEPT_MS for ms in left)
