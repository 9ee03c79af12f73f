"""A context that assembles requests with instructions is told of each turn, request, response and batch."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from amplifier_core import HookResult
from four_loops import LOOPS

pytestmark = pytest.mark.pure


class Assembly:
    """The capability of such a context, which refuses what does not keep to the contract."""

    instruction_layout_authority_v1 = True

    def __init__(self, context: Any) -> None:
        self.context, self.log = context, list[Any]()
        self.sources: dict[str, Callable[[dict[str, Any]], list[dict[str, Any]]]] = {}
        self.scope: dict[str, Any] | None = None
        self.turns: list[str] = []
        self.faults = 0
        self._origin: tuple[str, str] | None = None
        self._add, self._give = context.add_message, context.get_messages_for_request
        context.add_message, context.get_messages_for_request = self.add_message, self.view

    @contextmanager
    def input_scope(self, origin: str, input_id: str) -> Iterator[None]:
        self._origin = (origin, input_id)
        yield
        self._origin = None

    async def add_message(self, message: dict[str, Any]) -> None:
        if message["role"] == "user":
            self.log.append(("input", self._origin, message["content"]))
        assert message["role"] != "assistant" or self.scope is None, "a response is accepted, not added"
        await self._add(message)

    @asynccontextmanager
    async def turn(self, turn_id: str, anchor: dict[str, Any]) -> AsyncIterator[None]:
        self.turns.append(turn_id)
        self.log.append(("turn", anchor))
        yield
        assert self.scope is None
        self.log.append("turn ends")

    @asynccontextmanager
    async def request(self, scope: dict[str, Any], provider: Any) -> AsyncIterator[None]:
        assert self.scope is None
        assert scope["turn_id"] == self.turns[-1]
        self.scope = scope
        self.log.append(("request", scope))
        yield
        self.scope = None

    async def accept_response(self, request_id: str, message: dict[str, Any]) -> None:
        assert self.scope is not None
        assert request_id == self.scope["request_id"]
        if self.faults:
            self.faults -= 1
            raise OSError("an observer failed")
        assert message["metadata"]["message_id"]
        self.log.append(("accepted", message))
        await self._add(message)

    def register(self, source: str, callback: Any) -> Any:
        self.sources[source] = callback
        return self

    def close(self) -> None:
        self.sources.clear()

    async def view(self, **asked: Any) -> list[Any]:
        found = list(await self._give(**asked))
        if self.scope is not None:
            for callback in self.sources.values():
                for one in callback(self.scope):
                    assert one["after"]["after_message_id"]
                    found.append({"role": "system", "content": f"{one['authority']}: {one['content']}"})
        return found

    def of(self, kind: str) -> list[Any]:
        return [one[1] for one in self.log if one[0] == kind]


def placing(llm: Any) -> Any:
    llm.instruction_layout_version, llm.instruction_layout_authority_v1 = 1, True
    return llm


def install(a: Any, origin: str = "human") -> Assembly:
    coordinator = a.session.coordinator
    assembly = Assembly(coordinator.get("context"))
    coordinator.register_capability("context.instructions.v1", assembly)
    name_input(a, origin)
    return assembly


def name_input(a: Any, origin: str = "human", **more: Any) -> None:
    told = {"version": 1, "input_id": "in-1", "origin": origin, **more}
    a.session.coordinator.register_capability("execution.input.v1", told)


def remind(a: Any, event: str, text: str, role: str = "system") -> None:
    async def hook(_event: str, data: dict[str, Any]) -> HookResult:
        fields = {"context_injection": text, "context_injection_role": role}
        return HookResult(action="inject_context", ephemeral=True, **fields)

    a.hooks.register(event, hook, name=f"reminder-{event}")


@pytest.mark.parametrize("origin", ["human", "delegation"])
@pytest.mark.parametrize("loop", LOOPS)
async def test_a_turn_is_told_step_by_step(
    agent: Any, tool: Any, llm: Any, says: Any, wants: Any, loop: str, origin: str
) -> None:
    model = placing(llm([wants("c1", "a"), wants("c2", "a")], [says("ok")]))
    async with agent(llm=model, tools=[tool("a")], loop=loop) as a:
        assembly = install(a, origin)
        remind(a, "provider:request", "it is Friday")
        remind(a, "tool:post", "be quick", role="user")
        assert await a.ask() == "ok"
        anchor = {"input_id": "in-1", "message_id": "in-1", "origin": origin}
        assert assembly.log[0] == ("turn", anchor)
        assert assembly.log[1] == ("input", (origin, "in-1"), "hello")
        assert assembly.log[-1] == "turn ends"
        first, second = assembly.of("request")
        assert (first["completed_batches"], first["tail_anchor"]) == ([], {"after_message_id": "in-1"})
        (batch,) = second["completed_batches"]
        called, answered = assembly.of("accepted")
        assert (batch["call_ids"], len(batch["result_message_ids"])) == (["c1", "c2"], 2)
        assert batch["assistant_message_id"] == called["metadata"]["message_id"]
        assert second["tail_anchor"]["after_message_id"] == batch["result_message_ids"][-1]
        assert answered["metadata"]["message_id"]
        sent = [[str(m.content) for m in each.messages] for each in a.requests]
        assert "authoritative: it is Friday" in sent[0]
        assert "advisory: be quick" not in sent[0]
        assert {"authoritative: it is Friday", "advisory: be quick"} <= set(sent[1])
        assert "Friday" not in str(await a.messages())
        assert [one["role"] for one in await a.messages()] == [
            "user",
            "assistant",
            "tool",
            "tool",
            "assistant",
        ]
        assert assembly.sources == {}


async def test_the_input_of_a_turn_is_read_once(agent: Any, llm: Any, says: Any) -> None:
    async with agent(llm=placing(llm([says("one")], [says("two")]))) as a:
        assembly = install(a)
        await a.ask()
        await a.ask("again")
        assert len(assembly.of("turn")) == 1
        assert ("input", None, "again") in assembly.log


async def test_words_to_the_working_agent_are_an_input_of_their_own(
    agent: Any, tool: Any, llm: Any, says: Any, wants: Any
) -> None:
    async with agent(llm=placing(llm([wants("c1", "a")], [says("ok")])), tools=[tool("a")]) as a:
        assembly = install(a)
        steer = a.session.coordinator.get_capability("session.steer")

        def answer(arguments: dict[str, Any]) -> str:
            steer("be quick")
            return "done"

        a.tools["a"].answer = answer
        await a.ask()
        ((origin, input_id),) = [one[1] for one in assembly.log if one[0] == "input" and one[2] == "be quick"]
        assert origin == "human"
        assert assembly.of("request")[1]["input_anchor"]["input_id"] == input_id


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_request_that_fails_is_abandoned_and_the_next_turn_is_in_order(
    agent: Any, llm: Any, says: Any, loop: str
) -> None:
    async with agent(llm=placing(llm([RuntimeError("gone")], [says("ok")])), loop=loop) as a:
        assembly = install(a)
        if loop == "loop-events":
            await a.ask()
        else:
            with pytest.raises(RuntimeError, match="gone"):
                await a.ask()
        assert (assembly.scope, assembly.log[-1]) == (None, "turn ends")
        name_input(a)
        assert await a.ask("again") == "ok"


async def test_a_response_that_was_not_taken_at_once_is_given_once_more(
    agent: Any, llm: Any, says: Any
) -> None:
    async with agent(llm=placing(llm([says("ok")]))) as a:
        assembly = install(a)
        assembly.faults = 1
        assert await a.ask() == "ok"
        assert len(assembly.of("accepted")) == 1


@pytest.mark.parametrize("missing", ["provider", "input", "assembly"])
async def test_without_one_of_its_sides_nothing_changes(
    agent: Any, llm: Any, says: Any, missing: str
) -> None:
    model = llm([says("ok")])
    async with agent(llm=model if missing == "provider" else placing(model)) as a:
        assembly = install(a)
        coordinator = a.session.coordinator
        if missing == "input":
            coordinator.register_capability("execution.input.v1", None)
        if missing == "assembly":
            assembly.instruction_layout_authority_v1 = False
        remind(a, "provider:request", "it is Friday")
        assert await a.ask() == "ok"
        assert assembly.of("turn") == []
        assert "it is Friday" in [str(m.content) for m in a.requests[0].messages]


async def test_a_conversation_with_instructions_is_not_sent_without_their_authority(
    agent: Any, llm: Any, says: Any
) -> None:
    async with agent(llm=llm([says("ok")])) as a:
        install(a)
        marked = {"role": "system", "content": "x", "metadata": {"amplifier:instruction": {}}}
        await a.session.coordinator.get("context").add_message(marked)
        with pytest.raises(RuntimeError, match="cannot place them"):
            await a.ask()
        assert a.requests == []


@pytest.mark.parametrize("wrong", [{"version": 2}, {"origin": "robot"}, {"input_id": ""}, {"more": 1}])
async def test_an_input_of_another_form_is_refused_by_name(
    agent: Any, llm: Any, says: Any, wrong: dict[str, Any]
) -> None:
    async with agent(llm=placing(llm([says("ok")]))) as a:
        install(a)
        name_input(a, **wrong)
        with pytest.raises(RuntimeError, match=r"execution\.input\.v1"):
            await a.ask()
        assert a.requests == []
