"""`toolgate policy`: check the rules of a policy against a file of expectations, and switch its mode.

A case is a call, the expected result, and optionally the rule behind it. The policy is the one that
`scheduler run policy` would run once it is enforced, so one file of cases serves both modes. The rules that
fired in no case are reported, too. It needs no bus.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from pydantic import BeforeValidator, Field, JsonValue, model_validator
from toolgate_bus.commands.markup import escape
from toolgate_bus.commands.options import JsonOption, NamespaceOption, QuietOption, RedisOption
from toolgate_bus.commands.terminal import console, err_console, print_json
from toolgate_bus.config.check import StrictModel, check
from toolgate_bus.config.document import Document, read_document
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.events import (
    AskUser,
    Deny,
    Hold,
    Mask,
    MaskedPart,
    Modify,
    Replace,
    ToolSelecting,
    Verdict,
)
from toolgate_bus.protocol.json_values import same_json
from toolgate_bus.ruling.results import mask_parts
from toolgate_bus.telemetry.printable import shorten

from toolgate_schedulers.commands.policy_mode import enforce, observe
from toolgate_schedulers.commands.policy_status import status
from toolgate_schedulers.commands.policy_suggest import suggest_rules
from toolgate_schedulers.shipped.policy.rehearsal import OrderRehearsal
from toolgate_schedulers.shipped.policy.result_ruling import TEXT, list_unread
from toolgate_schedulers.shipped.policy.scheduler import PolicyConfig, explain_ruling, name_of
from toolgate_schedulers.shipped.policy.verdicts import Past
from toolgate_schedulers.testing import question

DEFAULT: Final = "default"
_WHOSE: Final = ("session", "root_session", "labels")
NOW: Final = 1_000_000.0
"""Time of each case, in seconds: its history is given in seconds before that."""
Expected = Literal["allow", "deny", "ask", "wait", "mask", "withheld"]
_WORDS: Final[Mapping[type, Expected]] = {
    Deny: "deny",
    AskUser: "ask",
    Hold: "wait",
    **dict.fromkeys((Mask, Modify, Replace), "mask"),
}
_MAX_SHOWN: Final = 200
_MARK: Final = re.compile(r"\[withheld: ([^]]*)\]")
_NO_PART_OF_A_CALL: Final = frozenset(
    ("name", "tool", "arguments", "before", "expect", "rule", "reason", "masked", "shown", "labelled")
)

OVERVIEW = """
Check the rules of a policy, have some suggested, enforce them or only observe;
see where they hold.

\b
  toolgate policy suggest > rules.yaml          rules that fit what ran
  toolgate policy test rules.yaml cases.yaml    what they do with your cases
  toolgate policy enforce                       from now on they deny and ask
  toolgate policy status                        which gates have them

A policy is a file of rules that allow, deny or ask: docs/schedulers/policy.md
"""

app = typer.Typer(name="policy", help=OVERVIEW, no_args_is_help=True)


def _one_or_more(written: Any) -> Any:
    return [written] if isinstance(written, str) else written


class EarlierCall(StrictModel):
    """Call before that of a case. Session and labels default to those of the case."""

    tool: Annotated[str, Field(min_length=1)]
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    session: str | None = None
    root_session: str | None = None
    labels: dict[str, str] | None = None
    ago_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] = 0.0
    """Seconds since its end; since its beginning if it `runs`."""
    success: bool = True
    result: JsonValue = None
    """What it gave, for rules that look at that."""
    runs: bool = False
    """True if it has not ended."""


class Case(StrictModel):
    """Call with its expected result."""

    name: str | None = None
    tool: Annotated[str, Field(min_length=1)]
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    agent: str = ""
    lineage: tuple[str, ...] = ()
    session: str = ""
    root_session: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    agent_target: str | None = None
    truncated: bool = False
    before: Annotated[tuple[EarlierCall, ...], Field(max_length=1000)] = ()
    """Earlier calls, for rules on order; they may stand in any order."""
    result: JsonValue = None
    """Result of the call. With it, the case is about the result."""
    success: bool = True
    """False if the result is an error."""
    result_cut: bool = False
    """True if the rest of the result was cut off."""
    session_labels: dict[str, Annotated[tuple[str, ...], BeforeValidator(_one_or_more)]] = Field(
        default_factory=dict
    )
    """Labels of the session before, as required schedulers gave them."""
    expect: Expected | None = None
    """Not needed with `masked`, `shown` or `labelled`."""
    masked: tuple[str, ...] | None = None
    """Names of what must be hidden, in any order; an empty list if nothing may be."""
    shown: JsonValue = None
    """What the agent must see of the result."""
    labelled: dict[str, Annotated[tuple[str, ...], BeforeValidator(_one_or_more)]] | None = None
    """Labels that the session must get."""
    rule: str | None = None
    """Rule that must decide: its name, `rule 1` and so on, or `default`."""
    reason: str | None = None
    """Glob that the reason must match."""

    @model_validator(mode="after")
    def _expects_something(self) -> "Case":
        if self.expect is None and not self.model_fields_set & {"masked", "shown", "labelled"}:
            raise ValueError("expect: is required, or masked, shown or labelled")
        if self.expect == "withheld" and not self.is_result:
            raise ValueError("expect: withheld is for results: give a result, or expect: deny")
        return self

    @property
    def is_result(self) -> bool:
        """True if the case is about a result."""
        return "result" in self.model_fields_set

    def call(self) -> ToolSelecting:
        """Return the call as a question."""
        about = self.model_dump(exclude=set(_NO_PART_OF_A_CALL))
        about["required_labels"] = self.session_labels
        if self.is_result:
            about["phase"] = "result"
        return question(self.tool, self.arguments, **about)

    def past(self, config: PolicyConfig) -> Past:
        """Return the policy's knowledge of earlier calls."""
        history = OrderRehearsal(config)
        for one in sorted(self.before, key=lambda one: -one.ago_s):
            whose = {name: getattr(self if getattr(one, name) is None else one, name) for name in _WHOSE}
            call, at = question(one.tool, one.arguments, **whose), NOW - one.ago_s
            history.begin(call, at)
            if "result" in one.model_fields_set:
                given = {"phase": "result", "result": one.result, "success": one.success}
                history.see(call.model_copy(update=given))
            if not one.runs:
                history.end(call.id, at, one.success)
        return history.past(NOW)


class Cases(StrictModel):
    """File of expectations."""

    cases: Annotated[tuple[Case, ...], Field(min_length=1, max_length=10_000)]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a case."""

    where: str
    case: Case
    got: Expected
    rule: str
    reason: str
    shown: Any = None
    """What the agent would see of the result, the words or the answer."""
    labelled: Mapping[str, Sequence[str]] = field(default_factory=dict)
    unread: Sequence[str] = ()
    """Rules whose fields hide nothing, because the result is a text that holds no JSON."""

    @property
    def masked(self) -> list[str]:
        """Names of what is hidden."""
        return sorted(set(_MARK.findall(json.dumps(self.shown, ensure_ascii=False))))

    @property
    def faults(self) -> list[str]:
        """Differences to the expected result; empty if there are none."""
        case, found = self.case, []
        if case.expect not in (None, self.got):
            found.append(f"expected {case.expect}, got {self.got}")
        if case.masked is not None and sorted(set(case.masked)) != self.masked:
            found.append(f"expected {_list(case.masked)} masked, got {_list(self.masked)}")
        if "shown" in case.model_fields_set and not same_json(case.shown, self.shown):
            found.append(f"expected {_json(case.shown)} shown, got {_json(self.shown)}")
        if case.labelled is not None and _sets(case.labelled) != _sets(self.labelled):
            found.append(f"expected the labels {_json(case.labelled)}, got {_json(self.labelled)}")
        if case.rule not in (None, self.rule):
            found.append(f"expected the rule {case.rule}, got {self.rule}")
        if case.reason is not None and not fnmatchcase(self.reason, case.reason):
            found.append(f"expected the reason {case.reason!r}, got {self.reason!r}")
        return found


@app.callback()
def _group() -> None:
    """Make it a group, whatever the number of its commands."""


@app.command("test")
def run_cases(
    rules: Annotated[Path, typer.Argument(metavar="RULES", help="The configuration of the policy.")],
    cases: Annotated[Path, typer.Argument(metavar="CASES", help="The expectations, in YAML or JSON.")],
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Also fail if a rule never fired, or does not fit living agents' tools."
        ),
    ] = False,
    quiet: QuietOption = False,
    redis: RedisOption = None,
    namespace: NamespaceOption = "default",
    json_: JsonOption = False,
) -> None:
    """Rule on each case, and show the cases that fail and the rules that never fire.

    \b
      cases:
        - {tool: read_file, expect: allow}
        - name: nobody deletes             # optional, as all below `expect`
          tool: delete_file
          arguments: {path: notes.txt}
          agent: clerk
          labels: {team: docs}
          expect: deny                     # or: allow, ask, wait, mask, withheld
          rule: keep notes                 # its name, or: rule 1, default
          reason: "*for people*"           # a glob
        - tool: deploy                     # for after, unless_after, at_most
          arguments: {branch: main}
          before:
            - {tool: run_tests, arguments: {branch: main}, ago_s: 60}
            - {tool: run_tests, success: false, ago_s: 5}
            - {tool: send_mail, runs: true}
          expect: allow
        - tool: read_file                  # with a result: what the agent sees
          result: {owner: ann, key: AKIAIOSFODNN7EXAMPLE}
          masked: ["api key"]              # names of what is hidden
        - {tool: fetch_page, result: Hello, labelled: {source: untrusted}}
        - {tool: send_mail, session_labels: {source: untrusted}, expect: deny}

    \b
      toolgate policy test rules.yaml cases.yaml
      toolgate policy test rules.yaml cases.yaml --strict --json

    It needs no bus. If agents are alive on one, it also names rules that do not
    fit their tools, as `toolgate scheduler check` does.

    Exit codes: 0 all cases pass, 1 some fail (with --strict also: a rule never
    fired, or does not fit living agents' tools), 2 a file is wrong.
    """
    from toolgate_schedulers.commands.rule_check import compare_at_bus  # here: it needs what the bus needs

    written = read_document(rules)
    config = check(PolicyConfig, written.mapping(), written)
    fired: Counter[int] = Counter()
    outcomes = list(_outcomes(config, read_document(cases), fired))
    failed = [one for one in outcomes if one.faults]
    compared = compare_at_bus("policy", written, redis, namespace)
    never = [number for number in range(len(config.rules)) if not fired[number]]
    if json_:
        for one in outcomes:
            print_json(_case_record(one))
        print_json({**_summary_record(config, outcomes, fired), **compared.as_json()})
    else:
        _show(failed if quiet else outcomes)
        for number in never:
            name, place = name_of(config.rules[number], number), written.where(("rules", number))
            console.print(f"[yellow]never fired[/] {escape(place)}: {escape(name)}", soft_wrap=True)
        compared.show(quiet=quiet)
        if config.mode == "observe" and not quiet:
            err_console.print(
                "The policy only observes: it rules like this once `toolgate policy enforce` switches it.",
                soft_wrap=True,
            )
        console.print(
            f"{len(outcomes)} cases: {len(outcomes) - len(failed)} as expected, {len(failed)} not; "
            f"{len(config.rules) - len(never)} of {len(config.rules)} rules fired"
        )
    if failed or (strict and (never or compared.certain)):
        raise typer.Exit(1)


def _outcomes(config: PolicyConfig, document: Document, fired: Counter[int]) -> Iterator[Outcome]:
    """Rule on each case, and count the rules that fire; raise ConfigError for a wrong file."""
    names = {name_of(rule, number) for number, rule in enumerate(config.rules)} | {DEFAULT}
    for number, case in enumerate(check(Cases, document.mapping(), document).cases):
        where = document.where(("cases", number))
        if case.rule is not None and case.rule not in names:
            raise ConfigError(f"{where}: cases.{number}.rule: there is no rule {case.rule!r}")
        call = case.call()
        verdict, rules = explain_ruling(config, call, case.past(config))
        unread = list_unread(config, call)
        shown, labelled = _show_to_agent(call, verdict), getattr(verdict, "session_labels", None) or {}
        if isinstance(verdict, Replace):  # it comes round again, for the person
            again = call.model_copy(update={"again": True, "result": shown})
            verdict, more = explain_ruling(config, again)
            rules = (*rules, *more)
        fired.update(rules)
        enforcing = [rule for rule in rules if config.rules[rule].mode == "enforce"]
        by = name_of(config.rules[enforcing[-1]], enforcing[-1]) if enforcing else DEFAULT
        got = _WORDS.get(type(verdict), "allow")
        if case.is_result and got == "deny":
            got = "withheld"
        yield Outcome(where, case, got, by, verdict.reason or "", shown, labelled, unread)


def _show_to_agent(call: ToolSelecting, verdict: Verdict) -> Any:
    """Return what an agent sees of a result, of words or of an answer."""
    if isinstance(verdict, Deny):
        return None
    if isinstance(verdict, Replace):
        return verdict.result
    if isinstance(verdict, Modify):
        return (verdict.arguments or {}).get(TEXT)
    if isinstance(verdict, Mask):
        return mask_parts(call.result, [MaskedPart(*part) for part in verdict.parts]).value
    return call.result if call.phase == "result" else call.tool_input.get(TEXT)


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"


def _json(value: Any) -> str:
    return shorten(json.dumps(value, ensure_ascii=False), _MAX_SHOWN)


def _sets(labels: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    return {name: set(values) for name, values in labels.items()}


def _show(outcomes: Iterable[Outcome]) -> None:
    for one in outcomes:
        name = one.case.name or one.case.tool
        if faults := one.faults:
            console.print(f"[bold red]FAIL[/]  {escape(one.where)}: {escape(name)}", soft_wrap=True)
            for fault in faults:
                console.print(f"      {escape(fault)}", soft_wrap=True)
            why = f": {one.reason}" if one.reason else ""
            console.print(f"      by {escape(one.rule + why)}", soft_wrap=True)
        else:
            console.print(f"[green]ok[/]    {escape(name)}: {one.got} by {escape(one.rule)}", soft_wrap=True)
        for rule in one.unread:
            words = f"{one.where}: {rule}: its fields hide nothing in a text that holds no JSON"
            console.print(f"[yellow]note[/]  {escape(words)}", soft_wrap=True)


def _case_record(one: Outcome) -> dict[str, Any]:
    return {
        "case": one.case.name or one.case.tool,
        "where": one.where,
        "ok": not one.faults,
        "expected": one.case.expect,
        "got": one.got,
        "rule": one.rule,
        "reason": one.reason,
        "masked": one.masked,
        "labelled": {name: list(values) for name, values in one.labelled.items()},
        "unread": list(one.unread),
        "faults": one.faults,
    }


def _summary_record(config: PolicyConfig, outcomes: list[Outcome], fired: Counter[int]) -> dict[str, Any]:
    rules = {name_of(rule, number): fired[number] for number, rule in enumerate(config.rules)}
    return {
        "cases": len(outcomes),
        "failed": sum(bool(one.faults) for one in outcomes),
        "rules": rules,
        "never_fired": [name for name, count in rules.items() if not count],
    }


app.command("suggest")(suggest_rules)
app.command("enforce")(enforce)
app.command("observe")(observe)
app.command("status")(status)
