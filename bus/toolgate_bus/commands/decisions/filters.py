"""Filter decisions: check the options, and match one decision.

Times are those of the server, which dates each decision as it comes in (`entry`): one clock for the whole
fleet. All filters must match. Of an option that is given several times, one value must match; of labels, all.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Final, get_args

from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.events import Outcome, Why
from toolgate_bus.transport.redis.clock import entry_order

Fact = Mapping[str, Any]

OUTCOMES: Final[tuple[str, ...]] = get_args(Outcome)
WHYS: Final[tuple[str, ...]] = get_args(Why)
RESULTS: Final = ("released", "masked", "replaced", "withheld", "cancelled")
"""What became of the result of a call, if schedulers ruled on it."""
MAX_HOLD_S: Final = 900.0
"""Seconds after the last decision in which late verdicts can still arrive."""
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGO: Final = re.compile(r"(?:\d{1,9}[smhd])+")


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions on decisions. Without any, all decisions match."""

    tools: tuple[str, ...] = ()
    """Globs that match the tool that was asked about, or the tool that was to run."""
    scheduler: str | None = None
    """Scheduler that gave a verdict, or was asked and was silent."""
    outcomes: tuple[str, ...] = ()
    whys: tuple[str, ...] = ()
    session: str | None = None
    """Beginning of the session's id."""
    agent: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    since: float | None = None
    """Earliest time, in seconds since the epoch by the server's clock."""
    until: float | None = None
    id: str | None = None
    """Beginning of the decision's id."""
    results: tuple[str, ...] = ()
    """What became of the result of the call."""

    def match(self, decision: Fact) -> bool:
        """Return whether a decision matches. Its fields come off a wire."""
        at, labels = time_of(decision), decision.get("labels")
        names = [name for key in ("tool_name", "final_tool") if isinstance(name := decision.get(key), str)]
        has = labels if isinstance(labels, Mapping) else {}
        return (
            (self.since is None or at >= self.since)
            and (self.until is None or at <= self.until)
            and _starts(decision.get("id"), self.id)
            and _starts(decision.get("session"), self.session)
            and self.agent in (None, decision.get("agent"))
            and (not self.outcomes or decision.get("outcome") in self.outcomes)
            and (not self.whys or decision.get("why") in self.whys)
            and (not self.results or _dict(decision.get("result")).get("outcome") in self.results)
            and (not self.tools or any(fnmatchcase(name, glob) for name in names for glob in self.tools))
            and all(has.get(key) == value for key, value in self.labels)
            and (self.scheduler is None or self.scheduler in _recipients_of(decision))
        )

    def over(self, fact: Fact) -> bool:
        """Return whether neither this fact nor a later one of the record can matter any more."""
        return self.until is not None and time_of(fact) > self.until + MAX_HOLD_S


def parse_filters(
    tool: Sequence[str] = (),
    scheduler: str | None = None,
    outcome: Sequence[str] = (),
    why: Sequence[str] = (),
    session: str | None = None,
    agent: str | None = None,
    label: Sequence[str] = (),
    since: str | None = None,
    until: str | None = None,
    id_: str | None = None,
    *,
    now: float,
    result: Sequence[str] = (),
) -> Filters:
    """Return the options as filters. `now` is the server's time. ConfigError says what is allowed."""
    chosen = (("--outcome", outcome, OUTCOMES), ("--why", why, WHYS), ("--result", result, RESULTS))
    for option, given, allowed in chosen:
        for value in given:
            if value not in allowed:
                raise ConfigError(f"{option}: unknown value {value!r}; choose one of: {', '.join(allowed)}")
    labels = []
    for text in label:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigError(f"--label: {text!r} is not a label; write key=value")
        labels.append((key, value))
    begins = moment("--since", since, now)
    ends = moment("--until", until, now)
    if begins is not None and ends is not None and begins > ends:
        raise ConfigError("--since: must be before --until")
    return Filters(
        tuple(tool),
        scheduler,
        tuple(outcome),
        tuple(why),
        session,
        agent,
        tuple(labels),
        begins,
        ends,
        None if id_ is None else parse_id_prefix("--id", id_),
        tuple(result),
    )


def parse_id_prefix(option: str, text: str) -> str:
    """Return the beginning of a decision's id. Raise ConfigError if no id can begin like this."""
    if not re.fullmatch(r"[0-9a-f]{1,32}", text.lower()):
        raise ConfigError(f"{option}: {text!r} cannot begin a decision id: up to 32 of 0-9 and a-f")
    return text.lower()


def moment(option: str, text: str | None, now: float) -> float | None:
    """Return the time, in seconds since the epoch, of `30m` before `now`, or of an ISO timestamp."""
    if text is None:
        return None
    if _AGO.fullmatch(text):
        return now - sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd])", text))
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            f"{option}: {text!r} is not a time; write how long ago: 45s, 30m, 2h, 1h30m, 3d; "
            "or a timestamp: 2026-11-21, 2026-11-21T10:30 (local), 2026-11-21T10:30Z"
        ) from None


def time_of(fact: Fact) -> float:
    """Return the server's time of a fact, in seconds since the epoch; else the time of its orchestrator."""
    entry, at = fact.get("entry"), fact.get("at")
    if isinstance(entry, str):
        try:
            return entry_order(entry)[0] / 1000
        except ValueError:
            pass
    return float(at) if isinstance(at, int | float) else 0.0


def _starts(value: object, prefix: str | None) -> bool:
    return prefix is None or (isinstance(value, str) and value.startswith(prefix))


def _recipients_of(decision: Fact) -> set[object]:
    """Return the schedulers that were asked about a decision, as far as the record says."""
    names = set[object]()
    for about in (decision, _dict(decision.get("result"))):
        verdicts = about.get("verdicts")
        if isinstance(verdicts, list):
            names |= {str(one.get("scheduler")) for one in verdicts if isinstance(one, Mapping)}
        for key in ("silent", "asked"):
            told = about.get(key)
            names |= {one for one in told if isinstance(one, str)} if isinstance(told, list) else set()
    return names


def _dict(value: object) -> Fact:
    return value if isinstance(value, Mapping) else {}
