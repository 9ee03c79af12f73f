"""One tool call through the proxy: ruled on, put to a person if need be, made, and reported.

tools/call ─▶ Guard.rule ─┬─ deny ─▶ an error that the LLM reads
                          ├─ ask ──▶ elicitation, or input_required and the client calls again
                          └─ the call, or another one ─▶ its server ─▶ Ruling.give ─▶ the result

The call that runs is the one that was ruled on. If the tool's description has changed by then, the call does
not run. Results and errors of the server are ruled on as well, if any scheduler rules on results of the tool.
Resources and prompts are requested without a ruling; what comes of them is ruled on in the same way.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

from toolgate_bus.errors import ToolgateError
from toolgate_bus.protocol.events import AskUser, ToolQuestion
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.logging import where
from toolgate_bus.telemetry.printable import shorten, visible

from toolgate_orchestrator.commands.mcp import answers, results, sdk
from toolgate_orchestrator.commands.mcp.answers import Answer
from toolgate_orchestrator.commands.mcp.backends import Backends
from toolgate_orchestrator.commands.mcp.catalog import Catalog, KnownTool, is_tool_name
from toolgate_orchestrator.commands.mcp.messages import (
    CALL,
    CALL_ID,
    CAPABILITIES,
    CLIENT,
    DECISION,
    GROUP,
    PROGRESS,
    SESSION,
    Message,
    can_elicit,
    meta_of,
    text_of,
    token_of,
    trace_of,
    version_of,
    with_meta,
)
from toolgate_orchestrator.commands.mcp.questions import (
    Questions,
    QuestionState,
    digest_of_call,
    digest_tool,
    read_state,
)
from toolgate_orchestrator.decision.deferral.answer import PersonAnswer
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.decision.question.shown_call import question_about, question_text
from toolgate_orchestrator.decision.results.given_result import GivenResult
from toolgate_orchestrator.guard.answer import AskHow
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.guard.results import raise_alone
from toolgate_orchestrator.guard.ruling import Ruling

PROGRESS_S: Final = 5.0
"""Seconds between two progress messages to a client whose call waits and that asked for progress."""
_STEP: Final = 1e-6
"""Step of the progress value: so small that the server's own later values are always greater."""
CHANGED: Final = "mcp_tool_changed"
SERVER: Final = "mcp_server"
Find = Callable[[Mapping[str, Any]], Awaitable[Catalog]]
"""Returns the catalog for a call with these parameters."""
_log = get_logger("toolgate.mcp")


class Calls:
    """The tool calls of one client's session."""

    def __init__(self, guard: Guard, questions: Questions, session: str, find: Find, cost_meta: str) -> None:
        """Use `session` for calls that name no session of the agent."""
        self._guard, self._questions, self._session = guard, questions, session
        self._find, self._cost_meta = find, cost_meta
        self._giving_up: set[asyncio.Task[None]] = set()
        self._open: dict[_OneCall, tuple[str, Ruling]] = {}
        """Calls that servers work on: the server's name (empty if that is not known), and the ruling."""
        self.elicits = False
        """True if the client can ask its user, in the older era."""
        self.old_form = False
        """True if the client's revision of MCP has no modes of such questions."""

    def give_up(self, late: Call) -> None:
        """End the question about a call, whose user has said nothing so far."""
        task = asyncio.create_task(self._expire(late), name="mcp-give-up")
        self._giving_up.add(task)
        task.add_done_callback(self._giving_up.discard)

    async def _expire(self, late: Call) -> None:
        with contextlib.suppress(ToolgateError):
            (await self._guard.rule(late, ask="defer")).release()

    def open_tools(self, server: str) -> list[str]:
        """Return the tools of calls that a server works on."""
        return [ruling.tool for name, ruling in self._open.values() if name in (server, "")]

    async def may_show(self, server: str, asked: Message) -> bool:
        """Return whether the client may see what a server asks it: as a result of each call that is open.

        Without such a call nobody can rule on it, and it is withheld.
        """
        found = [ruling for name, ruling in self._open.values() if name in (server, "")]
        for ruling in found:
            if (await ruling.give(asked)).changed:
                return False
        return bool(found)

    @contextlib.contextmanager
    def opened(self, one: "_OneCall", server: str, ruling: Ruling) -> Iterator[None]:
        """Note during the block that a server works on a call."""
        self._open[one] = server, ruling
        try:
            yield
        finally:
            del self._open[one]

    async def read(
        self, exchange: sdk.Exchange, method: str, params: Mapping[str, Any], backends: Backends
    ) -> Message:
        """Return a resource or a prompt as the client may see it. Raise MCPError.

        Nobody is asked before. What the server gives is ruled on as the result of a tool named `method`.
        """
        asked = {name: one for name, one in params.items() if name != "_meta"}
        return await _OneCall(self, exchange, params, method, asked).read(backends)

    async def call(self, exchange: sdk.Exchange, params: Mapping[str, Any], backends: Backends) -> Message:
        """Return the result of a call. Raise MCPError."""
        name, arguments = params.get("name"), params.get("arguments", {})
        arguments = {} if arguments is None else arguments
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise sdk.MCPError(
                sdk.INVALID_PARAMS, "tools/call takes the name of a tool, and arguments as an object"
            )
        if not is_tool_name(name):
            raise sdk.MCPError(sdk.INVALID_PARAMS, f"no tool can be named {shorten(visible(name), 100)!r}")
        one = _OneCall(self, exchange, params, name, arguments)
        try:
            catalog = await self._find(params)
        except ToolgateError as error:
            return one.refuse(f"The tool call was denied: {error}")
        tool = catalog.find(name)
        if tool is None and not backends.is_plain:
            raise sdk.MCPError(sdk.INVALID_PARAMS, f"there is no tool {shorten(visible(name), 100)!r}")
        ruling = await one.rule(catalog, tool)
        if isinstance(ruling, dict):
            return ruling
        if not ruling.allowed:
            return one.refuse(ruling.refusal, ruling.id)
        try:
            catalog = await self._find(params)  # a server may have listed other tools meanwhile
            problem = one.find_problem(ruling, catalog, tool)
        except ToolgateError as error:
            problem = f"{error}"
        except BaseException:
            ruling.release()
            raise
        if problem:
            ruling.release()
            return one.refuse(f"The tool call was denied: {problem}", ruling.id)
        return await one.run(ruling, catalog, backends)


class _OneCall:
    """One request to call a tool."""

    def __init__(
        self,
        calls: Calls,
        exchange: sdk.Exchange,
        params: Mapping[str, Any],
        name: str,
        arguments: dict[str, Any],
    ) -> None:
        self._calls, self._exchange, self._params = calls, exchange, params
        self._name, self._arguments = name, arguments
        self._modern = bool(version_of(params))
        self._session = text_of(params, SESSION) or calls._session
        self._waits_for = ""

    def _digest(self) -> str:
        return digest_of_call(self._session, self._name, self._arguments)

    def refuse(self, words: str, decision: str = "") -> Message:
        """Return the result of a call that does not run."""
        return answers.refusal_result(words, decision, modern=self._modern)

    # ------------------------------------------------------------ the ruling

    async def rule(self, catalog: Catalog, tool: KnownTool | None) -> Ruling | Message:
        """Return the ruling, or a result that makes the client ask its user first."""
        state, again = read_state(self._params), self._params.get("requestState")
        questions = self._calls._questions
        async with self._tell_of_waiting():
            if state is not None:
                return await self._go_on(state, catalog, tool)
            if again is not None or "inputResponses" in self._params:
                before = questions.take_round(again, self._digest())
                if before is not None:
                    return before
            call = self._question(catalog, tool)
            if not self._modern:
                return await self._rule(call, self._elicit if self._calls.elicits else None)
            can_ask = can_elicit(meta_of(self._params).get(CAPABILITIES))
            return self._put(await self._rule(call, "defer" if can_ask else None), call, tool)

    async def _rule(self, call: Call, ask: AskHow) -> Ruling:
        return await self._calls._guard.rule(call, ask=ask, on_hold=self._note_hold)

    def _question(self, catalog: Catalog, tool: KnownTool | None, session: str = "") -> Call:
        labels = {} if tool is None else {SERVER: tool.server}
        if tool is not None and catalog.has_changed(tool):
            labels[CHANGED] = "true"
        return Call(
            self._name,
            self._arguments,
            catalog.offers(self._name),
            self._place(session or self._session, labels),
            text_of(self._params, CALL_ID) or str(self._exchange.request_id),
            text_of(self._params, GROUP),
            trace=trace_of(self._params),
        )

    def _place(self, session: str, labels: dict[str, str]) -> Caller:
        """Return the place of a session; a stop of the proxy's own means those that its clients name, too."""
        at, own = self._calls._guard.at(session, labels=labels), self._calls._session
        return at if at.session == own else at._replace(above=(own,))

    # ------------------------------------------------------------ questions to a person

    def _put(self, ruling: Ruling, call: Call, tool: KnownTool | None) -> Ruling | Message:
        """Return a result that makes the client ask its user if the ruling waits for that; else the
        ruling."""
        asked = ruling.prompt
        if not ruling.pending or asked is None:
            return ruling
        seconds = self._calls._guard.config.defer_s or asked.timeout_s
        late = call._replace(answer=PersonAnswer(ruling.token, "expired"))
        self._calls._questions.open(ruling.token, seconds, self._session, lambda: self._calls.give_up(late))
        seen = digest_tool(ruling.token, "" if tool is None else tool.digest)
        state = QuestionState(
            ruling.token, seen, "" if text_of(self._params, SESSION) else self._calls._session
        )
        return answers.input_required(str(state), question_about(asked, ruling.tool, ruling.arguments))

    async def _go_on(
        self, state: QuestionState, catalog: Catalog, tool: KnownTool | None
    ) -> Ruling | Message:
        """Resume a decision with the answer of the client's user. Another proxy may have asked the
        question."""
        self._calls._questions.close(state.token)
        is_same = digest_tool(state.token, "" if tool is None else tool.digest) == state.seen
        call = self._question(catalog, tool, text_of(self._params, SESSION) or state.session)
        said = answers.answer_in(self._params) if is_same else "refuse"
        told = meta_of(self._params).get(CLIENT)
        name = told.get("name") if isinstance(told, Mapping) else None
        by = f"the user of {name}" if isinstance(name, str) else ""
        ruling = await self._rule(call._replace(answer=PersonAnswer(state.token, said, by)), "defer")
        if not is_same and not ruling.allowed:
            return self.refuse(f"The tool call was denied: {CHANGED_SINCE}", ruling.id)
        return self._put(ruling, call, tool)

    async def _elicit(self, ask: AskUser, call: ToolQuestion) -> Answer:
        """Ask the client's user during the call, in the older era."""
        form = answers.older_elicitation if self._calls.old_form else answers.elicitation
        try:
            told = await self._exchange.send_raw_request(
                answers.ELICIT, form(question_text(ask, call)), {"timeout": ask.timeout_s}
            )
        except sdk.MCPError as error:
            if error.code == sdk.REQUEST_TIMEOUT:
                return "allow" if ask.default == "allow" else "expired"
            return "no_approver"
        return answers.answer_of(told)

    # ------------------------------------------------------------ during a wait

    def _note_hold(self, held: Any) -> None:
        self._waits_for = "an operator" if held.paused else held.scheduler

    @contextlib.asynccontextmanager
    async def _tell_of_waiting(self) -> AsyncIterator[None]:
        """Send progress during the block to a client that asked for it, so that it does not give up
        waiting."""
        token = token_of(self._params)
        if token is None:
            yield
            return
        telling = asyncio.create_task(self._tell(token), name="mcp-progress")
        try:
            yield
        finally:
            telling.cancel()

    async def _tell(self, token: str | int) -> None:
        step = 0
        while True:
            await asyncio.sleep(PROGRESS_S)
            step += 1
            words = (
                f"waiting for {shorten(visible(self._waits_for), 128)}"
                if self._waits_for
                else "waiting for a ruling"
            )
            told = {"progressToken": token, "progress": step * _STEP, "message": words}
            await self._exchange.notify(PROGRESS, told)

    # ------------------------------------------------------------ the call

    def find_problem(self, ruling: Ruling, catalog: Catalog, asked: KnownTool | None) -> str:
        """Return the reason that the ruling does not fit the tools as they are now; empty if it fits."""
        if ruling.tool != self._name and ruling.tool not in catalog.offers(self._name):
            changed = shorten(visible(ruling.tool), 100)
            return f"{changed}, which should run in its place, has changed or is gone"
        now = catalog.find(self._name)
        if ruling.tool == self._name and (now and now.digest) != (asked and asked.digest):
            return CHANGED_SINCE
        if not ruling.replaced and ruling.tool != self._name:
            return "the ruling is about another tool than the call"
        return ""

    async def run(self, ruling: Ruling, catalog: Catalog, backends: Backends) -> Message:
        """Run the call that was ruled on. Raise MCPError."""
        tool = catalog.find(ruling.tool)
        server = backends.servers[0] if tool is None else backends.server(tool.server)
        if server is None:
            ruling.release()
            return self.refuse("The tool call failed: its MCP server has ended")
        params = self._params if self._is_own(ruling) else self._change_params(ruling)
        params = params if tool is None or params.get("name") == tool.own else {**params, "name": tool.own}
        schema = None if tool is None else tool.schema
        try:
            with self._calls.opened(self, server.name, ruling):
                result = await self._request(ruling, server.request(self._exchange, CALL, params, schema))
            if self._modern and answers.needs_input(result):
                given = await self._give(ruling, results.value_of_question(result), success=True)
                if given.changed:
                    ruling.fail("ToolError")
                    return self.refuse(answers.withheld_question(given.reason or given.why), ruling.id)
                state = result.get("requestState")
                self._calls._questions.keep_round(state, self._digest(), ruling, self._session)
                return result
            value, success = results.value_of(result), not results.is_error(result)
            given = await self._give(ruling, value, success=success)
        except BaseException as error:
            ruling.fail("McpError" if isinstance(error, sdk.MCPError) else error)
            raise
        seen = results.given_result(result, given, None if tool is None else tool.output)
        return self._report(ruling, result, seen, is_ruled_on=given.why != "unasked")

    async def read(self, backends: Backends) -> Message:
        """Return what a server gives for a request that is no call of a tool. Raise MCPError."""
        place = self._place(self._session, {})
        call = Call(self._name, self._arguments, (self._name,), place, str(self._exchange.request_id))
        ruling = await self._calls._guard.pass_unasked(call)
        asking = backends.request(self._exchange, self._name, self._params)
        if not ruling.is_ruled_on:
            return await asking
        with self._calls.opened(self, "", ruling):
            result = await self._request(ruling, asking)
        is_question = self._modern and answers.needs_input(result)
        value = results.value_of_question(result) if is_question else results.value_of(result)
        given = await self._give(ruling, value, success=True)
        return results.given_read(self._name, self._params, result, given)

    async def _request(self, ruling: Ruling, asking: Awaitable[Message]) -> Message:
        """Return the server's result. Raise MCPError; what the server says in it is ruled on, too."""
        try:
            return await asking
        except sdk.MCPError as error:
            if error.code == sdk.REQUEST_TIMEOUT:  # these are words of the proxy
                raise
            failed = error
        value = results.value_of_error(failed.message, failed.data)
        given = await self._give(ruling, value, success=False)
        shown = sdk.MCPError(failed.code, *results.given_error(given)) if given.changed else failed
        return raise_alone(shown)

    async def _give(self, ruling: Ruling, value: Any, *, success: bool) -> GivenResult:
        """Return what the client may see of this; its user is asked if that is possible during a request."""
        ask = self._elicit if self._calls.elicits and not self._modern else None
        self._waits_for = ""
        async with self._tell_of_waiting():
            return await ruling.give(value, success=success, ask=ask, on_hold=self._note_hold)

    def _is_own(self, ruling: Ruling) -> bool:
        """Return whether the client's parameters can be sent on: unchanged, and without an answer to
        Toolgate."""
        return not ruling.replaced and read_state(self._params) is None

    def _change_params(self, ruling: Ruling) -> Message:
        left_out = ("requestState", "inputResponses") if read_state(self._params) is not None else ()
        kept = {key: value for key, value in self._params.items() if key not in left_out}
        return {**kept, "name": ruling.tool, "arguments": ruling.arguments}

    def _report(self, ruling: Ruling, result: Message, seen: Message, *, is_ruled_on: bool) -> Message:
        """Report the end of a call, with the cost of its result. Return what the client may see of that.

        A result that is ruled on may hold what nobody is to guess: its own fact has a digest with a key.
        """
        try:
            cost = answers.cost_of(result, self._calls._cost_meta)
            if results.is_error(result):
                ruling.fail("ToolError", cost=cost)
            else:
                ruling.succeed(None if is_ruled_on else seen, cost=cost)
        except Exception as error:  # noqa: BLE001 - the call has run: its result must reach the client
            _log.error("a result could not be reported", error=where(error))
        if ruling.notice:
            seen = answers.with_notice(seen, ruling.notice)
        return with_meta(seen, **{DECISION: ruling.id}) if ruling.notice or seen is not result else seen


CHANGED_SINCE: Final = "the tool has changed since the ruling was requested. Look at it, and call again."
