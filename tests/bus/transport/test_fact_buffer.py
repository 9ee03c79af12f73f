"""Facts on their way to the server: what it has confirmed last may have to be written again."""

import pytest
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.packing import pack
from toolgate_bus.transport.redis.asking import fact_buffer
from toolgate_bus.transport.redis.asking.fact_buffer import KEPT_S, FactBuffer

pytestmark = pytest.mark.pure
ZERO = bytes(packing.ID_BYTES)


@pytest.fixture
def clock(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(fact_buffer.time, "monotonic", lambda: now[0])
    return now


def write(out, number):
    item = packing.item(ZERO, 0, pack({"event": "turn", "seq": number, "at": 1.0}), None)
    ((frame, _),) = out.add([lambda: item])
    return frame


def test_what_was_confirmed_last_is_taken_back_in_its_order_however_late_the_loss_is_noticed(clock):
    out = FactBuffer()
    first, second = write(out, 1), write(out, 2)
    out.confirm_oldest()
    out.confirm_oldest()
    clock[0] += 10 * KEPT_S
    third = write(out, 3)
    out.take_back()
    assert out.list_unconfirmed() == [first, second, third]


def test_what_was_confirmed_long_before_the_last_is_not_taken_back(clock):
    out = FactBuffer()
    write(out, 1)
    out.confirm_oldest()
    clock[0] += KEPT_S + 1
    later = write(out, 2)
    out.confirm_oldest()
    out.take_back()
    assert out.list_unconfirmed() == [later]


def test_what_is_taken_back_twice_is_written_once_more_only(clock):
    out = FactBuffer()
    frame = write(out, 1)
    out.confirm_oldest()
    out.take_back()
    out.take_back()
    assert out.list_unconfirmed() == [frame]
