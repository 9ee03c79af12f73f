"""Where in a cluster a command goes: no server, no node."""

import pytest
from toolgate_bus.protocol.keys import Keys, streams_near
from toolgate_bus.transport.redis.client.cluster_routes import (
    absent_key,
    near_of,
    slot_of,
    slot_of_pattern,
    split,
)
from toolgate_bus.transport.redis.client.command_keys import key_of

pytestmark = pytest.mark.pure

KEYS = Keys("a")
INBOX, ROSTER, LEDGER = KEYS.inbox("s"), KEYS.roster, KEYS.store_key("x")
STREAMS = slot_of(INBOX)


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("GET", ROSTER), ROSTER),
        (("XADD", INBOX.encode(), "*", "event", "x"), INBOX),
        (("XREAD", "COUNT", 1, "BLOCK", 5, "STREAMS", INBOX, ROSTER, "0", "0"), INBOX),
        (("XREADGROUP", "GROUP", "streams", "me", "STREAMS", INBOX, ">"), INBOX),
        (("XINFO", "GROUPS", INBOX), INBOX),
        (("XGROUP", "CREATE", INBOX, "g", "0", "MKSTREAM"), INBOX),
        (("MEMORY", "USAGE", LEDGER), LEDGER),
        (("EVALSHA", "0" * 40, 2, LEDGER, LEDGER, "word"), LEDGER),
        (("EVAL", "return 1", 0), None),
        *(((name,), None) for name in ("TIME", "PING", "INFO", "MULTI", "DISCARD")),
        (("ACL", "DRYRUN", "u", "GET", ROSTER), None),
        (("WAIT", 1, 100), None),
        (("SCRIPT", "LOAD", "x"), None),
    ],
)
def test_the_key_of_a_command_is_found_whatever_stands_before_it(command, key):
    assert key_of(command) == key


def test_a_pipeline_is_split_by_slot_and_what_has_no_key_stays_with_what_it_is_about():
    commands = [
        ("PING",),
        ("SET", ROSTER, 1),
        ("TIME",),
        ("EVALSHA", "x", 1, LEDGER),
        ("WAIT", 1, 9),
        ("GET", ROSTER),
    ]
    parts = {part.slot: part.units for part in split(commands, STREAMS)}
    assert parts == {STREAMS: [[0], [2]], slot_of(ROSTER): [[1], [5]], slot_of(LEDGER): [[3, 4]]}


def test_what_has_no_key_goes_to_the_streams_of_the_namespace_it_comes_with():
    assert near_of([("TIME",), ("SET", LEDGER, 1)]) == STREAMS
    assert near_of([("PING",)]) is None
    assert streams_near("else") is None


@pytest.mark.parametrize(
    ("pattern", "slot"),
    [
        ("tg:{a:0}:in:*", STREAMS),
        ("tg:{a:*", None),
        ("tg:{*:ledger}:budget:*", None),
        ("*", None),
        ("tg:{a\\*}:x", None),
    ],
)
def test_keys_are_searched_for_on_one_node_only_where_all_that_fit_lie_there(pattern, slot):
    assert slot_of_pattern(pattern) == slot


def test_the_key_that_shows_whether_a_slot_moves_lies_in_it_and_may_be_read_by_who_may_read_the_others():
    assert absent_key("tg:{a:0}:in:*") == "tg:{a:0}:in:~"
