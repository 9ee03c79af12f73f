"""The seed orchestrator-contract-short, sentence by sentence: protocol, flow, table of events, config."""

import asyncio
from importlib.metadata import entry_points
from typing import Any, Protocol, runtime_checkable

import pytest
from amplifier_core import AmplifierSession, ChatResponse, HookRegistry, TextBlock
from amplifier_core.testing import EventRecorder, MockContextManager
from four_loops import LOOPS
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator.modules.provider_scripted import ProviderScripted

pytestmark = pytest.mark.pure

each_loop = pytest.mark.parametrize("loop", LOOPS)
each_parallel = pytest.mark.parametrize("loop", LOOPS[:2])

USAGE = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}


@runtime_checkable
class Orchestrator(Protocol):
    """The protocol as the page has it."""

    async def execute(
        self,
        prompt: str,
        context: Any,
        providers: dict[str, Any],
        tools: dict[str, Any],
        hooks: HookRegistry,
    ) -> str:
        """Execute the orchestration loop."""
        ...


async def mounted(loop: str, *config: Any) -> Any:
    """A coordinator of the kernel with the loop in it, and what `mount` gave."""
    (point,) = entry_points(group="amplifier.modules", name=loop)
    coordinator = AmplifierSession({"session": {"orchestrator": "any", "context": "any"}}).coordinator
    return coordinator, await point.load()(coordinator, *config)


# ------------------------------------------------------------------ protocol and mount


@each_loop
async def test_a_mounted_loop_is_an_orchestrator_of_the_runtime_checkable_protocol(loop: str) -> None:
    coordinator, _ = await mounted(loop)
    assert isinstance(coordinator.get("orchestrator"), Orchestrator)


@each_loop
async def test_the_five_arguments_of_the_protocol_are_all_that_execute_needs(loop: str) -> None:
    coordinator, _ = await mounted(loop)
    providers = {"p": ProviderScripted({"turns": [{"text": "ok"}]})}
    execute = coordinator.get("orchestrator").execute
    assert await execute("hi", MockContextManager(), providers, {}, HookRegistry()) == "ok"


@each_loop
@pytest.mark.parametrize("config", [(), (None,), ({},)], ids=["left out", "None", "empty"])
async def test_mount_does_without_a_config_and_gives_a_cleanup_function(
    loop: str, config: tuple[Any, ...]
) -> None:
    coordinator, cleanup = await mounted(loop, *config)
    assert coordinator.get("orchestrator").settings.max_iterations == -1
    assert await cleanup() is None


# ------------------------------------------------------------------ execution flow


@pytest.mark.parametrize("loop", LOOPS[:3])
async def test_the_execution_flow_is_the_pages_from_a_to_i(agent: Any, tool: Any, loop: str) -> None:
    steps: list[str] = []

    class Provider:
        """Its calls are only found by parsing its response."""

        name, model = "p", "p-1"

        def __init__(self) -> None:
            self._parsed = [[{"id": "c1", "name": "ls", "arguments": {}}], []]

        async def complete(self, request: Any, **kwargs: Any) -> ChatResponse:
            steps.append(f"complete({', '.join(message.role for message in request.messages)})")
            return ChatResponse(content=[TextBlock(text="text")])

        def parse_tool_calls(self, response: Any) -> list[Any]:
            return self._parsed.pop(0)

    class Context(MockContextManager):
        async def _add_message(self, message: dict[str, Any]) -> None:
            steps.append(f"add {message['role']}")
            await super()._add_message(message)

    class Hooks(EventRecorder):
        async def emit(self, event: str, data: dict[str, Any]) -> Any:
            steps.append(event)
            return await super().emit(event, data)

    coordinator, _ = await mounted(loop)
    make_hooks: Any = Hooks
    ls = tool("ls", lambda _: steps.append("execute"))
    execute = coordinator.get("orchestrator").execute
    assert await execute("hi", Context(), {"p": Provider()}, {"ls": ls}, make_hooks()) == "text"
    not_on_the_page = ("execution:", "content_block:", "tool:select", "prompt:", "orchestrator:")
    assert [step for step in steps if not step.startswith(not_on_the_page)] == [
        "add user",
        *["provider:request", "complete(user)", "provider:response", "add assistant"],
        *["tool:pre", "execute", "tool:post", "add tool"],
        *["provider:request", "complete(user, assistant, tool)", "provider:response", "add assistant"],
    ]


# ------------------------------------------------------------------ common configuration


@each_parallel
async def test_parallel_tools_true_executes_tools_in_parallel(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    both = asyncio.Barrier(2)

    async def meet(_: dict[str, Any]) -> str:
        async with asyncio.timeout(30), both:
            return "met"

    tools, config = [tool("a", meet), tool("b", meet)], {"parallel_tools": True}
    async with agent([calls("a", "b"), {"text": "ok"}], tools=tools, loop=loop, config=config) as a:
        await a.ask()
        assert await a.results() == ["met", "met"]


@pytest.mark.parametrize("loop", LOOPS[:3])
async def test_parallel_tools_false_executes_one_after_another(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    stored: list[int] = []

    async with agent(
        [calls("a", "b", "c"), {"text": "ok"}], loop=loop, config={"parallel_tools": False}
    ) as a:

        async def note(_: dict[str, Any]) -> str:
            await asyncio.sleep(0)
            stored.append(len(await a.results()))
            return "done"

        for name in ("a", "b", "c"):
            await a.session.coordinator.mount("tools", tool(name, note), name=name)
        await a.ask()
        assert stored == [0, 1, 2]
        assert a.names("tool:pre", "tool:post") == ["tool:pre", "tool:post"] * 3


@pytest.mark.parametrize(
    ("loop", "value", "why"),
    [("loop-events", True, "one after another"), ("loop-reactive", False, "as soon as its references")],
)
async def test_a_loop_that_can_only_do_one_says_so(loop: str, value: bool, why: str) -> None:
    with pytest.raises(ConfigError, match=f"parallel_tools: .*{why}.*loop-basic and loop-streaming"):
        await mounted(loop, {"parallel_tools": value})


# ------------------------------------------------------------------ the example implementation


@each_loop
async def test_calls_that_spell_their_arguments_input_are_run_with_them(
    agent: Any, tool: Any, llm: Any, loop: str
) -> None:
    class Provider(llm):
        def parse_tool_calls(self, response: Any) -> list[Any]:
            first = len(self.requests) == 1
            return [{"id": "c1", "name": "ls", "input": {"path": "."}}] if first else []

    async with agent(tools=[tool("ls")], loop=loop, llm=Provider(whole=True)) as a:
        assert await a.ask() == "done"
        assert a.tools["ls"].calls == [{"path": "."}]


@each_loop
async def test_a_call_of_a_tool_that_is_not_there_runs_nothing_and_the_loop_continues(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    async with agent([calls("nowhere", "ls"), {"text": "ok"}], tools=[tool("ls")], loop=loop) as a:
        assert await a.ask() == "ok"
        assert [data["tool_name"] for data in a.told("tool:post")] == ["ls"]
        assert len(await a.results()) == 2


@each_loop
async def test_the_text_of_the_final_response_is_extracted_from_its_blocks(
    agent: Any, llm: Any, says: Any, loop: str
) -> None:
    thinking = {"type": "thinking.delta", "text": "not for the user"}
    async with agent(loop=loop, llm=llm([thinking, says("for the user")])) as a:
        assert await a.ask() == "for the user"
