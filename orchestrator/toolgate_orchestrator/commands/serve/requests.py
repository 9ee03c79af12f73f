"""The bodies that callers send to `/v1/…`, with their bounds. Pure.

Unknown keys are refused by name, so that nobody believes that a misspelled `required` counts.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from toolgate_bus.facts.validation import MAX_SECONDS, SIGNAL
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.money import MAX_AMOUNT, dollars, micro
from toolgate_bus.protocol.names import MAX_LINEAGE, MAX_NAME

MAX_TIMEOUT_MS: Final = 3_600_000
TIMEOUT_MS: Final = 55_000
"""Default time to answer: below the 60 s after which hooks of coding agents, and most proxies, give up."""
MAX_TOKENS: Final = 2**53 - 1
MAX_GIVEN: Final = 128 * 1024
"""Maximum number of characters of a user's request; schedulers get the first 8192."""
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
    """Session and agent that make the call."""

    session: Text = ""
    """Id of the conversation, run or thread. Calls with the same id are counted and shown together."""
    root_session: Text = ""
    """Id of the root session, if agents work for agents."""
    parent: Text | None = None
    """Id of the session for which this session works."""
    lineage: Annotated[tuple[Text, ...], Field(strict=False, max_length=MAX_LINEAGE)] = ()
    """Names of the agents from the root down to this agent."""
    agent: Text | None = None
    """Name of the agent: a kind, not an id. Default: the sidecar's own."""
    labels: Annotated[dict[Text, Text], Field(max_length=64)] = Field(default_factory=dict)
    """Names and values that rules can match, such as team or customer."""


class PersonAnswerBody(RequestBody):
    """A person's answer to a call that waits for it."""

    token: Token
    """Token of the ruling `ask`."""
    answer: Literal["allow", "refuse", "expired"]
    """The person's answer, or `expired` if there was none in time."""
    by: Text = ""
    """Name of the person."""


class DecideRequest(PlaceBody):
    """One call that an agent wants to make."""

    tool: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    """Name of the tool; `llm:request` for a request to an LLM, or `turn:input`, `turn:output` or
    `session:start` for a point of the agent's life, with the words as the argument `text`."""
    arguments: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the call."""
    tools: (
        Annotated[tuple[Text, ...], Field(strict=False, max_length=packing.MAX_ENTRIES)]
        | Annotated[dict[Text, dict[str, Any] | None], Field(max_length=packing.MAX_ENTRIES)]
        | None
    ) = None
    """Tools that the agent has: names, or names with JSON Schemas, against which replacements are checked."""
    call_id: Text = ""
    """Id that the LLM gave the call."""
    group: Text = ""
    """Group of the call: calls of one LLM response have the same."""
    iteration: Annotated[int, Field(ge=0, le=2**31)] = 0
    """Number of the LLM response with this call, from 1."""
    available_agents: (
        Annotated[tuple[Text, ...], Field(strict=False, max_length=packing.MAX_ENTRIES)] | None
    ) = None
    """Agents to which this call may delegate, if it delegates."""
    agent_target: Text | None = None
    """Agent to which this call delegates. Default: the agent of `available_agents` that the argument `agent`
    or `agent_name` names."""
    can: Annotated[tuple[Ability, ...], Field(strict=False, max_length=8)] = ("arguments", "tool")
    """Abilities of the caller: run other `arguments`, run another `tool` (of `tools`), `ask` a person and
    come back, `wait` again for a held call. A ruling that needs another ability becomes a denial; the call
    never runs unchanged instead."""
    timeout_ms: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_MS)] = TIMEOUT_MS
    """Maximum milliseconds until the answer: fewer than the caller's own limit. A call that is still held
    then is denied, or `pending` if the caller can `wait`."""
    answer: PersonAnswerBody | None = None
    """A person's answer to the ruling `ask`. The call must be the same, or the answer is void."""
    trace: Annotated[dict[Text, Annotated[str, Field(max_length=512)]], Field(max_length=4)] | None = None
    """Trace context: `traceparent`, `tracestate`."""


class WaitRequest(RequestBody):
    """Wait again for a call that was `pending`."""

    token: Token
    """Token of the ruling `pending`."""
    timeout_ms: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_MS)] = TIMEOUT_MS
    """Maximum milliseconds until the answer."""


class CostBody(RequestBody):
    """A cost, in one of two units."""

    cost: Annotated[int, Field(ge=0, le=MAX_AMOUNT)] | None = None
    """Cost in micro-units of the currency: 1000000 is 1.00."""
    cost_usd: Dollars | None = None
    """Cost in units of the currency, as a number or text: 0.0125."""

    @model_validator(mode="after")
    def _one_amount(self) -> "CostBody":
        if self.cost_usd is not None and dollars(self.cost_usd) is None:
            raise ValueError("cost_usd: not an amount; give a finite number or decimal text, 0 or more")
        if self.cost is not None and self.cost_usd is not None:
            raise ValueError("cost, cost_usd: give one of them, not both")
        return self

    @property
    def amount(self) -> int | None:
        """Cost in micro-units, rounded up."""
        return self.cost if self.cost_usd is None else micro(self.cost_usd)


class ReportRequest(CostBody):
    """Report on a call that was let through."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """Id of the ruling."""
    outcome: Literal["succeed", "fail", "release"]
    """Result of the call. `release`: it was not run after all, and its reservations are given back."""
    error: Text = ""
    """Kind of the error of a failed call, never its text."""
    seconds: Seconds | None = None
    """Seconds that the call ran."""
    signal: Annotated[str, Field(pattern=rf"^{SIGNAL.pattern}$", max_length=64)] | None = None
    """Signal of overload in a failure: an HTTP status, `timeout`, or another short code."""
    retry_after: Seconds | None = None
    """Seconds for which the tool asks not to be called."""


class ResultRequest(RequestBody):
    """What a call gave, before anybody uses it."""

    id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    """Id of the ruling that let the call through. Bring the result before the report on the call."""
    result: Any
    """Result of the call: a text, or any value of JSON. Of a failed call, the words of its error."""
    success: bool = True
    """Whether the call succeeded."""
    can: Annotated[tuple[Literal["wait"], ...], Field(strict=False, max_length=8)] = ()
    """Abilities of the caller: `wait` and bring the same result again while the ruling is `pending`."""
    timeout_ms: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_MS)] = TIMEOUT_MS
    """Maximum milliseconds until the answer. A result that is still held then is withheld, or `pending` if
    the caller can `wait`."""


class UsageRequest(PlaceBody, CostBody):
    """Usage of one request to an LLM; with `id`, it settles a ruling on `llm:request`."""

    provider: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    """Provider of the LLM, such as `anthropic`."""
    model: Text = ""
    """Name of the model."""
    input_tokens: Tokens | None = None
    """Tokens of the request."""
    output_tokens: Tokens | None = None
    """Tokens of the response."""
    cache_read_tokens: Tokens | None = None
    """Tokens of the request that were read from a cache."""
    cache_write_tokens: Tokens | None = None
    """Tokens of the request that were written to a cache."""
    reasoning_tokens: Tokens | None = None
    """Tokens of the response that were spent on reasoning."""
    seconds: Seconds | None = None
    """Seconds that the request took."""
    iteration: Annotated[int, Field(ge=0, le=2**31)] = 0
    """Number of the LLM response, from 1."""
    id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    """Id of the ruling on this request, if there was one."""
    error: Text = ""
    """Kind of error, if the LLM did not answer."""


class TurnRequest(PlaceBody):
    """A turn of an agent: `toolgate agents` shows it, and can stop it."""

    session: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    """Id of the session."""
    do: Literal["begin", "end", "watch"]
    """`begin` or `end` a turn; `watch` answers once somebody stops it, or after `timeout_ms`."""
    request: Annotated[str, Field(max_length=MAX_GIVEN)] = ""
    """With `begin`: the user's request in their own words. Schedulers that ask for it get it, redacted, with
    each call of this session and of the sessions below it."""
    lease_s: Annotated[float, Field(ge=1, le=MAX_LEASE_S, strict=False)] = LEASE_S
    """Seconds without a message of the session after which the turn ends by itself."""
    timeout_ms: Annotated[int, Field(ge=1, le=MAX_TIMEOUT_MS)] = TIMEOUT_MS
    """Maximum milliseconds that `watch` waits."""
    status: Literal["completed", "cancelled", "error", "incomplete"] = "completed"
    """End of the turn."""
    iterations: Annotated[int, Field(ge=0, le=2**31)] = 0
    """Number of LLM requests in the turn."""
