"""Doors by which the result of a call is ruled on, each with all that can be seen behind it.

A door runs a tool that gives a generated result, and returns what came out: the LLM's requests, the history,
payloads of hooks, answers to clients, exceptions. `result_adapter_doors` has those of frameworks.
"""

import json
import sys
import tempfile
from asyncio import CancelledError, Event, create_task
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from amplifier_core import ToolResult
from amplifier_core.message_models import TextBlock
from asked_sidecar import Sidecar
from generated_results import ResultCase
from hook_fixtures import load_named
from loop_agent import FakeTool, Llm, open_agent
from mcp_sessions import OPENING, Front, call
from ruled_bus import LOOP_CLASSES
from toolgate_orchestrator import Call, Guard
from toolgate_orchestrator.commands.mcp import sdk
from toolgate_orchestrator.commands.mcp.config import McpConfig
from toolgate_orchestrator.commands.mcp.pins import Pins
from toolgate_orchestrator.commands.mcp.questions import Questions
from toolgate_orchestrator.commands.mcp.session import ProxySession
from toolgate_orchestrator.commands.serve.hook_handler import HookHandler
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.results.outgoing_result import describe_error
from toolgate_orchestrator.guard.gate_thread import GateThread
from toolgate_orchestrator.modules.direct_calls import DirectCalls

Carry = Callable[[ResultCase], Awaitable[Any]]
"""Runs the tool of a case, and returns all that anybody got to see."""
Open = Callable[[AsyncExitStack, Gate], Awaitable[Carry]]
DOORS: dict[str, Open] = {}
"""All doors, by name."""
ANSWERED = "not changed"
"""What a client is told if its tool's own result stands."""


class UnchangedError(Exception):
    """A client kept its tool's own result, although that was ruled otherwise."""


def door(*names: str) -> Callable[[Callable[..., Awaitable[Carry]]], None]:
    """Register a door; several names are told to the function as its third argument."""

    def register(opened: Callable[..., Awaitable[Carry]]) -> None:
        for name in names:
            DOORS[name] = opened if len(names) == 1 else _bind(opened, name)

    return register


def _bind(opened: Callable[..., Awaitable[Carry]], name: str) -> Open:
    return lambda stack, gate: opened(stack, gate, name)


def arguments_of(case: ResultCase) -> dict[str, Any]:
    return {"case": str(case.seed)}


def see(value: Any) -> Any:
    """Return all texts that a value tells, as maps and lists: those of models and of errors too."""
    if isinstance(value, BaseException):
        told = [str(value), value.args, vars(value), value.__cause__, value.__context__]
        return [type(value).__name__, *map(see, told)]
    if hasattr(value, "model_dump"):
        return see(value.model_dump())
    if isinstance(value, Mapping):
        return {str(key): see(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [see(one) for one in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if value is None or isinstance(value, str | int | float) else [str(value), repr(value)]


# ---------------------------------------------------------------------- in the program


@door("gate")
async def open_gate(stack: AsyncExitStack, gate: Gate) -> Carry:
    async def carry(case: ResultCase) -> Any:
        async def ask(asked: Any, question: Any) -> str:
            return "allow" if case.seed % 2 else "refuse"

        asked = Call("read", arguments_of(case), ["read"])
        given = await gate.rule_on_result(asked, None, case.held, success=case.seed % 3 > 0, ask=ask)
        if not given.changed and given.value is not case.held:
            raise UnchangedError("released, but another object")
        if given.outcome == "released":
            return ANSWERED
        reason = "" if given.outcome == "withheld" else given.reason  # (it says no more than the value)
        return [given.value, reason, given.clean(case.copy), repr(given)]

    return carry


@door("guard")
async def open_guard(stack: AsyncExitStack, gate: Gate) -> Carry:
    """A guard in this event loop: a tool that is decorated, `run`, and rulings reported by hand."""
    guard = await lend(stack, gate)
    cases: dict[str, ResultCase] = {}

    def give(case: str) -> Any:
        found = cases[case].held
        if isinstance(found, BaseException):
            raise found
        return found

    @guard.tool
    async def read(case: str) -> Any:
        return give(case)

    @guard.tool(name="read_pieces")
    async def read_pieces(case: str) -> Any:
        if isinstance(found := cases[case].result, BaseException):
            raise found
        text = found if isinstance(found, str) else json.dumps(found)
        for at in range(0, len(text), 7):
            yield text[at : at + 7]

    async def report(case: ResultCase) -> Any:
        ruling = await guard.rule(Call("read", arguments_of(case)))
        failed = isinstance(case.held, BaseException)
        given = await (ruling.fail(case.held) if failed else ruling.succeed(case.held)).given()
        return [given.value, given.clean(case.copy), repr(given)] if given.changed else ANSWERED

    async def by_hand(case: ResultCase) -> Any:
        ruling = await guard.rule(Call("read", arguments_of(case)))
        failed = isinstance(case.held, BaseException)
        return await (ruling.fail(case.held) if failed else ruling.succeed(case.held))

    ways: list[Carry] = [
        lambda case: read(str(case.seed)),
        lambda case: guard.run(
            Call("read", arguments_of(case)), lambda _, arguments: give(arguments["case"]), denied=str
        ),
        by_hand,
        report,
        lambda case: _join(read_pieces(str(case.seed))),
    ]

    async def carry(case: ResultCase) -> Any:
        cases[str(case.seed)] = case
        try:
            return await ways[case.seed % len(ways)](case)
        except CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - what a tool raises is a result
            return error
        finally:
            del cases[str(case.seed)]

    return carry


async def _join(pieces: Any) -> str:
    return "".join([one async for one in pieces])


async def lend(stack: AsyncExitStack, gate: Gate, **settings: Any) -> Guard:
    """Return a guard that has this gate."""
    guard = Guard(**settings)
    await stack.enter_async_context(guard)
    home = guard._home
    assert isinstance(home, GateThread)
    home.gate = gate
    return guard


# ---------------------------------------------------------------------- loops


@door(*LOOP_CLASSES, "direct-calls")
async def open_loop(stack: AsyncExitStack, gate: Gate, name: str) -> Carry:
    """A turn of a loop in which the LLM calls the tool once; or the tool, called by the host's own code."""
    model, case_now = Llm(), list[ResultCase]()

    def give(_: Mapping[str, Any]) -> Any:
        return _as_tool_result(case_now[0])

    a = await stack.enter_async_context(open_agent(llm=model, tools=[FakeTool("read", give)]))
    coordinator = a.session.coordinator
    loop = LOOP_CLASSES.get(name, LOOP_CLASSES["loop-basic"])({"toolgate": {}}, gate)
    await coordinator.unmount("orchestrator")
    await coordinator.mount("orchestrator", loop)
    if name == "direct-calls":
        await DirectCalls(coordinator, _find_no_fault, lambda: gate).wrap()

    async def carry(case: ResultCase) -> Any:
        case_now[:] = [case]
        model.requests.clear()
        a.events.clear()
        await coordinator.get("context").clear()
        if name == "direct-calls":
            try:
                answer = await coordinator.get("tools")["read"].execute(arguments_of(case))
            except Exception as error:  # noqa: BLE001 - what a tool raises is a result
                answer = error
            return [answer, a.events]
        named = {"_outputPath": "†state.seen"} if name == "loop-reactive" else {}
        wanted = {"type": "tool_call.end", "id": "c1", "name": "read"}
        model.answers = [[{**wanted, "arguments": {**arguments_of(case), **named}}]]
        answer = await a.ask()
        data = getattr(loop, "data", None)
        return [answer, model.requests, await a.messages(), a.events, data and data.state]

    return carry


async def _find_no_fault() -> str | None:
    return None


def _as_tool_result(case: ResultCase) -> Any:
    """Return a result in one of the forms that a tool of Amplifier has."""
    result = case.result
    if isinstance(result, BaseException):
        raise result
    match case.seed % 5:
        case 0:
            return ToolResult(success=False, output=result, error={"message": str(case.copy)})
        case 1:
            return ToolResult(success=False, error={"message": str(result), "code": case.copy})
        case 2:
            return ToolResult(output=result, content=[TextBlock(text=json.dumps(case.copy))])
    return result


# ---------------------------------------------------------------------- beside the program


@door("mcp")
async def open_mcp(stack: AsyncExitStack, gate: Gate) -> Carry:
    """A client of the proxy, with a server in a process of its own."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tg-doors-")))
    command = [sys.executable, str(Path(__file__).with_name("giving_mcp.py"))]
    config = McpConfig.model_validate({"servers": {"giving": {"command": command}}})
    guard = await lend(stack, gate)
    session = ProxySession(config, guard, Pins(folder / "pins.json"), Questions(), "s1")
    session.front = Front()
    living = create_task(session.live())

    async def end() -> None:
        session.close()
        await living

    stack.push_async_callback(end)
    await session.on_request(Front("init"), "initialize", OPENING)

    async def carry(case: ResultCase) -> Any:
        front = Front(case.seed)
        session.front.told.clear()
        try:
            answer: Any = await call(session, "read", front=front, **arguments_of(case))
        except sdk.MCPError as error:
            answer = error
        return [answer, front.told, session.front.told]

    return carry


@door("serve")
async def open_serve(stack: AsyncExitStack, gate: Gate) -> Carry:
    """A program in another language: it asks, brings its result, and reports the end."""
    sidecar = Sidecar(gate, max_requests=100)

    async def carry(case: ResultCase) -> Any:
        sidecar.facts.clear()
        ruling = await sidecar.decide("read", arguments=arguments_of(case))
        brought = {"id": ruling["id"], "result": _as_json(case), "success": case.seed % 3 > 0}
        answered = await sidecar.ask("/v1/result", brought)
        again = await sidecar.ask("/v1/result", brought)
        assert answered.body == again.body
        end = await sidecar.ask("/v1/report", {"id": ruling["id"], "outcome": "succeed"})
        if answered.body["outcome"] == "released":
            return ANSWERED
        return [answered.body, end.body]

    return carry


def _as_json(case: ResultCase) -> Any:
    return describe_error(case.result) if isinstance(case.result, BaseException) else case.result


HOOKS = {
    "claude": "post_tool_use",
    "codex": "post_tool_use",
    "gemini": "after_tool",
    "copilot": "post_tool_use",
}


@door(*(f"hook-{client}" for client in HOOKS))
async def open_hook(stack: AsyncExitStack, gate: Gate, name: str) -> Carry:
    """A coding agent that tells of a call's end, and gives its LLM what it is answered."""
    client = name.removeprefix("hook-")
    sidecar = Sidecar(gate)
    hooks = HookHandler(sidecar.service, denies=lambda: True)
    event = load_named(client, HOOKS[client])["event"]
    outcomes = list[str]()
    gate.subscribe_results(lambda _, given: outcomes.append(given.outcome))

    async def carry(case: ResultCase) -> Any:
        sidecar.facts.clear()
        outcomes.clear()
        told = {**event, **_told_by(client, case)}
        answer = await hooks.answer(client, json.dumps(told).encode(), 30.0, Event().wait)
        if not answer and outcomes != ["released"]:
            raise UnchangedError(f"the client was told nothing, but the result is {outcomes}")
        return json.loads(answer) if answer else ANSWERED

    return carry


def _told_by(client: str, case: ResultCase) -> dict[str, Any]:
    """Return the fields of an event that tell the call and its result."""
    result = _as_json(case)
    text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=case.seed % 2 == 0)
    if client == "copilot":
        return {
            "toolArgs": arguments_of(case),
            "toolResult": {"resultType": "success", "textResultForLlm": text},
        }
    told = {"tool_input": arguments_of(case)}
    if client == "gemini":
        return {**told, "tool_response": {"llmContent": text, "returnDisplay": str(case.copy)}}
    told["tool_use_id"] = f"call-{case.seed}"
    if client == "codex":
        return {**told, "tool_response": text}
    match case.seed % 3:
        case 0:
            ran = {"stdout": text, "stderr": str(case.copy), "interrupted": False, "isImage": False}
            return {**told, "tool_name": "Bash", "tool_response": ran}
        case 1:
            return {**told, "tool_name": "mcp__a__read", "tool_response": result}
    return {**told, "tool_name": "Odd", "tool_response": {"found": result, "note": case.copy}}
