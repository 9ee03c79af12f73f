"""Which provider answers, and what hooks are told in exact JSON."""

import math
from typing import Any

import pytest
from amplifier_core import HookRegistry, HookResult
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator.turn.llm.request import choose_provider, model_of
from toolgate_orchestrator.turn.values.jsonable import almost_same_json, jsonable

pytestmark = pytest.mark.pure


class P:
    """A provider, as far as choosing goes."""

    def __init__(self, priority: Any = None, config: Any = None, **more: Any) -> None:
        if priority is not None:
            self.priority = priority
        self.config = config
        self.__dict__ |= more


def test_the_first_mounted_answers_where_nothing_else_is_said() -> None:
    assert choose_provider({"b": P(), "a": P()})[0] == "b"


def test_the_lowest_priority_number_goes_first_be_it_attribute_or_config() -> None:
    providers = {"none": P(), "config": P(config={"priority": 5}), "attribute": P(priority=10)}
    assert choose_provider(providers)[0] == "config"
    assert choose_provider({"a": P(priority=7, config={"priority": 1}), "b": P(priority=3)})[0] == "b"


def test_a_priority_that_is_no_number_is_none() -> None:
    assert choose_provider({"a": P(priority="high"), "b": P(priority=True), "c": P(priority=99)})[0] == "c"


def test_the_default_goes_before_priority_and_the_request_before_the_default() -> None:
    providers = {"a": P(priority=1), "b": P(), "c": P()}
    assert choose_provider(providers, "b")[0] == "b"
    assert choose_provider(providers, "b", "c")[0] == "c"
    assert choose_provider(providers, "provider-b")[0] == "b"


def test_one_that_is_not_mounted_is_an_error_that_lists_those_that_are() -> None:
    with pytest.raises(
        ConfigError, match=r"the request names provider 'x', which is not mounted; mounted: a, b"
    ):
        choose_provider({"a": P(), "b": P()}, None, "x")
    with pytest.raises(ConfigError, match="no provider is mounted"):
        choose_provider({})


def test_the_model_is_told_where_the_provider_tells_it() -> None:
    assert model_of(P(model="m")) == "m"
    assert model_of(P(default_model="d")) == "d"
    assert model_of(P(model=3)) is None


numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(json_values)
def test_json_passes_unchanged_but_for_lone_surrogates(value: Any) -> None:
    assert jsonable(jsonable(value)) == jsonable(value)


@given(st.text(st.characters(exclude_categories=["Cs"])) | st.integers(-(2**63), 2**64 - 1) | st.booleans())
def test_what_json_can_say_is_the_same(value: Any) -> None:
    assert jsonable({"x": [value]}) == {"x": [value]}


awkward = st.sampled_from([math.nan, math.inf, 2**70, "\ud800", {1: (2, 3)}, {3}, object(), b"x", P()])


@given(st.lists(awkward | json_values, max_size=3))
async def test_whatever_a_tool_returns_comes_back_from_the_kernel_equal_to_what_was_sent(
    values: list[Any],
) -> None:
    async def listen(event: str, data: dict[str, Any]) -> HookResult:
        return HookResult()

    hooks = HookRegistry()
    hooks.register("tool:post", listen)
    sent = jsonable({"result": values})
    assert almost_same_json((await hooks.emit("tool:post", sent)).data["result"], sent["result"])


@given(json_values, json_values)
def test_only_the_same_json_is_the_same(one: Any, other: Any) -> None:
    assert almost_same_json(one, one)
    if almost_same_json(one, other) and "." not in repr((one, other)) and "e" not in repr((one, other)):
        assert repr(one) == repr(other) or one == other


def test_a_truth_value_is_no_number() -> None:
    assert not almost_same_json(True, 1)
    assert not almost_same_json({"a": 0}, {"a": False})
    assert almost_same_json({"a": [1.0]}, {"a": [1]})
    assert not almost_same_json([1, 2], [1])


def test_what_contains_itself_ends() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert jsonable(loop)


@pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming", "loop-events"])
async def test_a_provider_that_answers_with_a_plain_dict_is_understood(
    agent: Any, tool: Any, loop: str
) -> None:
    """As in the short contract's own example."""
    answers = [
        {"content": [], "tool_calls": [{"id": "c1", "name": "add", "input": {"a": 1}}]},
        {"content": [{"type": "text", "text": "two"}], "usage": {"total_tokens": 5}},
    ]

    class Plain:
        name = "plain"

        async def complete(self, request: Any, **options: Any) -> Any:
            return answers.pop(0)

        def parse_tool_calls(self, response: Any) -> Any:
            return response.get("tool_calls", [])

    async with agent(loop=loop, tools=[tool("add")]) as a:
        await a.session.coordinator.mount("providers", Plain(), name="scripted")
        assert await a.ask() == "two"
        assert a.tools["add"].calls == [{"a": 1}]
        assert a.told("orchestrator:complete")[0]["tokens"] == 5
