"""One call of a tool in CrewAI, from the hooks before it to the hooks after it: its ruling and its end."""

import secrets
from contextvars import ContextVar
from typing import Any, ClassVar, Final

from crewai.tools.tool_failure import ToolFailure
from crewai.utilities.string_utils import sanitize_tool_name
from toolgate_bus.errors import TurnStop
from toolgate_bus.protocol.json_values import same_json

from toolgate_orchestrator.decision.question.call import Call, Caller
from toolgate_orchestrator.guard.callers import enter_tool
from toolgate_orchestrator.guard.guard import Guard
from toolgate_orchestrator.guard.results import EndReport, raise_alone
from toolgate_orchestrator.guard.ruling import Ruling

STEP: Final[ContextVar["ToolStep | None"]] = ContextVar("toolgate_crewai_step", default=None)
"""The call that runs in this context. CrewAI copies the context for its threads."""


class ToolStep:
    """A call between its two hook points. Both lie in one function of CrewAI and share context and
    arguments."""

    named: ClassVar[ContextVar[tuple[str, str, Any] | None]] = ContextVar("toolgate_crewai_id", default=None)
    """Id, name and arguments of the call that CrewAI read last."""

    def __init__(self, guard: Guard, context: Any) -> None:
        self.guard, self.tool, self.agent = guard, context.tool, context.agent
        self.name: str = context.tool_name
        self.given: dict[str, Any] = context.tool_input
        """Arguments that the tool runs with, even if a hook puts other ones into the context."""
        self.outer = STEP.get()
        self.ruling: Ruling | None = None
        self.said: str | None = None
        """Answer to the model if CrewAI does not run the tool; None if it does."""
        self.stop: TurnStop | None = None
        self.error: BaseException | None = None
        self.is_cached = False
        self.is_given = False
        """True if its result, or its error, was reported and is as it may be seen."""
        self._inside: Any = None
        named = ToolStep.named.get()
        ToolStep.named.set(None)
        own = named is not None and named[1] == self.name
        self.id: str = str(named[0]) if own and named else f"crewai-{secrets.token_hex(8)}"
        STEP.set(self)

    @staticmethod
    def find(given: Any) -> "ToolStep | None":
        """Return the step whose call has these arguments, which ends now; None if there is none.

        Steps within it were broken off: they are left, and their calls reported as failed.
        """
        chain, step = list[ToolStep](), STEP.get()
        while step is not None and step.given is not given:
            chain.append(step)
            step = step.outer
        for one in chain if step is not None else ():
            one.leave()
            if one.ruling is not None:
                one.ruling.fail("it was broken off")
        return step

    def rule(self, at: Caller) -> None:
        """Rule on the call. `said` holds the answer to the model if the call may not run or another call
        replaces it."""
        ruling = self.ruling = self._ask(at)
        if not ruling.allowed:
            self.said = ruling.refusal
        elif ruling.tool != self.name or (ruling.arguments and not self.given):
            self.said = self._run_other(ruling)
        else:
            self._put_in(ruling)
            self._inside = enter_tool(ruling.at)
            self._inside.__enter__()

    def rule_again(self, at: Caller) -> str | None:
        """Rule on the repetition of a call: CrewAI runs a failed tool again by itself.

        Return the answer to the model if the call may not run again; else None.
        """
        try:
            ruling = self.ruling = self._ask(at)
        except TurnStop as error:
            self.stop = error
            return str(error)
        if ruling.allowed and not same_json([ruling.tool, ruling.arguments], [self.name, self.given]):
            ruling.release()
            return "Another call was chosen in its place: make it anew."
        if ruling.allowed:
            self._put_in(ruling)
        self.error, self.is_given = None, False
        return ruling.refusal or None

    def end(self, context: Any) -> TurnStop | None:
        """Report the result, and put the answer to the model into the context."""
        self.leave()
        if self.said is not None:
            context.tool_result = self.said
        elif self.ruling is not None:
            raw = context.raw_tool_result
            if self.is_cached:
                self.ruling.release()
            elif isinstance(raw, ToolFailure):
                self.ruling.report_failure(raw.as_agent_message())
            self.ruling.report(raw)
            if not self.is_given and self.ruling.is_ruled_on:  # from the cache, or by a way without `run`
                failed = isinstance(raw, ToolFailure)
                given = EndReport(self.ruling, context.tool_result, success=not failed).given_sync()
                if given.changed:
                    context.raw_tool_result = given.value
                    context.tool_result = str(given.value)
            context.tool_result = self.ruling.with_notice(context.tool_result)
        return self.stop

    def give(self, raw: Any) -> Any:
        """Report the result of the tool, and return it as it may be seen."""
        ruling = self.ruling
        if ruling is None or self.is_given:
            return raw
        self.is_given = True
        if isinstance(raw, ToolFailure):
            said = raw.as_agent_message()
            shown = ruling.fail(said).wait()
            return raw if shown == said else shown
        given = ruling.succeed(raw).given_sync()
        return given.value if given.changed else raw

    def show_error(self, error: BaseException) -> BaseException:
        """Report the error of the tool, and return it as it may be seen."""
        if self.ruling is None or self.is_given:
            return error
        self.is_given = True
        shown: BaseException = self.ruling.fail(error).wait()
        return shown

    def leave(self) -> None:
        """Leave the tool: it no longer runs in this context."""
        STEP.set(self.outer)
        if self._inside is not None:
            self._inside.__exit__(None, None, None)
            self._inside = None

    def _put_in(self, ruling: Ruling) -> None:
        """Fill the arguments in place with those that were ruled on. Even unchanged ones: others may hold
        references to the objects that were given."""
        self.given.clear()
        self.given.update(ruling.arguments)

    def _ask(self, at: Caller) -> Ruling:
        tools = self._tools()
        schemas = {name: _schema_of(tool) for name, tool in tools.items()}
        can = ("arguments", "tool", *(("ask",) if self.guard.asks else ()))
        return self.guard.rule_sync(Call(self.name, dict(self.given), schemas, at, self.id, can=can))

    def _tools(self) -> dict[str, Any]:
        """Return the agent's current tools by the names that the model knows."""
        executor = getattr(self.agent, "agent_executor", None) or self.agent
        found = getattr(executor, "tools", None) or getattr(executor, "_parsed_tools", None) or ()
        return {**{sanitize_tool_name(one.name): one for one in found}, self.name: self.tool}

    def _run_other(self, ruling: Ruling) -> str:
        chosen = self._tools()[ruling.tool]
        tool = chosen if hasattr(chosen, "invoke") else chosen.to_structured_tool()
        try:
            with enter_tool(ruling.at):
                raw = self.give(tool.invoke(ruling.arguments))
        except BaseException as error:  # noqa: BLE001 - raised below, as it may be seen
            failed = error
        else:
            return str(ruling.with_notice(tool.format_output_for_agent(raw)))
        shown = self.show_error(failed)
        if not isinstance(shown, Exception):
            raise_alone(shown)
        return f"Error executing tool: {shown}"


def _schema_of(tool: Any) -> dict[str, Any] | None:
    schema = getattr(tool, "args_schema", None)
    return schema.model_json_schema() if schema is not None else None
