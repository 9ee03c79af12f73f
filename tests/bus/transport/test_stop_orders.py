"""Who carried out an order to stop says so for a while, and what others write there is looked at first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.protocol.agents import LiveAgent, decode_agents, encode_agents
from toolgate_bus.protocol.packing import pack
from toolgate_bus.transport.redis.storage.stop_orders import KEPT_S, MAX_ORDERS, StopOrderLog, decode_obeyed

pytestmark = pytest.mark.pure


def told(obeyed, now=0.0):
    return decode_obeyed(encode_agents([LiveAgent("a")], obeyed.encode_all(now)))


def test_an_order_that_is_repeated_adds_to_those_it_stopped():
    obeyed = StopOrderLog()
    obeyed.note("first", ["a"], 0.0)
    obeyed.note("second", [], 0.0)
    obeyed.note("first", ["b", "a"], 1.0)
    obeyed.note("", ["a"], 1.0)  # from a command that waits for no answer
    assert told(obeyed) == {"first": {"a", "b"}, "second": set()}


def test_only_the_latest_orders_are_told_and_not_for_ever():
    obeyed = StopOrderLog()
    for number in range(MAX_ORDERS + 2):
        obeyed.note(str(number), ["a"], 0.0)
    assert list(told(obeyed)) == [str(number) for number in range(2, MAX_ORDERS + 2)]
    obeyed.note("2", [], KEPT_S)
    assert list(told(obeyed, KEPT_S)) == ["2"]


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.binary() | anything.map(pack) | anything.map(lambda one: pack({"obeyed": [one, pack(one)]})))
def test_nothing_that_is_written_there_raises(raw):
    for order, sessions in decode_obeyed(raw).items():
        assert all(isinstance(one, str) for one in (order, *sessions))
    decode_agents("o", raw)
