"""The ruling on a call, how a guard comes to it, and the one report of what became of the call."""

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
from toolgate_orchestrator.guard.answer import AskExit
from toolgate_orchestrator.guard.callers import user_request
from toolgate_orchestrator.guard.reports import UNREPORTED, Cost, Reports, micro_units
from toolgate_orchestrator.guard.turns import STOPPED

if TYPE_CHECKING:
    from toolgate_bus.protocol.events import AskUser, Decision

    from toolgate_orchestrator.calls.open_call import OpenCall
    from toolgate_orchestrator.decision.gate import Ask
    from toolgate_orchestrator.decision.round.decision_state import OnHold


DEFAULT: Final = "Note: {tool} ran in place of {original}{why}."
SAME_TOOL: Final = "Note: {tool} ran with other arguments{why}."
MAX_REASON: Final = 500
_MAX_NAME: Final = 128


def check_notice(notice: bool | str) -> str:
    """The text for a guard's `notice=`; empty for none. Raises ConfigError for names it does not know."""
    if not notice:
        return ""
    template = DEFAULT if notice is True else notice
    try:
        template.format(tool="", original="", reason="", why="")
    except (KeyError, IndexError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"notice= is a text with {{tool}}, {{original}} and {{reason}} in it: {error!r}"
        ) from None
    return template


def notice_of(template: str, original: str, tool: str, reason: str | None) -> str:
    """That sentence; a scheduler's words in it are bounded, and stay on one line."""
    if not template:
        return ""
    words = shorten(visible(reason or ""), MAX_REASON)
    if template == DEFAULT and tool == original:
        template = SAME_TOOL
    names = [shorten(visible(name), _MAX_NAME) for name in (tool, original)]
    return template.format(tool=names[0], original=names[1], reason=words, why=f" ({words})" if words else "")


_log = get_logger("toolgate.guard")


class Ruling:
    """May the call run, and as which? Report what became of it, once: `succeed`, `fail` or `release`.

    As a context manager it reports a failure where the block raises, and `release` where it says nothing.
    """

    __slots__ = (
        "__weakref__",
        "_open",
        "_opened",
        "_reports",
        "agent_target",
        "allowed",
        "arguments",
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
        """`decision` None: nobody was asked, and the call runs, unless there is a `reason` why it must not.

        `opened` is the call that may run.
        """
        self.call, self.at, self._reports, self.decision = call, at, reports, decision
        self.outcome: Literal["continue", "modify", "deny", "ask"] = "deny" if reason else "continue"
        """`ask`: a person's answer is to come (`token`)."""
        self.tool: str = call.tool
        """What is to run: perhaps another than the one asked about."""
        self.arguments: dict[str, Any] = dict(call.arguments) if decision is None else decision.tool_input
        """With what."""
        self.id: str = ""
        """Of the decision; empty where nobody was asked."""
        self.token: str = ""
        """By which a person's answer to an open question goes on with this decision."""
        self.prompt: AskUser | None = None
        """What the person is to be asked; `tool` and `arguments` are what would run."""
        self.agent_target: str | None = call.agent_target
        """Whom it hands work to, where it is a call that does."""
        self.reason: str | None = reason or None
        """Why it may not run, or why it was replaced."""
        if decision is not None:
            self.id, self.reason = decision.id, decision.reason
            self.outcome = decision.outcome if decision.outcome != "cancelled" else "deny"
            self.token, self.prompt = decision.token, decision.prompt
            self.tool, self.agent_target = decision.tool_name, decision.agent_target
        self.allowed: bool = self.outcome in ("continue", "modify")
        """Whether a tool may run: `tool`, with `arguments`."""
        self.replaced: bool = self.outcome == "modify"
        """Whether it is another call than the one asked about."""
        self.pending: bool = self.outcome == "ask"
        """Whether a person's answer is to come: keep `token`, and ask again with `Call.answer`."""
        self.is_unread = False
        """Whether it gives pieces of which nobody has taken any: its tool has not begun."""
        self.refusal: str = "" if self.allowed else self._refuse()
        """The sentence for the LLM where it may not run."""
        self.notice: str = notice_of(template, call.tool, self.tool, self.reason) if self.replaced else ""
        """The sentence for the LLM where another call runs, if the guard is to give one."""
        self._opened = opened
        self._open = [True] if opened is not None else []
        """Empty once it is reported (what a list gives out, it gives to one thread)."""

    @property
    def is_reported(self) -> bool:
        """Whether it was told what became of it, or there is nothing to tell."""
        return not self._open

    def succeed(self, result: Any = None, *, cost: Cost | None = None) -> None:
        """It ran, and gave this. `cost` in units of the currency; else the guard's `cost` reads it of the
        result.

        Raises CostError for a cost that is no amount.
        """
        if cost is not None:
            micro_units(cost)
        if (opened := self._take()) is not None:
            self._reports.succeed(opened, result, cost)

    def fail(self, error: BaseException | str, *, cost: Cost | None = None) -> None:
        """It ran, or may have, and ended so; a cancellation too. Raises CostError."""
        spent = micro_units(cost)
        if (opened := self._take()) is not None:
            self._reports.fail(opened, error, spent)

    def settle(self, used: dict[str, Any]) -> None:
        """Of a request to an LLM: it was answered, and used this (`Guard.usage`). Raises ToolgateError."""
        if self.call.tool != LLM_REQUEST:
            raise ToolgateError(f"{self.call.tool} is no request to an LLM: report it by ruling.succeed")
        if (opened := self._take()) is not None:
            self._reports.end(opened, "succeed", used)

    def release(self) -> None:
        """It did not run: what was reserved for it is given back."""
        if (opened := self._take()) is not None:
            self._reports.end(opened, "release")

    def with_notice(self, result: Any) -> Any:
        """A result as the LLM is told it: with `notice` above it, where that is a text."""
        return f"{self.notice}\n{result}" if self.notice and isinstance(result, str) else result

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if error is not None:
            self.fail(error)
        else:
            self.release()

    def __del__(self) -> None:
        # (A forked process has its parent's rulings, too.)
        if not getattr(self, "_open", None) or self._reports.home.is_foreign:
            return
        if self.is_unread:
            self.release()
        elif (opened := self._take()) is not None:
            _log.warning("nobody told what became of a call", tool=opened.about["tool"], decision=self.id)
            self._reports.end(opened, "fail", {"error": UNREPORTED})

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

    async def rule(
        self,
        call: Call,
        at: Caller,
        later: Literal["defer"] | None,
        on_hold: "OnHold | None",
        ask: "Ask | None",
    ) -> Ruling:
        """The ruling on a call; raises TurnStop, ConfigError, and CancelledError, which withdraws the
        question.

        A person is asked by `ask`, or is to answer `later`.
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
                self._find_stop(call, at)  # it raises, where that ends the turn
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
            explain_stop,  # late: a turn that is stopped has a gate
        )

        words = STOPPED if stop is None else explain_stop(stop)
        if how == "raise":
            raise TurnStop(words)
        return Ruling(call, at, self.reports, None, None, reason=words)
