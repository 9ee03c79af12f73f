"""What the agents of the benchmark can call: mixes of tools, their alternatives, prices, queues and faults.

A mix says how often each kind of work is done, and which tools can do it. The shares of `airline` were
counted in 100 recorded runs of tau-bench's airline domain, those of `workspace` and `travel` in the
solutions of AgentDojo's tasks. `coding` is made up: one tool for each kind of work, nothing to choose.
Prices, durations, capacities and faults are drawn up here; the seed varies them. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

LLM = "llm"
"""Kind of work that is a request to an LLM."""


@dataclass(frozen=True)
class Tool:
    """Tool, or model of an LLM, as its provider knows it."""

    name: str
    price: float
    """Price of one call in USD."""
    median_s: float
    sigma: float
    """Sigma of the log-normal duration."""
    capacity: int
    """Number of calls that it works on at a time; the others wait."""
    error: float = 0.01
    """Share of calls that fail without any fault."""
    per_minute: int = 0
    """Rate limit: calls beyond it fail at once. 0 is none."""
    pays_failures: float = 0.0
    """Part of the price that a failed call costs, too."""
    liked: float = 1.0
    """Weight with which an LLM chooses it among its alternatives."""


@dataclass(frozen=True)
class Fault:
    """Trouble of one tool from `begin` to `end`, in seconds."""

    begin: float
    end: float
    fails: float
    """Share of calls that fail."""
    slower: float
    """Factor of all durations."""
    hangs: bool
    """True if a failure takes the usual time, False if it comes at once."""


@dataclass(frozen=True)
class Mix:
    """Kinds of work with their shares, and the tools for each."""

    name: str
    shares: Mapping[str, float]
    tools: Mapping[str, tuple[Tool, ...]]


@dataclass(frozen=True)
class Market:
    """Mix as it is in one world: with this world's prices and faults."""

    mix: Mix
    tools: Mapping[str, Tool]
    faults: Mapping[str, tuple[Fault, ...]] = field(default_factory=dict)

    def fault_of(self, tool: str, now: float) -> Fault | None:
        """Return the trouble that a tool has at a time, if any."""
        return next((one for one in self.faults[tool] if one.begin <= now < one.end), None)

    def kind_of(self, tool: str) -> str:
        """Return the kind of work that a tool does."""
        return next(kind for kind, tools in self.mix.tools.items() if any(one.name == tool for one in tools))


def _models(*prices: tuple[str, float, float, int, float]) -> tuple[Tool, ...]:
    return tuple(
        Tool(f"{name}/chat-large", price, seconds, 0.5, capacity, error=0.01, liked=liked)
        for name, price, seconds, capacity, liked in prices
    )


_THREE_MODELS = _models(
    ("acme", 0.030, 2.2, 60, 8), ("brook", 0.012, 3.0, 50, 1), ("cedar", 0.016, 1.8, 25, 1)
)
_ONE_MODEL = _models(("acme", 0.020, 2.2, 90, 1))


def _alone(
    *names: str, price: float = 0.0, seconds: float = 0.4, capacity: int = 60
) -> dict[str, tuple[Tool, ...]]:
    return {name: (Tool(name, price, seconds, 0.4, capacity),) for name in names}


_SEARCH = (
    Tool("search_premium", 0.050, 0.7, 0.4, 14, pays_failures=1.0, liked=7),
    Tool("search_standard", 0.015, 1.4, 0.6, 12, error=0.02, liked=2),
    Tool("search_budget", 0.004, 2.6, 0.8, 8, error=0.05, per_minute=240, liked=1),
)
_READ = (
    Tool("read_fast", 0.020, 0.5, 0.5, 12, liked=5),
    Tool("read_plain", 0.003, 0.9, 0.7, 10, error=0.03, per_minute=400, liked=2),
)
_BOOK = (
    Tool("book_global", 0.060, 2.5, 0.5, 10, error=0.02, pays_failures=0.5, liked=6),
    Tool("book_direct", 0.025, 3.0, 0.6, 8, error=0.02, liked=2),
)

MIXES = {
    mix.name: mix
    for mix in (
        Mix(
            "airline",
            {"read": 248, "search": 89, "book": 83, "think": 48}
            | {"calculate": 44, "cancel": 35, "hand_over": 25},
            {
                LLM: _THREE_MODELS, "read": _READ, "search": _SEARCH, "book": _BOOK,
                **_alone("think", "calculate", seconds=0.05, capacity=500), **_alone("cancel", "hand_over"),
            },
        ),
        Mix(
            "travel",
            {"read": 89, "search": 29, "calendar": 4, "book": 1, "send": 1},
            {
                LLM: _THREE_MODELS, "read": _READ, "search": _SEARCH, "book": _BOOK,
                **_alone("calendar", "send"),
            },
        ),
        Mix(
            "workspace",
            {"search": 36, "read": 20, "write": 20, "send": 8},
            {LLM: _THREE_MODELS, "read": _READ, "search": _SEARCH, **_alone("send", "write")},
        ),
        Mix(
            "coding",
            {"view": 40, "edit": 25, "shell": 25, "test": 10},
            {
                LLM: _ONE_MODEL, **_alone("view", "edit", seconds=0.1, capacity=200),
                **_alone("shell", seconds=1.0), **_alone("test", seconds=6.0, capacity=40),
            },
        ),
    )
}  # fmt: skip
"""Mixes by name."""

_CALM_S = 180.0
"""Mean seconds between two faults of one tool."""
_FAULT_S = (30.0, 150.0)
_HORIZON_S = 20_000.0


def draw_market(mix: Mix, random: Random) -> Market:
    """Return the mix with prices and durations of its own, and with faults that come and go."""
    tools: dict[str, Tool] = {}
    faults: dict[str, tuple[Fault, ...]] = {}
    for kind, alternatives in mix.tools.items():
        for one in alternatives:
            tools[one.name] = Tool(
                one.name,
                round(one.price * random.uniform(0.7, 1.4), 6),
                one.median_s * random.uniform(0.7, 1.4),
                one.sigma,
                max(1, round(one.capacity * random.uniform(0.75, 1.3))),
                one.error,
                round(one.per_minute * random.uniform(0.75, 1.3)),
                one.pays_failures,
                one.liked,
            )
            # Of a tool without an alternative nobody can choose another: its faults are milder, to tell more.
            mild = 0.2 if len(alternatives) == 1 else 0.7 if kind == LLM else 1.0
            faults[one.name] = _draw_faults(random, mild)
    return Market(mix, tools, faults)


def _draw_faults(random: Random, mild: float) -> tuple[Fault, ...]:
    found, now = [], random.expovariate(1 / _CALM_S)
    while now < _HORIZON_S:
        lasts = random.uniform(*_FAULT_S)
        kind = random.choice(("down", "flaky", "slow"))
        fails = {"down": 0.95, "flaky": 0.45, "slow": 0.02}[kind] * mild
        slower = 6.0 if kind == "slow" else 1.0
        found.append(Fault(now, now + lasts, fails, slower, hangs=random.random() < 0.5))
        now += lasts + random.expovariate(1 / _CALM_S)
    return tuple(found)
