"""Names of keys: those of the first shard are as ever, and whose name tells another has all streams there."""

import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.protocol.keys import MAX_SHARDS, Keys, name_orchestrator, shard_of, streams_near
from toolgate_bus.transport.heartbeats import decode_member, encode_member
from toolgate_bus.transport.ports import Member
from toolgate_bus.transport.shards import USED_S, SeenShards, decode_count, decode_used, find_served

pytestmark = pytest.mark.pure


@pytest.mark.parametrize("shard", range(MAX_SHARDS))
def test_the_name_of_an_orchestrator_tells_its_shard_and_all_its_streams_lie_there(shard):
    name = name_orchestrator(secrets.token_hex(8), shard)
    assert name.isalnum()  # which readers of every version want of it
    assert shard_of(name) == shard
    near, keys = f"tg:{{a:{shard:x}}}", Keys("a")
    for key in (keys.verdicts(name, "s"), keys.wake(name), keys.control(name), keys.facts(name)):
        assert key.startswith(f"{near}:")
        assert streams_near(key) == near
    assert Keys("a", shard).inbox("s") == f"{near}:in:s"


def test_in_the_first_shard_keys_and_names_are_as_they_were():
    name, keys = name_orchestrator("0123456789abcdef", 0), Keys("a")
    assert name == "0123456789abcdef"
    assert [keys.inbox("s"), keys.verdicts(name, "s"), keys.wake(name), keys.control(name)] == [
        "tg:{a:0}:in:s",
        "tg:{a:0}:out:0123456789abcdef:s",
        "tg:{a:0}:wake:0123456789abcdef",
        "tg:{a:0}:ctl:0123456789abcdef",
    ]
    assert keys.facts(name) == "tg:{a:0}:facts:0123456789abcdef"
    assert b"shards" not in encode_member(Member("s", "r", wire=(1, 2)))


@pytest.mark.parametrize(
    "name",
    ["0123456789abcdefs0", "0123456789abcdefsg", "0123456789abcdeXs1", "0123456789abcdefs١", "s1", "o1", ""],
)
def test_a_name_that_tells_no_other_shard_lies_in_the_first(name):
    assert shard_of(name) == 0


def test_a_heartbeat_tells_which_shards_are_read_and_what_is_none_is_passed_over():
    sent = Member("s", "r", wire=(1, 2), shards=(0, 2, 15))
    assert decode_member("s", "r", encode_member(sent)).shards == (0, 2, 15)
    odd = Member("s", "r", wire=(1, 2), shards=(1, -1, 16, True, "2", 3))
    assert decode_member("s", "r", encode_member(odd)).shards == (1, 3)
    assert decode_member("s", "r", encode_member(Member("s", "r"))).shards == (0,)  # an older one


@given(st.one_of(st.none(), st.binary(max_size=40), st.integers()))
def test_whatever_stands_there_it_is_a_number_of_shards(raw):
    assert 1 <= decode_count(raw) <= MAX_SHARDS
    assert decode_used([raw] * 40, 1000) <= set(range(1, MAX_SHARDS))


def test_shards_are_used_for_a_minute_after_their_last_word():
    assert decode_count(b"3") == 3
    values = [b"%d" % (5000 - USED_S), None, b"%d" % (4999 - USED_S), b"5001"]
    assert decode_used(values, 5000) == {1, 4}
    assert decode_used(values, None) == {1, 3, 4}


def test_a_shard_of_which_nothing_is_said_any_more_is_read_a_while_longer():
    seen = SeenShards()
    assert seen.take({0, 1, 2}, 1000) == {0, 1, 2}
    assert seen.take({0}, 1000 + USED_S - 1) == {0, 1, 2}  # as after FLUSHALL, until who lies there says so
    assert seen.take({0, 2}, 1000 + USED_S) == {0, 2}


def test_only_shards_that_everybody_reads_are_drawn():
    new, old = Member("a", "r", shards=(0, 1, 2)), Member("b", "r")
    assert find_served(3, []) == find_served(3, [new]) == [0, 1, 2]
    assert find_served(2, [new]) == [0, 1]
    assert find_served(3, [new, old]) == [0]
    assert find_served(3, [new, Member("c", "r", shards=(1,))]) == [1]
    assert find_served(3, [old, Member("c", "r", shards=(1,))]) == []
