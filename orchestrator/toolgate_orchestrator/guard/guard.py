"""The gate for any program: one `Guard`, from threads, sync code, any event loop, and trio.

    guard = Guard(agent="clerk", required=["policy"])
    async with guard.turn(guard.at("session-7")):  # or `with`
        result = await guard.run(Call("send", {"to": "ann"}, TOOLS), execute, denied=lambda ruling: ruling.refusal)

It opens by itself with the first call, in a thread of its own, and closes with the program; in `async with guard:`
it rules in that event loop, without a thread. `docs/guard.md` leads through it.
"""

import asyncio
import contextlib
import inspect
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, Self, TypeVar, overload

from toolgate_bus.errors import ConfigError, ToolgateError, TurnStopped

from toolgate_orchestrator.gate.config import ToolgateConfig
from toolgate_orchestrator.gate.faults import note_fault
from toolgate_orchestrator.gate.ruling import OnHold
from toolgate_orchestrator.guard import tool_function
from toolgate_orchestrator.guard.answer import AskHow
from toolgate_orchestrator.guard.call import Call
from toolgate_orchestrator.guard.context import enter_tool
from toolgate_orchestrator.guard.decider import Decider, LocalAsk
from toolgate_orchestrator.guard.exchange import BLOCKS, exchange, exchange_sync
from toolgate_orchestrator.guard.home import CLOSE_S, Home
from toolgate_orchestrator.guard.llm_requests import LlmRequests
from toolgate_orchestrator.guard.notice import check_notice
from toolgate_orchestrator.guard.place import At
from toolgate_orchestrator.guard.places import Places
from toolgate_orchestrator.guard.presences import Presences
from toolgate_orchestrator.guard.reports import Cost, Reports
from toolgate_orchestrator.guard.ruling import Ruling
from toolgate_orchestrator.guard.settings import read_settings
from toolgate_orchestrator.guard.turn import OnStop, Turn

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
Execute = Callable[[str, dict[str, Any]], Any]
"""Runs a tool by name, with arguments: perhaps not the one that was asked about."""
FAULT: Final = "the gate failed and could not rule on it"


class Guard(LlmRequests):
    """The gate of an application; make one. Every method may be called from any thread, and in any event loop."""

    def __init__(
        self,
        config: ToolgateConfig | str | os.PathLike[str] | None = None,
        *,
        agent: str = "",
        ask: AskHow = None,
        cost: Callable[[Any], Cost | None] | None = None,
        notice: bool | str = False,
        on_fault: Literal["deny", "continue"] | None = None,
        passes: tuple[type[BaseException], ...] = (),
        **fields: Any,
    ) -> None:
        """`config` is a file with the section `toolgate:`, or its value; `fields` are its keys, and override it.

        `ask` asks a person: a function of the question and the call, or `defer` to be answered later. Exceptions of
        the types `passes` leave through it to your framework. `cost` says what a result cost (in units of the
        currency), `notice` tells the LLM that another call ran, `on_fault` what becomes of calls where the guard
        itself fails: without it, they are denied if anybody is required. Raises ConfigError.
        """
        self.config = read_settings(config, {**fields, "agent": agent} if agent else fields)
        self._ask, self._passes, self._on_fault = ask, passes, on_fault
        self._template, self._cost_of = check_notice(notice), cost
        self._places = Places(self.config)
        self.tools: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {}
        """Functions that were made tools, with their JSON Schemas, by name."""
        self._lock = threading.Lock()
        self._home: Home | None = None
        self._reports: Reports | None = None
        self._end: Any = None
        _guards.add(self)

    # ------------------------------------------------------------------ places and turns

    def at(
        self,
        session: str,
        agent: str | None = None,
        *,
        parent: At | str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> At:
        """The place of an agent's session. Within a tool that runs it works for whom that tool runs.

        `parent` says for whom where that is not so: a place, or the id of a session elsewhere.
        """
        return self._places.find(session, self.config.agent if agent is None else agent, parent, labels)

    def hand_over(self, at: At, to: str, *, lineage: bool = True) -> At:
        """Another agent takes over in this session; what was denied to this one is denied to it, unless `lineage`
        is False. Gives its place, which `at` gives from now on too."""
        return self._places.hand_over(at, to, lineage=lineage)

    def turn(self, at: At | None = None, stop: OnStop | None = None) -> Turn:
        """A turn, for `with`: `toolgate agents` shows it, and stops it by `stop` (see `Turn`)."""
        return Turn(at or self._places.here(), self._now(), stop)

    # ------------------------------------------------------------------ rulings

    async def rule(self, call: Call, *, ask: AskHow = None, on_hold: OnHold | None = None) -> Ruling:
        """May this call run? Report what became of it by the ruling. `ask` counts here in place of the guard's.

        `on_hold` is told who holds it, in the gate's thread. Raises TurnStopped where an operator ended the turn,
        ConfigError where the gate cannot be opened as it is set up, and what `ask` lets pass.
        """
        return await self._rule(call, ask, on_hold)

    def rule_sync(self, call: Call, *, ask: AskHow = None, on_hold: OnHold | None = None) -> Ruling:
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

        What `execute` raises is given to `failed`, or raised. Each may be async or not. A text is given back with
        the guard's `notice`.
        """
        ruling = await self.rule(call, ask=ask)
        if not ruling.allowed:
            return await _finish(denied(ruling))
        try:
            with enter_tool(ruling.at):
                result = await _finish(execute(ruling.tool, ruling.arguments))
        except BaseException as error:
            ruling.fail(error)
            if failed is None or not isinstance(error, Exception) or isinstance(error, TurnStopped):
                raise
            return await _finish(failed(error, ruling))
        ruling.succeed(result)
        return ruling.with_notice(result)

    def run_sync(
        self,
        call: Call,
        execute: Execute,
        *,
        denied: Callable[[Ruling], Any],
        failed: Callable[[Exception, Ruling], Any] | None = None,
        ask: AskHow = None,
    ) -> Any:
        """As `run`, for code that is not async."""
        ruling = self.rule_sync(call, ask=ask)
        if not ruling.allowed:
            return denied(ruling)
        try:
            with enter_tool(ruling.at):
                result = _finish_sync(execute(ruling.tool, ruling.arguments))
        except BaseException as error:
            ruling.fail(error)
            if failed is None or not isinstance(error, Exception) or isinstance(error, TurnStopped):
                raise
            return failed(error, ruling)
        ruling.succeed(result)
        return ruling.with_notice(result)

    @overload
    def tool(self, fn: F, /) -> F: ...
    @overload
    def tool(self, *, name: str = "", denied: Callable[[Ruling], Any] = ...) -> Callable[[F], F]: ...
    def tool(
        self, fn: F | None = None, /, *, name: str = "", denied: Callable[[Ruling], Any] = tool_function.raise_denied
    ) -> Any:
        """Have a function, sync or async, ruled on each time it is called: `@guard.tool`.

        Denied it raises CallDenied, or gives what `denied` does. All such functions are each other's replacements.
        """
        if fn is None:
            return lambda given: tool_function.wrap(self, given, name or given.__name__, denied)
        return tool_function.wrap(self, fn, name or fn.__name__, denied)

    # ------------------------------------------------------------------ life

    async def flush(self, timeout: float = CLOSE_S) -> bool:
        """Wait until what was reported is written; False where that took longer than `timeout` seconds."""
        home = self._home
        if home is None or home.is_lost:
            return True
        if home.is_here:
            return await _flush(home, timeout)
        return await exchange(home, lambda _: _flush(home, timeout), None, lambda _: None, ())

    def flush_sync(self, timeout: float = CLOSE_S) -> bool:
        """As `flush`, for code that is not async."""
        home = self._home
        if home is None or home.is_lost:
            return True
        return bool(home.wait(lambda: _flush(home, timeout)))

    async def aclose(self) -> None:
        """Write what was reported and give the bus back; another call would open it again."""
        home = self._leave()
        if home is None or home.is_lost:
            return
        if home.is_here:
            await home.aclose()
        else:
            await exchange(home, lambda _: home.aclose(), None, lambda _: None, ())
            home.close()

    def close(self) -> None:
        """As `aclose`, for code that is not async."""
        if (home := self._leave()) is not None:
            if home.is_here:
                raise ToolgateError("this guard lives in this event loop: await guard.aclose()")
            home.close()

    async def __aenter__(self) -> Self:
        with contextlib.suppress(RuntimeError):  # under trio it keeps its thread
            asyncio.get_running_loop()
            self._now(lend=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ within

    def _now(self, *, lend: bool = False) -> Reports:
        """Where the gate is, and its facts go; made with the first use, and anew after a fork or an end."""
        reports = self._reports
        if reports is not None and not reports.home.is_lost:
            return reports
        with self._lock:
            reports = self._reports
            if reports is None or reports.home.is_lost:
                if reports is not None and reports.home.is_foreign:
                    reports.home.leave_behind()
                home = Home.lend(self.config) if lend else Home.open_thread(self.config)
                reports = Reports(home, Presences(), self._cost_of)
                self._home, self._reports = home, reports
                self._end = weakref.finalize(self, home.close)  # at the end of the program, too
            return reports

    def _leave(self) -> Home | None:
        with self._lock:
            home, self._home, self._reports = self._home, None, None
            if self._end is not None:
                self._end.detach()
                self._end = None
            return home

    async def _rule(self, call: Call, ask: AskHow, on_hold: OnHold | None, *, is_request: bool = False) -> Ruling:
        at, how = call.at or self._places.here(), ask or self._ask
        try:
            reports = self._now()
            decider = Decider(reports, self._template)
            if reports.home.is_here:
                return await self._rule_here(decider, call, at, how, on_hold, is_request=is_request)
            return await exchange(
                reports.home,
                lambda asks: decider.rule(call, at, "defer" if how == "defer" else asks, on_hold, is_request=is_request),
                how,
                Ruling.release,
                self._passes,
            )
        except (ConfigError, TurnStopped):
            raise
        except Exception as error:
            return self._rule_on_fault(call, at, error)

    async def _rule_here(
        self, decider: Decider, call: Call, at: At, how: AskHow, on_hold: OnHold | None, *, is_request: bool
    ) -> Ruling:
        if how is None or how == "defer":
            return await decider.rule(call, at, how, on_hold, is_request=is_request)
        local = LocalAsk(how, self._passes)
        try:
            return await decider.rule(call, at, local, on_hold, is_request=is_request)
        except asyncio.CancelledError:
            if (left := local.take()) is not None:
                raise left from None
            raise

    def _rule_sync(self, call: Call, ask: AskHow, on_hold: OnHold | None, *, is_request: bool = False) -> Ruling:
        at, how = call.at or self._places.here(), ask or self._ask
        if self._home is not None and self._home.is_here:
            raise ToolgateError(BLOCKS)
        try:
            reports = self._now()
            decider = Decider(reports, self._template)
            return exchange_sync(
                reports.home,
                lambda asks: decider.rule(call, at, "defer" if how == "defer" else asks, on_hold, is_request=is_request),
                how,
                Ruling.release,
                self._passes,
            )
        except (ConfigError, TurnStopped):
            raise
        except Exception as error:
            return self._rule_on_fault(call, at, error)

    def _rule_on_fault(self, call: Call, at: At, error: Exception) -> Ruling:
        """The guard itself failed: nobody may gain by it where somebody must be asked."""
        if isinstance(error, self._passes):
            raise error
        note_fault("rule", error)
        reports = self._now()
        gate = reports.home.gate
        ruled = bool(self.config.required) or self.config.on_bus_down == "deny" or (gate is not None and gate.ruled)
        denies = self._on_fault == "deny" if self._on_fault else ruled
        return Ruling(call, at, reports, None, reason=FAULT if denies else "")


async def _finish(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _finish_sync(value: Any) -> Any:
    return asyncio.run(_wait(value)) if inspect.isawaitable(value) else value


async def _wait(value: Awaitable[Any]) -> Any:
    return await value


async def _flush(home: Home, timeout: float) -> bool:
    gate = home.gate
    return gate is None or await gate.flush(timeout)


_guards: "weakref.WeakSet[Guard]" = weakref.WeakSet()


def _after_fork() -> None:
    for guard in list(_guards):  # another thread may have held them
        guard._lock = threading.Lock()
        guard._places.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
