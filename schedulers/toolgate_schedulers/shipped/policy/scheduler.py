"""The shipped scheduler `policy`: allows, denies or asks by ordered rules on tools, arguments and agents.

The first rule that fits a call rules on it; if none does, `default` counts. Every denial names its rule.
A rule in `mode: observe` never rules: the verdict on a call that goes on says what the rule would have done.
A policy in `mode: observe` lets every call go on, and says what enforcing it would have done.
Rules on results, on the user's words and on the answer hide parts of them, withhold them, ask a person, or
label the session (`result_ruling`).
A replacement (phase `verify`) is judged by the same rules as the LLM's own call.
If a rule looks at an argument that could not be seen (a placeholder, two readings), the rule fits if it
denies or asks, and does not fit if it allows; `unknown: allow` is the reverse. Toolgate then also looks at
the rules below, and the strictest verdict counts: a hidden value brings no advantage.
A sub-agent's call is ruled on for the sub-agent and for each agent above it, and the strictest verdict
counts: an agent cannot have another do what is denied to it.
A rule may look at earlier calls (`after`, `unless_after`, `at_most`). If they are not as the rule wants,
the call is denied, or waits; if they are, the rule's action counts. Only a policy with such rules reads
facts.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

from pydantic import BaseModel
from toolgate_bus.protocol.events import Continue, Deny, Phase, ToolSelecting, Verdict
from toolgate_bus.protocol.llm import add_selector
from toolgate_bus.ruling.local_table import Answer, describe_conditions, encode_table, list_concerns

from toolgate_schedulers.author.scheduler import Extra, SchedulerContext
from toolgate_schedulers.shipped.policy.call_ruling import STRICTNESS, observe, reason_to_allow, rule_on_call
from toolgate_schedulers.shipped.policy.claims import QueuePositions
from toolgate_schedulers.shipped.policy.keeper import OrderKeeper
from toolgate_schedulers.shipped.policy.order import new_history
from toolgate_schedulers.shipped.policy.peers import PeerNotes
from toolgate_schedulers.shipped.policy.result_ruling import find_subject, rule_on_result
from toolgate_schedulers.shipped.policy.rules import (
    POINTS,
    Action,
    Mode,
    PolicyConfig,
    PolicyRule,
    name_of,
)
from toolgate_schedulers.shipped.policy.secrets_detector import load_detectors
from toolgate_schedulers.shipped.policy.seen_results import SeenResults
from toolgate_schedulers.shipped.policy.verdicts import UNKNOWN, Past

__all__ = [
    "Mode",
    "Policy",
    "PolicyConfig",
    "PolicyRule",
    "compile_table",
    "explain_ruling",
    "name_of",
    "rule_on",
]

_UNKNOWN_ORDER = "not knowing the calls before it"
"""Rule of an observation for calls whose past an `OrderKeeper` did not know in time."""


def rule_on(config: PolicyConfig, call: ToolSelecting, past: Past = UNKNOWN) -> Verdict:
    """Return the verdict on a call or a result, by the policy's mode."""
    verdict, fired = explain_ruling(config, call, past)
    if config.mode == "enforce":
        return verdict
    if isinstance(verdict, Continue):  # an observing policy labels no session
        return (
            verdict if verdict.session_labels is None else verdict.model_copy(update={"session_labels": None})
        )
    rule = getattr(verdict, "rule_name", None) or name_of(config.rules[fired[-1]], fired[-1])
    return observe(verdict, rule)


def explain_ruling(
    config: PolicyConfig, call: ToolSelecting, past: Past = UNKNOWN
) -> tuple[Verdict, tuple[int, ...]]:
    """Return the verdict of an enforced policy, and the numbers (from 0) of the rules behind it.

    The verdict is the strictest for any agent of the call's lineage. The numbers include those of rules that
    observe. The rule that decides is last. If the default decides, only observers are listed.
    """
    subject = find_subject(call)
    if subject == "call":
        return rule_on_call(config, call, past)
    verdict, fired = rule_on_result(config, call)
    if subject == "result" or not config.rules_for(call.tool_name):
        return verdict, fired
    other, numbers = rule_on_call(config, call, past)  # of rules that name the point as a tool
    if STRICTNESS[other.action] < STRICTNESS[verdict.action]:
        labels = getattr(verdict, "session_labels", None)
        return other.model_copy(update={"session_labels": labels}) if labels else other, (*fired, *numbers)
    return verdict, (*numbers, *fired)


_ANSWERS: Final[Mapping[Action, Answer]] = MappingProxyType(
    {"allow": "continue", "deny": "deny", "ask": "ask"}
)


def compile_table(config: PolicyConfig) -> bytes:
    """Return the local table of a configuration; empty without one.

    Rules that look at earlier calls, ask a person or observe have the policy asked about their calls, and a
    policy that observes is asked about all. The calls that rules look back at are asked about, too: other
    calls may depend on one while it is being decided, and facts tell only of decided calls.
    """
    if config.mode == "observe":
        return b""
    rules: list[dict[str, Any]] = []
    for number, rule in enumerate(config.rules):
        if rule.on != "call":
            continue
        is_certain = rule.mode == "enforce" and not rule.is_ordered and rule.action is not None
        answer: Answer = _ANSWERS[rule.action] if is_certain and rule.action is not None else "ask"
        told = {"tools": rule.tools, **describe_conditions(rule), "name": name_of(rule, number)}
        if answer == "deny" and rule.reason is not None:
            told["reason"] = rule.reason
        elif answer == "continue":
            told["reason"] = reason_to_allow(rule, name_of(rule, number))
        rules.append({**told, "answer": answer})
    default = _ANSWERS[config.default]
    points = [POINTS[on] for on in ("input", "output") if on in config.rules_on]
    if points:
        rules.insert(0, {"tools": points, "answer": "ask"})
    answers = [*(rule["answer"] for rule in rules), default]
    if "continue" in answers:  # a denied call never counts: above the first continue nothing is missed
        at = answers.index("continue")
        rules[at:at] = list_concerns(one for rule in config.order_rules for one in rule.list_watched())
    return encode_table(rules, default)


class Policy:
    """Scheduler that a `PolicyConfig` configures."""

    name = "policy"
    priority = 0
    tools: tuple[str, ...] = ("*",)
    """Globs of its tools; requests to an LLM as well, if a rule names them (`llm:request`)."""
    phases: tuple[Phase, ...] = ("select", "verify")
    """Phases in which it is asked; `result` as well, if a rule is about results."""
    reads: tuple[Extra, ...] = ()
    config_model: ClassVar[type[BaseModel]] = PolicyConfig

    def __init__(self, config: PolicyConfig) -> None:
        self.config = config
        points = [POINTS[on] for on in ("input", "output") if on in config.rules_on]
        named = (glob for rule in config.rules if rule.on not in POINTS for glob in rule.tools)
        self.tools = (*add_selector(self.tools, named), *points)
        for rule in config.rules:
            if any(line.kind == "secrets" for line in rule.mask or ()):
                load_detectors()
            if rule.mask:
                _ = rule.finder  # now: it takes longer to make than the first result may wait
        if config.needs_results:
            self.phases = (*self.phases, "result")
        if config.reads_session_labels:
            self.reads = ("session_labels",)
        self.local_table = compile_table(config)
        self._keeper: OrderKeeper | None = None

    async def start(self, context: SchedulerContext) -> None:
        """Follow the facts, if a rule looks at earlier calls."""
        ordered = self.config.order_rules
        if not ordered:
            return
        history = new_history(ordered)
        longest = max(rule.wait_s or 0.0 for rule in ordered)
        notes = PeerNotes(context.store, context.name, ordered)
        places = QueuePositions(context.shared.claims, context.name, ordered, history)
        results = SeenResults(context.store, context.name, ordered, history)
        self._keeper = OrderKeeper(context, history, self._rule, longest, notes, places, results)
        await self._keeper.start()

    async def stop(self) -> None:
        """Read no more facts."""
        if self._keeper is not None:
            await self._keeper.stop()

    async def decide(self, call: ToolSelecting) -> Verdict:
        """Rule on one call."""
        keeper = self._keeper
        if call.phase == "result":
            if keeper is not None and not call.again:
                await keeper.note_result(call)
            return rule_on(self.config, call)
        if keeper is None:
            return rule_on(self.config, call)
        ordered = [rule for _, rule in self.config.rules_for(call.tool_name) if rule.is_ordered]
        if ordered:
            enforces = self.config.mode == "enforce"
            # Under these rules a call may run as long as nothing is known: read all facts first.
            is_final = enforces and all(
                rule.unless_after is None and rule.at_most is None for rule in ordered
            )
            verdict = await keeper.decide(call, is_final)
            # The keeper itself denies a call whose past it cannot know in time.
            return verdict if enforces or isinstance(verdict, Continue) else observe(verdict, _UNKNOWN_ORDER)
        keeper.note(call)
        verdict = rule_on(self.config, call)
        if isinstance(verdict, Deny):
            keeper.note_denied(call)
        return verdict

    async def withdraw(self, decision: str, phase: Phase) -> None:
        """Forget a call whose answer nobody waits for."""
        if self._keeper is not None:
            self._keeper.withdraw(decision, phase)

    def _rule(self, call: ToolSelecting, past: Past) -> Verdict:
        return rule_on(self.config, call, past)
