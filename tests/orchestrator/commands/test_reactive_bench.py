"""With a slow LLM a turn is shorter on loop-reactive than on loop-basic."""

import pytest
from reactive import TurnLoad, compare


@pytest.mark.parametrize(
    "load",
    [
        pytest.param(TurnLoad(tools_s=(0.4, 0.3, 0.2, 0.1), gap_s=0.1), id="tools run beside the stream"),
        pytest.param(TurnLoad(tools_s=(0.1,) * 4, gap_s=0.1, chain=True), id="calls need each other"),
    ],
)
async def test_with_a_slow_stream_the_turn_is_measurably_shorter_than_on_loop_basic(load: TurnLoad) -> None:
    found = await compare(load, rounds=1)
    assert found.basic_s >= 0.8  # four calls written, then a tool for 0.4 s; or four times both
    assert found.reactive_s >= 0.5  # nothing is left out
    assert found.ratio < 0.9
