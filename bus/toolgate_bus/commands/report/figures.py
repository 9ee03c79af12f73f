"""Lines of a report, and their sum. Values in, values out."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from toolgate_bus.errors import ConfigError

DIMENSIONS: Final = ("team", "agent", "session", "tool", "provider", "model", "scheduler")
LABEL: Final = "label:"
TEAM: Final = "team"
"""Label that names a team."""
NOBODY: Final = "-"
MAX_BY: Final = 8
MAX_UNITS: Final = 64


@dataclass(slots=True)
class ReportFigures:
    """Figures of one line; amounts in micro-units."""

    spent: int = 0
    """Amount that the ledger paid."""
    outside: int = 0
    """Amount that calls reported and no budget paid."""
    saved: int = 0
    """Amount that replacements saved."""
    requests: int = 0
    """Number of requests to LLMs that were answered."""
    calls: int = 0
    """Number of calls of tools that ran."""
    replaced: int = 0
    denied: int = 0
    held: int = 0
    held_s: float = 0.0
    """Time that calls were held altogether, in seconds."""
    orphans: int = 0
    """Number of calls that reported no cost, and were charged at their estimates."""
    overruns: int = 0
    """Number of calls that cost more than was reserved."""
    local: int = 0
    """Number of decisions that local tables gave, without a question to any scheduler."""
    results: int = 0
    """Number of results of calls that schedulers ruled on."""
    masked: int = 0
    """Number of results of which a part was masked, or that were replaced."""
    withheld: int = 0
    """Number of results that were withheld."""
    succeeded: int = 0
    """Number of calls and requests that did their work."""
    units: dict[str, int] = field(default_factory=dict)
    """Amounts of other units than money that the ledger counted, in their smallest part."""

    @property
    def per_success(self) -> int | None:
        """Amount that a success cost, with what failures cost; None without a success."""
        return (self.spent + self.outside) // self.succeeded if self.succeeded else None

    def add(self, other: "ReportFigures") -> None:
        """Add the figures of another line."""
        for unit, amount in other.units.items():
            self.count(unit, amount)
        for one in fields(self)[:-1]:
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    def as_json(self) -> dict[str, Any]:
        """Return the figures for scripts; amounts in micro-units. `units` is left out if it is empty."""
        told = {**asdict(self), "held_s": round(self.held_s, 3), "per_success": self.per_success}
        return told if self.units else {name: value for name, value in told.items() if name != "units"}

    def count(self, unit: str, amount: int) -> None:
        """Add an amount of a unit other than money."""
        if unit in self.units or len(self.units) < MAX_UNITS:
            self.units[unit] = self.units.get(unit, 0) + amount


@dataclass(frozen=True, slots=True)
class CallOrigin:
    """Origin of a cost or a decision, as far as it is known."""

    agent: str = ""
    session: str = ""
    tool: str = ""
    provider: str = ""
    model: str = ""
    scheduler: str = ""
    labels: Mapping[str, str] | None = None

    def key(self, by: Iterable[str]) -> tuple[str, ...]:
        """Return its line in a report by these dimensions."""
        return tuple(self._value(one) or NOBODY for one in by)

    def _value(self, dimension: str) -> str:
        if dimension.startswith(LABEL):
            return (self.labels or {}).get(dimension.removeprefix(LABEL), "")
        return str(getattr(self, dimension))


def parse_by(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the dimensions that `--by` names, with `team` as the label that it is. Raise ConfigError."""
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    for name in names:
        if name not in DIMENSIONS and not (name.startswith(LABEL) and len(name) > len(LABEL)):
            known = f"{', '.join(DIMENSIONS)}, {LABEL}NAME"
            raise ConfigError(f"--by: unknown dimension {name!r}; choose one of: {known}")
    if len(names) > MAX_BY:
        raise ConfigError(f"--by: give at most {MAX_BY} dimensions")
    return tuple(dict.fromkeys(f"{LABEL}{TEAM}" if name == TEAM else name for name in names))


def total_of(rows: Iterable[ReportFigures]) -> ReportFigures:
    """Return the sum of all lines."""
    total = ReportFigures()
    for one in rows:
        total.add(one)
    return total
