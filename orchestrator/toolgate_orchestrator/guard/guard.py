"""The gate for any program: one `Guard`, from threads, sync code, any event loop, and trio.

    guard = Guard(agent="clerk", required=["policy"])
    with guard.turn(guard.at("session-7")):
        call = Call("send", {"to": "ann"}, TOOLS)
        result = await guard.run(call, execute, denied=lambda ruling: ruling.refusal)

It opens by itself with the first call, in a thread of its own, and closes with the program; in `async with
guard:` it rules in that event loop, without a thread. `docs/guard.md` leads through it.
"""

import asyncio
import contextlib
import inspect
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, overload

from toolgate_bus.errors import ConfigError, ToolgateError, TurnStop

from toolgate_orchestrator.calls.open_call import describe_place, open_call
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.guard.answer import AskExit, AskHow, as_gate_asks
from toolgate_orchestrator.guard.callers import Places, enter_tool, tool_place, user_request
from toolgate_orchestrator.guard.gate_thread import BLOCKS, CLOSE_S, GateThread, exchange, exchange_sync
from toolgate_orchestrator.guard.llm_requests import LlmRequests
from toolgate_orchestrator.guard.reports import Cost, Reports
from toolgate_orchestrator.guard.ruling import Decider, Ruling, check_notice
from toolgate_orchestrator.guard.settings import read_settings
from toolgate_orchestrator.guard.streams import end_call, end_later, is_loop_running
from toolgate_orchestrator.guard.tool_registry import Execute, ToolRegistry, make_tool, raise_denied
from toolgate_orchestrator.guard.turns import AgentTurn, OnStop, Presences

if TYPE_CHECKING:
    from toolgate_orchestrator.decision.config import ToolgateConfig
    from toolgate_orchestrator.decision.round.decision_state import OnHold


F = TypeVar("F", bound=Callable[..., Any])
FAULT: Final = "the gate failed and could not rule on it"
PATIENT_S: Final = 5.0
"""Seconds that whoever closes a guard waits for what is to be written, and for its thread."""
ITS_OWN_LOOP: Final = "this guard rules in this event loop: await guard.aclose()"


class Guard(LlmRequests):
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
        self.config: ToolgateConfig = read_settings(config, {**fields, "agent": agent} if agent else fields)
        """How its calls are ruled on."""
        self.tools = ToolRegistry()
        """Functions that were made tools."""
        self._places = Places(self.config)
        self._cost_of = cost
        self._lock = threading.Lock()
        self._decider: Decider | None = None
        self._end: weakref.finalize[Any, Any] | None = None
        _guards.add(self)
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
        return AgentTurn(at or self._places.here(), self._now().reports, stop, request)

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
                    if not is_loop_running():
                        result = asyncio.run(_wait(result))
                    elif not isinstance(result, asyncio.Future):
                        return end_later(ruling, result)
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

    # ------------------------------------------------------------------ life

    async def flush(self, timeout_s: float = CLOSE_S) -> bool:
        """Wait until what was reported is written; False where that took longer than `timeout_s` seconds."""
        home = self._home
        if home is None or home.is_lost:
            return True
        if home.is_here:
            return await _flush(home, timeout_s)
        return await exchange(home, lambda _: _flush(home, timeout_s), None, _drop, ())

    def flush_sync(self, timeout_s: float = CLOSE_S) -> bool:
        """As `flush`, for code that is not async."""
        home = self._home
        if home is None or home.is_lost:
            return True
        return bool(home.wait(lambda: _flush(home, timeout_s)))

    async def aclose(self) -> None:
        """Write what was reported and give the bus back; another call would open it again."""
        home = self._leave()
        if home is None or home.is_lost:
            return
        if home.is_here:
            await home.aclose()
        else:
            await exchange(home, lambda _: home.aclose(), None, _drop, ())
            home.close(CLOSE_S)

    def close(self) -> None:
        """As `aclose`, for code that is not async; in ten seconds at most, where the bus does not answer."""
        if self._home is not None and self._home.is_here:
            raise ToolgateError(ITS_OWN_LOOP)
        if (home := self._leave()) is not None:
            home.close(PATIENT_S)

    async def __aenter__(self) -> Self:
        with contextlib.suppress(RuntimeError):  # under trio it keeps to its thread
            asyncio.get_running_loop()
            self._now(lend=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _home(self) -> GateThread | None:
        decider = self._decider
        return None if decider is None else decider.reports.home

    def _now(self, *, lend: bool = False) -> Decider:
        """Who asks the gate, which is in a thread, or in this event loop that is lent."""
        decider = self._decider
        if decider is not None and not decider.reports.home.is_lost:
            return decider
        with self._lock:
            decider = self._decider
            if decider is None or decider.reports.home.is_lost:
                if decider is not None and decider.reports.home.is_foreign:
                    decider.reports.home.leave_behind()
                home = GateThread.lend(self.config) if lend else GateThread.open_thread(self.config)
                reports = Reports(home, Presences(), self._cost_of)
                self._decider = decider = Decider(reports, self._template, self._passes)
                self._end = weakref.finalize(self, home.close, CLOSE_S)  # at the end of the program, too
            return decider

    def _leave(self) -> GateThread | None:
        with self._lock:
            home, self._decider = self._home, None
            if self._end is not None:
                self._end.detach()
                self._end = None
            return home

    def _after_fork(self) -> None:
        """Another thread may have held these."""
        self._lock = threading.Lock()
        self._places.renew()
        self.tools.renew()

    # ------------------------------------------------------------------ within

    async def _rule(self, call: Call, ask: AskHow, on_hold: "OnHold | None") -> Ruling:
        at, how = call.at or self._places.here(), ask or self._ask
        later: Literal["defer"] | None = "defer" if how == "defer" else None
        try:
            decider = self._now()
            home = decider.reports.home
            if home.is_here:
                asks = as_gate_asks(how)
                return await decider.rule(call, at, later, on_hold, None if asks == "defer" else asks)
            request = partial(decider.rule, call, at, later, on_hold)
            return await exchange(home, request, how, Ruling.release, self._passes)
        except AskExit as left:
            raise left.error from None
        except Exception as error:  # noqa: BLE001 - whatever fails here is ours, and lifts no ruling
            return self._rule_on_fault(call, at, error)

    def _rule_sync(self, call: Call, ask: AskHow, on_hold: "OnHold | None") -> Ruling:
        at, how = call.at or self._places.here(), ask or self._ask
        try:
            decider = self._now()
            home = decider.reports.home
            if not home.is_here:
                request = partial(decider.rule, call, at, "defer" if how == "defer" else None, on_hold)
                return exchange_sync(home, request, how, Ruling.release, self._passes)
        except Exception as error:  # noqa: BLE001 - whatever fails here is ours, and lifts no ruling
            return self._rule_on_fault(call, at, error)
        raise ToolgateError(BLOCKS)

    def _rule_on_fault(self, call: Call, at: Caller, error: Exception) -> Ruling:
        """The guard itself failed: nobody may gain by it where somebody must be asked."""
        if isinstance(error, (ConfigError, TurnStop, *self._passes)):
            raise error
        from toolgate_orchestrator.decision.faults import note_fault  # late: nothing fails as a rule

        note_fault("rule", error)
        reports, config = self._now().reports, self.config
        gate = reports.home.gate
        ruled = config.is_strict or (gate is not None and gate.ruled)
        denies = self._on_fault == "deny" if self._on_fault else ruled
        if denies:
            return Ruling(call, at, reports, None, None, reason=FAULT)
        whose = describe_place(at.session, at.root, at.agent, at.lineage)
        return Ruling(call, at, reports, None, open_call(call, None, whose, {}, "fault", time.monotonic()))


async def _finish(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _wait(value: Awaitable[Any]) -> Any:
    return await value


async def _flush(home: GateThread, timeout_s: float) -> bool:
    gate = home.gate
    return gate is None or await gate.flush(timeout_s)


def _drop(_: object) -> None:
    """Nothing came of it that would have to be given back."""


_guards: "weakref.WeakSet[Guard]" = weakref.WeakSet()


def _renew() -> None:
    for guard in list(_guards):
        guard._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
