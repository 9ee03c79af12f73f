"""The gate for any program: one `Guard`, for threads, sync code, any event loop, and trio.

    guard = Guard(agent="clerk", required=["policy"])
    with guard.turn(guard.at("session-7")):
        call = Call("send", {"to": "ann"}, TOOLS)
        result = await guard.run(call, execute, denied=lambda ruling: ruling.refusal)

It opens by itself with the first call, in a thread of its own, and closes with the program. In `async with
guard:` it rules in that event loop, without a thread. `docs/guard.md` explains it step by step.
"""

import asyncio
import contextlib
import inspect
import os
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, overload

from toolgate_bus.errors import ConfigError, ToolgateError, TurnStop

from toolgate_orchestrator.calls.open_call import describe_place, open_call
from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.guard.answer import AskExit, AskHow, as_gate_asks
from toolgate_orchestrator.guard.callers import Callers, enter_tool, tool_place, user_request
from toolgate_orchestrator.guard.gate_thread import BLOCKS, CLOSE_S, GateThread, exchange, exchange_sync
from toolgate_orchestrator.guard.llm_requests import LlmRequests
from toolgate_orchestrator.guard.reports import Cost, Reports
from toolgate_orchestrator.guard.results import EndReport, raise_alone
from toolgate_orchestrator.guard.ruling import Decider, Ruling, check_notice
from toolgate_orchestrator.guard.settings import read_settings
from toolgate_orchestrator.guard.streams import end_call, end_call_sync, end_later, is_loop_running
from toolgate_orchestrator.guard.tool_registry import Execute, ToolRegistry, make_tool, raise_denied
from toolgate_orchestrator.guard.turn_texts import TurnTexts
from toolgate_orchestrator.guard.turns import AgentTurn, OnStop, Presences

if TYPE_CHECKING:
    from toolgate_bus.protocol.events import Decision

    from toolgate_orchestrator.decision.config import ToolgateConfig
    from toolgate_orchestrator.decision.round.decision_state import OnHold

F = TypeVar("F", bound=Callable[..., Any])
FAULT: Final = "the gate failed and could not rule on it"
PATIENT_S: Final = 5.0
"""Seconds that `close` waits for reports to be written, and again for the guard's thread."""
OFFER_S: Final = 2.0
"""Seconds that a list of tools waits for the gate and its tables; then all tools are offered."""
ITS_OWN_LOOP: Final = "this guard rules in this event loop: use await guard.aclose()"


class Guard(LlmRequests, TurnTexts):
    """The gate of an application. Make one, and call its methods from any thread and any event loop."""

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
        """Make a guard. The gate opens with the first call.

        `config` is a file with the section `toolgate:`, or the value of that section. `fields` are keys of
        `ToolgateConfig` and override it; `agent` is the name of this agent.

        `ask` asks a person: a function of the question and the call. `defer` has the answer come later.
        Exceptions of the types `passes` leave that function and reach your framework.

        `cost` returns what a result cost, in units of the currency. `notice` adds a note for the LLM to the
        result if another call ran: True, or a text of your own. `on_fault` is what happens to a call if the
        guard itself fails: `deny` or `continue`. Default: `deny` if a scheduler is required or was ever met.

        Raises ConfigError for a wrong configuration or argument.
        """
        self.config: ToolgateConfig = read_settings(config, {**fields, "agent": agent} if agent else fields)
        """Configuration of its gate."""
        self.tools = ToolRegistry()
        """Functions that were made tools."""
        self._places = Callers(self.config)
        self._cost_of = cost
        self._lock = threading.Lock()
        self._decider: Decider | None = None
        self._end: weakref.finalize[Any, Any] | None = None
        _guards.add(self)
        self._ask, self._passes, self._on_fault = ask, passes, on_fault
        self._template = check_notice(notice)

    @property
    def asks(self) -> bool:
        """True if it has its own way to ask people; otherwise a framework's may be used."""
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
        """Return the caller for an agent's session. Inside a running tool, it works for the tool's agent.

        `session` is the id of the session, `agent` its agent (default: the guard's). `parent` says for whom
        it works otherwise: a caller, or the id of a session elsewhere. `labels` add to the configured ones.
        """
        return self._places.find(session, self.config.agent if agent is None else agent, parent, labels)

    def hand_over(self, at: Caller, to: str, *, lineage: bool = True) -> Caller:
        """Return the caller for another agent that takes over in this session; later `at` returns it too.

        What was denied to the first agent is denied to the new one, unless `lineage` is False.
        """
        return self._places.hand_over(at, to, lineage=lineage)

    def turn(self, at: Caller | None = None, stop: OnStop | None = None, *, request: str = "") -> AgentTurn:
        """Return a turn, for `with`. `toolgate agents` shows it, and ends it by `stop` (see `AgentTurn`).

        `at` is the caller; default: the turn or tool that runs here, else a session of the guard. `request`
        is what the user asked for, in their own words. It is redacted, and told to the schedulers that read
        it. Inside a running tool it stays that of the turn above, as the words of an LLM are not a user's.
        """
        if not request or tool_place() is not None:
            request = user_request()
        return AgentTurn(at or self._places.here(), self._now().reports, stop, request)

    # ------------------------------------------------------------------ the offer of tools

    async def find_denied(self, tools: Iterable[str], at: Caller | None = None) -> frozenset[str]:
        """Return those of these tools of which a scheduler's local table denies every call.

        Leave them out of the tools that you offer to an LLM. `at` is the caller; default: as for `turn`. Ask
        before each request, as rules may change. None with `offer_denied`, and none if the gate cannot be
        opened: each call is ruled on all the same.
        """
        at, names = at or self._places.here(), tuple(tools)
        try:
            home = self._now().reports.home
            if home.is_here:
                return await _find_denied(home, names, at)
            return await exchange(home, lambda _: _find_denied(home, names, at), None, _drop, ())
        except Exception as error:  # noqa: BLE001 - the first call says what is wrong
            return self._offer_all(error)

    def find_denied_sync(self, tools: Iterable[str], at: Caller | None = None) -> frozenset[str]:
        """Find as `find_denied` does, for code that is not async."""
        at, names = at or self._places.here(), tuple(tools)
        try:
            home = self._now().reports.home
            return frozenset(home.wait(lambda: _find_denied(home, names, at)))
        except Exception as error:  # noqa: BLE001 - as above
            return self._offer_all(error)

    @staticmethod
    def _offer_all(error: Exception) -> frozenset[str]:
        from toolgate_orchestrator.decision.faults import note_fault  # late: rarely needed

        if not isinstance(error, ToolgateError | TimeoutError):
            note_fault("table", error)
        return frozenset()

    # ------------------------------------------------------------------ rulings

    async def rule(self, call: Call, *, ask: AskHow = None, on_hold: "OnHold | None" = None) -> Ruling:
        """Rule on a call. Report its outcome by the ruling that is returned.

        `call` is the call. `ask` replaces the guard's `ask` for this call. `on_hold` is called for each
        scheduler that holds the call, in the gate's thread.

        Raises TurnStop if an operator ended the turn, ConfigError if the gate cannot be opened as configured,
        and exceptions that may pass through `ask`.
        """
        return await self._rule(call, ask, on_hold)

    async def rules_on_results(self, tools: Iterable[str] | None) -> bool:
        """Return whether any scheduler rules on results of any of these tools; None stands for all tools.

        True if the gate cannot be opened, as nobody knows.
        """
        home = self._now().reports.home
        if home.gate is None:
            try:
                await home.open()
            except Exception:  # noqa: BLE001 - the first call says what is wrong
                return True
        gate = home.gate
        if gate is None:
            return home.withholds
        return gate.met_rulers_of_results and (tools is None or any(map(gate.rules_on_result, tools)))

    async def pass_unasked(self, call: Call) -> Ruling:
        """Return the ruling on what runs without being asked about, so that its result can be ruled on.

        Its end is reported nowhere. Raises ConfigError if the gate cannot be opened as configured.
        """
        reports = self._now().reports
        if reports.home.gate is None:
            await reports.home.open()
        return Ruling(call, call.at or self._places.here(), reports, None, None)

    def rule_sync(self, call: Call, *, ask: AskHow = None, on_hold: "OnHold | None" = None) -> Ruling:
        """Rule as `rule` does, for code that is not async: this thread is blocked meanwhile."""
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
        """Rule on a call, run it, and report the outcome. Return the result.

        `execute` is called with the tool and its arguments, `denied` with the ruling if the call may not run.
        An exception of `execute` goes to `failed`, or is raised. Each function may be async or not. The
        guard's `notice` is added to a result that is a text. A generator counts as ended once it is
        exhausted or closed, or raises. Results and errors are given, and handed to `failed`, as the
        schedulers that rule on them let them be seen. Raises what `rule` raises.
        """
        ruling = await self.rule(call, ask=ask)
        if not ruling.allowed:
            return await _finish(denied(ruling))
        try:
            with enter_tool(ruling.at):
                result = await _finish(execute(ruling.tool, ruling.arguments))
        except BaseException as error:  # noqa: BLE001 - raised below, as it may be seen
            ended = ruling.fail(error)
        else:
            ended = end_call(ruling, result)
            return ruling.with_notice(await ended) if type(ended) is EndReport else ended
        shown = await ended
        if failed is None or not isinstance(shown, Exception) or isinstance(shown, TurnStop):
            raise_alone(shown)
        return await _finish(failed(shown, ruling))

    def run_sync(
        self,
        call: Call,
        execute: Execute,
        *,
        denied: Callable[[Ruling], Any],
        failed: Callable[[Exception, Ruling], Any] | None = None,
        ask: AskHow = None,
    ) -> Any:
        """Rule, run and report as `run` does, for code that is not async.

        If an event loop runs in this thread, an awaitable result of `execute` is returned to be awaited.
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
        except BaseException as error:  # noqa: BLE001 - raised below, as it may be seen
            ended = ruling.fail(error)
        else:
            return end_call_sync(ruling, result)
        shown = ended.show_now()
        if failed is None or not isinstance(shown, Exception) or isinstance(shown, TurnStop):
            raise_alone(shown)
        return failed(shown, ruling)

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

        It may be sync or async, a generator of either kind, a method, a partial, or a callable object. `name`
        is the tool's name; default: the function's. A denied call raises CallDenial, or returns what `denied`
        returns. A scheduler may have another such function run in its place, if its name is unique. Raises
        ConfigError for a function whose arguments have no names for rules.
        """
        if fn is None:
            return lambda given: make_tool(self, given, name, denied)
        return make_tool(self, fn, name, denied)

    # ------------------------------------------------------------------ life

    async def flush(self, timeout_s: float = CLOSE_S) -> bool:
        """Wait until all reports are written. Return False if that took longer than `timeout_s` seconds."""
        home = self._home
        if home is None or home.is_lost:
            return True
        if home.is_here:
            return await _flush(home, timeout_s)
        return await exchange(home, lambda _: _flush(home, timeout_s), None, _drop, ())

    def flush_sync(self, timeout_s: float = CLOSE_S) -> bool:
        """Wait as `flush` does, for code that is not async."""
        home = self._home
        if home is None or home.is_lost:
            return True
        return bool(home.wait(lambda: _flush(home, timeout_s)))

    async def aclose(self) -> None:
        """Write all reports and give the bus back. Another call would open the gate again."""
        home = self._leave()
        if home is None or home.is_lost:
            return
        if home.is_here:
            await home.aclose()
        else:
            await exchange(home, lambda _: home.aclose(), None, _drop, ())
            home.close(CLOSE_S)

    def close(self) -> None:
        """Close as `aclose` does, for code that is not async; within ten seconds, even without the bus."""
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
        """Return the decider, whose gate runs in a thread, or in this event loop that is lent."""
        decider = self._decider
        if decider is not None and not decider.reports.home.is_lost:
            return decider
        with self._lock:
            decider = self._decider
            if decider is None or decider.reports.home.is_lost:
                if decider is not None and decider.reports.home.is_foreign:
                    decider.reports.home.leave_behind()
                home = GateThread.lend(self.config) if lend else GateThread.open_thread(self.config)
                reports = Reports(home, Presences(), self._cost_of, self._ask, self._on_fault)
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
        """Renew the locks in a forked process: another thread may have held them."""
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
                ruling = await decider.rule(call, at, later, on_hold, None if asks == "defer" else asks)
            else:
                request = partial(decider.rule, call, at, later, on_hold)
                ruling = await exchange(home, request, how, Ruling.release, self._passes)
        except AskExit as left:
            raise left.error from None
        except Exception as error:  # noqa: BLE001 - whatever fails here is ours, and lifts no ruling
            return self._rule_on_fault(call, at, error)
        if ask is not None:
            ruling.asks_by = ask
        return ruling

    def _rule_sync(self, call: Call, ask: AskHow, on_hold: "OnHold | None") -> Ruling:
        at, how = call.at or self._places.here(), ask or self._ask
        try:
            decider = self._now()
            home = decider.reports.home
            if not home.is_here:
                request = partial(decider.rule, call, at, "defer" if how == "defer" else None, on_hold)
                ruling = exchange_sync(home, request, how, Ruling.release, self._passes)
                if ask is not None:
                    ruling.asks_by = ask
                return ruling
        except Exception as error:  # noqa: BLE001 - whatever fails here is ours, and lifts no ruling
            return self._rule_on_fault(call, at, error)
        raise ToolgateError(BLOCKS)

    async def _rule_point(self, call: Call, ask: AskHow) -> "Decision | str | None":
        at, how = call.at or self._places.here(), ask or self._ask
        try:
            decider = self._now()
            home = decider.reports.home
            if home.is_here:
                asks = as_gate_asks(how)
                return await decider.rule_point(call, at, None if asks == "defer" else asks)
            return await exchange(home, partial(decider.rule_point, call, at), how, _drop, self._passes)
        except AskExit as left:
            raise left.error from None
        except Exception as error:  # noqa: BLE001 - as in `_rule`
            return self._decide_on_fault(error)

    def _rule_point_sync(self, call: Call, ask: AskHow) -> "Decision | str | None":
        at, how = call.at or self._places.here(), ask or self._ask
        try:
            decider = self._now()
            home = decider.reports.home
            if not home.is_here:
                request = partial(decider.rule_point, call, at)
                return exchange_sync(home, request, how, _drop, self._passes)
        except Exception as error:  # noqa: BLE001 - as in `_rule`
            return self._decide_on_fault(error)
        raise ToolgateError(BLOCKS)

    def _decide_on_fault(self, error: Exception) -> str | None:
        """Return the reason to deny, after a fault of the guard itself; None if nothing is to be denied."""
        if isinstance(error, (ConfigError, TurnStop, *self._passes)):
            raise error
        from toolgate_orchestrator.decision.faults import note_fault  # late: rarely needed

        note_fault("rule", error)
        gate = self._now().reports.home.gate
        ruled = self.config.is_strict or (gate is not None and gate.ruled)
        return FAULT if (self._on_fault == "deny" if self._on_fault else ruled) else None

    def _rule_on_fault(self, call: Call, at: Caller, error: Exception) -> Ruling:
        """Rule on a call after a fault of the guard itself: nobody may gain by it if schedulers must rule."""
        reason = self._decide_on_fault(error)
        reports = self._now().reports
        if reason is not None:
            return Ruling(call, at, reports, None, None, reason=reason)
        whose = describe_place(at.session, at.root, at.agent, at.lineage)
        return Ruling(call, at, reports, None, open_call(call, None, whose, {}, "fault", time.monotonic()))


async def _finish(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _wait(value: Awaitable[Any]) -> Any:
    return await value


async def _find_denied(home: GateThread, tools: tuple[str, ...], at: Caller) -> frozenset[str]:
    async with asyncio.timeout(OFFER_S):
        return await (await home.open()).find_denied(tools, at)


async def _flush(home: GateThread, timeout_s: float) -> bool:
    gate = home.gate
    return gate is None or await gate.flush(timeout_s)


def _drop(_: object) -> None:
    """Drop a result that need not be given back."""


_guards: "weakref.WeakSet[Guard]" = weakref.WeakSet()


def _renew() -> None:
    for guard in list(_guards):
        guard._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
