"""A call that keeps failing in the same way is told so, under every loop; other calls are not."""

from typing import Any

import pytest
from amplifier_core import ToolResult
from four_loops import LOOPS
from toolgate_orchestrator.turn.calls.repeated_failures import MAX_KEPT, THRESHOLD, RepeatedFailures
from toolgate_orchestrator.turn.values.messages import ToolCall

pytestmark = pytest.mark.pure

ERROR = ("ToolError", "no such file")


def test_only_the_same_call_with_the_same_error_counts() -> None:
    failures = RepeatedFailures()
    call = ToolCall("c1", "read", {"path": "x"})
    assert [bool(failures.note(call, ERROR)) for _ in range(THRESHOLD)] == [False, False, True]
    assert failures.note(ToolCall("c2", "read", {"path": "y"}), ERROR) == ""
    assert failures.note(ToolCall("c2", "write", {"path": "x"}), ERROR) == ""
    assert failures.note(call, ("ToolError", "busy")) == ""
    assert "4 times" in failures.note(call, ERROR)


def test_what_is_remembered_is_bounded() -> None:
    failures = RepeatedFailures()
    for number in range(MAX_KEPT * 2):
        failures.note(ToolCall("c1", "read", {"path": number}), ERROR)
    assert len(failures._counts) == MAX_KEPT


@pytest.mark.parametrize("raises", [True, False])
@pytest.mark.parametrize("loop", LOOPS)
async def test_the_llm_is_told_at_the_third_equal_failure(
    agent: Any, tool: Any, llm: Any, wants: Any, loop: str, raises: bool
) -> None:
    def answer(arguments: dict[str, Any]) -> Any:
        if raises:
            raise OSError("no such file")
        return ToolResult(success=False, error={"message": "no such file"})

    model = llm(*[[wants(f"c{number}", "read", {"path": "x"})] for number in range(3)])
    async with agent(llm=model, tools=[tool("read", answer)], loop=loop) as a:
        await a.ask()
        results = [str(one) for one in await a.results()]
        assert ["has now failed 3 times" in one for one in results] == [False, False, True]
        assert all("no such file" in one for one in results)
