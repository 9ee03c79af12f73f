"""Asks the person at the terminal about calls that a scheduler holds for a person's answer.

    held ─▶ `toolgate approvals show`: do people answer it, may this user? ─ no ─▶ nothing: its line says how
              │ yes
            the question, until the call is ruled on ─▶ `approvals approve` or `deny` of exactly that call

Both are commands on the bus with the rights of the user who started this: an agent's user may have none.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from amplifier_core.approval import ApprovalTimeoutError
from toolgate_bus.server.settings import BusSettings
from toolgate_bus.telemetry.printable import printable, shorten, visible

from toolgate_orchestrator.commands.host.rulings import MAX_VALUE, call_text
from toolgate_orchestrator.commands.host.terminal_approvals import TerminalApprovals
from toolgate_orchestrator.commands.host.toolgate_command import run_toolgate
from toolgate_orchestrator.decision.question.shown_call import shown_call
from toolgate_orchestrator.decision.round.one_question import MAX_PROMPT

_MAX_WRITTEN: Final = 400
ANSWERS: Final = {"Approve": "approve", "Deny": "deny"}


@dataclass(slots=True)
class HeldQuestions:
    """The questions of one session."""

    _approvals: TerminalApprovals
    _bus: BusSettings
    _say: Callable[[str], None]
    """Reports an answer that could not be given."""
    _open: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    """All tasks, including those whose answer is on its way."""

    def ask(self, held: dict[str, Any]) -> None:
        """Ask about the call of a `tool:held` event, in the background."""
        decision = str(held.get("decision_id"))
        self.withdraw(decision)
        task = asyncio.create_task(self._ask(decision, float(held.get("seconds") or 0)))
        self._open[decision] = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def withdraw(self, decision: str) -> None:
        """Withdraw the question about a call that was ruled on. An answer on its way still arrives."""
        asked = self._open.pop(decision, None)
        if asked is not None:
            asked.cancel()

    async def close(self) -> None:
        """Withdraw all questions, and wait for the answers that were given."""
        for decision in list(self._open):
            self.withdraw(decision)
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _ask(self, decision: str, seconds: float) -> None:
        try:
            shown = await run_toolgate(self._bus, "approvals", "show", decision, "--json")
            if shown.code:
                return
            call = json.loads(shown.output.splitlines()[-1])
            chosen = await self._approvals.request_approval(
                question_about(call), list(ANSWERS), round(seconds), "deny"
            )
            self._open.pop(decision, None)
            given = await run_toolgate(self._bus, "approvals", ANSWERS[chosen], call["id"], "--wait", "0")
            if given.code:
                self._say(given.output.removeprefix("Error: "))
        except (TimeoutError, ApprovalTimeoutError):
            pass  # the call's ruling tells that nobody answered
        except (ValueError, KeyError, IndexError, TypeError) as error:
            self._say(f"the held call cannot be shown: {error!r}")


def question_about(call: dict[str, Any]) -> str:
    """Return the question about a call, from the output of `approvals show --json`."""
    lines = (
        f"{visible(call['scheduler'])} holds this call for a person:",
        _shown_call(call["tool_name"], call["tool_input"]),
        shorten(printable(call["prompt"] or ""), MAX_PROMPT),
    )
    return "\n".join(filter(None, lines))


def _shown_call(tool: str, arguments: dict[str, Any]) -> str:
    """Return the call as one would write it in code if that is complete and unambiguous; else as JSON."""
    written = call_text(tool, arguments).plain
    whole = all(len(json.dumps(value, ensure_ascii=False)) <= MAX_VALUE for value in arguments.values())
    plain = whole and len(written) <= _MAX_WRITTEN and all(map(str.isidentifier, arguments))
    return written if plain else shown_call(tool, arguments)
