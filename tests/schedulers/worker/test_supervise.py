"""How long a replica that ended waits before it is started again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_schedulers.commands.scheduler_run import replica_command
from toolgate_schedulers.worker.supervisor import FIRST_PAUSE, MAX_PAUSE, STEADY, next_pause

pytestmark = pytest.mark.pure


def test_the_pause_doubles_up_to_ten_seconds():
    pauses = [pause := next_pause(0.1, None)]
    pauses += [pause := next_pause(0.1, pause) for _ in range(8)]
    assert pauses == [0.5, 1, 2, 4, 8, 10, 10, 10, 10]


def test_a_replica_that_worked_for_a_while_starts_from_the_first_pause():
    assert next_pause(STEADY, 30.0) == FIRST_PAUSE


@given(st.floats(0, 1e9), st.none() | st.floats(FIRST_PAUSE, MAX_PAUSE))
def test_the_pause_stays_within_its_bounds(lived, last):
    assert FIRST_PAUSE <= next_pause(lived, last) <= MAX_PAUSE


def test_a_replica_is_given_the_options_that_were_given_and_no_others():
    given = {"name": None, "priority": 0, "tools": ["web_*", "ls"], "shadow": False, "json": True}
    words = replica_command(["my_rules:rule", "own=policy"], given)
    assert words[words.index("run") + 1 :] == [
        "--priority=0",
        "--tools=web_*",
        "--tools=ls",
        "--json",
        "--",
        "my_rules:rule",
        "own=policy",
    ]
