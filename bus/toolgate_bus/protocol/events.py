"""Values of messages: the question, the verdicts, the decision. Frozen, without behaviour.

`ToolSelecting` is the question that an orchestrator asks before a tool runs, as authors of schedulers get it.
`ToolQuestion` is the same question inside a gate. A scheduler answers with a `Verdict`. `Decision` is the
result of all verdicts, with its reason. The words are those of docs/concepts.md. `codec` turns the values
into bytes, `merge` turns verdicts into a decision.
"""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from toolgate_bus.protocol.names import (
    IN_PROCESS,
    LABEL_PATTERN,
    MAX_FENCE,
    MAX_LINEAGE,
    MAX_PARTS,
    MAX_POINTER,
    MAX_RULE,
    MAX_SESSION_LABELS,
    NAME_PATTERN,
    OVERRULED,
    RESERVED_NAMES,
)

__all__ = [
    "IN_PROCESS",
    "NAME_PATTERN",
    "OVERRULED",
    "RESERVED_NAMES",
    "AskUser",
    "Continue",
    "Decision",
    "Deny",
    "Failure",
    "Hold",
    "Mask",
    "MaskedPart",
    "Modify",
    "Outcome",
    "Phase",
    "ReceivedVerdict",
    "Replace",
    "SentResult",
    "ToolQuestion",
    "ToolSelecting",
    "Verdict",
    "Why",
]

Phase = Literal["select", "verify", "admit", "result"]
Priority = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
Position = Annotated[int, Field(ge=0)]
RuleName = Annotated[str, Field(max_length=MAX_RULE)]
Words = Annotated[tuple[str, ...], Field(strict=False, max_length=1024)]
SessionLabels = Annotated[
    dict[
        Annotated[str, Field(pattern=LABEL_PATTERN)],
        Annotated[
            tuple[Annotated[str, Field(pattern=LABEL_PATTERN)], ...],
            Field(strict=False, min_length=1, max_length=MAX_SESSION_LABELS),
        ],
    ],
    Field(max_length=MAX_SESSION_LABELS),
]
"""Values of each label of a session, by its name."""


class _Event(BaseModel):
    # Validators are made by `codec`, or with the first value: an author's module only imports these classes.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, hide_input_in_errors=True, defer_build=True
    )


class ToolSelecting(_Event):
    """One question to schedulers: may this tool call run? (seed loop-events, `tool:selecting`)"""

    id: str
    """Decision id: 128 random bits as 32 hexadecimal digits; the same in all phases."""
    phase: Phase = "select"
    """`select`: the LLM's own call. `verify`: a scheduler's replacement, which no other scheduler has judged.
    `admit`: the call that is about to run, for schedulers that give out something scarce. `result`: the call
    has run, and nobody has seen its `result` yet."""
    root_session: str = ""
    session: str = ""
    parent: str | None = None
    lineage: Annotated[tuple[str, ...], Field(strict=False, max_length=MAX_LINEAGE)] = ()
    """Names of the agents from the root of a sub-agent's tree to itself, itself last; empty without a
    parent."""
    agent: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    tool_call_id: str = ""
    iteration: int = 0
    parallel_group_id: str = ""
    tool_name: str
    tool_input: dict[str, Any] = Field(default_factory=dict)
    """Arguments. Redacted and over-long values are placeholders (`redact` in the orchestrator)."""
    available_tools: Words = ()
    available_agents: Words | None = None
    agent_target: str | None = None
    ttl_ms: int = 500
    """Time in which an answer is of use, in milliseconds from the moment the question was written."""
    trace: dict[str, str] = Field(default_factory=dict)
    truncated: bool = False
    """True if a value was too long to be sent in full. A scheduler may deny the call for that."""
    request: str = ""
    """First 8192 characters of the user's request, redacted. Only schedulers that ask for it (`reads`) get
    it; empty if unknown."""
    again: bool = False
    """True in `verify` if other schedulers have since changed the replacement, and in `result` if one has
    replaced the result: all are asked a last time."""
    result: Any = None
    """Result of the call in `result`: a text, or a value of JSON. Redacted parts are placeholders."""
    success: bool = True
    """False in `result` if the tool failed; the result is its error then."""
    result_cut: bool = False
    """True if the result was longer than may be sent. The LLM gets no more of it than stands in `result`."""
    session_labels: SessionLabels | None = Field(default_factory=dict)
    """Labels that verdicts gave to this session, or to one above it. None: they are unknown."""
    required_labels: SessionLabels = Field(default_factory=dict)
    """Those of `session_labels` that required schedulers gave. Only these may be a reason to allow a call."""


class SentResult(NamedTuple):
    """Result of a call as it is sent: one string of bytes."""

    form: Literal["text", "json"]
    data: bytes
    """UTF-8 text, or JSON."""
    success: bool = True
    is_cut: bool = False

    @property
    def text(self) -> str:
        """The result as a text: as it is, or as JSON."""
        return self.data.decode()


class ToolQuestion(NamedTuple):
    """`ToolSelecting` before it is sent, as a gate, its hooks, people and the record see it.

    Its arguments are the caller's own. Nothing in it is checked: `codec` checks a question that it reads.
    """

    id: str
    tool_name: str
    tool_input: dict[str, Any]
    available_tools: list[str]
    ttl_ms: int
    agent: str
    labels: dict[str, str]
    session: str
    root_session: str
    parent: str | None
    lineage: list[str]
    tool_call_id: str
    iteration: int
    parallel_group_id: str
    available_agents: list[str] | None
    agent_target: str | None
    trace: dict[str, str]
    truncated: bool
    phase: Phase = "select"
    request: str = ""
    """The whole request of the user; a question carries only its beginning."""
    again: bool = False
    """True in `verify` if other schedulers have since changed the replacement, and in `result` if one has
    replaced the result: all are asked a last time."""
    result: SentResult | None = None
    """Result of the call in `result`, as it is sent."""
    session_labels: dict[str, list[str]] | None = {}  # noqa: RUF012 - nobody changes it
    """Labels that verdicts gave to this session, or to one above it. None: they are unknown."""
    required_labels: dict[str, list[str]] = {}  # noqa: RUF012 - nobody changes it
    """Those of `session_labels` that required schedulers gave."""


class Continue(_Event):
    """Verdict: the call may run as it is. In `result`: the LLM may see the result as it is."""

    action: Literal["continue"] = "continue"
    reason: str | None = None
    priority: Priority | None = None
    fence: Annotated[int, Field(ge=1, le=MAX_FENCE)] | None = None
    """Fencing number of the grant in `admit`, which rises with each grant."""
    session_labels: SessionLabels | None = None
    """Labels that the session bears from now on; they only ever grow."""


class Deny(_Event):
    """Verdict: the call must not run; in `result`: its result is withheld. The LLM is told the `reason`."""

    action: Literal["deny"] = "deny"
    reason: str
    priority: Priority | None = None
    rule_name: RuleName | None = None
    """Name of the scheduler's rule that denied, for metrics. Use few different names."""
    session_labels: SessionLabels | None = None
    """Labels that the session bears from now on; they only ever grow."""


class Modify(_Event):
    """Verdict: another call should run instead, with another tool, other arguments, or another agent."""

    action: Literal["modify"] = "modify"
    tool: str
    arguments: dict[str, Any] | None = None
    """Arguments of the new call; None keeps those of the question."""
    reason: str | None = None
    agent_target: str | None = None
    priority: Priority | None = None
    rule_name: RuleName | None = None
    session_labels: SessionLabels | None = None
    """Labels that the session bears from now on; they only ever grow."""


class MaskedPart(NamedTuple):
    """Part of a result that a verdict hides."""

    path: Annotated[str, Field(max_length=MAX_POINTER)] = ""
    """Place in the result as a JSON pointer (RFC 6901), such as `/items/0/text`. Empty: the whole result."""
    start: Position | None = None
    """Position of the first hidden character of the text at that place. None: all of what is there."""
    end: Position | None = None
    """Position behind the last hidden character."""
    name: RuleName = ""
    """Kind of what is hidden, for the mark in its place: `[withheld: api key]`."""


def _with_all_values(part: Any) -> Any:
    if not isinstance(part, list | tuple) or len(part) != len(MaskedPart._fields):
        raise ValueError("a part has four values")
    return part


class Mask(_Event):
    """Verdict in `result`: the LLM may see the result without these parts."""

    action: Literal["mask"] = "mask"
    parts: Annotated[
        tuple[Annotated[MaskedPart, BeforeValidator(_with_all_values)], ...],
        Field(strict=False, min_length=1, max_length=MAX_PARTS),
    ]
    """Each a `MaskedPart`, or its four values. Positions count in `ToolSelecting.result` as it was sent."""
    reason: str | None = None
    priority: Priority | None = None
    rule_name: RuleName | None = None
    session_labels: SessionLabels | None = None
    """Labels that the session bears from now on; they only ever grow."""


class Replace(_Event):
    """Verdict in `result`: the LLM may see another result instead, if nobody objects to that one."""

    action: Literal["replace"] = "replace"
    result: Any
    """The other result: a text, or a value of JSON. A record leaves it out."""
    reason: str | None = None
    priority: Priority | None = None
    rule_name: RuleName | None = None
    session_labels: SessionLabels | None = None
    """Labels that the session bears from now on; they only ever grow."""


class AskUser(_Event):
    """Verdict: a person must agree to the call before it runs."""

    action: Literal["ask_user"] = "ask_user"
    prompt: str
    options: Words = ("Allow once", "Deny")
    timeout_s: Annotated[float, Field(gt=0, le=86_400, strict=False)] = 300.0
    """Seconds that the person has to answer; after that, `default` holds."""
    default: Literal["allow", "deny"] = "deny"
    reason: str | None = None
    priority: Priority | None = None
    rule_name: RuleName | None = None
    session_labels: SessionLabels | None = None
    """Labels that the session bears from now on; they only ever grow."""


class Hold(_Event):
    """Verdict: a final answer follows within `seconds` (capped by the orchestrator's `max_hold_s`)."""

    action: Literal["hold"] = "hold"
    seconds: Annotated[float, Field(gt=0, le=86_400, strict=False)]
    reason: str | None = None
    priority: Priority | None = None


class Failure(_Event):
    """The scheduler could not decide: it raised, or gave no verdict. A worker sends this, never an author.

    It counts exactly as silence does, only at once instead of at the end of patience.
    """

    action: Literal["failed"] = "failed"
    reason: str | None = None
    priority: Priority | None = None


Verdict = Continue | Deny | Modify | AskUser | Hold | Mask | Replace
"""Answer that an author may give."""

Outcome = Literal["continue", "modify", "deny", "cancelled", "ask"]
"""`ask`: not decided yet, because a person has to be asked (`Gate.decide(ask="defer")`)."""
Why = Literal[
    "agreed",  # all asked schedulers said continue
    "unasked",  # there was no scheduler to ask
    "failed_open",  # an optional scheduler was silent, and none objected
    "modified",  # a scheduler's call replaces the LLM's
    "denied",  # a scheduler said deny
    "silent",  # a required scheduler said nothing
    "expired",  # a hold or a question to a person ran out
    "refused",  # the person said no
    "no_approver",  # there was no person to ask
    "bus_down",  # the bus was away and `on_bus_down` decided
    "gate_failed",  # the gate itself could not rule, and a scheduler might have objected
    "cancelled",  # the turn ended first
    "pending",  # a person has to be asked, and no process waits for the answer
    "void",  # a person's answer fits no waiting question
]


class ReceivedVerdict(NamedTuple):
    """One verdict as the gate received it."""

    scheduler: str
    verdict: Verdict | Failure
    priority: int = 0
    """Priority it counts with: the verdict's own, else the scheduler's, after the cap."""
    phase: Phase = "select"
    seconds: float = 0.0
    """Seconds from the question to this answer, on the orchestrator's monotonic clock."""
    late: bool = False
    shadow: bool = False
    problem: str | None = None
    """Reason why a modify is invalid and was set aside; None for a valid verdict."""
    capped: bool = False
    digest: bytes = b""
    """SHA-256 of the verdict's body. Finds duplicates, and breaks ties of priority and name."""
    revision: str = ""
    """Revision of the scheduler's configuration that gave it; empty if it names none."""
    said: Verdict | None = None
    """Verdict that the scheduler gave, if it counts as another one: as a denial, because the caller cannot do
    it (`Gate.decide(can=…)`) or a required scheduler does not agree; or as continue, because it changes
    nothing."""
    again: bool = False
    """True if it is about a replacement that others had changed in `verify`, or that came in `result`."""


class Decision(NamedTuple):
    """Result of one question, with its reason."""

    id: str
    outcome: Outcome
    why: Why
    tool_name: str
    """Tool to run: the LLM's own, or the replacement. Meaningless if denied."""
    tool_input: dict[str, Any]
    original_tool: str
    original_input: dict[str, Any]
    reason: str | None = None
    """Text for the LLM on a denial, or a scheduler's reason for replacing the call."""
    scheduler: str | None = None
    """Scheduler whose verdict decided, if it was one scheduler's."""
    agent_target: str | None = None
    verdicts: tuple[ReceivedVerdict, ...] = ()
    silent: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()
    seconds: float = 0.0
    """Seconds from the question to the decision, on the orchestrator's monotonic clock."""
    asked_user: bool = False
    waited: float = 0.0
    """Seconds, out of `seconds`, for which the call waited to be admitted."""
    token: str = ""
    """Token to give with a person's answer to outcome `ask`. Keep it secret: its holder may answer."""
    prompt: AskUser | None = None
    """Question to the person in outcome `ask`; `tool_name` and `tool_input` are the call that would run."""

    @property
    def pending(self) -> bool:
        """True if a person has to be asked, and their answer goes on with the decision (`token`)."""
        return self.outcome == "ask"

    @property
    def overruled(self) -> tuple[str, ...]:
        """Schedulers that wanted another call than the one decided on, and were overruled."""
        found = (heard.scheduler for heard in self.verdicts if heard.problem == OVERRULED)
        return tuple(dict.fromkeys(found))

    @property
    def latency(self) -> float:
        """Seconds that deciding took, without those for which the call waited to be admitted."""
        return max(0.0, self.seconds - self.waited)

    @property
    def grants(self) -> dict[str, int]:
        """Fencing number of each scheduler's grant to the call in `admit`, by scheduler."""
        return {
            heard.scheduler: heard.verdict.fence
            for heard in self.verdicts
            if heard.phase == "admit" and isinstance(heard.verdict, Continue) and heard.verdict.fence
        }

    @property
    def allowed(self) -> bool:
        """True if a tool may run: the outcome is neither a denial nor a cancellation."""
        return self.outcome in ("continue", "modify")
