"""All metrics: names, meanings, labels, and the process that serves each. Pure; nothing is counted here.

    FLEET     counted by each process on its own port, and for the whole fleet by `toolgate exporter`
              out of facts, in the same way (`fact_metrics`)
    PROCESS   counted by each process only
    EXPORTER  read from the server or known to the exporter only
    NOTIFY    counted by `toolgate notify` only

Names follow the Prometheus guidelines and the vocabulary of Kubernetes admission.
Labels are bounded: tools are the mounted ones plus `other`, never ids of sessions or decisions.
"""

from typing import Final, Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]
OTHER: Final = "other"
"""Label value that stands for all others: tools that are not mounted, series beyond the cap."""
MAX_SERIES: Final = 1000
"""Maximum number of series of one metric. Programs and LLMs choose labels; a process keeps the series."""
QUICK: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
"""Upper bounds of the buckets for the seconds of a decision."""
SLOW: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Upper bounds of the buckets for the seconds of a tool, an LLM request, a turn."""


class Metric(NamedTuple):
    """One metric. Counters are exposed with `_total` after their name."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def query_name(self) -> str:
        """Name as a query spells it."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


def _counter(name: str, words: str, *labels: str) -> Metric:
    return Metric(f"toolgate_{name}", "counter", words, labels)


def _gauge(name: str, words: str, *labels: str) -> Metric:
    return Metric(f"toolgate_{name}", "gauge", words, labels)


def _seconds(name: str, words: str, *labels: str, buckets: tuple[float, ...] = QUICK) -> Metric:
    return Metric(f"toolgate_{name}_seconds", "histogram", words, labels, buckets)


# ---------------------------------------------------------------------- the fleet, and each process

DECISIONS: Final = _counter(
    "decisions", "Decisions, by outcome: continue, modify, deny, cancelled.", "outcome", "tool", "agent"
)
DECISION_SECONDS: Final = _seconds(
    "decision",
    "Seconds from the question to the decision, without the wait for admission. Exemplars with trace ids if "
    "calls are traced.",
)
ASKED: Final = _counter(
    "asked_decisions",
    "Decisions about which a scheduler was asked, each counted once. Rates of a scheduler divide by it.",
    *("scheduler", "tool", "agent"),
)
VERDICTS: Final = _counter(
    "verdicts", "Verdicts received in time, and all of shadows.", "scheduler", "action", "tool", "agent"
)
LOCAL_VERDICTS: Final = _counter(
    "local_verdicts",
    "Verdicts that gates gave by a scheduler's local table, without asking it; `toolgate_verdicts_total` "
    "counts them, too.",
    *("scheduler", "action"),
)
RULE_VERDICTS: Final = _counter(
    "rule_verdicts",
    "Verdicts that name the scheduler's rule behind them: deny, modify, ask_user.",
    *("scheduler", "rule", "action"),
)
VERDICT_SECONDS: Final = _seconds(
    "verdict",
    "Seconds from the question to one scheduler's verdict, without holds, admissions and local verdicts; "
    "with exemplars.",
    "scheduler",
)
ADMISSION_SECONDS: Final = _seconds(
    "admission",
    "Seconds from the question to the answer of a scheduler that admits calls, its queue included.",
    "scheduler",
    buckets=SLOW,
)
DECIDED: Final = _counter(
    "decided",
    "Decisions with the outcome that one scheduler's verdict asked for: deny, modify.",
    "scheduler",
    "outcome",
)
SILENT: Final = _counter(
    "silent", "Decisions in which an awaited scheduler gave no valid verdict.", "scheduler"
)
FAILED_OPEN: Final = _counter(
    "failed_open",
    "Decisions made without an optional scheduler, by reason: silent, failed, gone, passed_over, bus_down, "
    "refused, overloaded, incompatible (no common version of the wire), phase (it does not rule on "
    "replacements).",
    *("scheduler", "reason"),
)
PASSED_OVER: Final = _counter(
    "passed_over", "Questions that did not wait for a scheduler, after three silences of it.", "scheduler"
)
LATE: Final = _counter("late_verdicts", "Verdicts that came after their decision.", "scheduler")
INVALID_MODIFIES: Final = _counter(
    "invalid_modifies", "Invalid modifies that were set aside, by reason.", "scheduler", "reason"
)
OVERRULED: Final = _counter(
    "overruled",
    "Modifies that an optional scheduler wanted for a replacement, and that were set aside.",
    "scheduler",
)
PRIORITY_CAPPED: Final = _counter(
    "priority_capped", "Verdicts whose priority was lowered to `max_priority`.", "scheduler"
)
SHADOW_DISAGREEMENTS: Final = _counter(
    "shadow_disagreements",
    "Decisions, and rulings on results, that a shadow would have changed if it counted, each counted once.",
    "scheduler",
)
RESULTS: Final = _counter(
    "results",
    "Results of calls that schedulers ruled on, by outcome: released, masked, replaced, withheld, cancelled.",
    *("outcome", "tool", "agent"),
)
RESULT_SECONDS: Final = _seconds("result", "Seconds from a result to the ruling on it.")
RESULT_VERDICTS: Final = _counter(
    "result_verdicts",
    "Verdicts on results: continue, deny, mask, replace, ask_user, hold, failed; of shadows too.",
    *("scheduler", "action"),
)
TURNS: Final = _counter(
    "turns", "Turns, by their end: completed, incomplete, cancelled, error.", "agent", "loop", "status"
)
TURN_SECONDS: Final = _seconds(
    "turn", "Seconds of one turn, from the prompt to its end.", "agent", buckets=SLOW
)
PROVIDER_REQUESTS: Final = _counter(
    "provider_requests", "Requests to LLMs, by outcome: ok, error.", "provider", "agent", "outcome"
)
PROVIDER_SECONDS: Final = _seconds("provider", "Seconds of one request to an LLM.", "provider", buckets=SLOW)
TOKENS: Final = _counter(
    "tokens", "Tokens: input, output, cache_read, cache_write, reasoning.", "provider", "agent", "kind"
)
COST: Final = _counter("cost_usd", "Cost of LLMs in US dollars, as providers report it.", "provider", "agent")
TOOL_CALLS: Final = _counter(
    "tool_calls",
    "Tool calls, by outcome: ok, error, denied, cancelled, unused.",
    "tool",
    "agent",
    "outcome",
)
TOOL_SECONDS: Final = _seconds("tool", "Seconds of one run of a tool.", "tool", buckets=SLOW)
PAUSED_SECONDS: Final = _seconds(
    "paused", "Seconds that calls waited while paused: resumed, cancelled.", "status", buckets=SLOW
)

FLEET: Final = (
    *(DECISIONS, DECISION_SECONDS, ASKED, VERDICTS, RULE_VERDICTS, VERDICT_SECONDS, DECIDED),
    *(ADMISSION_SECONDS, LOCAL_VERDICTS),
    *(SILENT, FAILED_OPEN, PASSED_OVER, LATE, INVALID_MODIFIES, OVERRULED, PRIORITY_CAPPED),
    SHADOW_DISAGREEMENTS,
    *(TURNS, TURN_SECONDS, PROVIDER_REQUESTS, PROVIDER_SECONDS, TOKENS, COST, TOOL_CALLS, TOOL_SECONDS),
    PAUSED_SECONDS,
    *(RESULTS, RESULT_SECONDS, RESULT_VERDICTS),
)

# ---------------------------------------------------------------------- each process only

REPEATED: Final = _counter(
    "repeated_verdicts", "Verdicts of schedulers that had answered already.", "scheduler"
)
SHED: Final = _counter(
    "shed_questions", "Questions that were not put to a scheduler, as it is overloaded.", "scheduler"
)
FACTS_DROPPED: Final = _counter("facts_dropped", "Facts that could not be written.")
FACTS_CUT: Final = _counter(
    "facts_cut", "Entries of facts that were dropped before their time, as facts took too many bytes."
)
REFUSED_WRITES: Final = _counter(
    "refused_writes",
    "Writes that the server refused, and that are kept and tried again: facts, verdicts.",
    "kind",
)
SKIPPED_PATTERNS: Final = _counter(
    "skipped_patterns", "Patterns of tools' schemas that were skipped, as the engine does not support them."
)
WORKER_ANSWERS: Final = _counter("worker_answers", "Verdicts given.", "scheduler", "action")
SCHEDULER_ERRORS: Final = _counter(
    "scheduler_errors",
    "Questions on which a scheduler raised, gave no verdict, or gave an answer that had to be corrected.",
    *("scheduler", "reason"),
)
EXPIRED: Final = _counter("expired_questions", "Questions too old to be answered.", "scheduler")
CLAIMED: Final = _counter("claimed_entries", "Entries taken over from a dead replica.", "scheduler")
POISONED: Final = _counter(
    "poisoned_entries", "Entries dropped because they outlived several replicas.", "scheduler"
)
HOLDS: Final = _counter("holds", "Questions that a scheduler held.", "scheduler")
HOLDS_LOST: Final = _counter(
    "holds_lost", "Holds that the server had forgotten, so their questions were asked again.", "scheduler"
)
LABEL_WRITES_FAILED: Final = _counter(
    "session_label_writes_failed",
    "Failed writes of sessions' labels to the server. They stay in the process and are written again.",
)
CLAIMS_LOST: Final = _counter(
    "claims_lost",
    "Answers of people that the server took and then forgot: restored, or twice (it had taken another one "
    "meanwhile).",
    "result",
)
PAUSED_CALLS: Final = _gauge("paused_calls", "Calls that wait now because an operator paused their agent.")
PAUSED_AGENTS: Final = _gauge("paused_agents", "Live sessions of this process that operators have paused.")
WITHDRAWN: Final = _counter(
    "withdrawn_questions", "Questions for which nobody waits any longer.", "scheduler"
)
BUDGET_SETTLEMENTS: Final = _counter(
    "budget_settlements",
    "Costs reported to a ledger: settled, corrected, late, duplicate, unreserved, charged, unplaced, "
    "foreign.",
    *("book", "outcome"),
)
SHORT_WRITES: Final = _counter(
    "short_writes",
    "Writes that do not count because too few replicas had them in time: ledger, approvals.",
    "what",
)
BUDGET_OVERRUNS: Final = _counter(
    "budget_overruns", "Calls that cost more than was reserved for them.", "book"
)
BUDGET_ORPHANS: Final = _counter(
    "budget_orphans",
    "Reservations paid at their estimate because nobody reported the cost: dead (orchestrator), expired.",
    *("book", "reason"),
)
EJECTIONS: Final = _counter(
    "ejections",
    "Times that an alternative was left alone for a while, by reason: failures (running), far_below (its "
    "best alternative's success), try (the call that tried it failed).",
    *("scheduler", "alternative", "reason"),
)
EXPLORED: Final = _counter(
    "explored",
    "Calls for which another alternative than the best one was tried, to learn of it.",
    *("scheduler", "alternative"),
)
EJECTED: Final = _gauge(
    "ejected",
    "1 while a tool, agent or model gets no calls as it fails too often, or waits for the call that tries "
    "it.",
    *("scheduler", "alternative"),
)
GATE_FAULTS: Final = _counter(
    "gate_faults",
    "Faults in the gate's own process: rule, verdict, ask (each denies the call), table (the scheduler is "
    "asked), result (it is withheld), record, subscriber, span. "
    "None of them makes a ruling less strict.",
    "part",
)
MCP_CHANGED_TOOLS: Final = _counter(
    "mcp_changed_tools",
    "Tools of servers behind `toolgate mcp` whose descriptions changed since they were first seen.",
)
MCP_WITHHELD_WORDS: Final = _counter(
    "mcp_withheld_words",
    "Messages of servers behind `toolgate mcp` whose words were withheld, as results of the server are ruled "
    "on: progress, log, request, other.",
    "kind",
)
CONNECTED: Final = _gauge("bus_connected", "1 while the bus can be used, else 0.", "side")
BAD_MESSAGES: Final = _counter(
    "bad_messages",
    "Messages dropped unread: malformed, oversize, version, phase, forged, unsolicited, no_key, flood, "
    "reserved, jump.",
    *("sender", "reason"),
)
RECONNECTS: Final = _counter("redis_reconnects", "Connections that had to be made again.", "connection")
RECREATED: Final = _counter(
    "streams_recreated", "Groups or streams that had vanished and were created again.", "kind"
)
ROSTER_STRANGERS: Final = _counter(
    "roster_strangers",
    "Names in a set of the roster beyond the 10,000 that are looked up, counted at each look: schedulers, "
    "orchestrators, readers, hooks, old (the set of version 1).",
    "kind",
)
LOOP_LAG: Final = _seconds(
    "event_loop_lag",
    "Seconds by which the event loop wakes later than requested, measured four times a second.",
    "side",
)
SERVE_REQUESTS: Final = _counter(
    "serve_requests",
    "Requests to a sidecar, by path (`other`: nothing is there) and status.",
    "path",
    "status",
)

PROCESS: Final = (
    *(
        REPEATED,
        SHED,
        FACTS_DROPPED,
        FACTS_CUT,
        REFUSED_WRITES,
        SKIPPED_PATTERNS,
        WORKER_ANSWERS,
        SCHEDULER_ERRORS,
        EXPIRED,
        CLAIMED,
        POISONED,
        HOLDS,
        HOLDS_LOST,
        CLAIMS_LOST,
        LABEL_WRITES_FAILED,
    ),
    *(PAUSED_CALLS, PAUSED_AGENTS),
    *(EJECTIONS, EXPLORED, EJECTED),
    *(WITHDRAWN, GATE_FAULTS, BUDGET_SETTLEMENTS, BUDGET_OVERRUNS, BUDGET_ORPHANS, SHORT_WRITES),
    *(
        MCP_CHANGED_TOOLS,
        MCP_WITHHELD_WORDS,
        CONNECTED,
        BAD_MESSAGES,
        RECONNECTS,
        RECREATED,
        ROSTER_STRANGERS,
        LOOP_LAG,
    ),
    SERVE_REQUESTS,
)

# ---------------------------------------------------------------------- the exporter only

SAVED: Final = _counter(
    "saved_cost",
    "Micro-units saved by replacements: the mean cost of the requested tool, less that of the tool that ran.",
)
MODEL_TOKENS: Final = _counter(
    "model_tokens", "Tokens by model: input, output, cache_read, cache_write, reasoning.", "model", "kind"
)
MODEL_COST: Final = _counter(
    "model_cost_usd", "Cost of LLMs in US dollars, by model; `other` if none is named.", "model"
)
REPLICAS: Final = _gauge("scheduler_replicas", "Living replicas.", "scheduler")
REVISIONS: Final = _gauge(
    "scheduler_revisions", "Number of different configurations of the living replicas.", "scheduler"
)
ORCHESTRATORS: Final = _gauge("orchestrators", "Living orchestrators.")
READERS: Final = _gauge("facts_readers", "Living readers of facts.", "role")
FACTS_BYTES: Final = _gauge("facts_bytes", "Bytes of the facts that the server keeps, as agents count them.")
FACTS_BYTES_LIMIT: Final = _gauge(
    "facts_bytes_limit", "Bytes from which the oldest facts are dropped before their time."
)
BACKLOG: Final = _gauge("inbox_backlog", "Entries of an inbox that no replica has read yet.", "scheduler")
PENDING: Final = _gauge("inbox_pending", "Entries that a replica has read and not yet answered.", "scheduler")
INBOX_LAG: Final = _gauge(
    "inbox_lag_seconds", "Age of the oldest unread entry, by the server's clock.", "scheduler"
)
_ACCOUNT: Final = ("book", "budget", "level", "whose")
BUDGET_LIMIT: Final = _gauge(
    "budget_limit",
    "Limit of one account; `whose` is empty for sessions, trees and arguments, which are summed.",
    *_ACCOUNT,
)
BUDGET_RESERVED: Final = _gauge(
    "budget_reserved", "Amount reserved for calls that have not ended.", *_ACCOUNT
)
BUDGET_SPENT: Final = _gauge("budget_spent", "Amount spent in the budget's current window.", *_ACCOUNT)
BUDGET_USED: Final = _gauge(
    "budget_used_ratio",
    "(spent + reserved) / limit, for the account with the highest ratio.",
    *("book", "budget", "level"),
)
BUDGET_INFO: Final = _gauge(
    "budget_info",
    "Always 1; `unit` is what the budget counts: a currency, calls, seconds, tokens, requests, or another.",
    *("book", "budget", "level", "unit"),
)
BUDGET_ENDS: Final = _gauge(
    "budget_window_end_timestamp_seconds",
    "Time at which the budget's current window ends, by the server's clock; +Inf if it never ends.",
    *("book", "budget", "level"),
)
LEDGER_LOST: Final = _gauge(
    "ledger_lost",
    "1 if a ledger was emptied, was exchanged, or forgot confirmed changes, and waits for a person.",
    "book",
)
CONFIG_CHANGED: Final = _gauge(
    "config_change_timestamp_seconds",
    "Time of the last change of rules, by event and by the server's clock, for a day: config:pushed, "
    "config:undone, rollout:started, rollout:advanced, rollout:done, rollout:undone.",
    *("scheduler", "event"),
)
PAUSES: Final = _gauge("pauses", "Pauses of operators that stand now.")
OLDEST_PAUSE: Final = _gauge(
    "oldest_pause_seconds",
    "Age of the oldest pause that stands, by the server's clock; 0 if there is none.",
)
_POOL: Final = ("scheduler", "pool")
SLOTS_WAITING: Final = _gauge("slots_waiting", "Calls that wait for a slot of a pool now.", *_POOL)
SLOTS_IN_USE: Final = _gauge("slots_in_use", "Slots of a pool that calls have now.", *_POOL)
SLOTS_LIMIT: Final = _gauge(
    "slots_limit", "Number of slots of a pool; for a pool with a `key`, of all keys in use.", *_POOL
)
SLOTS_OLDEST: Final = _gauge(
    "slots_oldest_wait_seconds",
    "Seconds that the longest waiting call has waited, by the server's clock; 0 if no call waits.",
    *_POOL,
)
SLOTS_WAIT: Final = _seconds(
    "slots_wait", "Seconds that calls waited for a slot that they got.", *_POOL, buckets=SLOW
)
SLOTS_HELD: Final = _seconds("slots_held", "Seconds that calls had a slot.", *_POOL, buckets=SLOW)
SLOTS_UNSERVED: Final = _counter(
    "slots_unserved",
    "Calls that waited for a slot and got none: expired (their wait was over), withdrawn (cancelled, denied "
    "by others, dead, or never waiting).",
    *(*_POOL, "reason"),
)
SLOTS_LAPSED: Final = _counter("slots_lapsed", "Slots taken back from orchestrators that died.", *_POOL)
SLOTS_USED: Final = _counter(
    "slots_used_seconds",
    "Seconds for which calls had slots, by the tenant that `share` names; after a hundred of a pool, other.",
    *(*_POOL, "whose"),
)
SLOTS_WEIGHT: Final = _gauge(
    "slots_weight", "Weight of a tenant that had slots of a pool, as of its last slot.", *_POOL, "whose"
)
LABEL_DECISIONS: Final = _counter(
    "label_decisions",
    "Decisions, by the values of the agents' labels that `--by-label` names; after a hundred values, other.",
    *("label", "value", "outcome"),
)
EXPORTER_FACTS: Final = _counter("exporter_facts", "Facts that this exporter counted.")
EXPORTER_GAPS: Final = _counter(
    "exporter_gaps", "Facts that are missing in an orchestrator's sequence of numbers."
)
EXPORTER_LAG: Final = _gauge(
    "exporter_lag_seconds",
    "Age of the oldest entry not yet counted, by the server's clock; 0 if there is none.",
)
EXPORTER_LEADS: Final = _gauge(
    "exporter_leads", "1 if this exporter serves the fleet's metrics, 0 if it stands by for another one."
)

BY_MODEL: Final = (MODEL_TOKENS, MODEL_COST)
"""Metrics by model. Providers choose the names of models, so they are counted only if series are bounded."""

EXPORTER: Final = (
    *BY_MODEL,
    *(SAVED, REPLICAS, REVISIONS, ORCHESTRATORS, READERS, FACTS_BYTES, FACTS_BYTES_LIMIT),
    *(BACKLOG, PENDING, INBOX_LAG),
    *(BUDGET_LIMIT, BUDGET_RESERVED, BUDGET_SPENT, BUDGET_USED, BUDGET_INFO, BUDGET_ENDS),
    *(LEDGER_LOST, CONFIG_CHANGED),
    *(PAUSES, OLDEST_PAUSE),
    *(SLOTS_WAITING, SLOTS_IN_USE, SLOTS_LIMIT, SLOTS_OLDEST, SLOTS_WAIT, SLOTS_HELD),
    *(SLOTS_UNSERVED, SLOTS_LAPSED, SLOTS_USED, SLOTS_WEIGHT),
    *(LABEL_DECISIONS, EXPORTER_FACTS, EXPORTER_GAPS, EXPORTER_LAG, EXPORTER_LEADS),
)

# ---------------------------------------------------------------------- notify only

NOTIFICATIONS: Final = _counter(
    "notifications",
    "Attempts to post a notification, by outcome: delivered, failed (tried again), refused, expired.",
    *("cause", "receiver", "outcome"),
)
NOTIFICATIONS_QUEUED: Final = _gauge("notifications_queued", "Notifications still to be posted.", "receiver")
NOTIFY_LEADS: Final = _gauge("notify_leads", "1 if this process posts, 0 if it stands by for another one.")

NOTIFY: Final = (NOTIFICATIONS, NOTIFICATIONS_QUEUED, NOTIFY_LEADS)
