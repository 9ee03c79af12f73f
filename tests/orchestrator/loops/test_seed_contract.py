"""The seed orchestrator-contract, sentence by sentence: protocol, mounting, flow, context, providers.

Its events are in test_seed_contract_events.py, hook results in test_seed_contract_hooks.py, its checklist
and test samples in test_seed_contract_checklist.py, its YAML in test_seed_plans.py.
"""

import inspect
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import pytest
from amplifier_core import AmplifierSession, HookRegistry, HookResult
from amplifier_core.events import ALL_EVENTS
from amplifier_core.interfaces import Orchestrator
from amplifier_core.testing import EventRecorder, MockContextManager
from four_loops import LOOPS
from toolgate_orchestrator.modules.provider_scripted import ProviderScripted

pytestmark = pytest.mark.pure

each_loop = pytest.mark.parametrize("loop", LOOPS)


def point_of(loop: str) -> Any:
    """The entry point under which the kernel finds a loop."""
    (point,) = entry_points(group="amplifier.modules", name=loop)
    return point


def class_of(loop: str) -> Any:
    """The class of a loop."""
    found = vars(import_module(point_of(loop).module)).values()
    return next(each for each in found if isinstance(each, type) and getattr(each, "name", None) == loop)


def coordinator() -> Any:
    """The kernel's coordinator, of a session in which nothing is mounted yet."""
    return AmplifierSession({"session": {"orchestrator": "any", "context": "any"}}).coordinator


# ------------------------------------------------------------------ purpose and protocol


async def test_orchestrators_can_be_swapped_without_modifying_anything_else(
    agent: Any, tool: Any, calls: Any
) -> None:
    said = []
    for loop in LOOPS:
        turns = [calls("add"), {"text": "It is ${last_result}"}]
        async with agent(turns, tools=[tool("add", lambda _: "four")], loop=loop) as a:
            said.append(await a.ask("2+2?"))
    assert all("It is" in answer and "four" in answer for answer in said), said


@each_loop
def test_execute_has_the_parameters_of_the_protocol(loop: str) -> None:
    ours = inspect.signature(class_of(loop).execute).parameters
    protocol = inspect.signature(Orchestrator.execute).parameters
    assert list(ours) == list(protocol)
    assert [each.kind for each in ours.values()] == [each.kind for each in protocol.values()]
    assert inspect.iscoroutinefunction(class_of(loop).execute)


@each_loop
async def test_execute_returns_the_final_response_as_a_string(agent: Any, loop: str) -> None:
    async with agent([{"text": "final"}], loop=loop) as a:
        answer = await a.ask()
        assert (type(answer), answer) == (str, "final")


@each_loop
async def test_the_coordinator_that_the_kernel_injects_processes_hook_results(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    asked: list[str] = []

    class Approvals:
        async def request_approval(self, prompt: str, *_: Any) -> str:
            asked.append(prompt)
            return "Allow"

    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")], loop=loop, approvals=Approvals()) as a:
        a.on("tool:pre", HookResult(action="ask_user", approval_prompt="Really?"))
        await a.ask()
        assert asked == ["Really?"]
        assert len(a.tools["a"].calls) == 1


@each_loop
async def test_keyword_arguments_that_a_loop_does_not_know_are_absorbed(loop: str) -> None:
    execute = class_of(loop)({}).execute
    provider, context = ProviderScripted({"turns": [{"text": "ok"}]}), MockContextManager()
    said = await execute("hi", context, {"p": provider}, {}, HookRegistry(), coordinator=None, trace_id="t")
    assert said == "ok"


# ------------------------------------------------------------------ execution flow


class Diary:
    """A session's steps in the order in which they happened."""

    def __init__(self, agent: Any) -> None:
        self.steps: list[str] = []
        self._coordinator = agent.session.coordinator

    async def watch(self, llm: Any, *tools: Any) -> None:
        """From now on: the page's events, the provider, the context and these tools."""
        for event in ("provider:request", "provider:response", "tool:pre", "tool:post"):
            self._coordinator.hooks.register(event, self._event, name="diary")
        llm.complete = self._noting("provider.complete", llm.complete)
        for tool in tools:
            tool.execute = self._noting("tool.execute", tool.execute)
        await self._coordinator.mount("context", self._watched_context())

    async def _event(self, event: str, _: dict[str, Any]) -> HookResult:
        self.steps.append(event)
        return HookResult()

    def _noting(self, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        async def noted(*args: Any, **kwargs: Any) -> Any:
            self.steps.append(step)
            return await function(*args, **kwargs)

        return noted

    def _watched_context(self) -> Any:
        diary, inner = self, self._coordinator.get("context")

        class Watched:
            get_messages, set_messages, clear = inner.get_messages, inner.set_messages, inner.clear

            async def add_message(self, message: dict[str, Any]) -> None:
                diary.steps.append(f"add {message['role']}")
                await inner.add_message(message)

            async def get_messages_for_request(self, **kwargs: Any) -> Any:
                diary.steps.append("get messages")
                return await inner.get_messages_for_request(**kwargs)

        return Watched()


ASKING = ["get messages", "provider:request", "provider.complete", "provider:response", "add assistant"]


@pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming", "loop-events"])
async def test_the_execution_flow_is_the_contracts_step_by_step(
    agent: Any, tool: Any, llm: Any, wants: Any, loop: str
) -> None:
    speaker, bash = llm([wants("c1", "bash")], whole=True), tool("bash")
    async with agent(tools=[bash], loop=loop, llm=speaker) as a:
        diary = Diary(a)
        await diary.watch(speaker, bash)
        assert await a.ask() == "done"
        assert diary.steps == [
            "add user",
            *ASKING,
            *["tool:pre", "tool.execute", "tool:post", "add tool"],
            *ASKING,
        ]


async def test_loop_reactive_takes_the_same_steps_but_runs_tools_before_the_response_is_over(
    agent: Any, tool: Any, llm: Any, wants: Any
) -> None:
    speaker, bash = llm([wants("c1", "bash")], whole=True), tool("bash")
    async with agent(tools=[bash], loop="loop-reactive", llm=speaker) as a:
        diary = Diary(a)
        await diary.watch(speaker, bash)
        assert await a.ask() == "done"
        first, second = diary.steps[:10], diary.steps[10:]
        running = ["tool:pre", "tool.execute", "tool:post"]
        assert [step for step in first if step in running] == running
        assert [step for step in first if step not in running] == ["add user", *ASKING, "add tool"]
        assert first[-2:] == ["add assistant", "add tool"]
        assert second == ASKING


# ------------------------------------------------------------------ entry point


@each_loop
def test_each_loop_has_an_entry_point_that_leads_to_its_mount_function(loop: str) -> None:
    mount = point_of(loop).load()
    assert point_of(loop).attr == "mount"
    assert inspect.iscoroutinefunction(mount)
    assert list(inspect.signature(mount).parameters) == ["coordinator", "config"]


@each_loop
async def test_mount_puts_the_loop_into_the_coordinator_and_gives_a_cleanup(loop: str) -> None:
    mounted = coordinator()
    cleanup = await point_of(loop).load()(mounted, {"max_iterations": 3})
    assert isinstance(mounted.get("orchestrator"), class_of(loop))
    assert mounted.get("orchestrator").settings.max_iterations == 3
    assert callable(cleanup)
    await cleanup()


@each_loop
async def test_the_mount_point_session_of_the_contracts_sample_is_one_that_the_kernel_refuses(
    loop: str,
) -> None:
    with pytest.raises(ValueError, match="session"):
        await coordinator().mount("session", class_of(loop)({}), name="orchestrator")


# ------------------------------------------------------------------ context management


@each_loop
async def test_messages_are_stored_in_the_contracts_form(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    turns = [{**calls(("ls", {"path": "."})), "text": "Let me look."}, {"text": "One file."}]
    async with agent(turns, tools=[tool("ls", lambda _: "a.txt")], loop=loop) as a:
        await a.ask("What is there?")
        user, asking, result, final = await a.messages()
        assert user == {"role": "user", "content": "What is there?"}
        assert (asking["role"], asking["content"][0]) == (
            "assistant",
            {"type": "text", "text": "Let me look."},
        )
        assert [call["id"] for call in asking["tool_calls"]] == ["c1"]
        assert (result["role"], result["tool_call_id"]) == ("tool", "c1")
        assert "a.txt" in result["content"]
        assert (final["role"], final["content"]) == ("assistant", [{"type": "text", "text": "One file."}])


@pytest.mark.parametrize("loop", LOOPS[:3])
async def test_the_content_of_a_stored_result_is_the_tools_output(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    async with agent([calls("ls"), {"text": "ok"}], tools=[tool("ls", lambda _: "a.txt")], loop=loop) as a:
        await a.ask()
        assert await a.results() == ["a.txt"]


@each_loop
async def test_messages_for_a_request_are_got_for_the_provider_that_is_asked(
    agent: Any, tool: Any, calls: Any, loop: str
) -> None:
    context = MockContextManager()
    async with agent([calls("a"), {"text": "ok"}], tools=[tool("a")], loop=loop) as a:
        await a.session.coordinator.mount("context", context)
        await a.ask()
        provider = a.session.coordinator.get("providers")["scripted"]
        asked = [call.kwargs["provider"] for call in context.get_messages_for_request.await_args_list]
        assert asked == [provider, provider]
        assert context.get_messages.await_count == 0
        assert context._compact_internal.await_count == 0


# ------------------------------------------------------------------ provider selection


def providers(**priorities: int) -> dict[str, Any]:
    """A mount plan's providers by name and priority; each says its name, as often as asked."""
    return {
        "providers": [
            {
                "module": "provider-scripted",
                "instance_id": name,
                "config": {"priority": priority, "turns": [{"text": name}] * 3},
            }
            for name, priority in priorities.items()
        ]
    }


@each_loop
async def test_the_default_provider_of_the_config_is_used_whatever_the_priorities(
    agent: Any, loop: str
) -> None:
    async with agent(loop=loop, plan=providers(a=1, b=2), config={"default_provider": "b"}) as a:
        assert await a.ask() == "b"
        assert a.told("provider:request")[0]["provider"] == "b"


@each_loop
async def test_a_request_can_select_its_provider_and_the_default_stays_for_others(
    agent: Any, loop: str
) -> None:
    async with agent(loop=loop, plan=providers(a=1, b=2, c=3)) as a:
        parts = a.session.coordinator
        context, mounted, loop_itself = map(parts.get, ("context", "providers", "orchestrator"))

        async def ask(**options: Any) -> str:
            said = await loop_itself.execute(
                "hi", context, mounted, {}, parts.hooks, coordinator=parts, **options
            )
            return str(said)

        assert await ask(request_options={"provider": "c"}) == "c"
        assert await ask() == "a"
        assert await ask(request_options={}) == "a"
        with pytest.raises(Exception, match=r"'openai'.* not mounted; mounted: a, b, c"):
            await ask(request_options={"provider": "openai"})
        assert a.told("execution:end")[-1]["status"] == "error"


# ------------------------------------------------------------------ observability


@each_loop
@pytest.mark.parametrize("config", [{}, {"toolgate": {}}], ids=["plain", "asking"])
async def test_every_event_of_a_loop_is_the_kernels_or_registered_as_its_own(
    tool: Any, calls: Any, loop: str, config: dict[str, Any]
) -> None:
    mounted, heard = coordinator(), EventRecorder()
    cleanup = await point_of(loop).load()(mounted, config)
    contributed = await mounted.collect_contributions("observability.events")
    registered = {name for names in contributed for name in names}
    provider = ProviderScripted({"turns": [calls("a"), {"text": "ok"}]})
    context = MockContextManager()
    execute = mounted.get("orchestrator").execute
    assert await execute("hi", context, {"p": provider}, {"a": tool("a")}, heard) == "ok"
    await cleanup()
    own = {name for name, _ in heard.events} - set(ALL_EVENTS)
    assert own <= registered
    assert registered & set(ALL_EVENTS) == set()
    assert own == ({"tool:selecting", "tool:selected"} if config or loop in LOOPS[2:] else set())
