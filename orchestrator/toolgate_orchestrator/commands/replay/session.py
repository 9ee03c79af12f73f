"""Plays one recorded run through a real loop, in an Amplifier session of its own.

The session is made of entry points, as any other: the loop under test with its `toolgate` config,
`context-simple`, `provider-replay` and `tool-replay`. The result tells what happened to each call, and
whatever should not have happened.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any, Final, Literal

from amplifier_core import AmplifierSession, ToolResult
from toolgate_bus.errors import ConfigError
from toolgate_bus.facts.recording import RecordedCall, Run, RunArchive, arguments_key
from toolgate_bus.protocol.events import Decision, ReceivedVerdict

from toolgate_orchestrator.commands.host.rulings import Rulings
from toolgate_orchestrator.commands.replay.playback import CAPABILITY, Playback, Source, Trace
from toolgate_orchestrator.commands.replay.provider_replay import NAME, tool_results
from toolgate_orchestrator.decision.results.given_result import GivenResult
from toolgate_orchestrator.modules.context_simple import without_timestamp

SHORT: Final = 4
"""Hidden texts with fewer characters stand everywhere."""
CallOutcome = Literal["run", "rerouted", "vetoed", "not_run"]


@dataclass(frozen=True, slots=True)
class ReplayedCall:
    """One recorded call after the replay.

    Its outcome is `run` (as recorded), `rerouted` (another tool or other arguments), `vetoed`, or `not_run`,
    which should never occur. For any file and loop these are checked: each call has one result, in order; the
    call that ran is the decided one; nothing runs twice; the LLM is told why a call was denied.
    """

    call: RecordedCall
    outcome: CallOutcome
    ran_tool: str | None = None
    ran_arguments: dict[str, Any] | None = None
    source: Source | None = None
    """Source of the result; None if nothing ran."""
    result: str | None = None
    """Result for this call in the LLM's next request."""
    decision: Decision | None = None
    afterwards: tuple[ReceivedVerdict, ...] = ()
    """Verdicts after the decision: too late, or no longer needed because of a denial."""
    given: GivenResult | None = None
    """What schedulers let the LLM see of its result; None if nobody ruled on it."""

    @property
    def late(self) -> frozenset[str]:
        """Schedulers that missed the decision and answered after it."""
        silent = self.decision.silent if self.decision else ()
        return frozenset(heard.scheduler for heard in self.afterwards if heard.scheduler in silent)

    @property
    def all_verdicts(self) -> tuple[ReceivedVerdict, ...]:
        """All verdicts on the call, the late ones last."""
        return (*(self.decision.verdicts if self.decision else ()), *self.afterwards)

    @property
    def has_ruling(self) -> bool:
        """True if at least one scheduler, shadows apart, answered or should have answered."""
        decision = self.decision
        return decision is not None and (
            bool(decision.silent) or any(not heard.shadow for heard in decision.verdicts)
        )


def collect_calls(playback: Playback, rulings: Rulings) -> tuple[ReplayedCall, ...]:
    """Return an entry for each recorded call, in order, also for calls that the loop never made."""
    made = {trace.call.position: trace for trace in playback.traces}
    calls = []
    for call in playback.run.calls:
        if (trace := made.get(call.position)) is None:
            calls.append(ReplayedCall(call, "not_run"))
            continue
        decision = rulings.of_call(call.id)
        outcome: CallOutcome = "not_run"
        tool, arguments, source = None, None, None
        if trace.executions:
            ran = trace.executions[0]
            tool, arguments, source = ran.tool, ran.arguments, ran.source
            same = tool == call.tool and arguments_key(arguments) == arguments_key(call.arguments)
            outcome = "run" if same else "rerouted"
        elif decision is not None and not decision.allowed:
            outcome = "vetoed"
        result = trace.answers[0] if trace.answers else None
        afterwards = tuple(rulings.late.get(decision.id, ())) if decision else ()
        given = rulings.results.get(decision.id) if decision else None
        ran_so = (outcome, tool, arguments, source)
        calls.append(ReplayedCall(call, *ran_so, result, decision, afterwards, given))
    return tuple(calls)


def call_faults(playback: Playback, calls: Sequence[ReplayedCall]) -> list[str]:
    """Return everything that should not have happened, one line each."""
    made = {trace.call.position: trace for trace in playback.traces}
    faults = [
        f"the results of {', '.join(block)} reached the LLM out of order" for block in playback.disordered
    ]
    for one in calls:
        where = f"call {one.call.position} ({one.call.tool})"
        if (trace := made.get(one.call.position)) is None:
            faults.append(f"{where} was never made")
            continue
        if len(trace.answers) != 1:
            faults.append(f"{where} has {len(trace.answers)} results instead of one")
        if len(trace.executions) > 1:
            faults.append(f"{where} ran {len(trace.executions)} times")
        faults += [f"{where} {fault}" for fault in _faults_of(one, trace)]
    return faults


def _faults_of(one: ReplayedCall, trace: Trace) -> list[str]:
    decision, result = one.decision, one.result or ""
    if decision is not None and not decision.allowed:
        denied = [] if not trace.executions else ["ran although it was denied"]
        told = (decision.reason or "") in result
        return denied + ([] if told else ["was denied, and the LLM was not told why"])
    if not trace.executions:
        return ["did not run although nothing denied it"]
    wanted_tool = decision.tool_name if decision else one.call.tool
    wanted = decision.tool_input if decision else one.call.arguments
    ran = trace.executions[0]
    faults = []
    if ran.tool != wanted_tool or arguments_key(ran.arguments) != arguments_key(wanted):
        faults.append(f"ran as {ran.tool} with other arguments than decided")
    if one.given is not None and one.given.changed:
        return faults + _faults_of_given(one.given, result if trace.answers else "")
    # The kernel's own rendering removes control characters that providers refuse.
    if trace.answers and result != ToolResult(output=ran.text).get_serialized_output():
        faults.append("returned one text, and the LLM was told another")
    return faults


def _faults_of_given(given: GivenResult, told: str) -> list[str]:
    """Return what is wrong with what the LLM was told of a result that schedulers changed."""
    faults = []
    if any(len(text) >= SHORT and text in told for text in given.hidden):
        faults.append("told the LLM what a scheduler had hidden of its result")
    if given.outcome == "withheld" and told and str(given.value) not in told:
        faults.append("had its result withheld, and the LLM was not told why")
    return faults


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Options that all runs of a replay share."""

    loop: str = "loop-events"
    toolgate: dict[str, Any] = field(default_factory=dict)
    """The loop's `toolgate:` config."""
    also: tuple[str, ...] = ()
    """Tools to mount besides those of the file."""
    tag: str | None = None
    """Suffix of the session ids, so that two replays can have the same; None makes a random one."""


@dataclass(frozen=True, slots=True)
class ReplayedRun:
    """Result of one run."""

    run: Run
    calls: tuple[ReplayedCall, ...]
    faults: tuple[str, ...]
    settled: bool
    """True if every missing verdict came in the end."""
    context: str
    """SHA-256 of the conversation at the end, as canonical JSON; it is equal for loops that do the same."""


def check_loop(name: str) -> None:
    """Raise ConfigError, with the installed loops, if this loop is not installed."""
    installed = {point.name for point in entry_points(group="amplifier.modules")}
    if name not in installed and "AMPLIFIER_MODULES" not in os.environ:
        loops = sorted(one for one in installed if "loop" in one or "orchestrat" in one)
        raise ConfigError(f"--loop {name}: no such loop is installed; there are: {', '.join(loops)}")


async def replay_run(
    recording: RunArchive, run: Run, options: ReplayOptions, late_s: float = 0.5
) -> ReplayedRun:
    """Play one run. Raise ConfigError if its session cannot be made.

    At the end, it waits up to `late_s` seconds for missing verdicts.
    """
    playback = Playback(recording, run)
    tag = options.tag or secrets.token_hex(4)
    loop = {"module": options.loop, "config": {"max_iterations": -1, "toolgate": options.toolgate}}
    plan = {
        "session": {"orchestrator": loop, "context": "context-simple"},
        "providers": [{"module": "provider-replay"}],
        "tools": [{"module": "tool-replay", "config": {"also": list(options.also)}}],
        "hooks": [],
    }
    session = AmplifierSession(plan, session_id=f"replay-{run.number}-{tag}")
    session.coordinator.register_capability(CAPABILITY, playback)
    try:
        await _initialize(session, options.loop)
        rulings = Rulings.of(session)
        faults = await _play(session, playback)
        settled = await rulings.settle(late_s)
        messages = await session.coordinator.get("context").get_messages()
        text = json.dumps(
            list(map(without_timestamp, messages)), sort_keys=True, ensure_ascii=True, default=str
        )
        context = hashlib.sha256(text.encode()).hexdigest()
    finally:
        await session.cleanup()
    calls = collect_calls(playback, rulings)
    faults += call_faults(playback, calls)
    return ReplayedRun(run, calls, tuple(faults), settled, context)


async def _initialize(session: Any, loop: str) -> None:
    try:
        await session.initialize()
    except RuntimeError as error:
        raise ConfigError(f"{loop}: the session cannot be made: {error}") from error
    # The kernel continues without a provider or tools that fail to mount; a replay cannot.
    mounted = session.coordinator.get("providers") or {}
    if NAME not in mounted or session.coordinator.get("tools") is None:
        raise ConfigError("provider-replay and tool-replay did not mount: is toolgate installed properly?")


async def _play(session: Any, playback: Playback) -> list[str]:
    """Play all turns in order; return what the loop did that the record cannot explain."""
    context = session.coordinator.get("context")
    faults: list[str] = []
    for index, turn in enumerate(playback.run.turns):
        for spoken in turn.before:
            await context.add_message({"role": spoken.role, "content": spoken.text})
        playback.begin_turn(index)
        try:
            await session.execute(turn.prompt or "")
        except Exception as error:  # noqa: BLE001 - the loop under test may raise anything; it is a finding
            faults.append(f"turn {index + 1} raised {type(error).__name__}: {error}")
        # The last results of a turn are only in the context if the LLM was not asked again.
        playback.hear(tool_results(await context.get_messages()))
        if unsaid := playback.unsaid(index):
            faults.append(f"turn {index + 1} ended with {unsaid} recorded messages unsaid")
    return faults
