"""Whatever an LLM that thinks says, whoever rules and whatever breaks off: no hidden word passes, and no
server that holds thinking to the conversation before it refuses a request."""

import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from amplifier_core import ChatResponse, HookResult, LLMError, ToolCall
from amplifier_core.message_models import TextBlock, ThinkingBlock, ToolCallBlock
from four_loops import LOOPS
from ruled_bus import SECRET, RuledBus, mask_secret
from toolgate_bus.protocol.events import Continue, Deny, Modify
from transcript_rules import breaks

pytestmark = pytest.mark.pure

TURNS = 4
HOOKED = ("prompt:submit", "provider:request", "tool:pre", "tool:post", "tool:error", "provider:response")
BEFORE_RULINGS = ("execution:start", "prompt:submit")
"""Events that hooks get before anybody has ruled on the user's words."""


class RandomLlm:
    """An LLM that says anything; its server refuses a change of what stands before its thinking."""

    name = "llm"
    model = "llm-1"

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.requests = chance, list[Any]()
        self._sealed: dict[str, Any] = {}
        if chance.random() < 0.6:
            self.stream = self._stream

    async def complete(self, request: Any, **options: Any) -> ChatResponse:
        for at, message in enumerate(request.messages):
            for block in message.content if isinstance(message.content, list) else ():
                if block.type == "thinking":
                    same = self._sealed.get(block.signature) == _seal(request.messages, at)
                    assert same, "the conversation before this thinking is not what it was"
        self.requests.append(request)
        chance, number = self.chance, len(self.requests)
        if chance.random() < 0.05:
            raise LLMError(f"lost {SECRET}")
        names = chance.choices(["a", "bad", "nowhere"], k=chance.choice([0, 1, 1, 2, 3]))
        if number % 4 == 0 or request.tool_choice == "none":
            names = []
        calls = [ToolCall(id=f"c{number}-{at}", name=name, arguments={}) for at, name in enumerate(names)]
        texts = chance.choices(["fine", f"it is {SECRET} now", ""], k=chance.choice([0, 1, 1, 2]))
        content: list[Any] = [TextBlock(text=text) for text in texts]
        thought = f"say {SECRET}" if SECRET in str(texts) else "hm"
        if chance.random() < 0.6:
            self._sealed[f"s{number}"] = _seal(request.messages, len(request.messages))
            content.insert(0, ThinkingBlock(thinking=thought, signature=f"s{number}"))
        content += [ToolCallBlock(id=call.id, name=call.name, input={}) for call in calls]
        state = chance.choice([None, {"state": thought}])
        return ChatResponse(content=content, tool_calls=calls or None, metadata=state)

    async def _stream(self, request: Any, **options: Any) -> Any:
        response = await self.complete(request)
        for block in response.content:
            if block.type == "tool_call":
                yield {"type": "tool_call.end", "id": block.id, "name": block.name, "arguments": {}}
            else:
                yield {"type": f"{block.type}.delta", "text": getattr(block, block.type)}
        if self.chance.random() < 0.05:
            raise LLMError(f"lost late {SECRET}")
        yield response

    def parse_tool_calls(self, response: Any) -> list[Any]:
        return list(response.tool_calls or [])


def _seal(messages: Sequence[Any], at: int) -> tuple[str, str]:
    """What stands before a message, as the server gets it: all of the system's first."""
    system = [str(one.content) for one in messages if one.role == "system"]
    return str(system), str([(one.role, str(one.content)) for one in messages[:at] if one.role != "system"])


def hiding(point: str) -> Any:
    def hide(call: Any) -> Any:
        text = call.tool_input["text"]
        changed = Modify(tool=point, arguments={"text": text.replace(SECRET, "[withheld]")})
        return changed if SECRET in text else Continue()

    return hide


def failing(_: dict[str, Any]) -> str:
    raise ValueError(f"no {SECRET}")


def remind(a: Any, chance: random.Random) -> None:
    """Hooks that inject something at some events, in one of the ways there are."""
    for event in chance.sample(HOOKED, k=3):
        fields: dict[str, Any] = chance.choice([{}, {"context_injection_role": "user"}])
        fields |= {"append_to_last_tool_result": chance.random() < 0.5, "ephemeral": chance.random() < 0.7}

        async def hook(told: str, _: Any, fields: dict[str, Any] = fields) -> HookResult:
            text = f"{told} says {chance.randrange(3)}"
            return HookResult(action="inject_context", context_injection=text, **fields)

        a.hooks.register(event, hook, name=f"reminder-{event}")


def cancel_sometime(a: Any, chance: random.Random) -> list[Any]:
    """Perhaps cancel the turn at one of its events."""
    token, left = a.session.coordinator.cancellation, chance.randrange(1, 40)
    cancel = chance.choice([token.request_graceful, token.request_immediate])

    async def hook(*_: Any) -> HookResult:
        nonlocal left
        left -= 1
        if left == 0:
            cancel()
        return HookResult()

    events = ("provider:request", "content_block:delta", "provider:response", "tool:pre", "tool:post")
    return [a.hooks.register(event, hook, name=f"cancel-{event}") for event in events]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("loop", LOOPS)
async def test_no_hidden_word_passes_and_nothing_before_a_thought_changes(
    agent: Any, tool: Any, loop: str, seed: int
) -> None:
    chance = random.Random(f"{loop} {seed}")
    config = {
        "max_iterations": chance.choice([-1, 2, 3]),
        "reminder_placement": chance.choice(["tail", "pre_user"]),
        "ephemeral_injection_mode": chance.choice(["auto", "persist"]),
    }
    tools = [tool("a", lambda _: {"k": [SECRET, "x"]}), tool("bad", failing)]
    async with AsyncExitStack() as stack, agent(llm=RandomLlm(chance), tools=tools) as a:
        bus = RuledBus(stack)
        sometimes = lambda _: Deny(reason="no") if chance.random() < 0.2 else Continue()  # noqa: E731
        await bus.scheduler(sometimes, phases=("select",), name="calls")
        await bus.scheduler(
            lambda call: chance.choice([mask_secret(call), Deny(reason="no")]), name="results"
        )
        for point in ("turn:input", "turn:output"):
            phases: Any = ("select", "verify")
            await bus.scheduler(hiding(point), phases=phases, tools=(point,), name=point.replace(":", "-"))
        made = await bus.listens(a, loop, **config)
        remind(a, chance)
        get, coordinator = a.session.coordinator.get, a.session.coordinator
        parts = (get("context"), get("providers"), get("tools"), a.hooks)
        for _ in range(TURNS):
            words, shown = chance.choice(["hello", f"it is {SECRET}"]), ""
            lifted = cancel_sometime(a, chance)
            try:
                async for piece in made.stream(words, *parts, coordinator=coordinator):
                    shown += piece
            except LLMError:
                pass
            for lift in lifted:
                lift()
            coordinator.cancellation.reset()
            assert SECRET not in shown
            assert SECRET not in str(stored := await a.messages())
            assert breaks([one for one in stored if not _is_reminder(one)]) == []
        assert SECRET not in str(a.requests)
        assert SECRET not in str([told for told in a.events if told[0] not in BEFORE_RULINGS])
        assert "not what it was" not in str(a.told("provider:error"))


def _is_reminder(message: dict[str, Any]) -> bool:
    marks = message.get("metadata", {})
    return bool(marks.get("persisted")) or marks.get("source") == "hook"
