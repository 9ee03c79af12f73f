"""`loop-reactive`: calls start while the LLM still writes, each as soon as its data are there.

    request ─▶ a call out of the stream ─▶ is there what it refers to? ─▶ schedulers, hooks, a person ─▶ run
                                                    ▲                                                     │
                                                    └───────────── its result is in the state ◀───────────┘
            ─▶ all drained ─▶ results, then Error Messages, are stored ─▶ an output? then it ends : once more

A call refers to the input or to another call's result by `†input.…` and `†state.…`; `_outputPath`
names the place of its own result (seed agent-loop). With an `output_schema` the turn ends on an
output that fits it; without one, on a response without calls, whose text is the answer.
"""

import json
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar
from weakref import WeakKeyDictionary

from jsonschema import Draft202012Validator, SchemaError, validators
from pydantic import Field, field_validator
from toolgate_bus.errors import ConfigError, ToolgateError
from toolgate_bus.protocol.fact_events import TOOL_SELECTED

from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.question.schema_check import Checker, Uncheckable, foreign_pointers
from toolgate_orchestrator.loops.reactive_engine.guide import notes
from toolgate_orchestrator.loops.reactive_engine.output import FinalOutput, Goal
from toolgate_orchestrator.loops.reactive_engine.schemas import offer
from toolgate_orchestrator.loops.reactive_engine.state import Data
from toolgate_orchestrator.loops.reactive_engine.tick import Tick, settle, store
from toolgate_orchestrator.turn.calls.selection import TOOL_SELECTING
from toolgate_orchestrator.turn.cancellation import despite_cancellation
from toolgate_orchestrator.turn.leg_budget import LIMIT_REMINDER
from toolgate_orchestrator.turn.llm.provider_stream import Reply
from toolgate_orchestrator.turn.llm.ruled_answer import drop_thoughts
from toolgate_orchestrator.turn.loop import LoopBase, mount_of
from toolgate_orchestrator.turn.loop_config import AskingConfig, LoopConfig
from toolgate_orchestrator.turn.turn import Turn
from toolgate_orchestrator.turn.values.messages import text_of

__amplifier_module_type__ = "orchestrator"

_PATIENCE = 5
"""Maximum number of responses in a row with neither a call nor an output."""

_given: ContextVar[Mapping[str, Any]] = ContextVar("given")


class ReactiveConfig(AskingConfig):
    """Configuration of `loop-reactive` in a mount plan."""

    parallel_tools: bool = True
    output_schema: dict[str, Any] | None = None
    """JSON Schema of the final output, with `$ref` only inside it. Default: a response without calls ends the
    turn with its text."""
    output_tool: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")] = "final_output"
    """Name of the tool by which the LLM gives the final output."""
    input: dict[str, Any] = Field(default_factory=dict)
    """Data that calls refer to as `†input.…`."""
    state: dict[str, Any] = Field(default_factory=dict)
    """Data in `†state.…` at the beginning of the session."""

    @field_validator("parallel_tools")
    @classmethod
    def _parallel(cls, value: bool) -> bool:
        if not value:
            raise ValueError(
                "loop-reactive starts every call as soon as its references are available; "
                "loop-basic and loop-streaming can run calls one after another"
            )
        return value

    @field_validator("output_schema")
    @classmethod
    def _applicable(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        return None if value is None else validate_schema(value)


def validate_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return an output schema that can be applied; raise ValueError with the reason if it cannot."""
    if foreign := foreign_pointers(schema):
        raise ValueError(f"$ref must stay within the schema: {foreign[0][:80]!r}")
    try:
        validators.validator_for(schema, default=Draft202012Validator).check_schema(schema)
        Checker(schema).problems(None)
    except SchemaError as error:
        raise ValueError(f"is not a JSON Schema: {error.message[:200]}") from None
    except (Uncheckable, RecursionError) as error:
        raise ValueError(f"is not a JSON Schema that can be applied: {error}") from None
    return schema


class NoOutput(ToolgateError):  # noqa: N818 - it names the LLM's failure
    """The LLM keeps answering with neither a call nor an output that fits the schema."""


@dataclass(slots=True)
class _Progress:
    """Goal and progress of one turn."""

    goal: Goal | None
    data: Data
    tool: str
    """Name of the output tool; empty if there is no goal."""
    empty: int = 0
    """Number of responses in a row with neither a call nor an output."""


class LoopReactive(LoopBase[ReactiveConfig]):
    """The reactive orchestrator."""

    name: ClassVar[str] = "loop-reactive"
    config_model: ClassVar[type[LoopConfig]] = ReactiveConfig
    streams: bool = True
    own_events: ClassVar[tuple[str, ...]] = (TOOL_SELECTING, TOOL_SELECTED)

    def __init__(
        self, config: Mapping[str, Any] | ReactiveConfig | None = None, gate: Gate | None = None
    ) -> None:
        super().__init__(config, gate)
        self.data = Data(self.settings.state, self.settings.input)
        """Input and state, kept as long as the session."""
        self.last_output: Any = None
        """Output of the latest turn, before its conversion to text; None if there was none."""
        self._progress: WeakKeyDictionary[Turn, _Progress] = WeakKeyDictionary()

    async def execute(
        self,
        prompt: str,
        context: Any,
        providers: dict[str, Any],
        tools: dict[str, Any],
        hooks: Any,
        **kwargs: Any,
    ) -> str:
        """Run a turn; the keywords `output_schema` and `input` replace those of the config."""
        self.last_output = None
        token = _given.set({key: kwargs[key] for key in ("output_schema", "input") if key in kwargs})
        try:
            return await super().execute(prompt, context, providers, tools, hooks, **kwargs)
        finally:
            _given.reset(token)

    async def step(self, turn: Turn) -> str | None:
        """Send one request, and run its calls while it comes in."""
        progress = self._of(turn)
        if progress.goal is not None and progress.tool in turn.tools.tools:
            raise ConfigError(
                f"{self.name}: output_tool: a tool named {progress.tool!r} is mounted; "
                "give the output another name"
            )
        tick = Tick(turn, offer(turn.tools.tools), progress.data, progress.tool)
        reply = await self._run(turn, tick, progress)
        output, reply = await self._rule_on(turn, tick, self._output(progress, tick, reply), reply)
        await store(turn, tick, reply)
        if tick.is_interrupted or reply.stopped:
            return None
        if progress.goal is None or (turn.llm.withheld and not tick.calls):
            return None if tick.calls else text_of(reply.response)
        if output.value is None:
            progress.empty = 0 if tick.calls else progress.empty + 1
            if progress.empty >= _PATIENCE:
                raise NoOutput(
                    f"the language model answered {_PATIENCE} times with neither a call nor an output that "
                    "fits output_schema: try another model, or a simpler schema"
                )
            return None
        return await self._answer(turn, tick, output)

    async def wrap_up(self, turn: Turn) -> str:
        """Send the last request of a turn at its limit; only the output can be given in it."""
        progress = self._of(turn)
        if progress.goal is None:
            return await turn.conclude([each.spec for each in offer(turn.tools.tools).values()])
        turn.injections.remind(LIMIT_REMINDER)
        tick = Tick(turn, {}, progress.data, progress.tool)
        reply = await self._run(turn, tick, progress, last=True)
        output, reply = await self._rule_on(turn, tick, self._output(progress, tick, reply), reply)
        await store(turn, tick, reply)
        return text_of(reply.response) if output.value is None else await self._answer(turn, tick, output)

    # ------------------------------------------------------------------ one request

    async def _run(self, turn: Turn, tick: Tick, progress: _Progress, *, last: bool = False) -> Reply:
        goal, tool = progress.goal, progress.tool
        offered = await turn.offer([each.spec for each in tick.offered.values()])
        specs = [*offered, *([goal.spec] if goal else [])]
        said = notes(bool(tick.offered), tool, progress.data, nothing_given=progress.empty > 0)
        # With thinking, calls may not be forced: servers refuse that.
        forced = goal and (last or progress.empty) and not self.settings.extended_thinking
        choice = "required" if forced else None
        try:
            return await tick.run(
                lambda on_call: turn.llm.ask(specs, on_call=on_call, notes=said, tool_choice=choice)
            )
        except BaseException:
            settle(tick, FinalOutput(), "the response broke off")
            await despite_cancellation(store(turn, tick, tick.reply))
            raise

    def _output(self, progress: _Progress, tick: Tick, reply: Reply) -> FinalOutput:
        """Return the final output of a request whose calls are all done."""
        goal = progress.goal
        if goal is None or tick.is_interrupted or reply.stopped:
            settle(tick, FinalOutput(), "the session was cancelled")
            return FinalOutput()
        if not tick.calls:
            return goal.output_in(text_of(reply.response))
        if not tick.finals:
            return FinalOutput()
        output = goal.output(tick.finals[-1], progress.data, tick.readiness)
        settle(tick, output)
        return output

    async def _rule_on(
        self, turn: Turn, tick: Tick, output: FinalOutput, reply: Reply
    ) -> tuple[FinalOutput, Reply]:
        """Return an output, and the response with it, as they may be given and stored.

        A text that is the output was ruled on with its response.
        """
        if output.value is None or not tick.finals:
            return output, reply
        answer = _as_text(output.value)
        ruled = await turn.rule_on_output(answer)
        if ruled.text == answer:
            return output, reply
        turn.llm.withheld = ruled.denied is not None
        value = (
            _parse(ruled.text) if ruled.denied is None and not isinstance(output.value, str) else ruled.text
        )
        tick.replace_output(value)
        return FinalOutput(value), drop_thoughts(reply)

    async def _answer(self, turn: Turn, tick: Tick, output: FinalOutput) -> str:
        """Return the output as text for the user, and add it to the conversation."""
        self.last_output = value = output.value
        answer = _as_text(value)
        if tick.calls:
            await turn.context.add_message({"role": "assistant", "content": answer})
        return answer

    # ------------------------------------------------------------------ what the turn has

    def _of(self, turn: Turn) -> _Progress:
        if (progress := self._progress.get(turn)) is not None:
            return progress
        given = _given.get({})
        schema, data = given.get("output_schema", self.settings.output_schema), self.data
        if "input" in given:
            data = Data(given=given["input"] or {})  # with the same state, and record of writes
            data.state, data.writes = self.data.state, self.data.writes
        try:
            goal = None if schema is None else Goal(self.settings.output_tool, validate_schema(schema))
        except ValueError as error:
            raise ConfigError(f"{self.name}: output_schema: {error}") from None
        tool = self.settings.output_tool if goal is not None else ""
        progress = self._progress[turn] = _Progress(goal, data, tool)
        return progress


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


mount = mount_of(LoopReactive)
config_model = LoopReactive.config_model
