"""A fleet in simulated time: agents with jobs, tools with queues and faults, and a side that chooses.

Each step of a job is a request to an LLM and then the call of a tool. A call that fails is tried again, by
a further request to the LLM. A job that is given up is begun again, so every side has the same work to do.
All dice of an attempt hang on the seed and its place in the job, so every side has the same luck. Nothing
waits: the world goes from event to event. Pure but for the side's own code.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple, Protocol

from benefit_market import LLM, Market, Mix, Tool, draw_market

AGENTS = 200
TENANTS = 4
JOBS_EACH = 1
CALLS = (5, 40)
"""Shortest and longest job, in calls of tools."""
START_S = 90.0
"""Seconds in which the agents begin, one after another."""
TRIES = 5
"""Failures of one step after which an agent gives its job up."""
LIVES = 3
"""Number of times that a job is begun before it counts as lost. Work that is given up is done again."""
TIMEOUT_S = 60.0
"""Longest wait for a tool before the agent gives the call up."""
AT_ONCE_S = 0.15
"""Duration of a failure that comes at once, such as a refusal because of a rate limit."""
FACTS_S = 0.05
"""Delay of a fact on its way to the schedulers."""


class Ask(NamedTuple):
    """Call that an LLM wants, or a request to an LLM."""

    id: str
    kind: str
    own: str
    """Tool or model that would be called without Toolgate."""
    options: tuple[str, ...]
    session: str
    tenant: str
    tokens: tuple[int, int]
    """Tokens of a request to an LLM and of its answer."""


class Side(Protocol):
    """Way to choose among alternatives."""

    def choose(self, ask: Ask, now: float) -> str | None:
        """Return the tool or model to call; None denies the call."""

    def hear(self, fact: Mapping[str, Any], now: float) -> None:
        """Learn from a fact."""


@dataclass
class Job:
    """One job, and what became of it."""

    name: str
    agent: int
    tenant: str
    kinds: list[str]
    model: str
    began: float = 0.0
    ended: float = 0.0
    finished: bool = False
    money: float = 0.0
    calls: int = 0
    wasted: int = 0
    denied: int = 0


class _Attempt(NamedTuple):
    ask: Ask
    tool: str
    asked_at: float
    luck: float
    """Even number from 0 to 1: the call fails if it is below the chance of failure."""
    spread: float
    """Normal deviate of the duration."""
    done: Callable[..., None]


@dataclass
class _Server:
    """Tool as it works: its queue, and its rate limit as a bucket of tokens."""

    tool: Tool
    busy: int = 0
    queue: deque[_Attempt] = field(default_factory=deque)
    tokens: float = 5.0
    filled_at: float = 0.0

    def takes(self, now: float) -> bool:
        """Take a token of the rate limit; False if there is none."""
        if not self.tool.per_minute:
            return True
        rate = self.tool.per_minute / 60
        self.tokens = min(max(5.0, rate), self.tokens + (now - self.filled_at) * rate)
        self.filled_at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


def draw_jobs(
    mix: Mix, market: Market, seed: str, agents: int = AGENTS, each: int = JOBS_EACH
) -> list[list[Job]]:
    """Return the jobs of each agent, in their order."""
    random = Random(f"jobs {seed}")
    kinds, shares = list(mix.shares), list(mix.shares.values())
    models = mix.tools[LLM]
    found = []
    for agent in range(agents):
        model = random.choices(models, [one.liked for one in models])[0].name
        found.append(
            [
                Job(f"s{agent}-{number}", agent, f"tenant-{agent % TENANTS}",
                    random.choices(kinds, shares, k=random.randint(*CALLS)), model)
                for number in range(each)
            ]
        )  # fmt: skip
    return found


class World:
    """One world: run it once with one side."""

    def __init__(self, mix: Mix, seed: str, side: Callable[["World"], Side], agents: int = AGENTS) -> None:
        self.market = draw_market(mix, Random(f"market {seed}"))
        self.now = 0.0
        self._seed = seed
        self._servers = {name: _Server(tool) for name, tool in self.market.tools.items()}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0
        self._asked = 0
        self._jobs = draw_jobs(mix, self.market, seed, agents)
        self._options = {kind: tuple(one.name for one in tools) for kind, tools in mix.tools.items()}
        self._kind_of = {name: kind for kind, names in self._options.items() for name in names}
        self._side = side(self)

    def run(self, wait_until: Callable[[float], None] = lambda _time: None) -> list[Job]:
        """Run to the end and return all jobs; `wait_until` is called before each event with its time."""
        random = Random(f"starts {self._seed}")
        for jobs in self._jobs:
            self._at(random.uniform(0, START_S), lambda jobs=jobs: self._begin(jobs))
        while self._events:
            at, _, event = heapq.heappop(self._events)
            wait_until(at)
            self.now = at
            event()
        return [job for jobs in self._jobs for job in jobs]

    def wait_s(self, tool: str) -> float:
        """Return the expected wait for a tool at this moment: what only an oracle knows."""
        server = self._servers[tool]
        if server.busy < server.tool.capacity:
            return 0.0
        return (len(server.queue) + 1) * self.mean_s(tool) / server.tool.capacity

    def mean_s(self, tool: str) -> float:
        """Return the mean duration of a call at this moment."""
        known, fault = self.market.tools[tool], self.market.fault_of(tool, self.now)
        usual = known.median_s * math.exp(known.sigma**2 / 2)
        return usual * (fault.slower if fault is not None else 1.0)

    def chance(self, tool: str) -> float:
        """Return the chance of success of a call that would begin now."""
        server, fault = self._servers[tool], self.market.fault_of(tool, self.now)
        known = server.tool
        if known.per_minute and server.tokens + (self.now - server.filled_at) * known.per_minute / 60 < 1:
            return 0.0
        return 1 - max(known.error, fault.fails if fault is not None else 0.0)

    # ------------------------------------------------------------------ agents

    def _begin(self, jobs: list[Job]) -> None:
        life = self._live(jobs)
        life.send(None)

        def go_on(outcome: bool) -> None:
            try:
                ask = life.send(outcome)
            except StopIteration:
                return
            self._call(*ask, go_on)

        try:
            first = life.send(True)
        except StopIteration:
            return
        self._call(*first, go_on)

    def _live(self, jobs: list[Job]) -> Generator[Any, bool, None]:
        """Do one job after another: yield each call, and get back whether it succeeded."""
        yield
        for job in jobs:
            job.began = self.now
            for life in range(LIVES):
                job.finished = yield from self._work(job, life)
                if job.finished:
                    break
            job.ended = self.now

    def _work(self, job: Job, life: int) -> Generator[Any, bool, bool]:
        for step, kind in enumerate(job.kinds):
            own, failures = "", 0
            while True:
                place = f"{self._seed} {job.name} {life} {step} {failures}"
                if not (yield from self._think(job, place)):
                    return False
                luck = Random(place)
                own = self._own_choice(kind, own, luck)
                if (yield (job, kind, own, luck)):
                    break
                failures += 1
                if failures == TRIES:
                    return False
        return True

    def _think(self, job: Job, place: str) -> Generator[Any, bool, bool]:
        for again in range(TRIES):
            luck = Random(f"{place} llm {again}")
            if (yield (job, LLM, job.model, luck)):
                return True
        return False

    def _own_choice(self, kind: str, before: str, luck: Random) -> str:
        """Return the tool that an LLM takes: the one it likes, and after a failure perhaps another one."""
        tools = self.market.mix.tools[kind]
        if before and luck.random() < 0.5:
            others = [one.name for one in tools if one.name != before]
            return luck.choice(others) if others else before
        return before or luck.choices(tools, [one.liked for one in tools])[0].name

    # ------------------------------------------------------------------ calls

    def _call(self, job: Job, kind: str, own: str, luck: Random, go_on: Callable[[bool], None]) -> None:
        self._asked += 1
        tokens = (luck.randint(1500, 6500), luck.randint(200, 800))
        ask = Ask(f"{self._asked:032x}", kind, own, self._options[kind], job.name, job.tenant, tokens)
        chosen = self._side.choose(ask, self.now)
        job.calls += 1
        if chosen is None:
            job.denied += 1
            self._at(AT_ONCE_S, lambda: go_on(False))
            return
        assert self._kind_of[chosen] == kind, f"{chosen} does no {kind}"
        self._tell(_decision(ask, chosen))
        server, tool = self._servers[chosen], self.market.tools[chosen]
        asked_at = self.now

        def done(well: bool, paid: float, signal: str) -> None:
            job.money += paid
            job.wasted += not well
            told = {"signal": signal} if signal else {}
            self._tell(_end(ask, chosen, well, self.now - asked_at, paid) | told)
            go_on(well)

        price = tool.price * (tokens[0] + 4 * tokens[1]) / 6000 if kind == LLM else tool.price
        attempt = _Attempt(
            ask, chosen, asked_at, luck.random(), luck.gauss(0, 1),
            lambda well, signal="": done(well, price if well else price * tool.pays_failures, signal),
        )  # fmt: skip
        if not server.takes(self.now):
            self._at(AT_ONCE_S, lambda: attempt.done(False, "429"))
        elif server.busy < tool.capacity:
            self._serve(server, attempt)
        else:
            server.queue.append(attempt)

    def _serve(self, server: _Server, attempt: _Attempt) -> None:
        tool, fault = server.tool, self.market.fault_of(attempt.tool, self.now)
        server.busy += 1
        well = attempt.luck >= max(tool.error, fault.fails if fault is not None else 0.0)
        lasts = tool.median_s * math.exp(tool.sigma * attempt.spread)
        lasts *= fault.slower if fault is not None else 1.0
        if not well and fault is not None and not fault.hangs:
            lasts = AT_ONCE_S

        def end() -> None:
            server.busy -= 1
            while server.queue and server.busy < tool.capacity:
                following = server.queue.popleft()
                if self.now - following.asked_at > TIMEOUT_S:
                    following.done(False)
                else:
                    self._serve(server, following)
            attempt.done(well)

        self._at(lasts, end)

    def _tell(self, fact: dict[str, Any]) -> None:
        self._at(FACTS_S, lambda: self._side.hear(fact, self.now))

    def _at(self, delay: float, event: Callable[[], None]) -> None:
        self._numbers += 1
        heapq.heappush(self._events, (self.now + delay, self._numbers, event))


def request_of(ask: Ask, model: str) -> dict[str, Any]:
    """Return the arguments of a request to this model."""
    provider, _, name = model.partition("/")
    return {
        "provider": provider, "model": name, "purpose": "turn",
        "input_tokens": ask.tokens[0], "max_output_tokens": ask.tokens[1],
    }  # fmt: skip


def _decision(ask: Ask, chosen: str) -> dict[str, Any]:
    fact = {
        "event": "decision", "id": ask.id, "outcome": "continue" if chosen == ask.own else "modify",
        "session": ask.session, "root_session": ask.session, "agent": "worker",
        "labels": {"tenant": ask.tenant}, "orchestrator": "o",
    }  # fmt: skip
    if ask.kind == LLM:
        fact |= {"tool_name": "llm:request", "tool_input": request_of(ask, ask.own)}
        fact |= {"final_tool": "llm:request", "final_input": request_of(ask, chosen)}
    else:
        fact |= {"tool_name": ask.own, "tool_input": {"query": "q"}, "final_tool": chosen}
    return fact


def _end(ask: Ask, chosen: str, well: bool, seconds: float, paid: float) -> dict[str, Any]:
    fact: dict[str, Any] = {
        "decision_id": ask.id, "session": ask.session, "root_session": ask.session, "agent": "worker",
        "seconds": seconds, "orchestrator": "o",
    }  # fmt: skip
    if ask.kind == LLM:
        provider, _, model = chosen.partition("/")
        fact |= {"event": "usage" if well else "provider:error", "provider": provider, "model": model}
        if well:
            fact |= {"input_tokens": ask.tokens[0], "output_tokens": ask.tokens[1], "cost_usd": paid}
            fact |= {"estimated_tokens": ask.tokens[0]}
        return fact | ({} if well else {"error": "ProviderError"})
    fact |= {"event": "tool:post" if well else "tool:error", "tool": chosen, "cost": round(paid * 1e6)}
    return fact | ({"success": True} if well else {"error": "ToolError"})
