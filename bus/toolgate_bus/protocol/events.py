"""The values that travel: the question, the verdicts, the decision. Frozen, without behaviour.

`ToolSelecting` is the question an orchestrator asks before a tool runs, as authors are given it;
`ToolQuestion` is the same as a gate carries it. A scheduler answers with a `Verdict`. `Decision` is what came
of all verdicts, and why. The words are those of docs/concepts.md; how the values look as bytes is `codec`'s
affair, how verdicts become a decision is `merge`'s.
"""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from toolgate_bus.protocol.names import (
    IN_PROCESS,
    MAX_FENCE,
    MAX_LINEAGE,
    MAX_RULE,
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
    "Modify",
    "Outcome",
    "Phase",
    "ReceivedVerdict",
    "ToolQuestion",
    "ToolSelecting",
    "Verdict",
    "Why",
]

Phase = Literal["select", "verify", "admit"]
Priority = Annotated[int, Field(ge=-(2**31), le=2**31 - 1)]
RuleName = Annotated[str, Field(max_length=MAX_RULE)]
Words = Annotated[tuple[str, ...], Field(strict=False, max_length=1024)]


class _Event(BaseModel):
    # Validators are made by `codec`, or with the first value: an author's module only names these.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, hide_input_in_errors=True, defer_build=True
    )


class ToolSelecting(_Event):
    """One question: may this tool call run? (seed loop-events, `tool:selecting`)."""

    id: str
    """Decision id: 128 random bits as 32 hexadecimal digits; the same in all phases."""
    phase: Phase = "select"
    """`select`: the LLM's own call. `verify`: a scheduler's replacement, which nobody has judged.
    `admit`: the call that is about to run, for whoever gives out what is scarce."""
    root_session: str = ""
    session: str = ""
    parent: str | None = None
    lineage: Annotated[tuple[str, ...], Field(strict=False, max_length=MAX_LINEAGE)] = ()
    """For a sub-agent: the names of the agents from the root of its tree to itself, itself last."""
    agent: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    tool_call_id: str = ""
    iteration: int = 0
    parallel_group_id: str = ""
    tool_name: str
    tool_input: dict[str, Any] = Field(default_factory=dict)
    """The arguments; redacted and over-long values are placeholders (`redact` in the orchestrator)."""
    available_tools: Words = ()
    available_agents: Words | None = None
    agent_target: str | None = None
    ttl_ms: int = 500
    """How long an answer is of use, in milliseconds from the moment the question was written."""
    trace: dict[str, str] = Field(default_factory=dict)
    truncated: bool = False
    """True where a value was too long to be sent in full; a scheduler may deny for that."""
    request: str = ""
    """What the user asked for, redacted, its first 8192 characters; for schedulers that ask for it alone
    (`reads`), and empty where it is not known."""
    again: bool = False
    """In `verify`: others have changed the replacement since, and everyone is asked for the last time."""


class ToolQuestion(NamedTuple):
    """`ToolSelecting` before it travels, as it goes through a gate, its hooks, people and record.

    Its arguments are the caller's own. Nothing in it is checked: `codec` does that where one is read.
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
    """What the user asked for, in whole."""
    again: bool = False
    """In `verify`: it was asked about before, and others have changed it since."""


class Continue(_Event):
    """The call may run as it is."""

    action: Literal["continue"] = "continue"
    reason: str | None = None
    priority: Priority | None = None
    fence: Annotated[int, Field(ge=1, le=MAX_FENCE)] | None = None
    """In `admit`: the fencing number of what was given, which rises with each grant."""


class Deny(_Event):
    """The call must not run; `reason` is told to the LLM."""

    action: Literal["deny"] = "deny"
    reason: str
    priority: Priority | None = None
    rule_name: RuleName | None = None
    """Which of the scheduler's rules it was, for metrics; there should be few."""


class Modify(_Event):
    """Another call should run instead: other tool, other arguments, or another agent."""

    action: Literal["modify"] = "modify"
    tool: str
    arguments: dict[str, Any] | None = None
    """None keeps the arguments of the question."""
    reason: str | None = None
    agent_target: str | None = None
    priority: Priority | None = None
    rule_name: RuleName | None = None


class AskUser(_Event):
    """A person must agree to the call before it runs."""

    action: Literal["ask_user"] = "ask_user"
    prompt: str
    options: Words = ("Allow once", "Deny")
    timeout_s: Annotated[float, Field(gt=0, le=86_400, strict=False)] = 300.0
    """Seconds the person has; then the default holds."""
    default: Literal["allow", "deny"] = "deny"
    reason: str | None = None
    priority: Priority | None = None
    rule_name: RuleName | None = None


class Hold(_Event):
    """Not yet: a final answer follows within `seconds` (capped by the orchestrator's `max_hold_s`)."""

    action: Literal["hold"] = "hold"
    seconds: Annotated[float, Field(gt=0, le=86_400, strict=False)]
    reason: str | None = None
    priority: Priority | None = None


class Failure(_Event):
    """The scheduler could not decide: it raised, or gave no verdict. A worker says so, no author does.

    It counts exactly as silence does, only at once instead of at the end of patience.
    """

    action: Literal["failed"] = "failed"
    reason: str | None = None
    priority: Priority | None = None


Verdict = Continue | Deny | Modify | AskUser | Hold
"""What an author may answer."""

Outcome = Literal["continue", "modify", "deny", "cancelled", "ask"]
"""`ask`: not decided yet, as a person is to be asked (`Gate.decide(ask="defer")`)."""
Why = Literal[
    "agreed",  # everyone asked said continue
    "unasked",  # nobody was there to ask
    "failed_open",  # somebody optional was silent, nobody objected
    "modified",  # a scheduler's call replaces the LLM's
    "denied",  # a scheduler said deny
    "silent",  # a required scheduler said nothing
    "expired",  # a hold or a question to a person ran out
    "refused",  # the person said no
    "no_approver",  # there was no person to ask
    "bus_down",  # the bus was away and `on_bus_down` decided
    "gate_failed",  # the gate itself could not rule, where somebody might have objected
    "cancelled",  # the turn ended first
    "pending",  # a person is to be asked, and nobody waits for it
    "void",  # a person's answer fits no question that waits
]


class ReceivedVerdict(NamedTuple):
    """One verdict as the gate heard it."""

    scheduler: str
    verdict: Verdict | Failure
    priority: int = 0
    """The priority it counts with: the verdict's own, else the scheduler's, after the cap."""
    phase: Phase = "select"
    seconds: float = 0.0
    """From the question to this answer, on the orchestrator's monotonic clock."""
    late: bool = False
    shadow: bool = False
    problem: str | None = None
    """Why a modify is invalid and was set aside; None for a valid verdict."""
    capped: bool = False
    digest: bytes = b""
    """SHA-256 of the verdict's body. Finds duplicates, and breaks ties of priority and name."""
    revision: str = ""
    """Which configuration of the scheduler gave it, where it says so (`revision`)."""
    said: Verdict | None = None
    """What it said, where that counts as another verdict: a denial, as the caller cannot do it
    (`Gate.decide(can=…)`) or a required scheduler does not agree; or continue, as it changes nothing."""
    again: bool = False
    """Whether it is about a replacement that others had changed in `verify`."""


class Decision(NamedTuple):
    """What came of one question, and why."""

    id: str
    outcome: Outcome
    why: Why
    tool_name: str
    """The tool to run: the LLM's own, or the replacement. Meaningless when denied."""
    tool_input: dict[str, Any]
    original_tool: str
    original_input: dict[str, Any]
    reason: str | None = None
    """What the LLM is told on a denial, or why a scheduler replaced the call."""
    scheduler: str | None = None
    """Whose verdict decided, if it was one scheduler's."""
    agent_target: str | None = None
    verdicts: tuple[ReceivedVerdict, ...] = ()
    silent: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()
    seconds: float = 0.0
    """From the question to the decision, on the orchestrator's monotonic clock."""
    asked_user: bool = False
    waited: float = 0.0
    """Of `seconds`, those for which it waited to be admitted."""
    token: str = ""
    """Of outcome `ask`: what a person's answer is given with. Who has it may answer: it is a secret."""
    prompt: AskUser | None = None
    """Of outcome `ask`: what the person is to be asked; `tool_name` and `tool_input` are what would run."""

    @property
    def pending(self) -> bool:
        """Whether a person is to be asked, and it goes on with their answer (`token`)."""
        return self.outcome == "ask"

    @property
    def overruled(self) -> tuple[str, ...]:
        """Schedulers that wanted another call than the one decided on, and were not heard."""
        found = (heard.scheduler for heard in self.verdicts if heard.problem == OVERRULED)
        return tuple(dict.fromkeys(found))

    @property
    def latency(self) -> float:
        """Seconds that deciding took: without those for which it waited to be admitted."""
        return max(0.0, self.seconds - self.waited)

    @property
    def grants(self) -> dict[str, int]:
        """The fencing number of what each scheduler gave to the call in `admit`, by scheduler."""
        return {
            heard.scheduler: heard.verdict.fence
            for heard in self.verdicts
            if heard.phase == "admit" and isinstance(heard.verdict, Continue) and heard.verdict.fence
        }

    @property
    def allowed(self) -> bool:
        """Whether a tool may run: the outcome is neither a denial nor a cancellation."""
        return self.outcome in ("continue", "modify")
