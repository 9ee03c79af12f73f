"""The shipped scheduler `provenance`: lets data go only to addressees that the user's request names.

A sink says which arguments of a tool are addressees. The user's request must name each of them, or the
configuration must trust it; otherwise a person is asked, or the call is denied. A sink may also require that
the request asks for such an act at all (`words`), and may check addresses in the other arguments (`links`).
It may be in force only in a session that bears a label (`when_session`). The results of tools that look
outside (`outside`) label the session, so that a sink is in force once something from outside has been read.

The request is the text that the app gave to the orchestrator (`Guard.turn(request=…)`). Results of tools,
and an LLM's texts to a sub-agent, are no request. If no request is known, it names nobody. A replacement
(phase `verify`) is judged like the LLM's own call.
"""

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator
from toolgate_bus.config.check import StrictModel
from toolgate_bus.protocol import placeholders
from toolgate_bus.protocol.events import AskUser, Continue, Deny, Phase, ToolSelecting, Verdict
from toolgate_bus.protocol.names import LABEL_PATTERN, MAX_REASON, MAX_RULE
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.ruling.conditions.arguments import MISSING, readings
from toolgate_bus.ruling.conditions.arguments import UNSEEN as UNREAD
from toolgate_bus.ruling.conditions.conditions import Condition, Globs
from toolgate_bus.ruling.conditions.matching import (
    CallMatcher,
    SessionLabelGlobs,
    SessionMatcher,
    session_bears,
)
from toolgate_bus.ruling.local_table import encode_table, list_concerns

from toolgate_schedulers.author.scheduler import Extra
from toolgate_schedulers.shipped import provenance_names as names

MAX_SHOWN: Final = 120
"""Maximum number of characters of an addressee that people and LLMs are told."""
_ALLOWED: Final = Continue()
Action = Literal["ask", "deny"]


def _escape(name: str) -> str:
    """Return the glob that matches this name alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _one_or_more(written: Any) -> Any:
    return (written,) if isinstance(written, str) else written


Text = Annotated[str, Field(min_length=1, max_length=256)]
Texts = Annotated[tuple[Text, ...], Field(max_length=1024), BeforeValidator(_one_or_more)]


SessionLabel = Annotated[str, Field(pattern=LABEL_PATTERN)]


class Sink(StrictModel):
    """Way out: the tools whose calls lead there, and the conditions for them."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_RULE)] | None = None
    """Name in reasons and metrics. Default: the tool's name."""
    tools: Globs
    """Tools the sink is about: one glob or several."""
    to: Texts = ()
    """Arguments that hold addressees, as paths (`recipients`, `message.to`). The request must name every
    value in them, unless it is trusted."""
    match: Literal["exact", "name"] = "exact"
    """`exact`: the address itself stands in the request. `name`: the words before the `@` of a mail address
    are enough, so the same name at another host passes too."""
    words: Texts = ()
    """Words of which the request must contain one, and so ask for the act; `*` is any letters (`delet*`)."""
    links: bool = Field(default=False, strict=True)
    """True to check web and mail addresses in the other arguments as well: they must be named or trusted."""
    trusted: Texts = ()
    """Addressees trusted here, beside those of the whole configuration."""
    action: Action | None = None
    """Action for calls that do not meet the conditions. Default: that of the whole configuration."""
    when_session: SessionLabelGlobs = Field(default_factory=dict)
    """Labels that the session must bear for the sink to count, such as `{source: untrusted}`. If they are not
    known, it counts."""

    @model_validator(mode="after")
    def _says_something(self) -> "Sink":
        if not (self.to or self.words or self.links):
            raise ValueError("checks nothing: give to (arguments), words or links")
        return self


class ProvenanceConfig(StrictModel):
    """Configuration file of `provenance`."""

    sinks: Annotated[tuple[Sink, ...], Field(min_length=1, max_length=1024)] | None = None
    """Sinks, the ways out. A call must meet the conditions of each sink for its tool. Tools without a sink
    may run. Not needed with `outside`."""
    outside: Globs | None = None
    """Tools whose results come from outside: one glob or several. Each such result labels its session. So do
    results of tools in `annotations` that may reach an open world."""
    label: Annotated[dict[SessionLabel, SessionLabel], Field(min_length=1, max_length=8)] = Field(
        default_factory=lambda: {"source": "untrusted"}
    )
    """Labels that a session gets with a result from `outside`: `{source: untrusted}` by default."""
    trusted: Texts = ()
    """Addressees that need not be named: addresses, accounts, channels, or patterns (`*@example.com`,
    `docs.example.com/**`). `*` does not match `/`, `@`, `:`, `?` or `#`; `**` matches all but `@`."""
    action: Action = "ask"
    """Action for a call that does not meet a sink's conditions: `ask` a person, or `deny`."""
    timeout_s: Annotated[float, Field(gt=0, le=86_400, strict=True)] = 300.0
    """Seconds the person has; then the call is denied."""
    annotations: Annotated[dict[Text, dict[str, Any]], Field(max_length=1024)] = Field(default_factory=dict)
    """Annotations of MCP tools, by tool, as `tools/list` gives them. A tool that may reach an open world
    (`openWorldHint` is not false) and is in no sink becomes a sink with `links`."""

    @model_validator(mode="after")
    def _checks_something(self) -> "ProvenanceConfig":
        if self.sinks is None and self.outside is None:
            raise ValueError("sinks: are required, or outside")
        if "label" in self.model_fields_set and self.outside is None:
            raise ValueError("label: needs outside: results of those tools give it")
        return self

    @cached_property
    def all_sinks(self) -> tuple[Sink, ...]:
        """Sinks that are declared, and those that annotations make."""
        own = self.sinks or ()
        unnamed = (
            tool
            for tool in self._list_reaching()
            if not any(globs.fits(sink.tools, tool) is not False for sink in own)
        )
        return (*own, *(Sink(tools=(_escape(tool),), links=True) for tool in unnamed))

    @cached_property
    def all_outside(self) -> Globs:
        """Tools whose results label a session; empty if none do."""
        if self.outside is None:
            return ()
        return (*self.outside, *map(_escape, self._list_reaching()))

    def _list_reaching(self) -> Iterator[str]:
        """List the annotated tools that may reach an open world."""
        return (tool for tool, told in self.annotations.items() if told.get("openWorldHint") is not False)


def rule_on(config: ProvenanceConfig, call: ToolSelecting) -> Verdict:
    """Return the verdict on a call, the strictest of its sinks; on a result, the labels of its session."""
    if call.phase == "result":
        if not globs.either(config.all_outside, call.tool_name):
            return _ALLOWED
        return Continue(session_labels={name: (value,) for name, value in config.label.items()})
    verdict: Verdict = _ALLOWED
    request = None
    for sink in config.all_sinks:
        if globs.fits(sink.tools, call.tool_name) is False:
            continue
        if sink.when_session and session_bears(sink.when_session, call.session_labels) is False:
            continue
        if request is None:
            request = names.plain_request(call.request)
        fault = find_fault(config, sink, call, request)
        if fault is None:
            continue
        if (sink.action or config.action) == "deny":
            return _deny(sink, call, fault)
        if verdict is _ALLOWED:
            verdict = _ask(config, sink, call, fault)
    return verdict


def find_fault(config: ProvenanceConfig, sink: Sink, call: ToolSelecting, request: str) -> str | None:
    """Return the reason that a call does not meet a sink's conditions; None if it does."""
    if sink.words and not names.asks_for(request, sink.words):
        return f"the user's request does not ask for {call.tool_name}"
    trusted = (*sink.trusted, *config.trusted)
    found = list(islice(_addressees(sink, call), names.MAX_FOUND + 1))
    if len(found) > names.MAX_FOUND:
        return f"it has more than {names.MAX_FOUND} addressees"
    for one in found:
        if not names.trusts(trusted, one) and not names.is_named(request, one, by_name=sink.match == "name"):
            return f"the user's request does not name {show_addressee(one)}"
    return None


def _addressees(sink: Sink, call: ToolSelecting) -> Iterator[str]:
    arguments = call.tool_input
    if placeholders.stands_for_all(arguments):
        yield names.UNSEEN
        return
    for path in sink.to:
        for value in readings(path, arguments):
            if value is UNREAD:
                yield names.UNSEEN
            elif value is not MISSING:
                yield from names.find_addressees(value)
    if sink.links:
        yield from names.find_links({name: one for name, one in arguments.items() if name not in sink.to})


def show_addressee(addressee: str) -> str:
    """Return an addressee in a form for people and LLMs."""
    text = "".join(letter if letter.isprintable() else "?" for letter in addressee)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def _deny(sink: Sink, call: ToolSelecting, fault: str) -> Deny:
    reason = f"{call.tool_name} may not run: {fault}. If the user wants it, they must say so themselves."
    return Deny(reason=reason[:MAX_REASON], rule_name=_name_of(sink, call))


def _ask(config: ProvenanceConfig, sink: Sink, call: ToolSelecting, fault: str) -> AskUser:
    return AskUser(
        prompt=f"May {call.tool_name} run? {fault[0].upper()}{fault[1:]}.",
        reason=f"{call.tool_name} needs approval: {fault}"[:MAX_REASON],
        timeout_s=config.timeout_s,
        rule_name=_name_of(sink, call),
    )


def _name_of(sink: Sink, call: ToolSelecting) -> str:
    return (sink.name or call.tool_name)[:MAX_RULE]


def _list_matchers(config: ProvenanceConfig) -> Iterator[tuple[Globs, CallMatcher]]:
    """List the calls that a sink has something to check in: without addressees there may be nothing."""
    is_there = Condition(exists=True)
    for sink in config.all_sinks:
        only = {"when_session": sink.when_session} if sink.when_session else {}
        if sink.words or sink.links or not all(map(_NAME.fullmatch, sink.to)):
            # A path through lists may lead to values that cannot be seen.
            yield sink.tools, SessionMatcher.model_validate(only)
        else:
            for name in sink.to:
                yield sink.tools, SessionMatcher.model_validate({**only, "when": {name: is_there}})


class Provenance:
    """Scheduler that a `ProvenanceConfig` configures."""

    name = "provenance"
    priority = 0
    tools: tuple[str, ...] = ("*",)
    phases: tuple[Phase, ...] = ("select", "verify")
    """Phases in which it is asked; `result` as well, if results label sessions."""
    reads: tuple[Extra, ...] = ("request",)
    """Extra data that it gets; the labels of sessions as well, if a sink tests them."""
    config_model: ClassVar[type[BaseModel]] = ProvenanceConfig

    def __init__(self, config: ProvenanceConfig) -> None:
        self.config = config
        of_sinks = (glob for sink in config.all_sinks for glob in sink.tools)
        wanted = tuple(dict.fromkeys((*of_sinks, *config.all_outside)))
        if config.all_outside:
            self.phases = (*self.phases, "result")
        if any(sink.when_session for sink in config.all_sinks):
            self.reads = (*self.reads, "session_labels")
        self.tools = wanted if len(wanted) <= _MAX_GLOBS else ("*",)
        self.local_table = encode_table(list_concerns(_list_matchers(config)), "continue")

    async def decide(self, call: ToolSelecting) -> Verdict:
        """Rule on one call."""
        return rule_on(self.config, call)


_NAME: Final = re.compile(r"\w[\w-]*")
"""Name of an argument, which is a path that can be read in one way only."""
_MAX_GLOBS: Final = 64
"""Maximum number of announced globs; with more the scheduler is asked about every tool."""
