"""Rehearse rules on order on recorded calls, by the calls before each of them.

The history is the policy's own (`order`). It is filled with the calls that would have run instead of
facts: a call that these rules deny is not in it. `toolgate policy test` gives a case its history likewise.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from toolgate_bus.protocol.events import Deny, Hold, Phase, ToolSelecting, Verdict
from toolgate_bus.ruling.rehearsal import Rehearsal

from toolgate_schedulers.shipped.policy.order import new_history
from toolgate_schedulers.shipped.policy.scheduler import PolicyConfig, rule_on
from toolgate_schedulers.shipped.policy.seen_results import look_at_result
from toolgate_schedulers.shipped.policy.verdicts import GRACE_S, SLACK_S, Past

OWNER: Final = "record"
FORGET_S: Final = 60.0


class OrderRehearsal(Rehearsal):
    """Rehearsal of one policy on a record, or before one case."""

    phases: ClassVar[Sequence[Phase]] = ("select", "verify")
    left_out = ""

    def __init__(self, config: PolicyConfig, priority: int = 0) -> None:
        self._config, self.priority = config, priority
        self._history = new_history(config.order_rules)
        self._needs = [need for rule in config.order_rules for need in rule.needs if need.needs_result]
        self._waiting: dict[str, tuple[ToolSelecting, float, float]] = {}
        """Waiting calls by decision: the call, the time since which it waits, and the seconds until the next
        look."""
        self._has_news = False
        self._tidied = -math.inf

    def past(self, now: float, waited: float = 0.0) -> Past:
        """Return the knowledge of earlier calls."""
        return Past(self._history, now, waited)

    def ask(self, call: ToolSelecting, now: float) -> Verdict:
        """Rule on a call; `tell` reports a waiting call when the awaited call has ended, or its time is
        over."""
        if now - self._tidied > FORGET_S:
            self._tidied = now
            self._history.forget_old(frozenset(), now)
        self._history.note_question(call, OWNER, now)
        return self._rule(call, now, 0.0, now)

    def begin(self, call: ToolSelecting, now: float) -> None:
        """Note that a call runs: others may wait for it, or must not follow it."""
        told = {
            "event": "decision",
            "id": call.id,
            "final_tool": call.tool_name,
            "final_input": call.tool_input,
        }
        whose = {"session": call.session, "root_session": call.root_session, "labels": dict(call.labels)}
        self._history.read({**told, **whose, "orchestrator": OWNER, "entry": _entry(now)})
        self._has_news = True

    def see(self, call: ToolSelecting) -> None:
        """Note what a call gave: its question in the phase `result`."""
        self._history.note_result(call.id, look_at_result(self._needs, call))

    def end(self, id_: str, now: float, success: bool | None) -> None:
        """Note the end of a call, and its success; None: it never ran."""
        self._waiting.pop(id_, None)
        if success is None:
            self._history.forget(id_)
        else:
            event = {"event": "tool:post", "decision_id": id_, "success": success, "entry": _entry(now)}
            self._history.read(event)
        self._has_news = True

    def tell(self, now: float) -> list[tuple[str, Verdict]]:
        """Return the verdicts on waiting calls that may go on or wait in vain."""
        found: list[tuple[str, Verdict]] = []
        while self._waiting and (self._has_news or self.find_due() <= now):
            self._has_news = False
            for id_, (call, since, late_s) in list(self._waiting.items()):
                waited = max(now - since, late_s if since + late_s <= now else 0.0)
                verdict = self._rule(call, since, waited, now)
                if not isinstance(verdict, Hold):
                    self._waiting.pop(id_, None)
                    found.append((id_, verdict))
        self._has_news = False
        return found

    def find_due(self) -> float:
        """Return the time of the next look at a waiting call."""
        return min((since + late_s for _, since, late_s in self._waiting.values()), default=math.inf)

    def report(self) -> list[dict[str, Any]]:
        """Return nothing: the outcomes of the calls say it all."""
        return []

    def _rule(self, call: ToolSelecting, since: float, waited: float, now: float) -> Verdict:
        verdict = rule_on(self._config, call, self.past(now, waited))
        if isinstance(verdict, Hold):
            until = max(0.0, verdict.seconds - SLACK_S)
            self._waiting[call.id] = call, since, GRACE_S if waited < GRACE_S < until else until
        elif isinstance(verdict, Deny):
            self._history.forget(call.id)
            self._has_news = True
        return verdict


def _entry(now: float) -> str:
    """Return the id of a fact's entry at that time."""
    return f"{int(now * 1000)}-0"
