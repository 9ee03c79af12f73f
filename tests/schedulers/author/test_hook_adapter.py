"""Amplifier hooks as schedulers, on the seed's own samples and on the kernel's own registry."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from amplifier_core import HookRegistry
from amplifier_core import HookResult as KernelResult
from pydantic import ValidationError
from toolgate_schedulers import AskUser, Continue, Deny, HookResult, Modify, ToolSelecting, scheduler
from toolgate_schedulers.author.forms import as_scheduler, is_hook
from toolgate_schedulers.author.hook_adapter import (
    _SameFields,
    from_hook,
    hook_data,
    hook_result,
    verdict_of,
)

pytestmark = pytest.mark.pure

OWN = hook_result(_SameFields)
"""HookResult as it is where amplifier-core is not installed."""


def call(tool="bash", arguments=None, **fields):
    return ToolSelecting(
        id="0" * 32,
        tool_name=tool,
        tool_input={"command": "ls"} if arguments is None else arguments,
        **fields,
    )


# The samples of seed loop-events, their blanks filled in.


async def scheduler_hook(event: str, data: dict) -> HookResult:
    if data["tool_name"] == "expensive_operation":
        # Veto expensive tool
        return HookResult(action="deny", reason="Cost limit exceeded")

    if data["tool_name"] == "slow_tool":
        # Modify to faster alternative
        return HookResult(action="modify", data={"tool": "fast_tool", "arguments": {"quick": True}})

    # Allow tool
    return HookResult(action="continue")


def estimated_cost(tool):
    return 100 if tool == "render" else 1


budget = 10


async def cost_scheduler(event: str, data: dict) -> HookResult:
    if estimated_cost(data["tool_name"]) > budget:
        return HookResult(action="deny", reason="Budget exceeded")
    return HookResult(action="continue")


async def router_scheduler(event: str, data: dict) -> HookResult:
    if data["tool_name"] == "web_search":
        # Route to specialized search service
        return HookResult(action="modify", data={"tool": "advanced_search", "arguments": {"deep": 1}})
    return HookResult(action="continue")


@pytest.mark.parametrize(
    ("hook", "tool", "verdict"),
    [
        (scheduler_hook, "expensive_operation", Deny(reason="Cost limit exceeded")),
        (scheduler_hook, "slow_tool", Modify(tool="fast_tool", arguments={"quick": True})),
        (scheduler_hook, "bash", Continue()),
        (cost_scheduler, "render", Deny(reason="Budget exceeded")),
        (cost_scheduler, "bash", Continue()),
        (router_scheduler, "web_search", Modify(tool="advanced_search", arguments={"deep": 1})),
        (router_scheduler, "bash", Continue()),
    ],
)
async def test_the_seeds_samples_run_unchanged(hook, tool, verdict):
    made = as_scheduler(hook)
    assert made.name == hook.__name__
    assert await made.decide(call(tool)) == verdict


async def test_a_decorated_hook_has_the_decorators_name_priority_and_tools():
    made = scheduler(name="cost", priority=4, tools=["render"])(cost_scheduler)
    assert (made.name, made.priority, made.tools) == ("cost", 4, ("render",))
    assert await made.decide(call("render")) == Deny(reason="Budget exceeded")


async def test_the_adapter_takes_objects_and_plain_functions_too():
    class Watch:
        async def __call__(self, event, data):
            return HookResult(action="deny", reason=event)

    def plain(event, data):
        return HookResult(action="deny", reason=data["tool"])

    assert await from_hook(Watch(), name="watch").decide(call()) == Deny(reason="tool:selecting")
    assert await from_hook(plain).decide(call()) == Deny(reason="bash")


def test_a_hook_is_known_by_its_two_parameters():
    assert is_hook(lambda event, data: None)
    assert is_hook(lambda event, data=None: None)
    assert is_hook(lambda a, b, *, more=1: None)
    assert not is_hook(lambda call: None)
    assert not is_hook(lambda call, extra=1: None)
    assert not is_hook(lambda a, b, c: None)


def test_the_data_says_the_call_in_every_spelling():
    data = hook_data(
        call(
            available_tools=("bash", "ls"),
            tool_call_id="c1",
            session="s",
            agent="a",
            parallel_group_id="g",
        )
    )
    assert data["tool"] == data["tool_name"] == "bash"
    assert data["arguments"] == data["tool_input"] == {"command": "ls"}
    assert data["available_tools"] == ["bash", "ls"]
    assert (data["tool_call_id"], data["session_id"], data["agent"], data["parallel_group_id"]) == (
        "c1",
        "s",
        "a",
        "g",
    )


async def test_a_hook_that_changes_its_data_in_place_changes_no_call():
    asked = call(arguments={"deep": {"x": 1}})

    async def rude(event, data):
        data["arguments"]["deep"]["x"] = 2
        return HookResult(action="modify", data=data)

    assert await from_hook(rude).decide(asked) == Modify(tool="bash", arguments={"deep": {"x": 2}})
    assert asked.tool_input == {"deep": {"x": 1}}


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        ({"tool": "ls"}, Modify(tool="ls")),
        ({"tool_name": "ls"}, Modify(tool="ls")),
        ({"tool_input": {"a": 1}}, Modify(tool="bash", arguments={"a": 1})),
        ({"arguments": {}}, Modify(tool="bash", arguments={})),
        ({**hook_data(call()), "tool": "ls"}, Modify(tool="ls")),
        ({**hook_data(call()), "tool_name": "ls"}, Modify(tool="ls")),
        ({**hook_data(call()), "tool_input": {"a": 1}}, Modify(tool="bash", arguments={"a": 1})),
        ({"agent_target": "cheap"}, Modify(tool="bash", agent_target="cheap")),
        ({"tool": "ls", "priority": 7}, Modify(tool="ls", priority=7)),
        (hook_data(call()), Continue()),
        ({"tool": "bash"}, Continue()),
        ({}, Continue()),
        (None, Continue()),
    ],
)
def test_a_modify_is_what_differs_from_what_was_sent(data, verdict):
    for made in (HookResult, OWN, KernelResult, SimpleNamespace):
        assert verdict_of(made(action="modify", data=data), call(), "h") == verdict


def test_an_ask_carries_the_approval_fields():
    for made in (HookResult, OWN, KernelResult):
        result = made(
            action="ask_user",
            approval_prompt="Really?",
            approval_options=["Yes", "No"],
            approval_timeout=5,
            approval_default="allow",
            reason="risky",
        )
        assert verdict_of(result, call(), "h") == AskUser(
            prompt="Really?", options=("Yes", "No"), timeout_s=5, default="allow", reason="risky"
        )
    assert verdict_of(HookResult(action="ask_user"), call(), "h") == AskUser(prompt="May bash run?")


def test_a_mocks_made_up_attributes_are_not_taken_for_answers():
    assert verdict_of(Mock(action="deny", reason="no"), call(), "h") == Deny(reason="no")
    assert verdict_of(Mock(action="continue"), call(), "h") == Continue()
    assert verdict_of(Mock(action="modify", data={"tool": "ls"}), call(), "h") == Modify(tool="ls")
    assert verdict_of(Mock(action="deny"), call(), "h") == Deny(reason="h denied bash")
    assert verdict_of(Mock(action="ask_user"), call(), "h") == AskUser(prompt="May bash run?")


def test_an_injection_and_no_result_are_continue_as_in_the_kernel():
    assert verdict_of(HookResult(action="inject_context", context_injection="x"), call(), "h") == Continue()
    assert verdict_of(None, call(), "h") == Continue()


def test_what_is_no_result_is_refused_by_the_hooks_name():
    with pytest.raises(TypeError, match="hook h gave str with action None"):
        verdict_of("deny", call(), "h")
    with pytest.raises(ValidationError):
        verdict_of(SimpleNamespace(action="modify", data={"tool": 3}), call(), "h")
    with pytest.raises(ValidationError):
        verdict_of(SimpleNamespace(action="modify", data={"arguments": "x"}), call(), "h")


@pytest.mark.parametrize("made", [HookResult, OWN])
def test_the_seeds_priority_is_carried_in_the_data_of_a_modify(made):
    given = {"tool": "ls"}
    result = made(action="modify", priority=10, data=given)
    assert result.data == {"tool": "ls", "priority": 10}
    assert given == {"tool": "ls"}
    assert verdict_of(result, call(), "h") == Modify(tool="ls", priority=10)


@pytest.mark.parametrize("made", [HookResult, OWN])
@pytest.mark.parametrize("action", ["continue", "deny", "ask_user", "inject_context", "modify"])
def test_a_priority_without_data_to_carry_it_reaches_the_verdict_all_the_same(made, action):
    result = made(action=action, priority=10, reason="r")
    assert result.data is None
    assert verdict_of(result, call(), "h").priority == 10


def test_both_results_have_the_kernels_fields():
    assert set(_SameFields.model_fields) == set(KernelResult.model_fields)
    assert issubclass(HookResult, KernelResult)
    assert HookResult is HookResult


async def kernel(*hooks, tool="bash"):
    registry = HookRegistry()
    for number, hook in enumerate(hooks):
        registry.register("tool:selecting", hook, priority=number, name=f"h{number}")
    data = {"tool_name": tool, "tool_input": {}}
    return await registry.emit("tool:selecting", data), await registry.emit_and_collect(
        "tool:selecting", data, timeout=5
    )


async def test_the_same_hook_rules_in_a_real_registry():
    denied, _ = await kernel(scheduler_hook, tool="expensive_operation")
    assert (denied.action, denied.reason) == ("deny", "Cost limit exceeded")
    changed, _ = await kernel(scheduler_hook, tool="slow_tool")
    assert (changed.data["tool"], changed.data["arguments"]) == ("fast_tool", {"quick": True})


async def test_a_priority_survives_a_real_registry():
    async def route(event, data):
        return HookResult(action="modify", priority=10, data={"tool": "ls"})

    _, collected = await kernel(route)
    assert collected == [{"tool": "ls", "priority": 10}]


@pytest.mark.parametrize("action", ["continue", "deny", "ask_user", "inject_context"])
async def test_a_priority_on_another_action_leaves_no_trace_in_a_real_registry(action):
    async def ruled(event, data):
        return HookResult(action=action, priority=10, reason="r")

    async def plain(event, data):
        return KernelResult(action=action, reason="r")

    with_priority, without = await kernel(ruled), await kernel(plain)
    assert with_priority[0].action == without[0].action
    assert {**(with_priority[0].data or {}), "timestamp": 0} == {**(without[0].data or {}), "timestamp": 0}
    assert with_priority[1] == without[1]
