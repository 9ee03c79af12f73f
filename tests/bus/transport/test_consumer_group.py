"""When a replica looks for what dead ones left: no later than it is due, and no oftener than that needs."""

import pytest
from toolgate_bus.transport.redis.answering.consumer_group import (
    CLAIM_IDLE_MS,
    CROWDED_SECONDS,
    LOOK_SECONDS,
    MAX_COUNT,
    ConsumerGroup,
)

pytestmark = pytest.mark.pure


class Claims:
    """A server that gives whatever is claimed."""

    def __init__(self):
        self.claimed = []

    async def execute(self, *command):
        assert command[:5] == ("XCLAIM", "in:cost", "cost", "r1", CLAIM_IDLE_MS)
        self.claimed += command[5:]
        return [[entry, []] for entry in command[5:]]


@pytest.fixture
def group():
    return ConsumerGroup(Claims(), "in:cost", "cost", "r1")


def waits(number, idle_ms):
    return [b"%d-0" % number, b"r2", idle_ms, 1]


def due_after(group, looked):
    """Seconds after a look until it is looked again."""
    return next(ms / 1000 for ms in range(5000) if group.is_due(looked + ms / 1000 + 1e-6))


@pytest.mark.parametrize(
    ("pending", "held", "seconds"),
    [
        ([], (), LOOK_SECONDS),
        ([waits(1, 300), waits(2, 100)], (), 0.5),
        ([waits(1, 300), waits(2, 100)], ("1-0",), 0.7),
        (OSError("NOGROUP"), (), LOOK_SECONDS),
    ],
)
async def test_it_is_looked_again_when_the_oldest_of_others_may_be_left(group, pending, held, seconds):
    assert group.is_due(100.0)
    assert await group.take_over(pending, held, 64, 100.0) == []
    assert due_after(group, 100.0) == pytest.approx(seconds)


async def test_what_nobody_renewed_is_taken_over_as_far_as_there_is_room(group):
    pending = [waits(1, 800), waits(2, 10), waits(3, 900), waits(4, 800)]
    taken = await group.take_over(pending, {"1-0"}, 1, 100.0)
    assert taken == [([b"3-0", []], 2)]
    assert due_after(group, 100.0) == 0, "another is left"


async def test_where_more_wait_than_can_be_seen_the_server_is_asked_for_what_is_due(group):
    everyone = ("XPENDING", "in:cost", "cost", "-", "+", MAX_COUNT)
    assert group.look_for_dead(100.0) == everyone
    await group.take_over([waits(n, 0) for n in range(MAX_COUNT)], (), 64, 100.0)
    assert group.is_due(100.2)
    assert group.look_for_dead(100.2) == (*everyone[:3], "IDLE", CLAIM_IDLE_MS, *everyone[3:])
    await group.take_over([], (), 64, 100.2)
    assert group.is_due(100.4), "what is not due yet was not told"
    assert group.look_for_dead(100.0 + CROWDED_SECONDS) == everyone
