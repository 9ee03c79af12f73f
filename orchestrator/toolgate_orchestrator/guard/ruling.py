"""The ruling on a call, how a guard comes to it, and the one report of what became of the call."""

import time
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from toolgate_bus.errors import ConfigError, TurnStop
from toolgate_bus.protocol.fact_events import PROVIDER_ERROR, TOOL_ERROR, TOOL_POST, TOOL_SELECTED, USAGE
from toolgate_bus.protocol.llm import LLM_REQUEST
from toolgate_bus.protocol.names import NO_TOOL, OPERATOR
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.printable import shorten, visible

from toolgate_orchestrator.decision.fact_shapes import (
    describe_call,
    describe_place,
    describe_selection,
    end_event,
)
from toolgate_orchestrator.decision.question.call import Call, Caller, UnnamedTools
from toolgate_orchestrator.guard.answer import AskExit, AskHow
from toolgate_orchestrator.guard.callers import user_request
from toolgate_orchestrator.guard.gate_thread import Request
from toolgate_orchestrator.guard.reports import (
    UNREPORTED,
    Cost,
    Reports,
    label_of,
    micro_units,
    money_text,
)
from toolgate_orchestrator.guard.turns import STOPPED
from toolgate_orchestrator.turn.calls.refusal import reason_of, refuse_request, refuse_tool, refuse_yet

if TYPE_CHECKING:
    from toolgate_bus.protocol.events import AskUser, Decision

    from toolgate_orchestrator.decision.gate import Ask, Gate
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
        "_key",
        "_open",
        "_reports",
        "_started",
        "agent_target",
        "arguments",
        "at",
        "call",
        "decision",
        "id",
        "is_unread",
        "notice",
        "outcome",
        "prompt",
        "reason",
        "refusal",
        "token",
        "tool",
    )

    def __init__(
        self,
        call: Call,
        at: Caller,
        reports: Reports,
        decision: "Decision | None",
        template: str = "",
        reason: str = "",
        key: str = "",
    ) -> None:
        """`decision` None: nobody was asked, and the call runs, unless there is a `reason` why it must not.

        `key` is the call as operators see it.
        """
        self.call, self.at, self._reports, self.decision = call, at, reports, decision
        self.outcome: Literal["continue", "modify", "deny", "ask"] = "deny" if reason else "continue"
        """`ask`: a person's answer is to come (`token`)."""
        self.tool: str = call.tool
        """What is to run: perhaps another than the one asked about."""
        self.arguments: dict[str, Any] = dict(call.arguments)
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
            self.token = getattr(decision, "token", "")
            self.prompt = getattr(decision, "prompt", None)
            self.tool, self.arguments = decision.tool_name, decision.tool_input
            self.agent_target = decision.agent_target
        self._started = time.monotonic()
        self._key = key
        self.is_unread = False
        """Whether it gives pieces of which nobody has taken any: its tool has not begun."""
        self.refusal: str = "" if self.allowed else self._refuse()
        """The sentence for the LLM where it may not run."""
        self.notice: str = notice_of(template, call.tool, self.tool, self.reason) if self.replaced else ""
        """The sentence for the LLM where another call runs, if the guard is to give one."""
        self._open = [True] if self.allowed else []
        """Empty once it is reported (what a list gives out, it gives to one thread)."""

    @property
    def allowed(self) -> bool:
        """Whether a tool may run: `tool`, with `arguments`."""
        return self.outcome in ("continue", "modify")

    @property
    def replaced(self) -> bool:
        """Whether it is another call than the one asked about."""
        return self.outcome == "modify"

    @property
    def pending(self) -> bool:
        """Whether a person's answer is to come: keep `token`, and ask again with `Call.answer`."""
        return self.outcome == "ask"

    @property
    def is_reported(self) -> bool:
        """Whether it was told what became of it, or there is nothing to tell."""
        return not self._open

    @property
    def fact(self) -> dict[str, Any]:
        """What each fact about this call tells of it."""
        call, decision = self.call, self.decision
        tool, grants = label_of(self.tool, call.tools or (call.tool,)), decision.grants if decision else None
        return describe_call(tool, call.id, self.id, grants)

    def succeed(self, result: Any = None, *, cost: Cost | None = None) -> None:
        """It ran, and gave this. `cost` in units of the currency; else the guard's `cost` reads it of the
        result.

        Raises CostError for a cost that is no amount.
        """
        micro_units(cost)
        if self._take():
            self._tell_success(result, cost)

    def fail(self, error: BaseException | str, *, cost: Cost | None = None) -> None:
        """It ran, or may have, and ended so; a cancellation too. Raises CostError."""
        spent = micro_units(cost)
        if self._take():
            told = self._reports.failure(error)
            if self.call.tool == LLM_REQUEST:
                self._tell(PROVIDER_ERROR, {**self._request(), **told})
            else:
                self._tell(TOOL_ERROR, {**told, **({} if spent is None else {"cost": spent})})

    def settle(self, used: dict[str, Any]) -> None:
        """Of a request to an LLM: it was answered, and used this (`Guard.usage`)."""
        if self._take():
            self._tell(USAGE, {**self._request(), **used})

    def release(self) -> None:
        """It did not run: what was reserved for it is given back."""
        if self._take():
            self._reports.tell(end_event("release", self.call.tool), self.at, self.fact, self._key)

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
        if getattr(self, "is_unread", False) and not self._reports.home.is_foreign:
            self.release()
            return
        # (A forked process has its parent's rulings, too.)
        if getattr(self, "_open", None) and not self._reports.home.is_foreign and self._take():
            _log.warning("nobody told what became of a call", tool=self.fact["tool"], decision=self.id)
            self._tell(end_event("fail", self.call.tool), {"error": UNREPORTED})

    def __repr__(self) -> str:
        return f"<Ruling {self.outcome} {self.tool!r} {self.id[:8]}>"

    def _refuse(self) -> str:
        if self.pending:
            return refuse_yet()
        why = reason_of(self.decision) if self.decision is not None else self.reason or ""
        return refuse_request(why) if self.call.tool == LLM_REQUEST else refuse_tool(why)

    def _take(self) -> bool:
        try:
            return self._open.pop()
        except IndexError:
            return False

    def _tell(self, event: str, told: dict[str, Any]) -> None:
        seconds = {"seconds": time.monotonic() - self._started}
        self._reports.tell(event, self.at, {**self.fact, **seconds, **told}, self._key)

    def _tell_success(self, result: Any, cost: Cost | None) -> None:
        told = self._reports.success(result, cost)
        if self.call.tool != LLM_REQUEST:
            self._tell(TOOL_POST, told)
            return
        spent = {"cost_usd": money_text(cost)} if cost is not None else {}
        self._tell(USAGE, {**self._request(), **spent})

    def _request(self) -> dict[str, Any]:
        """What the facts of a request to an LLM tell of it."""
        asked = self.arguments
        told = {name: asked[name] for name in ("provider", "model") if isinstance(asked.get(name), str)}
        tokens = asked.get("input_tokens")
        guess = {"estimated_tokens": tokens} if isinstance(tokens, int) else {}
        return {**told, **guess, "iteration": self.call.iteration}


_numbers: Final = count(1)


class Decider:
    """Asks the gate, for one guard."""

    def __init__(self, reports: Reports, template: str, passes: tuple[type[BaseException], ...]) -> None:
        self._reports, self._template, self._passes = reports, template, passes

    def request(self, call: Call, at: Caller, how: AskHow, on_hold: "OnHold | None") -> Request[Ruling]:
        """The same for who asks from elsewhere, and asks the person there."""
        later: Literal["defer"] | None = "defer" if how == "defer" else None
        return lambda ask: self.rule(call, at, later or ask, on_hold)

    async def rule(
        self,
        call: Call,
        at: Caller,
        ask: "Ask | Literal['defer'] | None",
        on_hold: "OnHold | None",
    ) -> Ruling:
        """The ruling on a call; raises TurnStop, ConfigError, and CancelledError, which withdraws the
        question."""
        if call.is_reserved:
            return self.refuse(call, at, NO_TOOL)
        if (stopped := self._find_stop(call, at)) is not None:
            return stopped
        gate = await self._reports.home.open()
        presences, key = self._reports.presences, f"{call.id}#{next(_numbers)}"  # ids may come twice
        presences.start_decision(at, key, call.tool)
        try:
            gate.note_above(at.above)
            wanted = call.answer is not None or gate.wanted(call.tool, is_request=call.is_request)
            if (
                call.is_request and not wanted
            ):  # nobody rules on requests: those of a stopped agent are denied
                wanted = gate.find_stop(at.session, at.root, at.parent) is not None
            if not wanted and call.tools:
                gate.show_tools(call.tools)
            if not wanted and gate.vacancy.may_tell:
                await gate.vacancy.tell_unruled()
            decision = await self._decide(gate, call, at, ask, on_hold) if wanted else None
            ruling = Ruling(call, at, self._reports, decision, self._template, key=key)
        except BaseException:
            presences.end(at, key)
            raise
        if not ruling.allowed:
            (presences.end if ruling.pending else presences.deny)(at, key)
            if decision is not None and decision.scheduler == OPERATOR:
                self._find_stop(call, at)  # it raises, where that ends the turn
            return ruling
        presences.run(at, key, ruling.tool, ruling.arguments)
        if (stopped := self._find_stop(call, at, ruling)) is not None:
            return stopped
        if ruling.id:
            gate.note(TOOL_SELECTED, _describe_selection(ruling))
        return ruling

    async def _decide(
        self,
        gate: "Gate",
        call: Call,
        at: Caller,
        ask: "Ask | Literal['defer'] | None",
        on_hold: "OnHold | None",
    ) -> "Decision":
        asked = call._replace(
            tools=call.tools or ((call.tool,) if "tool" in call.can else UnnamedTools((call.tool,))),
            at=at,
            request=call.request or self._reports.presences.request_of(at) or user_request(),
        )
        return await gate.decide(asked, ask=ask, on_hold=on_hold, passes=(*self._passes, AskExit))

    def refuse(self, call: Call, at: Caller, reason: str) -> Ruling:
        """A denial of the guard's own, which nobody was asked about."""
        return Ruling(call, at, self._reports, None, reason=reason)

    def _find_stop(self, call: Call, at: Caller, ruling: Ruling | None = None) -> Ruling | None:
        found = self._reports.presences.stop_of(at)
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
        return self.refuse(call, at, words)


def _describe_selection(ruling: Ruling) -> dict[str, Any]:
    at, call = ruling.at, ruling.call
    told = describe_selection(call.tool if ruling.replaced else None, call.group, call.iteration)
    return {**ruling.fact, **told, **describe_place(at.session, at.root, at.agent, at.lineage)}
