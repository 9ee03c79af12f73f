"""The ruling on a call, how a guard gets it, and the one report of the call's outcome."""

from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from toolgate_bus.errors import ConfigError, ToolgateError, TurnStop
from toolgate_bus.protocol.llm import LLM_REQUEST
from toolgate_bus.protocol.names import OPERATOR
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.printable import shorten, visible

from toolgate_orchestrator.calls.call_session import CallSession
from toolgate_orchestrator.calls.refusal import reason_of, refuse_request, refuse_tool, refuse_yet
from toolgate_orchestrator.decision.question.call import Call, Caller, UnnamedTools
from toolgate_orchestrator.guard.answer import AskExit, AskHow
from toolgate_orchestrator.guard.callers import user_request
from toolgate_orchestrator.guard.reports import UNREPORTED, Cost, Reports, micro_units
from toolgate_orchestrator.guard.results import EndReport, give, warn_unruled
from toolgate_orchestrator.guard.turns import STOPPED

if TYPE_CHECKING:
    from toolgate_bus.protocol.events import AskUser, Decision

    from toolgate_orchestrator.calls.open_call import OpenCall
    from toolgate_orchestrator.decision.gate import Ask
    from toolgate_orchestrator.decision.results.given_result import GivenResult
    from toolgate_orchestrator.decision.round.decision_state import OnHold


DEFAULT: Final = "Note: {tool} ran in place of {original}{why}."
SAME_TOOL: Final = "Note: {tool} ran with other arguments{why}."
MAX_REASON: Final = 500
_MAX_NAME: Final = 128


def check_notice(notice: bool | str) -> str:
    """Return the text of a guard's `notice=`; empty for none. Raise ConfigError for unknown names in it."""
    if not notice:
        return ""
    template = DEFAULT if notice is True else notice
    try:
        template.format(tool="", original="", reason="", why="")
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"notice= must be a text with {{tool}}, {{original}} and {{reason}} in it: {error!r}"
        ) from None
    return template


def notice_of(template: str, original: str, tool: str, reason: str | None) -> str:
    """Return the notice. A scheduler's words in it are cut to a bound, and stay on one line."""
    if not template:
        return ""
    words = shorten(visible(reason or ""), MAX_REASON)
    if template == DEFAULT and tool == original:
        template = SAME_TOOL
    names = [shorten(visible(name), _MAX_NAME) for name in (tool, original)]
    return template.format(tool=names[0], original=names[1], reason=words, why=f" ({words})" if words else "")


_log = get_logger("toolgate.guard")


class Ruling:
    """The ruling on a call: whether it may run, and as which call. Report its outcome once.

    Report by `succeed`, `fail` or `release`. Await what `succeed` and `fail` return: it gives the result as
    it may be seen, because schedulers may rule on results, too. As a context manager it reports a failure if
    the block raises, and `release` if the block reports nothing.
    """

    __slots__ = (
        "__weakref__",
        "_open",
        "_opened",
        "agent_target",
        "allowed",
        "arguments",
        "asks_by",
        "at",
        "call",
        "decision",
        "id",
        "is_unread",
        "notice",
        "outcome",
        "pending",
        "prompt",
        "reason",
        "refusal",
        "replaced",
        "reports",
        "token",
        "tool",
    )

    def __init__(
        self,
        call: Call,
        at: Caller,
        reports: Reports,
        decision: "Decision | None",
        opened: "OpenCall | None",
        template: str = "",
        reason: str = "",
    ) -> None:
        """Make a ruling. If `decision` is None, nobody was asked, and the call runs unless `reason` is given.

        `opened` is the call that may run.
        """
        self.call, self.at, self.reports, self.decision = call, at, reports, decision
        self.asks_by: AskHow = reports.ask
        """Way to ask a person about its result."""
        self.outcome: Literal["continue", "modify", "deny", "ask"] = "deny" if reason else "continue"
        """Outcome of the decision. `ask`: a person's answer is to come (`token`)."""
        self.tool: str = call.tool
        """Name of the tool that is to run. It may be another than the one asked about."""
        self.arguments: dict[str, Any] = dict(call.arguments) if decision is None else decision.tool_input
        """Arguments to run it with."""
        self.id: str = ""
        """Id of the decision; empty if nobody was asked."""
        self.token: str = ""
        """Token that resumes this decision with a person's answer."""
        self.prompt: AskUser | None = None
        """Question to the person; `tool` and `arguments` are the call that would run."""
        self.agent_target: str | None = call.agent_target
        """Agent to which the call hands work, if it does."""
        self.reason: str | None = reason or None
        """Reason why the call may not run, or why it was replaced."""
        if decision is not None:
            self.id, self.reason = decision.id, decision.reason
            self.outcome = decision.outcome if decision.outcome != "cancelled" else "deny"
            self.token, self.prompt = decision.token, decision.prompt
            self.tool, self.agent_target = decision.tool_name, decision.agent_target
        self.allowed: bool = self.outcome in ("continue", "modify")
        """True if the call may run: `tool`, with `arguments`."""
        self.replaced: bool = self.outcome == "modify"
        """True if it is another call than the one asked about."""
        self.pending: bool = self.outcome == "ask"
        """True if a person's answer is to come: keep `token`, and ask again with `Call.answer`."""
        self.is_unread = False
        """True if the result comes in pieces and none was read: the tool has not begun."""
        self.refusal: str = "" if self.allowed else self._refuse()
        """Sentence for the LLM if the call may not run."""
        self.notice: str = notice_of(template, call.tool, self.tool, self.reason) if self.replaced else ""
        """Sentence for the LLM if another call runs, and the guard is to give one."""
        self._opened = opened
        self._open = [True] if opened is not None else []
        """Empty once the outcome is reported. (A list's item goes to one thread only.)"""

    @property
    def is_reported(self) -> bool:
        """True if the outcome was reported, or there is none to report."""
        return not self._open

    @property
    def is_ruled_on(self) -> bool:
        """True if a scheduler rules on results of the tool that runs: use what `succeed` and `fail` give."""
        home = self.reports.home
        gate = home.gate
        return home.withholds if gate is None else gate.rules_on_result(self.tool)

    def succeed(self, result: Any = None, *, cost: Cost | None = None) -> EndReport:
        """Report that the call ran, with its result. Await what is returned for the result to use.

        `cost` is in units of the currency; without it, the guard's `cost` reads it from the result. Raises
        CostError for a cost that is no amount.
        """
        if cost is not None:
            micro_units(cost)
        is_ruled_on = self.is_ruled_on
        self.report(result, cost, is_ruled_on=is_ruled_on)
        return EndReport(self if is_ruled_on else None, result)

    def fail(self, error: BaseException | str, *, cost: Cost | None = None) -> EndReport:
        """Report that the call ran, or may have, and failed or was cancelled. Raise CostError.

        Await what is returned for the error to raise, or the text to show.
        """
        is_ruled_on = self.report_failure(error, cost)
        return EndReport(self if is_ruled_on else None, error, success=False)

    async def give(
        self,
        result: Any,
        *,
        success: bool = True,
        ask: AskHow = None,
        on_hold: "OnHold | None" = None,
    ) -> "GivenResult":
        """Return a result as it may be seen, and what became of it. The end of the call is reported apart.

        `success` is False for an error. `ask` and `on_hold` are as for `Guard.rule`.
        """
        return await give(self, result, success=success, ask=ask, on_hold=on_hold)

    def report(self, result: Any, cost: Cost | None = None, *, is_ruled_on: bool = False) -> None:
        """Report that the call ran, and nothing else: its result is ruled on elsewhere, or by nobody."""
        if (opened := self._take()) is not None:
            self.reports.succeed(opened, result, cost, is_ruled_on=is_ruled_on)

    def report_failure(self, error: BaseException | str, cost: Cost | None = None) -> bool:
        """Report that the call failed, and nothing else. Return whether a scheduler rules on its error."""
        from toolgate_orchestrator.turn.values.foreign_code import is_result  # late: as in `Reports`

        spent = micro_units(cost)
        is_ruled_on = is_result(error) and self.is_ruled_on
        if (opened := self._take()) is not None:
            self.reports.fail(opened, error, spent, is_ruled_on=is_ruled_on)
        return is_ruled_on

    def settle(self, used: dict[str, Any]) -> None:
        """Report that a request to an LLM was answered, and used this (`Guard.usage`).

        Raises ToolgateError if the ruling is on a tool.
        """
        if self.call.tool != LLM_REQUEST:
            raise ToolgateError(f"{self.call.tool} is no request to an LLM: report it with ruling.succeed")
        if (opened := self._take()) is not None:
            self.reports.end(opened, "succeed", used)

    def release(self) -> None:
        """Report that the call did not run: its reservations are given back."""
        if (opened := self._take()) is not None:
            self.reports.end(opened, "release")

    def with_notice(self, result: Any) -> Any:
        """Return a result as the LLM is told it: with `notice` above it, if it is a text."""
        return f"{self.notice}\n{result}" if self.notice and isinstance(result, str) else result

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if error is None:
            self.release()
            return
        was_reported = self.is_reported
        if self.report_failure(error) and not was_reported:  # a block cannot rule on it
            warn_unruled(self.tool)

    def __del__(self) -> None:
        # (A forked process has its parent's rulings too.)
        if not getattr(self, "_open", None) or self.reports.home.is_foreign:
            return
        if self.is_unread:
            self.release()
        elif (opened := self._take()) is not None:
            _log.warning("a call ended without a report", tool=opened.about["tool"], decision=self.id)
            self.reports.end(opened, "fail", {"error": UNREPORTED})

    def __repr__(self) -> str:
        return f"<Ruling {self.outcome} {self.tool!r} {self.id[:8]}>"

    def _refuse(self) -> str:
        if self.pending:
            return refuse_yet()
        why = reason_of(self.decision) if self.decision is not None else self.reason or ""
        return refuse_request(why) if self.call.tool == LLM_REQUEST else refuse_tool(why)

    def _take(self) -> "OpenCall | None":
        try:
            self._open.pop()
        except IndexError:
            return None
        return self._opened


class Decider:
    """Asks the gate, for one guard."""

    def __init__(self, reports: Reports, template: str, passes: tuple[type[BaseException], ...]) -> None:
        self.reports, self._template, self._passes = reports, template, (*passes, AskExit)

    async def rule_point(self, call: Call, at: Caller, ask: "Ask | None") -> "Decision | None":
        """Return the decision on a point of a turn; None if nobody is asked. Raise as `rule` does."""
        reports = self.reports
        turns = reports.presences
        if turns.seen:
            self._find_stop(call, at)
        gate = reports.home.gate or await reports.home.open()
        asked = call._replace(at=at)
        session = CallSession(gate, turns.find(at.session) if turns.seen else None)
        decision = await session.rule(asked, ask=ask, passes=self._passes)
        if decision is not None and decision.scheduler == OPERATOR and not decision.allowed:
            self._find_stop(call, at)
        if decision is not None and decision.allowed:
            session.pass_point(asked, decision)
        return decision

    async def rule(
        self,
        call: Call,
        at: Caller,
        later: Literal["defer"] | None,
        on_hold: "OnHold | None",
        ask: "Ask | None",
    ) -> Ruling:
        """Return the ruling on a call. Raise TurnStop, ConfigError, or CancelledError.

        A cancellation withdraws the question.

        A person is asked by `ask`, or answers `later`.
        """
        reports = self.reports
        turns = reports.presences
        if turns.seen and (stopped := self._find_stop(call, at)) is not None:
            return stopped
        gate = reports.home.gate or await reports.home.open()
        asked = call._replace(
            tools=call.tools or ((call.tool,) if "tool" in call.can else UnnamedTools((call.tool,))),
            at=at,
            request=call.request or (turns.request_of(at) if turns.seen else "") or user_request(),
        )
        session = CallSession(gate, turns.find(at.session) if turns.seen else None)
        decision = await session.rule(asked, ask=later or ask, on_hold=on_hold, passes=self._passes)
        if decision is not None and not decision.allowed:
            if decision.scheduler == OPERATOR:
                self._find_stop(call, at)  # it raises if that ends the turn
            return Ruling(asked, at, reports, decision, None, self._template)
        ruling = Ruling(asked, at, reports, decision, session.open(asked, decision), self._template)
        return ruling if not turns.seen else self._find_stop(call, at, ruling) or ruling

    def _find_stop(self, call: Call, at: Caller, ruling: Ruling | None = None) -> Ruling | None:
        found = self.reports.presences.stop_of(at)
        if found is None:
            return None
        how, stop = found
        if ruling is not None:
            ruling.release()
        elif how == "deny" and stop is not None:
            return None  # the gate denies it, and records that
        from toolgate_orchestrator.decision.link.pauses import (
            explain_stop,  # late: the gate has loaded it by now
        )

        words = STOPPED if stop is None else explain_stop(stop)
        if how == "raise":
            raise TurnStop(words)
        return Ruling(call, at, self.reports, None, None, reason=words)
