"""Members of one process are named on the roster by one command a set."""

import pytest
from toolgate_bus.transport.redis.roster.heartbeat_sender import merge_names

pytestmark = pytest.mark.pure


def test_names_of_all_members_go_in_one_command_and_each_expiry_once():
    beats = [("SET", "a", b"1", "PX", 1500), ("SET", "b", b"2", "PX", 1500)]
    expiry = ("PEXPIRE", "set", 9)
    commands = [beats[0], ("SADD", "set", "a"), expiry, ("TIME",), beats[1], ("SADD", "set", "b"), expiry]
    merged, firsts = merge_names(commands, [0, 4])
    assert merged == [beats[0], ("SADD", "set", "a", "b"), expiry, ("TIME",), beats[1]]
    assert [merged[first] for first in firsts] == beats
