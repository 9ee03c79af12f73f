"""Opens a session from a mount plan and a command's options, for both `run` and `chat`.

    plan file + options ─▶ on_bus: a Plan with a server behind it ─▶ opened: a session, closed at the end
                                                                      ─▶ one_turn: how it came out

All errors in the plan are found before a server is started.
"""

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import typer
from amplifier_core import AmplifierSession, HookResult
from amplifier_core.events import EXECUTION_END, MODULE_LOAD_FAILED, ORCHESTRATOR_COMPLETE, POLICY_VIOLATION
from rich.text import Text
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import err_console, run_async, serve_metrics, start_bus
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.fact_events import TOOL_SELECTED
from toolgate_bus.protocol.llm import LLM_REQUEST
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.telemetry.logging import say_logs
from toolgate_bus.telemetry.printable import format_duration, visible
from toolgate_bus.transport.redis.tasks import is_cancel_requested

from toolgate_orchestrator.commands.host.kernel_threads import let_kernel_threads_go
from toolgate_orchestrator.commands.host.plan import Plan, read_plan, with_bus, with_provider
from toolgate_orchestrator.commands.host.sub_agents import let_delegate
from toolgate_orchestrator.commands.host.terminal_approvals import (
    NoTerminal,
    TerminalApprovals,
    terminal_approvals,
)
from toolgate_orchestrator.commands.host.warnings import refuse_unruled, warnings_for
from toolgate_orchestrator.commands.run.held_questions import HeldQuestions
from toolgate_orchestrator.commands.run.turn_listener import TurnListener
from toolgate_orchestrator.commands.run.view import TurnResult, View
from toolgate_orchestrator.decision.vacancy import say_lines
from toolgate_orchestrator.turn.calls.selection import TOOL_HELD
from toolgate_orchestrator.turn.hooks.dispatch import Emitter
from toolgate_orchestrator.turn.hooks.scheduler import OBSERVERS, TOOL_SELECTING
from toolgate_orchestrator.turn.loop import LoopBase


class RunReport:
    """Collects a turn's decisions, the way it ended, and the modules that failed to load."""

    def __init__(self, view: View, questions: HeldQuestions | None = None) -> None:
        self._view, self._questions = view, questions
        self.decisions: list[dict[str, Any]] = []
        self.failures: list[str] = []
        self.status = "success"
        """Status that the loop reports: success, incomplete, cancelled; or error."""
        self.is_refused = False
        """True if a request to the LLM was denied."""
        self._waited: set[tuple[str, str, str]] = set()

    def begin(self) -> None:
        """Begin a new turn, and forget the last one."""
        self.decisions, self.status, self.is_refused = [], "success", False

    def listen(self, hooks: Any, *, child: bool = False) -> None:
        """Register on a session's hooks, before its modules are loaded.

        For a sub-agent, only decisions about its calls are taken: its parent reports the end of its turn.
        """
        ruled = {
            TOOL_SELECTED: self._on_selected,
            POLICY_VIOLATION: self._on_denied,
            TOOL_HELD: self._on_held,
        }
        ended = {
            MODULE_LOAD_FAILED: self._on_load_failed,
            ORCHESTRATOR_COMPLETE: self._on_end,
            EXECUTION_END: self._on_end,
        }
        for event, handler in (ruled if child else ruled | ended).items():
            hooks.register(event, handler, name="toolgate-run")

    async def _on_load_failed(self, event: str, data: dict[str, Any]) -> HookResult:
        self.failures.append(f"{data.get('module_type')} {data.get('module_id')}: {data.get('error')}")
        return HookResult()

    async def _on_selected(self, event: str, data: dict[str, Any]) -> HookResult:
        self._keep(data)
        if data.get("source") == "scheduler":
            by = data.get("scheduler") or "schedulers"
            self._line("modified", "cyan", f"{data.get('original_tool')} → {data.get('tool')}", by, data)
        return HookResult()

    async def _on_denied(self, event: str, data: dict[str, Any]) -> HookResult:
        self._keep(data)
        self.is_refused = self.is_refused or data.get("tool_name") == LLM_REQUEST
        by = data.get("scheduler") or (data.get("decision") or {}).get("why") or "a hook"
        self._line("denied", "red", str(data.get("tool_name")), by, data)
        return HookResult()

    async def _on_held(self, event: str, data: dict[str, Any]) -> HookResult:
        self._view.on_held(data)
        which = (str(data.get("decision_id")), str(data.get("scheduler")), str(data.get("phase")))
        if which not in self._waited:  # a longer hold of the same call was shown already
            self._waited.add(which)
            seconds, paused = data.get("seconds"), data.get("paused") is True
            left = f" for up to {format_duration(seconds)}" if isinstance(seconds, int | float) else ""
            waits = f"{data.get('tool_name')}{left}" + (", then it goes on" if left else "") * paused
            waits += "" if paused else ", then it is denied"
            self._line("paused" if paused else "waits", "yellow", waits, str(data.get("scheduler")), data)
            if self._questions is not None and not paused:
                self._questions.ask(data)
        return HookResult()

    async def _on_end(self, event: str, data: dict[str, Any]) -> HookResult:
        """Take the turn's status: from the loop, or from the execution's end if it failed."""
        status = str(data.get("status"))
        if event == ORCHESTRATOR_COMPLETE or status == "error":
            self.status = status
        return HookResult()

    def _keep(self, data: dict[str, Any]) -> None:
        if isinstance(data.get("decision"), dict):
            self.decisions.append(data["decision"])
            self._view.decision(data["decision"])
            if self._questions is not None:
                self._questions.withdraw(str(data["decision"].get("id")))

    def _line(self, word: str, style: str, what: str, by: str, data: dict[str, Any]) -> None:
        reason = f": {data['reason']}" if data.get("reason") else ""
        line = Text(f"{word:8} ", style=f"bold {style}")
        line.append(visible(f"{what}  ({by}{reason})"), style="default")
        self._view.on_ruling(line)


Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session that is ready for its first turn."""

    session: Any
    plan: Plan
    view: View
    approvals: TerminalApprovals | NoTerminal
    report: RunReport
    listener: TurnListener

    async def one_turn(self, prompt: str) -> TurnResult:
        """Run a turn and show its end. Nothing is raised but the cancellation of this task."""
        self.report.begin()
        answer, error = "", None
        try:
            answer = await self.session.execute(prompt)
        except asyncio.CancelledError:
            if is_cancel_requested():
                self.view.pause()
                raise
            self.report.status = "cancelled"
        except Exception as raised:  # noqa: BLE001 - any error ends the turn and is shown, in one line
            error, self.report.status = str(raised) or type(raised).__name__, "error"
        self.listener.on_turn_end()
        ended = TurnResult(
            str(answer),
            self.session.session_id,
            self.report.status,
            tuple(self.report.decisions),
            error,
            self.report.is_refused and self.report.status == "incomplete",
        )
        self.view.on_end(ended)
        return ended


@contextmanager
def serve_own_metrics(port: int | None, address: str) -> Iterator[None]:
    """Serve this process's metrics during the block, if a port is given, and print the address."""
    with serve_metrics(port, address, "orchestrator") as url:
        if url is not None:
            err_console.print(f"metrics at {escape(url)}", style="dim", soft_wrap=True)
        yield


def load_plan(path: Path, provider: str | None) -> Plan:
    """Return the plan of a file, with the provider from the command line. Raise ConfigError."""
    plan = read_plan(path)
    return plan if provider is None else with_provider(plan, provider)


def read_namespace(ctx: typer.Context, namespace: str) -> str | None:
    """Return the namespace if the user named one; None leaves it to the plan."""
    source = ctx.get_parameter_source("namespace")
    return namespace if source is not None and source.name != "DEFAULT" else None


@contextmanager
def on_bus(plan: Plan, redis: str | None, namespace: str | None, keys: Path | None) -> Iterator[Plan]:
    """Yield the plan with the options laid over its own `toolgate:` section; start or join a server."""
    if not plan.ours:
        yield with_bus(plan)
        return
    own = plan.orchestrator["config"].get("toolgate") or {}
    own = own if isinstance(own, dict) else {}
    keys = keys or (Path(own["keys"]) if own.get("keys") else None)
    with start_bus(redis or own.get("redis"), namespace or own.get("namespace", "default"), keys) as bus:
        yield with_bus(plan, redis=bus.redis, namespace=bus.namespace, keys=bus.keys and str(bus.keys))


def in_session(
    plan: Plan,
    view: View,
    work: Callable[[OpenSession], Coroutine[Any, Any, Result]],
    *,
    quiet: bool = False,
    needs_bus: bool = False,
) -> Result:
    """Open a session, run `work` in it, and always close it.

    `quiet` leaves warnings out. With `needs_bus`, raise ToolgateError before the session is opened if the
    server cannot be reached and the plan then denies every call.
    """
    for notice in plan.notices:
        view.notice(f"notice: {notice}")
    warn = partial(view.notice, style="yellow")
    say = (lambda _line: None) if quiet else warn
    with say_logs(warn), say_lines(say), terminal_approvals(warn, view.pause) as approvals:
        try:
            return run_async(lambda: _work(plan, view, approvals, work, quiet=quiet, needs_bus=needs_bus))
        finally:
            let_kernel_threads_go()


async def _work(
    plan: Plan,
    view: View,
    approvals: TerminalApprovals | NoTerminal,
    work: Callable[[OpenSession], Coroutine[Any, Any, Result]],
    *,
    quiet: bool,
    needs_bus: bool,
) -> Result:
    if needs_bus:
        await refuse_unruled(plan)
    async with _open_session(plan, view, approvals) as opened:
        for words in () if quiet else await warnings_for(plan):
            view.notice(words, "yellow")
        await _tell_vacancy(opened.session.coordinator)
        return await work(opened)


async def _tell_vacancy(coordinator: Any) -> None:
    """Report before the first turn that no scheduler rules, unless hooks of the session do."""
    loop = coordinator.get("orchestrator")
    gate = loop.gate if isinstance(loop, LoopBase) else None
    if gate is not None and Emitter(coordinator.hooks).handlers(TOOL_SELECTING, besides=OBSERVERS) == 0:
        await gate.vacancy.tell()


@asynccontextmanager
async def _open_session(
    plan: Plan, view: View, approvals: TerminalApprovals | NoTerminal
) -> AsyncIterator[OpenSession]:
    questions = _make_held_questions(plan, view, approvals)
    report, listener = RunReport(view, questions), TurnListener(view)
    session = AmplifierSession(plan.mount, session_id=str(uuid.uuid4()), approval_system=approvals)
    report.listen(session.coordinator.hooks)
    if view.live:
        listener.listen(session.coordinator.hooks)
    let_delegate(session, lambda child: report.listen(child.coordinator.hooks, child=True))
    try:
        await _initialize(session, report)
        wanted = plan.orchestrator["config"].get("default_provider")
        mounted = session.coordinator.get("providers") or {}
        if wanted and wanted not in mounted and str(wanted).removeprefix("provider-") not in mounted:
            raise ConfigError(f"provider {wanted!r} is not mounted; mounted: {', '.join(mounted)}")
        yield OpenSession(session, plan, view, approvals, report, listener)
    finally:
        if questions is not None:
            await questions.close()
        await session.cleanup()


def _make_held_questions(
    plan: Plan, view: View, approvals: TerminalApprovals | NoTerminal
) -> HeldQuestions | None:
    """Return the questions about held calls; None without a terminal or a bus."""
    toolgate = plan.orchestrator["config"].get("toolgate")
    if isinstance(approvals, NoTerminal) or not plan.ours or not isinstance(toolgate, Mapping):
        return None
    bus = BusSettings(redis=toolgate.get("redis"), namespace=toolgate.get("namespace") or "default")
    return HeldQuestions(approvals, bus, lambda text: view.notice(text, "yellow")) if bus.redis else None


async def _initialize(session: Any, report: RunReport) -> None:
    """Mount everything. Raise ConfigError that names each module that did not load."""
    kernel = logging.getLogger("amplifier_core")
    level = kernel.level
    kernel.setLevel(logging.CRITICAL)  # failures are named here, in one line
    try:
        await session.initialize()
    except Exception as error:
        words = str(error).removeprefix("Session initialization failed: ").removeprefix("RuntimeError: ")
        raise ConfigError(words) from error
    finally:
        kernel.setLevel(level)
    if report.failures:
        raise ConfigError("\n".join(f"failed to load {failure}" for failure in report.failures))
