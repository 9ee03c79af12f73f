"""Goal pursuit: runs turn after turn until a judge says that the goal is reached, or will not be.

    turn ─▶ judge: reached? ─ yes ─▶ achieved
     ▲         │ no
     │         ├─ looks stuck, and a second judge agrees ─▶ one last chance, then stalled
     │         ├─ no turn left ─▶ cap_hit
     └─ why ◀──┘                                     the judge fails: error; the user stops it: cancelled

The goal is the session's `session_state["goal"]`. Its host sets, revises or clears it at any time: a turn is
judged by the goal that stands at its end. What a judge says of a goal that no longer stands counts for
nothing, and no turn follows from it. The end of the run clears the goal; a turn whose provider failed leaves
it. Each step is reported as orchestrator:goal_progress. The goal's cap limits the number of turns, else
`MAX_TURNS`.
"""

import asyncio
import logging
from collections.abc import Mapping, MutableMapping
from typing import Any, Final, Protocol

from toolgate_bus.telemetry.logging import where

from toolgate_orchestrator.turn.facts import Note
from toolgate_orchestrator.turn.goals.config import GoalConfig
from toolgate_orchestrator.turn.goals.judges import (
    EVALUATOR,
    LOCKS,
    evaluation,
    last_chance,
    plain_summary,
    read_evaluation,
    read_stall,
    stall_question,
    summary_question,
)
from toolgate_orchestrator.turn.goals.rules import (
    State,
    cap_of,
    find_stall,
    progress,
    read_goal,
    stalled_reasons,
    transcript_of,
)
from toolgate_orchestrator.turn.hooks.dispatch import Hooks
from toolgate_orchestrator.turn.hooks.injections import Injections
from toolgate_orchestrator.turn.llm.gate import LlmGate
from toolgate_orchestrator.turn.llm.side_request import SideRequests
from toolgate_orchestrator.turn.points import PointRuling

logger = logging.getLogger(__name__)

GOAL_PROGRESS: Final = "orchestrator:goal_progress"
NO_GOAL: Final[Mapping[str, Any]] = {"goal_turn": None, "goal_final": True, "continuations": None}
"""Fields of orchestrator:complete about goals if none is set."""


class _Superseded(Exception):  # noqa: N818 - control flow of this module
    """The host replaced, revised or cleared the goal while it was judged."""


class _Cancelled(Exception):  # noqa: N818 - as above
    """The session was cancelled while the goal was judged."""


class PursuedTurn(Protocol):
    """The turn that has just ended, as its goal sees it."""

    hooks: Hooks
    context: Any
    tool_runs: int

    @property
    def cancelled(self) -> bool:
        """True if its session was cancelled."""

    @property
    def note(self) -> Note:
        """Function that records its facts."""

    @property
    def llm_gate(self) -> LlmGate | None:
        """Gate for its requests to an LLM; None without one."""

    async def rule_on_output(self, text: str) -> PointRuling:
        """Return a text as it may be given to the user."""


class GoalPursuit:
    """The turns of one `execute` while a goal is set."""

    def __init__(
        self,
        coordinator: Any,
        providers: Mapping[str, Any],
        config: GoalConfig,
        loop: str,
        default: str | None,
    ) -> None:
        self._coordinator, self._config, self._loop = coordinator, config, loop
        self._side = SideRequests(
            coordinator, providers, config.goal_model_role, config.goal_provider_preferences, default
        )
        self._is_continuation = False
        self._following: str | None = None
        self._told: dict[str, Any] | None = None
        self._is_announced = False
        self._judged: tuple[State, Any, Any] | None = None
        """The goal that is judged, with its condition and revision at the beginning."""

    @property
    def _goal(self) -> State | None:
        return read_goal(getattr(self._coordinator, "session_state", None))

    @property
    def _stands(self) -> bool:
        """True if the goal that is judged is still the session's."""
        goal = self._goal
        if goal is None or self._judged is None:
            return False
        return _identity(goal) == _identity_of(self._judged)

    def describe_turn(self) -> dict[str, Any]:
        """Return the fields of orchestrator:complete: the turn's number in the pursuit, and whether it is the
        last."""
        told = self._told or {}
        return {
            "goal_turn": told.get("turn"),
            "goal_final": self._following is None,
            "continuations": told.get("continuations"),
        }

    async def review(self, turn: PursuedTurn, failure: str | None) -> None:
        """Judge a turn that has ended; `failure` is the reason that it has no answer."""
        self.leave()
        goal = self._goal
        if goal is None:
            return
        goal["turns_used"] += 1
        if turn.cancelled:
            self._end(goal, "cancelled", reason=f"the goal was: {goal['condition']}")
            return
        if failure is not None:
            self._end(goal, "error", reason=failure, summary=plain_summary(goal, "unanswered"))
            return
        self._judged = (goal, goal["condition"], goal.get("task_revision"))
        self._is_continuation, before = True, self._is_continuation
        try:
            self._following = await self._judge(goal, turn, is_continuation=before)
        except _Superseded:
            self.leave()
            return
        except _Cancelled:
            self._end(goal, "cancelled", reason=f"the goal was: {goal['condition']}")
        except asyncio.CancelledError:
            if self._stands:
                self._end(goal, "cancelled", reason=f"the goal was: {goal['condition']}")
            raise
        if self._following is not None and turn.cancelled:
            self._following = None
            self._end(goal, "cancelled", reason=f"the goal was: {goal['condition']}")

    def leave(self) -> None:
        """Forget what was said of the turn before: nothing follows from it any more."""
        self._following = self._told = None
        self._is_announced = False

    async def announce(self, hooks: Hooks) -> None:
        """Report the result of the turn, once. A hook that changes or clears the goal ends the pursuit."""
        if self._told is None or self._is_announced:
            return
        self._is_announced = True
        await hooks.emit(GOAL_PROGRESS, self._told)
        if not self._stands:
            self._following = None

    async def conclude(self, hooks: Hooks, *, is_cancelled: bool) -> str | None:
        """Report the result of the turn; return the next turn's prompt, or None if there is no next turn."""
        goal = self._goal
        if self._told is None and goal is not None and is_cancelled:
            self._end(goal, "cancelled", reason=f"the goal was: {goal['condition']}")
        await self.announce(hooks)
        following = self._following
        self.leave()
        return following

    async def _judge(self, goal: State, turn: PursuedTurn, *, is_continuation: bool) -> str | None:
        """Return the next turn's prompt; None if this was the last turn."""
        try:
            is_reached, reason = await self._evaluate(goal, turn)
        except (_Superseded, _Cancelled):
            raise
        except Exception as error:  # noqa: BLE001 - any failure ends the run without success
            summary = await self._summarize(goal, turn, "error", str(error))
            return self._end(goal, "error", reason=str(error), summary=summary)
        goal["last_reason"] = reason
        goal["reasons"].append(reason)
        if is_reached:
            return self._end(goal, "achieved", reason=reason)
        is_last = goal["turns_used"] >= cap_of(goal)
        why, verdict, detail = ("", "", None)
        if is_continuation:
            why, verdict, detail = await self._look_for_stall(goal, turn)
        if verdict in LOCKS and (goal["escalated"] or is_last):
            told = {"reason": reason, "stall_verdict": verdict, "stall_detail": detail}
            return self._end(goal, "stalled", **told, summary=await self._summarize(goal, turn, "stalled"))
        if is_last:
            summary = await self._summarize(goal, turn, "cap_hit")
            return self._end(goal, "cap_hit", reason=reason, summary=summary)
        self._told = progress(goal, self._loop, "continuing", reason=reason, stall_verdict=verdict or None)
        goal["continuations"] += 1
        if verdict in LOCKS:
            goal["escalated"] = True
            return last_chance(goal, why, verdict, reason, self._config)
        return reason

    async def _evaluate(self, goal: State, turn: PursuedTurn) -> tuple[bool, str]:
        transcript, cut = transcript_of(await turn.context.get_messages(), self._config)
        asked = evaluation(goal["condition"], transcript, cut=cut)
        return read_evaluation(await self._ask(EVALUATOR, asked, turn))

    async def _look_for_stall(self, goal: State, turn: PursuedTurn) -> tuple[str, str, str | None]:
        """Return why the run looks stuck, the verdict, and the judge's reason; empty if no judge was
        asked."""
        goal["no_tool_turns"] = 0 if turn.tool_runs else goal["no_tool_turns"] + 1
        why = find_stall(goal, self._config)
        if why is None:
            return "", "", None
        try:
            system, user = stall_question(goal["condition"], why, stalled_reasons(goal, why, self._config))
            return why, *read_stall(await self._ask(system, user, turn))
        except (_Superseded, _Cancelled):
            raise
        except Exception as error:  # noqa: BLE001 - a judge that fails declares nothing stuck
            logger.warning("the judge could not tell whether the run is stuck: %s", where(error))
            return "", "", None

    async def _summarize(self, goal: State, turn: PursuedTurn, state: str, error: str | None = None) -> str:
        try:
            system, user = summary_question(goal, state, error, self._config)
            return (await self._ask(system, user, turn)).strip() or plain_summary(goal, state)
        except (_Superseded, _Cancelled):
            raise
        except Exception as failed:  # noqa: BLE001 - the run is over, and is reported in any case
            logger.warning("the run could not be summarized: %s", where(failed))
            return plain_summary(goal, state)

    async def _ask(self, system: str, user: str, turn: PursuedTurn) -> str:
        # Injections of hooks on these requests stay out of the conversation.
        hooks = Hooks(turn.hooks.hooks, self._coordinator, Injections())
        try:
            answer = await self._side.ask(system, user, hooks, turn.note, turn.llm_gate, turn.rule_on_output)
        except Exception:
            self._check(turn)
            raise
        ruled = await turn.rule_on_output(answer)  # hosts show it to the user
        self._check(turn)
        return ruled.text

    def _check(self, turn: PursuedTurn) -> None:
        """Raise if what a judge says, or fails with, is about a goal that stands no more."""
        if not self._stands:
            raise _Superseded
        if turn.cancelled:
            raise _Cancelled

    def _end(self, goal: State, state: str, **told: Any) -> str | None:
        """End the run, and return None: there is no next turn."""
        self._coordinator.session_state["goal"] = None
        self._told = progress(goal, self._loop, state, **told)
        return None


def find_pursuit(
    coordinator: Any, providers: Mapping[str, Any], config: GoalConfig, loop: str, default: str | None
) -> GoalPursuit | None:
    """Return the pursuit of the session's goal, which may be set later; None if the session can have none."""
    if not isinstance(getattr(coordinator, "session_state", None), MutableMapping):
        return None
    return GoalPursuit(coordinator, providers, config, loop, default)


def _identity(goal: State) -> tuple[int, Any, Any]:
    return id(goal), goal.get("condition"), goal.get("task_revision")


def _identity_of(judged: tuple[State, Any, Any]) -> tuple[int, Any, Any]:
    goal, condition, revision = judged
    return id(goal), condition, revision
