"""Explain one decision in plain words: the call, the verdicts, the rule that decided, and what followed.

`toolgate decisions show` and the console print these sentences. They say only what the record holds:
arguments are as they left the agent's process, so a redacted value is a placeholder here too. The fields
come off a wire, and any of them may be of another type than expected.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from toolgate_bus.commands.decisions.explained_results import explain_result
from toolgate_bus.commands.decisions.rules import PROBLEMS, UNASKED, rule_of
from toolgate_bus.commands.decisions.wait import describe_wait
from toolgate_bus.errors import CodecError
from toolgate_bus.facts.shadow_report import disagreements, is_redacted
from toolgate_bus.protocol.events import OVERRULED
from toolgate_bus.protocol.money import format_amount
from toolgate_bus.telemetry.fact_metrics import LOCAL, is_local
from toolgate_bus.telemetry.printable import describe_call, shorten

Fact = Mapping[str, Any]

_MAX_LENGTH: Final = 2000
"""Maximum length of arguments or a reason, in characters. The rest is cut."""
_AFTER: Final = ("tool:paused", "tool:selected", "tool:post", "tool:error", "tool:unused")
MIN_WAITED_S: Final = 0.05
"""Shortest wait that is mentioned, in seconds. Shorter ones are only the way there and back."""
_WOULD: Final = {
    "veto": "would have denied it",
    "reroute": "would have had {call} run instead",
    "ask": "would have had a person asked about {call}",
    "hold": "would have held it, and gave no final answer",
    "allow": "would have let {call} run",
}


_ROUNDS: Final = {
    "verify": "The others were asked about the replacement:",
    "again": "Everyone was asked again, about the replacement as others had changed it:",
    "admit": "Last, schedulers that grant scarce resources were asked about the call that was about to run:",
}
"""Sentence before the verdicts of a later round."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of a decision, in parts of plain sentences."""

    asked: tuple[str, ...]
    """Agent, and the call that it wanted."""
    heard: tuple[str, ...]
    """Verdict of each scheduler that came in time, in order, and the schedulers that were silent."""
    why: tuple[str, ...]
    """Outcome, the rule that decided, and the words that the LLM was told."""
    result: tuple[str, ...]
    """What schedulers ruled on the result of the call, if they were asked."""
    after: tuple[str, ...]
    """Tools that ran, with their results."""
    beside: tuple[str, ...]
    """Verdicts that did not count: those of shadows, and late ones."""

    @property
    def sentences(self) -> tuple[str, ...]:
        """All sentences, in order."""
        return (*self.asked, *self.heard, *self.why, *self.result, *self.after, *self.beside)

    def as_json(self) -> dict[str, list[str]]:
        """Return the parts, for scripts and pages."""
        return {part: list(sentences) for part, sentences in asdict(self).items()}


def aftermath(decision: Fact, facts: Iterable[Fact]) -> list[Fact]:
    """Return the facts that tell what became of a decision's call, in the order in which they came."""
    return [
        fact
        for fact in facts
        if fact.get("event") in _AFTER
        and fact.get("decision_id") == decision.get("id")
        and fact.get("orchestrator") in (None, decision.get("orchestrator"))
    ]


def explain(decision: Fact, facts: Iterable[Fact] = (), now: float = 0.0) -> Explanation:
    """Explain a decision of the record, with its verdicts (`join`), and the facts about its call.

    `now`, in seconds since the epoch, tells whether a decision still waits for a person.
    """
    verdicts = [one for one in _list(decision.get("verdicts")) if isinstance(one, Mapping)]
    counted = [one for one in verdicts if not (one.get("late") or one.get("shadow"))]
    return Explanation(
        tuple(_explain_call(decision)),
        tuple(_explain_verdicts(decision, counted)),
        tuple(_why(decision, counted, now)),
        tuple(explain_result(decision)),
        tuple(_after(decision, aftermath(decision, facts))),
        tuple(_beside(decision, [one for one in verdicts if one.get("late") or one.get("shadow")])),
    )


# ------------------------------------------------------------------ who asked what


def _explain_call(decision: Fact) -> Iterable[str]:
    who = f"The agent {decision['agent']}" if decision.get("agent") else "An agent without a name"
    where = f" in session {decision['session']}" if decision.get("session") else ""
    root = decision.get("root_session")
    if root and root != decision.get("session"):
        where += f" (of the tree of {root})"
    target = f", which delegates to {decision['agent_target']}" if decision.get("agent_target") else ""
    call = _call(decision.get("tool_name"), decision.get("tool_input"))
    yield f"{who}{where} wanted to call {call}{target}, at {_time(decision.get('at'))}."
    lineage = [str(one) or "(no name)" for one in _list(decision.get("lineage"))]
    if lineage:
        yield f"It works for others: {' > '.join(lineage)}."
    if labels := decision.get("labels"):
        told = ", ".join(f"{key}={value}" for key, value in sorted(_dict(labels).items()))
        yield f"Its labels: {told}."
    if is_redacted(decision.get("tool_input")):
        yield "Placeholders (⟦toolgate:…⟧) stand for values that did not leave the agent's process."
    if decision.get("truncated"):
        yield "Some of the call was too long to be sent in full, and the schedulers were told so."
    if decision.get("cut"):
        yield "The decision was too long for the record: the arguments of its verdicts are left out."


# ------------------------------------------------------------------ who said what


def _explain_verdicts(decision: Fact, counted: Sequence[Fact]) -> Iterable[str]:
    for one in counted:
        if _round_of(one) not in _ROUNDS:
            yield _describe_verdict(one)
    for round_, words in _ROUNDS.items():
        told = [_describe_verdict(one) for one in counted if _round_of(one) == round_]
        yield from ([words, *told] if told else ())
    failed = _dict(decision.get("failed_open"))
    said = {str(one.get("scheduler")) for one in counted if one.get("action") == "failed"}
    for name in [str(one) for one in _list(decision.get("silent")) if str(one) not in said]:
        reason = f" ({failed[name]})" if failed.get(name) not in (None, "silent") else ""
        yield f"{name} gave no answer in time{reason}."
    for name, reason in failed.items():
        if why := UNASKED.get(str(reason)):
            yield f"{name} could not be asked: {why}."
    for name in _list(decision.get("passed_over")):
        yield f"{name} was not waited for: it had been silent before, and is tried again once a second."


def _round_of(verdict: Fact) -> str:
    return "again" if verdict.get("again") else str(verdict.get("phase"))


def _describe_verdict(verdict: Fact) -> str:
    """Return one verdict as a sentence."""
    name, action, reason = verdict.get("scheduler"), verdict.get("action"), verdict.get("reason")
    words = {
        "continue": "said continue",
        "deny": "said deny",
        "modify": "wanted another call",
        "ask_user": "wanted a person asked",
        "hold": "held the call",
        "failed": "could not decide, which counts as silence",
    }.get(str(action), f"said {action}")
    written = str(verdict.get("revision") or "")
    by_table = " by its local table" if is_local(written) else ""
    revision = f", revision {named}" if (named := written.removesuffix(LOCAL)) else ""
    seconds = verdict.get("seconds")  # a hold says for how long
    when = f"for up to {seconds} s" if action == "hold" else f"after {_length(seconds)}"
    told = f"{name} (priority {verdict.get('priority')}{revision}) {words}{by_table} {when}"
    if action == "modify":
        target = f" by {verdict['agent_target']}" if verdict.get("agent_target") else ""
        arguments = verdict.get("arguments")
        call = str(verdict.get("tool")) if arguments is None else _call(verdict.get("tool"), arguments)
        told += f": {call}{target}{', with the same arguments' if arguments is None else ''}"
    if action == "ask_user":
        told += f": “{_text(verdict.get('prompt'))}”"
    told += f", because: {_text(reason)}" if reason else ""
    if verdict.get("capped"):
        told += "; its own priority was higher, and is capped by the orchestrator"
    if (problem := verdict.get("problem")) == OVERRULED:
        told += f"; that was overruled: {PROBLEMS[OVERRULED]}"
    elif problem:
        told += f"; that is invalid and was set aside: {PROBLEMS.get(str(problem), problem)}"
    if fence := verdict.get("fence"):
        told += f", and gave it fencing number {fence}"
    return f"{told.removesuffix('.')}."


# ------------------------------------------------------------------ why


def _why(decision: Fact, counted: Sequence[Fact], now: float) -> Iterable[str]:
    outcome = decision.get("outcome")
    after = f" after {_took(decision)}"
    if outcome == "deny":
        yield f"Denied{after}: the call did not run."
    elif outcome == "modify":
        target = f" by {decision['final_agent']}" if decision.get("final_agent") else ""
        yield f"Replaced{after}: {_call(decision.get('final_tool'), decision.get('final_input'))}{target}."
    elif outcome == "continue":
        yield f"Allowed as it was{after}."
    elif outcome == "ask":
        call = _call(decision.get("final_tool"), decision.get("final_input"))
        yield f"Not decided yet{after}: a person is asked about {call}."
        if prompt := decision.get("prompt"):
            yield f"They are asked: “{_text(prompt)}”"
    else:
        yield f"Ended as {outcome}{after}."
    yield rule_of(decision, counted)
    yield from (f"{told[0].upper()}{told[1:]}." for told in describe_wait(decision, now))
    yield from _also(decision, counted)
    if outcome == "deny" and decision.get("reason"):
        yield f"The agent was told: “{_text(decision['reason'])}”"


def _also(decision: Fact, counted: Sequence[Fact]) -> Iterable[str]:
    """Give the sentences that the rule alone does not cover."""
    decided = str(decision.get("scheduler"))
    if decision.get("why") == "denied":
        others = {str(one.get("scheduler")) for one in counted if one.get("action") == "deny"} - {decided}
        if others:
            names = " and ".join(sorted(others))
            yield f"{names} denied it too; the agent is told the reason of the highest priority."
    if decision.get("outcome") == "modify":
        modifies = [one for one in counted if one.get("action") == "modify" and not one.get("problem")]
        changed = {str(one.get("scheduler")) for one in modifies if one.get("phase") == "verify"}
        if changed:
            yield f"{' and '.join(sorted(changed))} changed the replacement, and it ran as changed."
        others = {str(one.get("scheduler")) for one in modifies if one.get("phase") == "select"}
        if others := others - changed - {decided}:
            yield f"{' and '.join(sorted(others))} wanted another call too, and had no higher priority."
    if (
        decision.get("asked_user")
        and decision.get("outcome") in ("continue", "modify")
        and not decision.get("answer")
    ):
        yield "A person was asked about the call that would run, and agreed."


# ------------------------------------------------------------------ what followed


def _after(decision: Fact, facts: Sequence[Fact]) -> Iterable[str]:
    for fact in facts:
        if fact["event"] == "tool:paused":
            by, waited = fact.get("by") or "an operator", _length(fact.get("seconds"))
            yield f"Paused by {by}, it waited for {waited} more and was {fact.get('status')}."
    if decision.get("outcome") not in ("continue", "modify"):
        return
    ran = False
    for fact in facts:
        tool, cost = fact.get("tool"), fact.get("cost")
        paid = f", and cost {format_amount(cost)}" if type(cost) is int else ""
        took = f" for {_length(fact['seconds'])}" if "seconds" in fact else ""
        if fact["event"] == "tool:post":
            well = "with success" if fact.get("success") else "and reported an error"
            yield f"{tool} ran{took} {well}{paid}."
        elif fact["event"] == "tool:error":
            yield f"{tool} failed{f' after{took[4:]}' if took else ''} ({fact.get('error')}){paid}."
        elif fact["event"] == "tool:unused":
            reason = f" ({fact['error']})" if fact.get("error") else ""
            yield f"{tool} was not run after all{reason}."
        ran = ran or fact["event"] not in ("tool:selected", "tool:paused")
    selected = next((fact for fact in facts if fact["event"] == "tool:selected"), None)
    if not ran and selected:
        yield f"{selected.get('tool')} was selected to run; the record has no result of it yet."
    elif not ran:
        yield "The record does not say (yet) whether it ran; programs with their own Gate never report that."


def _beside(decision: Fact, verdicts: Sequence[Fact]) -> Iterable[str]:
    for one in verdicts:
        if one.get("shadow"):
            yield f"Beside that, as a shadow that never counts: {_describe_verdict(one)}"
        else:
            yield f"Too late to count: {_describe_verdict(one)}"
    try:
        found = disagreements(decision)
    except (CodecError, KeyError, TypeError):
        return
    for shadow in found:
        words = _WOULD[shadow.change].format(call=_call(shadow.tool, shadow.arguments))
        doubt = "" if shadow.verified else " (nobody was asked whether that may run)"
        yield f"Had {shadow.scheduler} counted, it {words}{doubt}."


# ------------------------------------------------------------------ small words


def _took(decision: Fact) -> str:
    """Return in words how long deciding took and, apart from that, how long the call waited for admission."""
    seconds, waited = decision.get("seconds"), decision.get("waited")
    if not isinstance(waited, int | float) or not isinstance(seconds, int | float):
        return _length(seconds)
    told = f", and {_length(waited)} of waiting to be admitted" if waited >= MIN_WAITED_S else ""
    return f"{_length(max(0.0, seconds - waited))}{told}"


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _dict(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _call(tool: Any, arguments: Any) -> str:
    return describe_call(tool, arguments, _MAX_LENGTH)


def _text(value: Any) -> str:
    return shorten(str(value), _MAX_LENGTH)


def _time(at: Any) -> str:
    if isinstance(at, bool) or not isinstance(at, int | float):
        return "an unknown time"
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return "an unknown time"


def _length(seconds: Any) -> str:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return "an unknown time"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
