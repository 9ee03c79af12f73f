"""The record of changes: what was written is read back, in order; what is no change is passed over."""

import pytest
from toolgate_bus.protocol.packing import pack
from toolgate_bus.state.changes import (
    TOPIC,
    ConfigChange,
    decode_change,
    encode_change,
    read_changes,
    tell_change,
)
from toolgate_bus.state.notifications import MAX_NOTICE, MemoryNotices

PUSHED = ConfigChange("config:pushed", "policy", "v7@abc", "v6@aaa", "v7", "ann", "as asked", 12.5)
UNDONE = PUSHED._replace(event="rollout:undone", why="veto_rate > 2x")


async def test_what_was_told_is_read_in_order_and_from_a_place_on():
    notices = MemoryNotices()
    await tell_change(notices, PUSHED)
    await tell_change(notices, UNDONE)
    first, second = await read_changes(notices, wait_s=0)
    assert (first.change, second.change) == (PUSHED, UNDONE)
    assert [one.change for one in await read_changes(notices, first.id, 0)] == [UNDONE]
    assert list(await read_changes(notices, second.id, 0)) == []


async def test_what_is_no_change_is_passed_over():
    notices = MemoryNotices()
    for body in (b"", b"\xc1", pack({"event": "config:pushed"}), pack(["x"]), pack({"event": "made up"})):
        await notices.publish(TOPIC, body)
    assert list(await read_changes(notices, wait_s=0)) == []
    await tell_change(notices, PUSHED)
    assert [one.change for one in await read_changes(notices, wait_s=0)] == [PUSHED]


@pytest.mark.parametrize(
    "wrong", [{"scheduler": ""}, {"at": "now"}, {"at": True}, {"label": 7}, {"event": []}]
)
def test_a_field_that_is_not_as_it_should_be_makes_it_none(wrong):
    whole = {"event": "config:pushed", "scheduler": "policy", "at": 1.0}
    assert decode_change(pack(whole)) is not None
    assert decode_change(pack(whole | wrong)) is None


def test_a_long_one_is_cut_to_what_a_notice_may_hold():
    long = PUSHED._replace(why="w" * 5000, author="ü" * 500, revision="r" * 500)
    raw = encode_change(long)
    assert len(raw) <= MAX_NOTICE
    told = decode_change(raw)
    assert told is not None
    assert told.scheduler == "policy"
