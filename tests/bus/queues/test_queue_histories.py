"""A queue for slots over histories: the model of a lock, the pure queue and the server's script agree."""

import pytest
from slot_histories import judge_rules, judge_server, play_capped, play_fleet, play_lock

ON_RULES, ON_SERVER, OF_FLEETS, OF_CAPPED = 1_500, 300, 200, 100
"""`make soak-slots` has more."""


@pytest.mark.pure
def test_readers_share_and_writers_are_alone_each_in_turn():
    assert not [found for seed in range(ON_RULES) if (found := judge_rules(seed))]


def test_a_server_lets_readers_share_and_writers_be_alone_each_in_turn(server_url):
    assert not [found for found in judge_server(server_url, play_lock, ON_SERVER) if found]


def test_a_server_gives_slots_as_the_pure_queue_does_whatever_happens(server_url):
    assert not [found for found in judge_server(server_url, play_fleet, OF_FLEETS) if found]
    assert not [found for found in judge_server(server_url, play_capped, OF_CAPPED) if found]
