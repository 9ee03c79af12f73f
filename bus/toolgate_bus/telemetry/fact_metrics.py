"""Additions of a fact to the metrics: the one place that defines them. Pure.

A process counts its own facts with it (`metrics.record`, which `Gate.note` calls) and `toolgate exporter`
those of the whole fleet, so both agree by construction. Only the gate counts its decisions as it makes
them, without the detour of a fact; a test compares that with this module.

Facts come off a wire: anything may be in them, and a value that makes no sense adds nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from toolgate_bus.telemetry import definitions
from toolgate_bus.telemetry.definitions import OTHER, Metric

Fact = Mapping[str, Any]

LOCAL: Final = " local"
"""End of the revision of a verdict that a gate gave by the scheduler's local table."""
MAX_LABEL: Final = 128
MAX_SECONDS: Final = 1e7
MAX_COUNT: Final = 1e15
OUTCOMES: Final = frozenset({"continue", "modify", "deny", "cancelled"})
ACTIONS: Final = frozenset({"continue", "deny", "modify", "ask_user", "hold", "failed"})
RESULTS: Final = frozenset({"released", "masked", "replaced", "withheld", "cancelled"})
RESULT_ACTIONS: Final = ACTIONS | {"mask", "replace"}
STATUSES: Final = frozenset({"completed", "incomplete", "cancelled", "error"})
PAUSES: Final = frozenset({"resumed", "cancelled"})
NOT_TOOLS: Final = frozenset({"UnknownTool", "InvalidToolCall"})
"""Errors of calls whose tool may be anything that an LLM writes."""
_KINDS: Final = tuple(
    (f"{kind}_tokens", kind) for kind in ("input", "output", "cache_read", "cache_write", "reasoning")
)
"""Fields of a fact that count tokens, each with its label."""


MetricUpdate = tuple[Metric, tuple[str, ...], float, str | None]
"""One addition to one series: labels, the amount (of a histogram: one observation in seconds), and the trace
that it is an example of, as 32 hexadecimal digits."""


def metrics_of(fact: Fact) -> Iterable[MetricUpdate]:
    """Return the additions of one fact, as `record.read_facts` gives it or as it is noted, to the metrics."""
    told = _BY_EVENT.get(fact.get("event", ""))
    return told(fact) if told is not None else ()


def model_metrics_of(fact: Fact) -> Iterator[MetricUpdate]:
    """Give the additions of one fact to the metrics by model, which the exporter alone counts."""
    if fact.get("event") not in ("usage", "provider:error"):
        return
    model = _word(fact.get("model") or None)
    for name, kind in _KINDS:
        if tokens := _amount(fact.get(name)):
            yield (definitions.MODEL_TOKENS, (model, kind), tokens, None)
    if cost := _amount(fact.get("cost_usd")):
        yield (definitions.MODEL_COST, (model,), cost, None)


def decides(why: str) -> bool:
    """Return whether one scheduler's verdict alone made the decision what it is."""
    return why in ("denied", "modified")


def is_local(revision: Any) -> bool:
    """Return whether a verdict with this revision came from a local table."""
    return isinstance(revision, str) and revision.endswith(LOCAL)


def trace_id(trace: Any) -> str | None:
    """Return the trace id in a `traceparent`, given alone or among the other fields of a trace context."""
    parent = trace.get("traceparent") if isinstance(trace, Mapping) else trace
    if not isinstance(parent, str) or len(parent) < 55 or parent[2] != "-" or parent[35] != "-":
        return None
    found = parent[3:35]
    return found if all(letter in "0123456789abcdef" for letter in found) else None


def _decision(fact: Fact) -> Iterator[MetricUpdate]:
    outcome, why = _one_of(fact.get("outcome"), OUTCOMES), fact.get("why")
    agent, trace = _word(fact.get("agent")), trace_id(fact.get("trace"))
    called, mounted = fact.get("tool_name"), fact.get("available_tools")
    # An LLM may name anything.
    tool = _word(called) if isinstance(mounted, list | tuple) and called in mounted else OTHER
    yield (definitions.DECISIONS, (outcome, tool, agent), 1, None)
    if (seconds := _seconds(fact)) is not None:
        waited = _seconds(fact, "waited") or 0.0
        yield (definitions.DECISION_SECONDS, (), max(0.0, seconds - waited), trace)
    for name in dict.fromkeys(_words(fact.get("asked"))):
        yield (definitions.ASKED, (name, tool, agent), 1, None)
    verdicts, failed = fact.get("verdicts"), fact.get("failed_open")
    for verdict in verdicts if isinstance(verdicts, list | tuple) else ():
        if not isinstance(verdict, Mapping):
            continue
        yield from _verdict(verdict, tool, agent)
        if verdict.get("action") != "hold" and not is_local(verdict.get("revision")):
            admits = verdict.get("phase") == "admit"
            took = definitions.ADMISSION_SECONDS if admits else definitions.VERDICT_SECONDS
            yield from _duration(took, verdict, (_word(verdict.get("scheduler")),), trace)
    if isinstance(why, str) and decides(why) and fact.get("scheduler") is not None:
        yield (definitions.DECIDED, (_word(fact["scheduler"]), outcome), 1, None)
    for name in _words(fact.get("silent")):
        yield (definitions.SILENT, (name,), 1, None)
    for name in _words(fact.get("passed_over")):
        yield (definitions.PASSED_OVER, (name,), 1, None)
    for name, reason in failed.items() if isinstance(failed, Mapping) else ():
        yield (definitions.FAILED_OPEN, (_word(name), _word(reason)), 1, None)
    yield from _shadow_disagreements(fact)
    if outcome in ("deny", "cancelled"):
        yield (definitions.TOOL_CALLS, (tool, agent, "denied" if outcome == "deny" else outcome), 1, None)


def _beside(fact: Fact) -> Iterator[MetricUpdate]:
    """Give the additions of a verdict that came after its decision. A shadow is never late."""
    if fact.get("shadow") is True and fact.get("phase") == "result":
        yield from _verdict_on_result(fact)
    elif fact.get("shadow") is True:
        yield from _verdict(fact, _word(fact.get("tool_label")), _word(fact.get("agent")))
    else:
        name = _word(fact.get("scheduler"))
        yield (definitions.LATE, (name,), 1, None)
        yield from _remarks(name, fact)
    yield from _shadow_disagreements(fact)


def _verdict(verdict: Fact, tool: str, agent: str) -> Iterator[MetricUpdate]:
    name = _word(verdict.get("scheduler"))
    action = _one_of(verdict.get("action"), ACTIONS)
    yield (definitions.VERDICTS, (name, action, tool, agent), 1, None)
    if is_local(verdict.get("revision")):
        yield (definitions.LOCAL_VERDICTS, (name, action), 1, None)
    if isinstance(rule := verdict.get("rule_name"), str):
        yield (definitions.RULE_VERDICTS, (name, _word(rule), action), 1, None)
    yield from _remarks(name, verdict)


def _remarks(name: str, verdict: Fact) -> Iterator[MetricUpdate]:
    problem = verdict.get("problem")
    if problem == "overruled":
        yield (definitions.OVERRULED, (name,), 1, None)
    elif isinstance(problem, str):
        yield (definitions.INVALID_MODIFIES, (name, _word(problem)), 1, None)
    if verdict.get("capped") is True:
        yield (definitions.PRIORITY_CAPPED, (name,), 1, None)


def _shadow_disagreements(fact: Fact) -> Iterator[MetricUpdate]:
    for name in _words(fact.get("disagreeing")):
        yield (definitions.SHADOW_DISAGREEMENTS, (name,), 1, None)


# The facts of each call and each request are turned into a list: a generator costs as much again.


def _turn(fact: Fact) -> Iterable[MetricUpdate]:
    agent, status = _word(fact.get("agent")), _one_of(fact.get("status"), STATUSES)
    found: list[MetricUpdate] = [(definitions.TURNS, (agent, _word(fact.get("loop")), status), 1, None)]
    if (seconds := _seconds(fact)) is not None:
        trace = trace_id(fact.get("trace"))
        found.append((definitions.TURN_SECONDS, (agent,), seconds, trace))
    return found


def _request(fact: Fact) -> Iterable[MetricUpdate]:
    provider, agent = _word(fact.get("provider")), _word(fact.get("agent"))
    outcome = "ok" if fact["event"] == "usage" else "error"
    found: list[MetricUpdate] = [(definitions.PROVIDER_REQUESTS, (provider, agent, outcome), 1, None)]
    if (seconds := _seconds(fact)) is not None:
        found.append((definitions.PROVIDER_SECONDS, (provider,), seconds, None))
    for name, kind in _KINDS:
        if (told := fact.get(name)) is not None and (tokens := _amount(told)):
            found.append((definitions.TOKENS, (provider, agent, kind), tokens, None))
    if (told := fact.get("cost_usd")) is not None and (cost := _amount(told)):
        found.append((definitions.COST, (provider, agent), cost, None))
    return found


def _tool(fact: Fact) -> Iterable[MetricUpdate]:
    error, event = fact.get("error"), fact["event"]
    tool = OTHER if isinstance(error, str) and error in NOT_TOOLS else _word(fact.get("tool"))
    if event == "tool:unused":
        outcome = "unused"
    elif event == "tool:post":
        outcome = "error" if fact.get("success") is False else "ok"
    else:
        outcome = "cancelled" if error == "CancelledError" else "error"
    found: list[MetricUpdate] = [(definitions.TOOL_CALLS, (tool, _word(fact.get("agent")), outcome), 1, None)]
    if outcome != "unused" and (seconds := _seconds(fact)) is not None:
        found.append((definitions.TOOL_SECONDS, (tool,), seconds, None))
    return found


def _result(fact: Fact) -> Iterable[MetricUpdate]:
    outcome = _one_of(fact.get("outcome"), RESULTS)
    labels = (outcome, _word(fact.get("tool")), _word(fact.get("agent")))
    found: list[MetricUpdate] = [(definitions.RESULTS, labels, 1, None)]
    if (seconds := _seconds(fact)) is not None:
        found.append((definitions.RESULT_SECONDS, (), seconds, None))
    verdicts, failed = fact.get("verdicts"), fact.get("failed_open")
    for verdict in verdicts if isinstance(verdicts, list | tuple) else ():
        if isinstance(verdict, Mapping):
            found += _verdict_on_result(verdict)
    if "silent" in fact:
        found += [(definitions.SILENT, (name,), 1, None) for name in _words(fact["silent"])]
    if isinstance(failed, Mapping):
        found += [
            (definitions.FAILED_OPEN, (_word(name), _word(why)), 1, None) for name, why in failed.items()
        ]
    if "disagreeing" in fact:
        found += _shadow_disagreements(fact)
    return found


def _verdict_on_result(verdict: Fact) -> list[MetricUpdate]:
    name = _word(verdict.get("scheduler"))
    action = _one_of(verdict.get("action"), RESULT_ACTIONS)
    found: list[MetricUpdate] = [(definitions.RESULT_VERDICTS, (name, action), 1, None)]
    if isinstance(rule := verdict.get("rule_name"), str):
        found.append((definitions.RULE_VERDICTS, (name, _word(rule), action), 1, None))
    if "problem" in verdict or "capped" in verdict:
        found += _remarks(name, verdict)
    return found


def _pause(fact: Fact) -> Iterable[MetricUpdate]:
    return _duration(definitions.PAUSED_SECONDS, fact, (_one_of(fact.get("status"), PAUSES),))


_BY_EVENT: Final = {
    "decision": _decision,
    "verdict": _beside,
    "turn": _turn,
    "usage": _request,
    "provider:error": _request,
    "tool:post": _tool,
    "tool:error": _tool,
    "tool:unused": _tool,
    "tool:paused": _pause,
    "tool:result": _result,
}


def _duration(
    metric: Metric, fact: Fact, labels: tuple[str, ...], trace: str | None = None
) -> Iterator[MetricUpdate]:
    if (seconds := _seconds(fact)) is not None:
        yield (metric, labels, seconds, trace)


def _seconds(fact: Fact, name: str = "seconds") -> float | None:
    """Return the seconds that a fact tells; None if it tells none, or nonsense."""
    seconds = fact.get(name)
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 <= seconds <= MAX_SECONDS:
        return float(seconds)
    return None


def _amount(told: Any) -> float:
    """Return a number of tokens or of dollars, 0 for nonsense. Decimals may travel as texts."""
    if isinstance(told, str) and len(told) <= MAX_LABEL:
        try:
            told = float(told)
        except ValueError:
            return 0
    return told if type(told) in (int, float) and 0 < told <= MAX_COUNT else 0


def _one_of(told: Any, known: frozenset[str]) -> str:
    return told if isinstance(told, str) and told in known else OTHER


def _word(told: Any) -> str:
    return told[:MAX_LABEL] if isinstance(told, str) else OTHER


def _words(told: Any) -> list[str]:
    return [_word(one) for one in told if isinstance(one, str)] if isinstance(told, list | tuple) else []
