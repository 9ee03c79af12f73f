"""The schedulers that are asked about each tool: by the roster's selectors, the required, shadows and keys.

They are cached by tool until the roster changes. Schedulers that are set aside, or cannot be heard yet,
change with every call; `dispatch` handles them.

A required scheduler is asked about every tool. It is asked about requests to an LLM (`protocol.llm`), and
about points of a turn, if it has ever named them on this bus, or if the plan does.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, NamedTuple

from toolgate_bus.protocol import packing
from toolgate_bus.protocol.events import RESERVED_NAMES
from toolgate_bus.protocol.names import AGAIN, is_reserved_tool
from toolgate_bus.protocol.signing import Keyring
from toolgate_bus.ruling.conditions import globs
from toolgate_bus.ruling.round import RoundResult
from toolgate_bus.telemetry import metrics
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.unanimous import Group

from toolgate_orchestrator.decision.config import ToolgateConfig
from toolgate_orchestrator.decision.link.scheduler_info import (
    ADMIT,
    BEFORE,
    RESULT,
    SchedulerInfo,
    versions,
)

MAX_CACHED = 1024
FAILURES: Final = 3
"""Number of calls in a row without an optional scheduler after which that is logged."""
MAX_COUNT: Final = 1024
_log = get_logger("toolgate.gate")


class ExclusionReason(NamedTuple):
    """Reason why a scheduler cannot be asked."""

    reason: str
    """Reason that is counted for decisions made without it."""
    words: str
    """Words for an LLM, and for readers of the record."""


class LocalAgreement(NamedTuple):
    """Round in which local tables said a plain continue for all; it is the same for all such calls."""

    closed: RoundResult
    timings: tuple[Any, ...]
    """Seconds of each verdict, then the revision of each, as they are noted of a decision."""


@dataclass(frozen=True, slots=True)
class Recipients:
    """The schedulers that are asked about one tool."""

    names: tuple[str, ...]
    required: Mapping[str, bool]
    """Schedulers that are waited for, and for each whether its silence denies."""
    priorities: Mapping[str, int]
    """Priority of a verdict that names none: the announced one, capped."""
    shadows: frozenset[str]
    capped: frozenset[str]
    """Schedulers whose announced priority is above the cap."""
    version: int = packing.NEWEST
    """Version of the wire in which all of them are asked; 0 if they differ."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """Version of the wire for each."""
    unasked: Mapping[str, Mapping[str, ExclusionReason]] = field(default_factory=dict)
    """Schedulers that cannot be asked, by phase, and for a second round of `verify` (`again`)."""
    absent: frozenset[str] = frozenset()
    """Schedulers among them that are not alive."""
    readers: frozenset[str] = frozenset()
    """Schedulers among them that receive the user's request."""
    group: Group = ()
    """Names with their priorities."""
    is_reserved: bool = False
    """True if no tool may have that name."""
    admitters: tuple["Recipients", ...] = ()
    """Schedulers that are asked last, about the call that will run: one by one, highest priority first."""
    is_simple: bool = field(init=False, compare=False, repr=False)
    """True if these alone rule on the LLM's own call, and all alike: alive, no shadow, none asked last."""
    agreed_locally: dict[tuple[Any, ...], LocalAgreement] = field(
        default_factory=dict, compare=False, repr=False
    )
    """Rounds in which all local tables say continue, by what they are about; made when first needed."""
    _lesser: dict[str, "Recipients"] = field(default_factory=dict, compare=False, repr=False)
    """The same recipients without one of them, by its name; made when first needed."""

    NOBODY: ClassVar["Recipients"]

    def __post_init__(self) -> None:
        """Find once what each decision asks."""
        others = self.shadows or self.absent or self.readers or self.admitters
        simple = bool(self.names) and not (others or "select" in self.unasked or self.is_reserved)
        object.__setattr__(self, "is_simple", simple and self.required.keys() == set(self.names))

    def only(self, names: Collection[str]) -> "Recipients":
        """Return these recipients alone, none of them required: they have answered already."""
        if not names:
            return Recipients.NOBODY
        return replace(
            Recipients.NOBODY,
            names=tuple(name for name in self.names if name in names),
            required=dict.fromkeys(names, False),
            priorities=self.priorities,
            capped=self.capped,
            agreed_locally={},
            _lesser={},
        )

    def without(self, name: str | None) -> "Recipients":
        """Return the recipients without this scheduler."""
        if name is None or name not in self.names:
            return self
        if (lesser := self._lesser.get(name)) is None:
            lesser = self._lesser[name] = self._leave_out(name)
        return lesser

    def _leave_out(self, name: str) -> "Recipients":
        return replace(
            self,
            _lesser={},
            agreed_locally={},
            group=tuple(one for one in self.group if one[0] != name),
            names=tuple(one for one in self.names if one != name),
            required={one: required for one, required in self.required.items() if one != name},
        )


Recipients.NOBODY = Recipients((), {}, {}, frozenset(), frozenset())


class RecipientCache:
    """The recipients of questions by tool, for one gate's configuration."""

    def __init__(self, config: ToolgateConfig, keyring: Keyring | None) -> None:
        self._required = frozenset(config.required)
        self._shadow = frozenset(config.shadow)
        self._limits = config.schedulers
        self._gone_denies = config.on_gone == "deny"
        self._keyring = keyring
        self._audiences: dict[str, Recipients] = {}
        self._of_results: dict[str, tuple[int, Recipients]] = {}
        self._version = -1
        self._named: Set[tuple[str, str]] = frozenset()

    def of(
        self,
        tool: str,
        announced: Mapping[str, SchedulerInfo],
        version: int,
        named: Set[tuple[str, str]] = frozenset(),
    ) -> Recipients:
        """Return the recipients for a tool by the present roster; `version` changes whenever that does.

        `named` are the schedulers that ever named requests to an LLM or a point, each with that name.
        """
        if self._version != version:
            self._audiences.clear()
            self._version, self._named = version, named
        audience = self._audiences.get(tool)
        if audience is None:
            if len(self._audiences) >= MAX_CACHED:  # the names come from an LLM
                self._audiences.clear()
            audience = self._audiences[tool] = self._make(tool, announced)
        return audience

    def of_results(
        self,
        tool: str,
        announced: Mapping[str, SchedulerInfo],
        version: int,
        ever: Set[str],
        named: Set[tuple[str, str]] = frozenset(),
    ) -> Recipients:
        """Return who is asked about results of a tool; `ever` are those that ever asked for any result.

        A required scheduler is among them if it ever asked for results, or if the plan says so. Any thread
        may call it: each entry bears the version that it was made of.
        """
        kept = self._of_results.get(tool)
        if kept is not None and kept[0] == version:
            return kept[1]
        if len(self._of_results) >= MAX_CACHED:
            self._of_results.clear()
        self._named = named
        found = {
            name
            for name in self._required.union(announced)
            if self._rules_on_results(name, announced.get(name), ever)
            and self._rules_on(name, announced.get(name), tool)
        }
        skipped = {
            name: ExclusionReason("phase", f"{name} does not rule on results")
            for name in found
            if name in announced and self._cannot_rule(announced[name])
        }
        audience = self._gather(found, announced)
        audience = replace(audience, unasked={RESULT: skipped, AGAIN: skipped} if skipped else {})
        self._of_results[tool] = version, audience
        return audience

    def _cannot_rule(self, one: SchedulerInfo) -> bool:
        """Return whether a scheduler cannot rule on results: by its wire, or as the plan expects more of it.

        One that once asked for results, and no longer does, is asked: it says continue.
        """
        limits = self._limits.get(one.name)
        named = limits is not None and limits.results is True
        return one.version < packing.NEWEST or (named and RESULT not in one.phases)

    def _rules_on_results(self, name: str, one: SchedulerInfo | None, ever: Set[str]) -> bool:
        limits = self._limits.get(name)
        if limits is not None and limits.results is not None:
            return limits.results
        if one is not None and RESULT in one.phases:
            return True
        return name in self._required and name in ever

    def _make(self, tool: str, announced: Mapping[str, SchedulerInfo]) -> Recipients:
        if self._keyring is not None:
            announced = {name: self._widen(one) for name, one in announced.items()}
        everyone = self._required.union(announced)
        waited = {name for name in everyone if self._rules_on(name, announced.get(name), tool)}
        last = [
            one
            for name, one in announced.items()
            if name in waited and (ADMIT in one.phases or "select" not in one.phases)
        ]
        admitters = [
            one
            for one in last
            if ADMIT in one.phases and not self._is_shadow(one) and self._is_trusted(one.name)
        ]
        admitters.sort(key=lambda one: (-self._priority(one), one.name))
        found = self._gather(waited.difference(map(self._find_only_last, last)), announced)
        if not admitters and not is_reserved_tool(tool):
            return found
        alone = tuple(self._gather({one.name}, announced) for one in admitters)
        return replace(found, is_reserved=is_reserved_tool(tool), admitters=alone)

    def _widen(self, one: SchedulerInfo) -> SchedulerInfo:
        """Return a required scheduler as it is asked until its announcement counts: in every phase."""
        doubtful = one.name in self._required and not one.signed and one.version > packing.VERSION
        return replace(one, phases=BEFORE) if doubtful else one

    def _find_only_last(self, one: SchedulerInfo) -> str:
        """Return the scheduler's name if it is only asked at admission or about results; else an empty text.

        A required scheduler is asked before too, unless its own signed announcement says no.
        """
        believed = one.name not in self._required or (self._keyring is not None and one.signed)
        return one.name if believed and "select" not in one.phases else ""

    def _is_shadow(self, one: SchedulerInfo) -> bool:
        return one.name not in self._required and (one.shadow or one.name in self._shadow)

    def _gather(self, waited: Set[str], announced: Mapping[str, SchedulerInfo]) -> Recipients:
        """Return these schedulers as recipients that are asked at once."""
        names = {name for name in waited if self._is_trusted(name)}
        # A required scheduler cannot excuse itself by calling itself a shadow.
        shadows = {name for name in names - self._required if self._is_shadow(announced[name])}
        own = {name: announced[name].priority for name in names if name in announced}
        priorities = {name: self._priority(announced[name]) for name in own}
        group = tuple((name, priorities.get(name, 0)) for name in sorted(names))
        # A scheduler that was never seen is asked in the version that everyone reads.
        spoken = {name: announced[name].version if name in announced else packing.VERSION for name in names}
        asked_in = {version for version in spoken.values() if version}
        gone = {name for name in names if name in announced and announced[name].gone}
        return Recipients(
            names=tuple(name for name, _ in group),
            group=group,
            required={
                name: name in self._required or (name in gone and self._gone_denies)
                for name in sorted((names - shadows) | (waited & self._required))
            },
            priorities=priorities,
            version=asked_in.pop() if len(asked_in) == 1 else 0,
            versions=spoken,
            unasked=_find_skipped([announced[name] for name in sorted(names) if name in announced]),
            shadows=frozenset(shadows),
            absent=frozenset(gone | (names - set(announced))),
            readers=frozenset(name for name in names if name in announced and announced[name].reads_request),
            capped=frozenset(name for name in own if own[name] > self._cap(name, own[name])),
        )

    def _rules_on(self, name: str, one: SchedulerInfo | None, tool: str) -> bool:
        """Return whether a scheduler is asked about a tool: the plan, or what it signs, can narrow that."""
        limits = self._limits.get(name)
        meant = limits.tools if limits is not None else None
        if meant is not None and not globs.either(meant, tool):
            return False
        if name in self._required and not (self._keyring is not None and one is not None and one.signed):
            has_named = (name, tool) in self._named or (one is not None and one.wants(tool))
            return has_named or meant is not None or not is_reserved_tool(tool)
        return one is not None and one.wants(tool)

    def _priority(self, one: SchedulerInfo) -> int:
        return min(one.priority, self._cap(one.name, one.priority))

    def _cap(self, name: str, otherwise: int) -> int:
        limits = self._limits.get(name)
        return otherwise if limits is None or limits.max_priority is None else limits.max_priority

    def _is_trusted(self, name: str) -> bool:
        """Return whether its verdicts can be trusted: with keys set, only if it has a key of its own."""
        if name in RESERVED_NAMES:  # the name of our own hooks, which are not on a bus
            metrics.count(metrics.BAD_MESSAGES, name, "reserved")
            return False
        if self._keyring is None or self._keyring.knows(name):
            return True
        metrics.count(metrics.BAD_MESSAGES, name, "no_key")
        return False


def _find_skipped(asked: Sequence[SchedulerInfo]) -> dict[str, dict[str, ExclusionReason]]:
    found: dict[str, dict[str, ExclusionReason]] = {}
    for phase in BEFORE:
        for one in asked:
            if one.version == 0:
                both = f"{versions(one.wire)} of the wire, this agent {versions(packing.VERSIONS)}"
                found.setdefault(phase, {})[one.name] = ExclusionReason(
                    "incompatible", f"{one.name} speaks {both}"
                )
            elif phase not in one.phases and not (phase != ADMIT and one.is_last_only):
                what = "replacements (phase verify)" if phase == "verify" else f"calls in the phase {phase}"
                found.setdefault(phase, {})[one.name] = ExclusionReason(
                    "phase", f"{one.name} does not rule on {what}"
                )
    verified = found.get("verify", {})
    again = {
        one.name: verified.get(one.name)
        or ExclusionReason("phase", f"{one.name} cannot be asked again about a replacement (phase {AGAIN})")
        for one in asked
        if one.name in verified or AGAIN not in one.phases
    }
    return {**found, AGAIN: again} if again else found


class Absence:
    """The required schedulers that one client has given up.

    The first call after a scheduler was last seen waits its whole patience. Further calls are denied at once,
    until a heartbeat or any verdict of it. It is still asked about them.
    """

    __slots__ = ("_where", "given_up")

    def __init__(self, where: str) -> None:
        """Make the absence; `where` names the bus in words, without a password."""
        self._where = where
        self.given_up: set[str] = set()
        """Schedulers that were waited for in vain."""

    def give_up(self, name: str) -> None:
        """Give up a scheduler that was waited for with full patience and is not on the roster."""
        self.given_up.add(name)

    def mark_alive(self, names: Iterable[str]) -> None:
        """Note a sign of life of these schedulers."""
        if self.given_up:
            self.given_up.difference_update(names)

    def anew(self) -> None:
        """Wait for every scheduler once more: the bus is back, or a gate begins."""
        self.given_up.clear()

    def words(self, name: str, *, gone: bool) -> str:
        """Return the words for a scheduler that is not alive."""
        how = "was there and vanished without leaving" if gone else "is not alive"
        start = f"`toolgate scheduler run {name} …`"
        return f"{name} {how} on {self._where}; start it with {start}"


class Failures:
    """Optional schedulers that failed on one call after the other. Each is logged once."""

    __slots__ = ("_told", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        """Number of failures in a row, for each that failed lately."""
        self._told: set[str] = set()

    def record_failure(self, name: str, reason: str) -> None:
        """Note that a call was decided without this scheduler."""
        if name in self._told or (name not in self.rows and len(self.rows) >= MAX_COUNT):
            return
        self.rows[name] = self.rows.get(name, 0) + 1
        if self.rows[name] >= FAILURES:
            self._told.add(name)
            del self.rows[name]
            _log.warning(
                "an optional scheduler fails on each call, and calls run without it; "
                "name it under `required` if they must not",
                scheduler=name,
                reason=reason,
            )

    def record_answers(self, names: Iterable[str]) -> None:
        """Note that these answered in time, so they do not fail on each call."""
        for name in names:
            self.rows.pop(name, None)
