"""The gate for any program: one `Guard`, from threads, sync code, any event loop, and trio.

    guard = Guard(agent="clerk", required=["policy"])
    with guard.turn(guard.at("session-7")):
        call = Call("send", {"to": "ann"}, TOOLS)
        result = await guard.run(call, execute, denied=lambda ruling: ruling.refusal)

It opens by itself with the first call, in a thread of its own, and closes with the program; in `async with
guard:` it rules in that event loop, without a thread. `docs/guard.md` leads through it.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload

from toolgate_bus.errors import ConfigError, ToolgateError, TurnStop

from toolgate_orchestrator.decision.question.call import Call
from toolgate_orchestrator.decision.question.caller import Caller
from toolgate_orchestrator.guard.answer import AskExit, AskHow, as_gate_asks
from toolgate_orchestrator.guard.context import enter_tool, tool_place, user_request
from toolgate_orchestrator.guard.decider import Decider
from toolgate_orchestrator.guard.exchange import BLOCKS, exchange, exchange_sync
from toolgate_orchestrator.guard.life import GuardLife
from toolgate_orchestrator.guard.llm_requests import LlmRequests
from toolgate_orchestrator.guard.notice import check_notice
from toolgate_orchestrator.guard.reports import Cost
from toolgate_orchestrator.guard.ruling import Ruling
from toolgate_orchestrator.guard.settings import read_settings
from toolgate_orchestrator.guard.streams import end_call, end_later, is_loop_running
from toolgate_orchestrator.guard.tool_registry import Execute, make_tool, raise_denied
from toolgate_orchestrator.guard.turn import AgentTurn, OnStop

if TYPE_CHECKING:
    from toolgate_orchestrator.decision.config import ToolgateConfig
    from toolgate_orchestrator.decision.round.decision_state import OnHold

F = TypeVar("F", bound=Callable[..., Any])
FAULT: Final = "the gate failed and could not rule on it"


class Guard(GuardLife, LlmRequests):
    """The gate of an application; make one. Every method may be called from any thread, and in any event
    loop."""

    def __init__(
        self,
        config: "ToolgateConfig | str | PathLike[str] | None" = None,
        *,
        agent: str = "",
        ask: AskHow = None,
        cost: Callable[[Any], Cost | None] | None = None,
        notice: bool | str = False,
        on_fault: Literal["deny", "continue"] | None = None,
        passes: tuple[type[BaseException], ...] = (),
        **fields: Any,
    ) -> None:
        """`config` is a file with the section `toolgate:`, or its value; `fields` are its keys, and override
        it.

        `ask` asks a person: a function of the question and the call, or `defer` to be answered later.
        Exceptions of the types `passes` leave through it to your framework. `cost` says what a result cost
        (in units of the currency), `notice` tells the LLM that another call ran, `on_fault` what becomes of
        calls where the guard itself fails: without it, they are denied if anybody is required. Raises
        ConfigError.
        """
        super().__init__(read_settings(config, {**fields, "agent": agent} if agent else fields), cost)
        self._ask, self._passes, self._on_fault = ask, passes, on_fault
        self._template = check_notice(notice)

    @property
    def asks(self) -> bool:
        """Whether it has a way of its own to ask people; else a framework's may be used."""
        return self._ask is not None

    # ------------------------------------------------------------------ places and turns

    def at(
        self,
        session: str,
        agent: str | None = None,
        *,
        parent: Caller | str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Caller:
        """The place of an agent's session. Within a tool that runs it works for whom that tool runs.

        `parent` says for whom where that is not so: a place, or the id of a session elsewhere.
        """
        return self._places.find(session, self.config.agent if agent is None else agent, parent, labels)

    def hand_over(self, at: Caller, to: str, *, lineage: bool = True) -> Caller:
        """Another agent takes over in this session; what was denied to this one is denied to it, unless
        `lineage` is False. Gives its place, which `at` gives from now on too.
        """
        return self._places.hand_over(at, to, lineage=lineage)

    def turn(self, at: Caller | None = None, stop: OnStop | None = None, *, request: str = "") -> AgentTurn:
        """A turn, for `with`: `toolgate agents` shows it, and stops it by `stop` (see `AgentTurn`).

        `request` is what the user asked for, in their own words: told, redacted, to the schedulers that read
        it. Within a tool that runs, it stays that of the turn above: what an LLM writes is no user's.
        """
        if not request or tool_place() is not None:
            request = user_request()
        return AgentTurn(at or self._places.here(), self._now(), stop, request)

    # ------------------------------------------------------------------ rulings

    async def rule(self, call: Call, *, ask: AskHow = None, on_hold: "OnHold | None" = None) -> Ruling:
        """May this call run? Report what became of it by the ruling. `ask` counts here in place of the
        guard's.

        `on_hold` is told who holds it, in the gate's thread. Raises TurnStop where an operator ended the
        turn, ConfigError where the gate cannot be opened as it is set up, and what `ask` lets pass.
        """
        return await self._rule(call, ask, on_hold)

    def rule_sync(self, call: Call, *, ask: AskHow = None, on_hold: "OnHold | None" = None) -> Ruling:
        """As `rule`, for code that is not async: it blocks this thread."""
        return self._rule_sync(call, ask, on_hold)

    async def run(
        self,
        call: Call,
        execute: Execute,
        *,
        denied: Callable[[Ruling], Any],
        failed: Callable[[Exception, Ruling], Any] | None = None,
        ask: AskHow = None,
    ) -> Any:
        """Rule, run, report. `execute` is given tool and arguments, `denied` the ruling where it may not run.

        What `execute` raises is given to `failed`, or raised. Each may be async or not. A text is given back
        with the guard's `notice`. A generator has ended when it is exhausted or closed, or raises.
        """
        ruling = await self.rule(call, ask=ask)
        if not ruling.allowed:
            return await _finish(denied(ruling))
        try:
            with enter_tool(ruling.at):
                result = await _finish(execute(ruling.tool, ruling.arguments))
        except BaseException as error:
            ruling.fail(error)
            if failed is None or not isinstance(error, Exception) or isinstance(error, TurnStop):
                raise
            return await _finish(failed(error, ruling))
        return end_call(ruling, result)

    def run_sync(
        self,
        call: Call,
        execute: Execute,
        *,
        denied: Callable[[Ruling], Any],
        failed: Callable[[Exception, Ruling], Any] | None = None,
        ask: AskHow = None,
    ) -> Any:
        """As `run`, for code that is not async.

        Where an event loop runs in this thread, what `execute` gives to be awaited is given back so.
        """
        ruling = self.rule_sync(call, ask=ask)
        if not ruling.allowed:
            return denied(ruling)
        try:
            with enter_tool(ruling.at):
                result = execute(ruling.tool, ruling.arguments)
                if inspect.isawaitable(result):
                    if is_loop_running():
                        ruling.is_unread = True  # until it is awaited
                        return end_later(ruling, result)
                    result = asyncio.run(_wait(result))
        except BaseException as error:
            ruling.fail(error)
            if failed is None or not isinstance(error, Exception) or isinstance(error, TurnStop):
                raise
            return failed(error, ruling)
        return end_call(ruling, result)

    @overload
    def tool(self, fn: F, /) -> F: ...
    @overload
    def tool(
        self, fn: None = None, /, *, name: str = "", denied: Callable[[Ruling], Any] = ...
    ) -> Callable[[F], F]: ...
    def tool(
        self,
        fn: F | None = None,
        /,
        *,
        name: str = "",
        denied: Callable[[Ruling], Any] = raise_denied,
    ) -> Any:
        """Have a function ruled on each time it is called: `@guard.tool`.

        It may be sync or async, a generator of either kind, a method, a partial, or an object that can be
        called. Denied it raises CallDenial, or gives what `denied` does. A scheduler may have another such
        function run in its place, by a name that no two of them bear. Raises ConfigError for a function that
        rules cannot read.
        """
        if fn is None:
            return lambda given: make_tool(self, given, name, denied)
        return make_tool(self, fn, name, denied)

    # ------------------------------------------------------------------ within

    async def _rule(self, call: Call, ask: AskHow, on_hold: "OnHold | None") -> Ruling:
        at, how = call.at or self._places.here(), ask or self._ask
        try:
            reports = self._now()
            decider = Decider(reports, self._template, self._passes)
            if reports.home.is_here:
                return await decider.rule(call, at, as_gate_asks(how), on_hold)
            request = decider.request(call, at, how, on_hold)
            return await exchange(reports.home, request, how, Ruling.release, self._passes)
        except AskExit as left:
            raise left.error from None
        except Exception as error:  # noqa: BLE001 - whatever fails here is ours, and lifts no ruling
            return self._rule_on_fault(call, at, error)

    def _rule_sync(self, call: Call, ask: AskHow, on_hold: "OnHold | None") -> Ruling:
        at, how = call.at or self._places.here(), ask or self._ask
        if self._home is not None and self._home.is_here:
            raise ToolgateError(BLOCKS)
        try:
            reports = self._now()
            decider = Decider(reports, self._template, self._passes)
            request = decider.request(call, at, how, on_hold)
            return exchange_sync(reports.home, request, how, Ruling.release, self._passes)
        except Exception as error:  # noqa: BLE001 - whatever fails here is ours, and lifts no ruling
            return self._rule_on_fault(call, at, error)

    def _rule_on_fault(self, call: Call, at: Caller, error: Exception) -> Ruling:
        """The guard itself failed: nobody may gain by it where somebody must be asked."""
        if isinstance(error, (ConfigError, TurnStop, *self._passes)):
            raise error
        from toolgate_orchestrator.decision.faults import note_fault  # late: nothing fails as a rule

        note_fault("rule", error)
        reports, config = self._now(), self.config
        gate = reports.home.gate
        ruled = config.is_strict or (gate is not None and gate.ruled)
        denies = self._on_fault == "deny" if self._on_fault else ruled
        return Ruling(call, at, reports, None, reason=FAULT if denies else "")


async def _finish(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _wait(value: Awaitable[Any]) -> Any:
    return await value
