"""What callers send: the bodies of `/v1/…`, with their bounds. Pure.

Unknown keys are refused by name: who misspells `required` must not believe that it counts.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from toolgate_bus.facts.validation import MAX_SECONDS, SIGNAL
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.money import MAX_AMOUNT, dollars, micro
from toolgate_bus.protocol.names import MAX_LINEAGE, MAX_NAME

MAX_TIMEOUT_MS: Final = 3_600_000
TIMEOUT_MS: Final = 55_000
"""Below the 60 s after which hooks of coding agents, and most proxies, give up."""
MAX_TOKENS: Final = 2**53 - 1
MAX_GIVEN: Final = 128 * 1024
"""Characters of a user's request; schedulers are told the first 8192."""
LEASE_S: Final = 300.0
MAX_LEASE_S: Final = 86_400.0

Text = Annotated[str, Field(max_length=MAX_NAME)]
Token = Annotated[str, Field(min_length=1, max_length=512)]
Tokens = Annotated[int, Field(ge=0, le=MAX_TOKENS)]
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS, strict=False, allow_inf_nan=False)]
Dollars = Annotated[int | float | Annotated[str, Field(max_length=64)], Field(union_mode="left_to_right")]
Ability = Literal["arguments", "tool", "ask", "wait"]


class RequestBody(BaseModel):
    """A body of `/v1/…`."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )


class PlaceBody(RequestBody):
    """Whose call it is."""

    session: Text = ""
    """Id of the conversation, run or thread. Calls of one are counted and shown together."""
    root_session: Text = ""
    """Id of the session at the root, where agents work for agents."""
    parent: Text | None = None
    """Id of the session for which this one works."""
    lineage: Annotated[tuple[Text, ...], Field(strict=False, max_length=MAX_LINEAGE)] = ()
    """Names of the agents from the root down to this one."""
    agent: Text | None = None
    """Name of the agent: a kind, not an id. Without it, the sidecar's own."""
    labels: Annotated[dict[Text, Text], Field(max_length=64)] = Field(default_factory=dict)
    """Names and values that rules see: team, customer."""


class PersonAnswerBody(RequestBody):
    """What a person said about a call that is pending."""

    token: Token
    """The token of the ruling `ask`."""
    answer: Literal["allow", "refuse", "expired"]
    """What was said, or that nobody said anything in time."""
    by: Text = ""
    """Who said it."""


class DecideRequest(PlaceBody):
    """One call that an agent wants to make."""

    tool: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    """Name of the tool; `llm:request` for a request to an LLM."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Its arguments."""
    tools: (
        Annotated[tuple[Text, ...], Field(strict=False, max_length=packing.MAX_ENTRIES)]
        | Annotated[dict[Text, dict[str, Any] | None], Field(max_length=packing.MAX_ENTRIES)]
        | None
    ) = None
    """The tools that the agent has: names, or names to JSON Schemas, by which replacements are checked."""
    call_id: Text = ""
    """The id that the LLM gave the call."""
    group: Text = ""
    """Calls of one response of the LLM have the same."""
    iteration: Annotated[int, Field(ge=0, le=2**31)] = 0
    """Which response of the LLM it was, from 1."""
    available_agents: (
        Annotated[tuple[Text, ...], Field(strict=False, max_length=packing.MAX_ENTRIES)] | None
    ) = None
    """Whom it may hand work to, where it is a call that does."""
    agent_target: Text | None = None
    """Whom it hands work to; without it, whom of `available_agents` its argument `agent` or `agent_name`
    names."""
    can: Annotated[tuple[Ability, ...], Field(strict=False, max_length=8)] = ("arguments", "tool")
    """What the caller can do with an answer: run other `arguments`, another `tool` (of `tools`), `ask` a
    person and come back, `wait` again for a call that is held. What it cannot do is a denial, never the
    call unchanged."""
    timeout_ms: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_MS)] = TIMEOUT_MS
    """When it must be answered, in milliseconds: sooner than the caller gives up. What is held by then is
    denied, or `pending` for who can `wait`."""
    answer: PersonAnswerBody | None = None
    """Goes on with the decision that was `ask`: the same call, or it is void."""
    trace: Annotated[dict[Text, Annotated[str, Field(max_length=512)]], Field(max_length=4)] | None = None
    """Trace context: `traceparent`, `tracestate`."""


class WaitRequest(RequestBody):
    """Wait on for a call that was `pending`."""

    token: Token
    """The token of the ruling `pending`."""
    timeout_ms: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_MS)] = TIMEOUT_MS
    """When it must be answered, in milliseconds."""


class CostBody(RequestBody):
    """What something cost, in one of two units."""

    cost: Annotated[int, Field(ge=0, le=MAX_AMOUNT)] | None = None
    """In micro-units of the currency: 1000000 is 1.00."""
    cost_usd: Dollars | None = None
    """In units of the currency, as a number or text: 0.0125."""

    @model_validator(mode="after")
    def _one_amount(self) -> "CostBody":
        if self.cost_usd is not None and dollars(self.cost_usd) is None:
            raise ValueError("cost_usd: not an amount: from 0, finite, as a number or a decimal text")
        if self.cost is not None and self.cost_usd is not None:
            raise ValueError("cost, cost_usd: give one of them")
        return self

    @property
    def amount(self) -> int | None:
        """In micro-units, rounded up."""
        return self.cost if self.cost_usd is None else micro(self.cost_usd)


class ReportRequest(CostBody):
    """What became of a call that was let through."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """The ruling's id."""
    outcome: Literal["succeed", "fail", "release"]
    """`release`: it was not run after all, and what was reserved for it is given back."""
    error: Text = ""
    """Of one that failed: the kind of error, never its text."""
    seconds: Seconds | None = None
    """How long it ran."""
    signal: Annotated[str, Field(pattern=rf"^{SIGNAL.pattern}$", max_length=64)] | None = None
    """What the failure says of load: a status of HTTP, `timeout`, a short code."""
    retry_after: Seconds | None = None
    """Seconds that the tool asks to be left alone."""


class UsageRequest(PlaceBody, CostBody):
    """What one request to an LLM used; with `id`, it settles a ruling on `llm:request`."""

    provider: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    """Who answered: `anthropic`."""
    model: Text = ""
    """Which model."""
    input_tokens: Tokens | None = None
    """Tokens of the request."""
    output_tokens: Tokens | None = None
    """Tokens of the answer."""
    cache_read_tokens: Tokens | None = None
    """Of the request, those read from a cache."""
    cache_write_tokens: Tokens | None = None
    """Of the request, those written to a cache."""
    reasoning_tokens: Tokens | None = None
    """Of the answer, those of reasoning."""
    seconds: Seconds | None = None
    """How long it took."""
    iteration: Annotated[int, Field(ge=0, le=2**31)] = 0
    """Which response of the LLM it was, from 1."""
    id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    """The id of the ruling on this request, if there was one."""
    error: Text = ""
    """Where the LLM did not answer: the kind of error."""


class TurnRequest(PlaceBody):
    """A turn of an agent: it is shown in `toolgate agents`, and can be stopped there."""

    session: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    """Id of the session."""
    do: Literal["begin", "end", "watch"]
    """`begin` or `end` a turn; `watch` answers as soon as somebody stops it, or the time is over."""
    request: Annotated[str, Field(max_length=MAX_GIVEN)] = ""
    """With `begin`: what the user asked for, in their own words; told, redacted, to schedulers that read it,
    with each call of this session and of those below it."""
    lease_s: Annotated[float, Field(ge=1, le=MAX_LEASE_S, strict=False)] = LEASE_S
    """The turn ends by itself when nothing was heard of its session for so many seconds."""
    timeout_ms: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_MS)] = TIMEOUT_MS
    """How long `watch` waits."""
    status: Literal["completed", "cancelled", "error", "incomplete"] = "completed"
    """How the turn ended."""
    iterations: Annotated[int, Field(ge=0, le=2**31)] = 0
    """How often the LLM was asked in it."""
