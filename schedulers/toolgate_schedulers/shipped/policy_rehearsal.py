"""What rules on order would have said of recorded calls, by what had come before each of them.

The history is the policy's own (`policy_order`), told of what would have run instead of being read from
facts: a call that these rules deny is not in it. `toolgate policy test` gives a case its history by the same.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Final

from toolgate_bus.protocol.events import Deny, Hold, Phase, ToolSelecting, Verdict
from toolgate_bus.ruling.rehearsal import Rehearsal

from toolgate_schedulers.shipped.policy import PolicyConfig, rule_on
from toolgate_schedulers.shipped.policy_order import new_history
from toolgate_schedulers.shipped.policy_verdicts import GRACE_S, SLACK_S, Past

OWNER: Final = "record"
FORGET_S: Final = 60.0


class OrderRehearsal(Rehearsal):
    """One policy over a record, or before one case."""

    phases: ClassVar[Sequence[Phase]] = ("select", "verify")
    left_out = ""

    def __init__(self, config: PolicyConfig, priority: int = 0) -> None:
        self._config, self.priority = config, priority
        self._history = new_history(config.order_rules)
        self._waiting: dict[str, tuple[ToolSelecting, float, float]] = {}
        """By decision: the call, since when it waits, and after how long it is looked at for the time."""
        self._has_news = False
        self._tidied = -math.inf

    def past(self, now: float, waited: float = 0.0) -> Past:
        """What is known of the calls before."""
        return Past(self._history, now, waited)

    def ask(self, call: ToolSelecting, now: float) -> Verdict:
        """Rule on a call; one that waits is told when what it waits for has ended, or its time is over."""
        if now - self._tidied > FORGET_S:
            self._tidied = now
            self._history.forget_old(frozenset(), now)
        self._history.note_question(call, OWNER, now)
        return self._rule(call, now, 0.0, now)

    def begin(self, call: ToolSelecting, now: float) -> None:
        """It runs: from now on it may be what others wait for, or must not follow."""
        told = {
            "event": "decision",
            "id": call.id,
            "final_tool": call.tool_name,
            "final_input": call.tool_input,
        }
        whose = {"session": call.session, "root_session": call.root_session, "labels": dict(call.labels)}
        self._history.read({**told, **whose, "orchestrator": OWNER, "entry": _entry(now)})
        self._has_news = True

    def end(self, id_: str, now: float, success: bool | None) -> None:
        """It has ended, and how; or never ran."""
        self._waiting.pop(id_, None)
        if success is None:
            self._history.forget(id_)
        else:
            event = {"event": "tool:post", "decision_id": id_, "success": success, "entry": _entry(now)}
            self._history.read(event)
        self._has_news = True

    def tell(self, now: float) -> list[tuple[str, Verdict]]:
        """Of those who wait, who may go on and who waits in vain."""
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
        """When the first of those who wait is to be looked at for the time."""
        return min((since + late_s for _, since, late_s in self._waiting.values()), default=math.inf)

    def report(self) -> list[dict[str, Any]]:
        """Nothing: what became of each call says it all."""
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
    """An entry's id of that time, as facts have it."""
    return f"{int(now * 1000)}-0"
