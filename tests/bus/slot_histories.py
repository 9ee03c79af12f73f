"""Histories of what a queue for slots is asked, each from its seed, and what it should have answered.

`play_lock` is of readers and writers, and answers from a model of its own: a line for each key, in which
nobody passes anybody. `play_fleet` is of everything at once, and answers from the pure queue.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import redis
from toolgate_bus.ledger.slots.caps import SCRIPT as CAPS
from toolgate_bus.ledger.slots.caps import write_cap
from toolgate_bus.ledger.slots.queue import UNSEEN_S, Cap, Need, Request, Ticket
from toolgate_bus.ledger.slots.redis import KEPT_MS, OPERATE, SCRIPT
from toolgate_bus.ledger.slots.rules import QueueRules

LEASE_S = 2.0
BATCH = 50
OWNERS = ("o1", "o2", "o3", "o4")
FLEET_STEPS = ("ask", "again", "end", "leave", "renew", "lapse", "limit", "move", "before", "cap")


class Step(NamedTuple):
    """What is asked at a time, and the answer: a ticket, or to whom something is given for it."""

    now: float
    op: str
    words: tuple[Any, ...]
    answer: Any


@dataclass
class Wish:
    """A reader or writer of one key."""

    key: str
    alone: bool
    owner: str
    until: float


@dataclass
class Locks:
    """Readers together, writers alone, of each key so many; all in the order in which they came."""

    limit: int
    wishes: dict[str, Wish] = field(default_factory=dict)
    held: dict[str, set[str]] = field(default_factory=dict)
    lines: dict[str, list[str]] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    seen: dict[str, float] = field(default_factory=dict)

    def ask(self, request: Request, now: float) -> tuple[str, int]:
        id_, need = request.id, request.needs[0]
        if id_ not in self.wishes and id_ not in self.over:
            self.seen[request.owner] = now
            self.wishes[id_] = Wish(need.pool, need.alone, request.owner, now + request.wait_s)
            self.lines.setdefault(need.pool, []).append(id_)
            self.serve(now)
        return self.look(id_)

    def look(self, id_: str) -> tuple[str, int]:
        if id_ not in self.wishes:
            return "closed", 0
        line = self.lines[self.wishes[id_].key]
        return ("waiting", line.index(id_) + 1) if id_ in line else ("given", 0)

    def end(self, ids: list[str], now: float) -> set[str]:
        for id_ in ids:
            self.over.add(id_)
            if (wish := self.wishes.pop(id_, None)) is not None:
                self.held.setdefault(wish.key, set()).discard(id_)
                self.lines[wish.key] = [one for one in self.lines[wish.key] if one != id_]
        return self.serve(now)

    def see(self, living: set[str], now: float) -> None:
        self.seen |= dict.fromkeys(living & self.seen.keys(), now)

    def renew(self, living: set[str], now: float) -> set[str]:
        self.see(living, now)
        for id_, wish in self.wishes.items():
            if self.holds(id_) and wish.owner in living:
                wish.until = now + LEASE_S
        return set()

    def lapse(self, living: set[str], now: float) -> set[str]:
        self.see(living, now)
        dead = {one for one, seen in self.seen.items() if one not in living and seen <= now - UNSEEN_S}
        gone = [
            id_
            for id_, wish in self.wishes.items()
            if (wish.until <= now and (wish.owner in dead or not self.holds(id_)))
            or (wish.owner in dead and not self.holds(id_))
        ]
        given = self.end(gone, now)
        for owner in dead - {wish.owner for wish in self.wishes.values()}:
            del self.seen[owner]
        return given

    def holds(self, id_: str) -> bool:
        return id_ in self.held.get(self.wishes[id_].key, ())

    def serve(self, now: float) -> set[str]:
        given = set()
        for key, line in self.lines.items():
            held = self.held.setdefault(key, set())
            while line and self.fits(line[0], held):
                held.add(line[0])
                self.wishes[line[0]].until = now + LEASE_S
                given.add(line.pop(0))
        return given

    def fits(self, id_: str, held: set[str]) -> bool:
        writes = any(self.wishes[one].alone for one in held)
        return not held if self.wishes[id_].alone else not writes and len(held) < self.limit


def play_lock(seed: int, steps: int = 24) -> tuple[list[Step], Locks]:
    """Readers and writers of three keys, in four processes that may die."""
    chance = Random(seed)
    locks, told, now = Locks(chance.choice([1, 2, 3, 1000])), [], 0.0
    for number in range(steps):
        now += chance.random() * chance.choice([0.1, 1.0, 4.0])
        have = sorted(locks.wishes)
        match chance.choices(["ask", "again", "end", "stray", "renew", "lapse"], [50, 3, 35, 2, 5, 5])[0]:
            case "ask":
                need = Need(chance.choice("abc"), locks.limit, chance.random() < 0.4)
                request = Request(
                    f"r{number}", (need,), chance.choice(OWNERS), wait_s=chance.choice([1.0, 60.0])
                )
                told.append(Step(now, "ask", (request,), locks.ask(request, now)))
            case "again" | "end" as op if have:
                ids = [chance.choice(have)]
                answer = locks.look(ids[0]) if op == "again" else locks.end(ids, now)
                told.append(Step(now, "look" if op == "again" else "end", tuple(ids), answer))
            case "stray":
                ids = [f"r{chance.randrange(steps)}"]
                told.append(Step(now, "end", tuple(ids), locks.end(ids, now)))
            case "renew" | "lapse" as op:
                living = chance.sample(OWNERS, chance.choice([2, 3, 4]))
                told.append(Step(now, op, tuple(living), getattr(locks, op)(set(living), now)))
    return told, locks


def play_capped(seed: int) -> tuple[list[Step], QueueRules]:
    """The same, and tools set limits as well."""
    return play_fleet(seed, caps_often=5)


def play_fleet(seed: int, steps: int = 60, caps_often: int = 0) -> tuple[list[Step], QueueRules]:
    """Tenants and classes fight for three pools, alone, all or none; processes die, operators set limits."""
    chance = Random(seed)
    rules, told, now, caps = QueueRules(), [], 0.0, dict[str, str]()
    for number in range(steps):
        now += chance.random() * 0.5
        match chance.choices(FLEET_STEPS, [50, 3, 32, 4, 3, 5, 3, 4, 12, caps_often])[0]:
            case "ask":
                request = invent_request(chance, f"r{number}")
                told.append(Step(now, "ask", (request,), rules.ask(request, LEASE_S, now)))
            case "again":
                id_ = f"r{chance.randrange(number + 1)}"
                told.append(Step(now, "look", (id_,), rules.look(id_, now)))
            case "end" | "leave" as op if have := sorted(rules.held if op == "end" else rules.waiting):
                ids = tuple(chance.sample(have, min(len(have), chance.choice([1, 1, 2]))))
                told.append(Step(now, "end", ids, rules.end(ids, LEASE_S, now)))
            case "renew":
                rules.renew({"o1", "o2"}, LEASE_S, now)
                told.append(Step(now, "renew", ("o1", "o2"), []))
            case "lapse":
                living = tuple(chance.sample(OWNERS, chance.choice([3, 4])))
                told.append(Step(now, "lapse", living, list(rules.lapse(set(living), LEASE_S, now).given)))
            case "limit":
                pool, most = chance.choice(["a", "b", "b/x", "c"]), chance.choice([None, 0, 1, 2])
                told.append(Step(now, "limit", (pool, most), rules.limit(pool, most, LEASE_S, now)))
            case "move" | "before" as op if rules.waiting:
                one, other = (chance.choice(sorted(rules.waiting)) for _ in "12")
                if op == "move":
                    words: tuple[Any, ...] = (one, chance.choice([-9, 0, 10, 99]))
                    told.append(Step(now, op, words, int(rules.move(*words))))
                else:
                    told.append(Step(now, op, (one, other), rules.move_before(one, other)))
                told.append(Step(now, "look", (one,), rules.look(one, now)))
                told.append(Step(now, "lapse", OWNERS, list(rules.lapse(set(OWNERS), LEASE_S, now).given)))
            case "cap":
                pool, most = chance.choice("abc"), chance.choice([None, 0, 1, 2])
                was, caps[pool] = caps.get(pool, ""), write_cap(None if most is None else Cap(most))
                told.append(Step(now, "cap", (pool, was, caps[pool], most or 0, 0), []))
                rules.cap(pool, most)
                told.append(Step(now, "lapse", OWNERS, list(rules.lapse(set(OWNERS), LEASE_S, now).given)))
    return told, rules


def invent_request(chance: Random, id_: str) -> Request:
    """A call of one of four tenants."""
    pools = chance.sample(["a", "b/x", "b/y", "c"], chance.choice([1, 1, 1, 2, 3]))
    needs = tuple(Need(pool, {"a": 1, "b": 3, "c": 5}[pool[0]], chance.random() < 0.2) for pool in pools)
    tenant = chance.choice("wxyz")
    weight = {"w": 1.0, "x": 2.0, "y": 4.0, "z": 3.0}[tenant]
    level, wait_s = chance.choice([0, 0, 10]), chance.choice([2.0, 3600.0, 3600.0])
    return Request(id_, needs, chance.choice(OWNERS), tenant, weight, level, 5.0, wait_s)


def take(rules: QueueRules, step: Step) -> Any:
    """One step in the pure queue, as a lock's model answers it."""
    match step.op:
        case "ask":
            return rules.ask(*step.words, LEASE_S, step.now)
        case "look":
            return rules.look(*step.words, step.now)
        case "end":
            return rules.end(step.words, LEASE_S, step.now)
        case "renew":
            return rules.renew(set(step.words), LEASE_S, step.now) or []
    return rules.lapse(set(step.words), LEASE_S, step.now).given


def as_lock(answer: Any) -> Any:
    """What the model of a lock knows of an answer."""
    return (answer.status, answer.place) if isinstance(answer, Ticket) else set(answer)


def list_lines(locks: Locks) -> dict[str, tuple[set[str], list[str]]]:
    return {key: (locks.held[key], line) for key, line in locks.lines.items() if locks.held[key] or line}


def say(step: Step) -> tuple[object, ...]:
    """The words of a step for the script."""
    words: tuple[object, ...] = step.words
    if isinstance(words[0], Request):
        one = words[0]
        needs = [word for need in one.needs for word in (need.pool, need.limit, int(need.alone))]
        times = (repr(one.ageing_s), repr(one.wait_s), one.about)
        words = (one.id, one.owner, one.tenant, repr(one.weight), one.level, *times, *needs)
    op = "withdraw" if step.op == "end" else step.op
    return (op, LEASE_S, repr(step.now), KEPT_MS, *("" if word is None else word for word in words))


def run_all(client: redis.Redis, prefix: str, histories: list[list[Step]]) -> Iterator[list[object]]:
    """What the server answers to each of these histories."""
    sha, sha_of_caps, operate = (client.script_load(script.text) for script in (SCRIPT, CAPS, OPERATE))
    pipeline = client.pipeline(transaction=False)
    for number, steps in enumerate(histories):
        for step in steps:
            if step.op == "cap":
                pipeline.evalsha(sha_of_caps, 1, f"{prefix}{number}", "set", *step.words)
            else:
                script = operate if step.op in ("move", "before") else sha
                pipeline.evalsha(script, 1, f"{prefix}{number}", *say(step))
    replies = iter(pipeline.execute())
    for steps in histories:
        yield [read(step, next(replies)) for step in steps]
    client.flushall()


def read(step: Step, reply: Any) -> Any:
    if step.op in ("ask", "look"):
        return Ticket(reply[0].decode(), int(reply[1]), int(reply[2]))
    if step.op in ("move", "before"):
        return reply if isinstance(reply, int) else reply.decode()
    if step.op == "cap":
        return [] if reply[0].decode() == step.words[2] else reply
    rows = reply[0] if step.op == "lapse" else reply
    return [row[0].decode() for row in rows]


def judge_rules(seed: int) -> str:
    """Where the pure queue does not what a lock does; nothing where it does."""
    steps, locks = play_lock(seed)
    rules = QueueRules()
    for number, step in enumerate(steps):
        if (answer := as_lock(take(rules, step))) != step.answer:
            return f"seed {seed}, step {number}: {answer} to {step}"
    now = steps[-1].now if steps else 0.0
    lines = {name: (set(pool.has), rules.list_waiting(name, now)) for name, pool in rules.pools.items()}
    same = {name: one for name, one in lines.items() if any(one)} == list_lines(locks)
    return "" if same else f"seed {seed}: the end"


def judge_server(url: str, play: Callable[[int], Any], many: int, first: int = 0) -> Iterator[str]:
    """Of each of so many histories, where the server answers otherwise; nothing where it does not."""
    client = redis.Redis.from_url(url)
    for start in range(first, first + many, BATCH):
        histories = [play(seed)[0] for seed in range(start, min(start + BATCH, first + many))]
        for seed, answers in enumerate(run_all(client, play.__name__, histories), start):
            told = zip(histories[seed - start], answers, strict=True)
            yield next(
                (
                    f"seed {seed}, step {number}: {answer} to {step}"
                    for number, (step, answer) in enumerate(told)
                    if (as_lock(answer) if play is play_lock else answer) != step.answer
                ),
                "",
            )
