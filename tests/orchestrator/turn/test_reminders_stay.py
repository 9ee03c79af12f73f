"""What an LLM that thinks has seen stays as it was; before the prompt is announced before the prompt."""

from itertools import pairwise
from typing import Any

import pytest
from amplifier_core import ChatResponse, HookResult, ToolCall
from amplifier_core.llm_errors import ContextLengthError
from amplifier_core.message_models import TextBlock, ThinkingBlock
from four_loops import LOOPS

pytestmark = pytest.mark.pure


class Bound:
    """A provider that holds thinking to the exact conversation; nobody told the loop that it thinks."""

    name = "llm"
    model = "llm-1"

    def __init__(self, *answers: tuple[str, ...], streams: bool = False, first: int = 0) -> None:
        """Each answer names the tools it calls, or is a text; from the `first` on it has thinking."""
        self.answers, self.first = list(answers), first
        self.requests: list[Any] = []
        self._sealed: dict[str, list[Any]] = {}
        self.on_pause: Any = None
        """Called in a stream before the answer is whole."""
        if streams:
            self.stream = self._stream

    def _view(self, messages: Any) -> list[tuple[str, str]]:
        """The messages as the server gets them: those of the system first."""
        sent = [(message.role, str(message.content)) for message in messages]
        return sorted(sent, key=lambda one: one[0] != "system")

    async def complete(self, request: Any, **options: Any) -> ChatResponse:
        system = [message for message in request.messages if message.role == "system"]
        for at, message in enumerate(request.messages):
            before = [one for one in request.messages[:at] if one.role != "system"]
            for block in message.content if isinstance(message.content, list) else ():
                if block.type == "thinking":
                    assert self._view([*system, *before]) == self._sealed.get(block.signature)
        number = len(self.requests)
        self.requests.append(request)
        names = self.answers.pop(0)
        calls = [ToolCall(id=f"c{number}-{at}", name=name, arguments={}) for at, name in enumerate(names)]
        content: list[Any] = [TextBlock(text=f"answer {number}")]
        if number >= self.first:
            self._sealed[f"s{number}"] = self._view(request.messages)
            content.insert(0, ThinkingBlock(thinking="hm", signature=f"s{number}"))
        return ChatResponse(content=content, tool_calls=calls or None)

    async def _stream(self, request: Any, **options: Any) -> Any:
        response = await self.complete(request, **options)
        yield {"type": "thinking.delta", "text": "hm"}
        yield {"type": "text.delta", "text": response.content[-1].text}
        if self.on_pause is not None:
            self.on_pause()
        yield response

    def parse_tool_calls(self, response: Any) -> list[Any]:
        return list(response.tool_calls or [])


def remind(a: Any, event: str, *texts: str, **fields: Any) -> None:
    """A hook that injects these, one after another, and then the last one again."""
    left = list(texts)

    async def hook(_event: str, data: dict[str, Any]) -> HookResult:
        text = left.pop(0) if len(left) > 1 else left[0]
        return HookResult(action="inject_context", context_injection=text, **{"ephemeral": True, **fields})

    a.hooks.register(event, hook, name=f"reminder-{event}")


SCRIPT = (("a", "a"), ("a",), (), ("a",), ())


@pytest.mark.parametrize("first", [0, 1, 3])
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("placement", ["tail", "pre_user"])
@pytest.mark.parametrize("loop", LOOPS)
async def test_once_the_llm_thinks_all_that_it_saw_stays(
    agent: Any, tool: Any, loop: str, placement: str, streams: bool, first: int
) -> None:
    config = {"reminder_placement": placement, "max_iterations": 4}
    provider = Bound(*SCRIPT, streams=streams, first=first)
    async with agent(llm=provider, tools=[tool("a")], loop=loop, config=config) as a:
        remind(a, "provider:request", "one", "two", "two", "three")
        remind(a, "tool:post", "four", "five", append_to_last_tool_result=True)
        assert await a.ask() == "answer 2"
        assert await a.ask("again") == "answer 4"
        bound = [[(m.role, str(m.content)) for m in each.messages] for each in provider.requests[first:]]
        for before, after in pairwise(bound):
            assert after[: len(before)] == before


@pytest.mark.parametrize("first", [0, 1, 3])
@pytest.mark.parametrize("event", ["prompt:submit", "provider:request", "tool:pre", "tool:post"])
@pytest.mark.parametrize("loop", LOOPS)
async def test_a_text_that_a_hook_stores_for_the_system_changes_nothing_before_a_thought(
    agent: Any, tool: Any, loop: str, event: str, first: int
) -> None:
    provider = Bound(*SCRIPT, first=first)
    async with agent(llm=provider, tools=[tool("a")], loop=loop) as a:
        remind(a, event, "one", "two", "three", ephemeral=False)
        assert await a.ask() == "answer 2"
        assert await a.ask("again") == "answer 4"
        told = "one" if event == "prompt:submit" else "three"
        assert told in str(provider.requests[-1].messages)


async def test_as_long_as_the_llm_does_not_think_a_hooks_text_for_the_system_is_the_systems(
    agent: Any, tool: Any
) -> None:
    async with agent(llm=Bound(("a",), (), first=9), tools=[tool("a")]) as a:
        remind(a, "tool:post", "one", ephemeral=False)
        await a.ask()
        assert [one["content"] for one in await a.messages() if one["role"] == "system"] == ["one"]


@pytest.mark.parametrize("first", [0, 9])
@pytest.mark.parametrize("loop", [loop for loop in LOOPS if loop != "loop-basic"])
async def test_of_an_answer_that_was_cancelled_no_thought_is_sent_back(
    agent: Any, tool: Any, loop: str, first: int
) -> None:
    provider = Bound(("a",), (), streams=True, first=first)
    async with agent(llm=provider, tools=[tool("a")], loop=loop) as a:
        remind(a, "provider:request", "one", "two")
        provider.on_pause = a.session.coordinator.cancellation.request_graceful
        assert await a.ask() == ""
        assert "answer 0" in str(await a.messages())
        assert "thinking" not in str(await a.messages())
        a.session.coordinator.cancellation.reset()
        provider.on_pause = None
        assert await a.ask("again") == "answer 1"


@pytest.mark.parametrize("loop", LOOPS)
async def test_the_last_request_at_the_limit_is_kept_too(agent: Any, tool: Any, loop: str) -> None:
    provider = Bound(("a",), (), ("a",), (), first=1)
    async with agent(llm=provider, tools=[tool("a")], loop=loop, config={"max_iterations": 1}) as a:
        await a.ask()
        await a.ask("again")
        assert len(provider.requests) == 4


@pytest.mark.parametrize("loop", LOOPS)
async def test_one_envelope_of_a_turn_explains_itself(agent: Any, tool: Any, loop: str) -> None:
    provider = Bound(("a",), ("a",), (), ())
    config = {"ephemeral_injection_mode": "persist"}
    async with agent(llm=provider, tools=[tool("a")], loop=loop, config=config) as a:
        remind(a, "provider:request", "one", "two", "three", "four")
        await a.ask()
        await a.ask("again")
        marked = [one for one in await a.messages() if "reminder_placement" in one.get("metadata", {})]
        assert [one["role"] for one in marked] == ["user"] * 4
        assert all(one["content"].startswith("<system-reminders>\n") for one in marked)
        assert ["not from the user" in one["content"] for one in marked] == [True, False, False, True]


@pytest.mark.parametrize("mode", ["auto", "persist", "tail"])
@pytest.mark.parametrize("loop", LOOPS)
async def test_the_first_request_is_announced_before_the_prompt_is_stored(
    agent: Any, tool: Any, loop: str, mode: str
) -> None:
    config = {"reminder_placement": "pre_user", "ephemeral_injection_mode": mode}
    stored: list[int] = []
    async with agent(llm=Bound(("a",), (), first=9), tools=[tool("a")], loop=loop, config=config) as a:

        async def look(event: str, data: dict[str, Any]) -> HookResult:
            stored.append(len(await a.messages()))
            return HookResult()

        a.hooks.register("provider:request", look, name="look")
        await a.ask()
        told = [(one.get("phase"), one["iteration"]) for one in a.told("provider:request")]
        assert told == [("turn_start", 1), (None, 2)]
        assert stored[0] == 0


async def test_a_hook_that_denies_the_start_of_a_turn_ends_it(agent: Any) -> None:
    async with agent(llm=Bound(()), config={"reminder_placement": "pre_user"}) as a:
        a.on("provider:request", HookResult(action="deny", reason="not now"))
        assert await a.ask() == "Operation denied: not now"
        assert (a.requests, await a.messages()) == ([], [])


class Retaining:
    """A context that shortens what nobody requires."""

    def __init__(self, a: Any, *, fails: bool = False) -> None:
        self.context, self.fails = a.session.coordinator.get("context"), fails
        self.required: list[list[str]] = []
        a.session.coordinator.register_capability("context.request_retention", self.view)

    async def view(self, *, provider: Any = None, retain_contents: list[str]) -> list[Any]:
        self.required.append(retain_contents)
        if self.fails:
            raise ContextLengthError("it cannot fit")
        return [
            one
            if not one.get("metadata", {}).get("persisted") or one["content"] in retain_contents
            else {**one, "content": "[compacted]"}
            for one in await self.context.get_messages_for_request(provider=provider)
        ]


@pytest.mark.parametrize("placement", ["tail", "pre_user"])
@pytest.mark.parametrize("loop", LOOPS)
async def test_a_context_is_told_which_reminders_the_request_needs(
    agent: Any, tool: Any, loop: str, placement: str
) -> None:
    config = {"reminder_placement": placement, "ephemeral_injection_mode": "persist"}
    provider = Bound(("a",), ("a",), (), first=9)
    async with agent(llm=provider, tools=[tool("a")], loop=loop, config=config) as a:
        retaining = Retaining(a)
        remind(a, "provider:request", "old", "old", "new")
        await a.ask()
        said = [
            [str(m.content) for m in each.messages if (m.metadata or {}).get("reminder_placement")]
            for each in provider.requests
        ]
        assert ["old" in one[-1] for one in said[:2]] == [True, True]
        assert ("[compacted]" in said[2][0], "new" in said[2][-1]) == (True, True)
        assert [len(one) for one in retaining.required] == [1, 1, 1]


@pytest.mark.parametrize("loop", LOOPS)
async def test_reminders_that_cannot_be_kept_are_a_failure_of_the_request(agent: Any, loop: str) -> None:
    config = {"ephemeral_injection_mode": "persist"}
    async with agent(llm=Bound(()), loop=loop, config=config) as a:
        Retaining(a, fails=True)
        remind(a, "provider:request", "old")
        if loop == "loop-events":
            assert "cannot fit" in await a.ask()
        else:
            with pytest.raises(RuntimeError, match="cannot fit"):
                await a.ask()
        assert a.requests == []


async def test_nothing_is_required_where_nothing_is_stored(agent: Any) -> None:
    async with agent(llm=Bound((), first=9), config={"ephemeral_injection_mode": "tail"}) as a:
        retaining = Retaining(a)
        remind(a, "provider:request", "old")
        await a.ask()
        assert retaining.required == []


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("loop", LOOPS)
async def test_a_conversation_that_is_compacted_when_a_turn_begins_has_no_thought_behind_a_gap(
    agent: Any, tool: Any, loop: str, keeps: bool
) -> None:
    context = {"module": "context-simple", "config": {"max_tokens": 3000, "keep_history": keeps}}
    plan = {"session": {"orchestrator": {"module": loop, "config": {}}, "context": context}}
    provider = Bound(*(("a",), ()) * 20)
    async with agent(llm=provider, tools=[tool("a")], loop=loop, plan=plan) as a:
        remind(a, "provider:request", "one", "two")
        for number in range(20):
            assert await a.ask("x" * 1000) == f"answer {2 * number + 1}"
        assert 0 < len(a.told("context:compaction")) < 20
        assert "thinking" in str(provider.requests[-1].messages)
