"""A queue for slots over histories: the model of a lock, the pure queue and the server's script agree."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from slot_histories import LEASE_S, Locks, Step, play_fleet, play_lock
from toolgate_bus.queues.queue import Request, Ticket
from toolgate_bus.queues.queue_redis import KEPT_MS, SCRIPT
from toolgate_bus.queues.queue_rules import QueueRules

MANY = os.environ.get("TOOLGATE_HISTORIES") == "all"
ON_RULES, ON_SERVER, OF_FLEETS = (100_000, 20_000, 20_000) if MANY else (1_500, 300, 200)
BATCH = 50


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


@pytest.mark.pure
@pytest.mark.timeout(600)
def test_readers_share_and_writers_are_alone_each_in_turn():
    for seed in range(ON_RULES):
        steps, locks = play_lock(seed)
        rules = QueueRules()
        for number, step in enumerate(steps):
            assert as_lock(take(rules, step)) == step.answer, (seed, number, step)
        now = steps[-1].now if steps else 0.0
        lines = {name: (set(pool.has), rules.list_waiting(name, now)) for name, pool in rules.pools.items()}
        assert {name: one for name, one in lines.items() if any(one)} == list_lines(locks), seed


def say(step: Step) -> tuple[object, ...]:
    """The words of a step for the script."""
    words: tuple[object, ...] = step.words
    if isinstance(words[0], Request):
        one = words[0]
        needs = [word for need in one.needs for word in (need.pool, need.limit, int(need.alone))]
        times = (repr(one.ageing_s), repr(one.wait_s))
        words = (one.id, one.owner, one.tenant, repr(one.weight), one.level, *times, *needs)
    op = "withdraw" if step.op == "end" else step.op
    return (op, LEASE_S, repr(step.now), KEPT_MS, *("" if word is None else word for word in words))


def run_all(client: redis.Redis, prefix: str, histories: list[list[Step]]) -> Iterator[list[object]]:
    """What the server answers to each of these histories."""
    sha = client.script_load(SCRIPT.text)
    pipeline = client.pipeline(transaction=False)
    for number, steps in enumerate(histories):
        for step in steps:
            pipeline.evalsha(sha, 1, f"{prefix}{number}", *say(step))
    replies = iter(pipeline.execute())
    for steps in histories:
        yield [read(step, next(replies)) for step in steps]
    client.flushall()


def read(step: Step, reply: list) -> Any:
    if step.op in ("ask", "look"):
        return Ticket(reply[0].decode(), int(reply[1]), int(reply[2]))
    rows = reply[0] if step.op == "lapse" else reply
    return [row[0].decode() for row in rows]


def play_on(url: str, play: Callable[[int], Any], many: int) -> Iterator[tuple[int, int, Step, Any]]:
    """Each step of so many histories, with its seed, its number and the server's answer."""
    client = redis.Redis.from_url(url)
    for first in range(0, many, BATCH):
        histories = [play(seed)[0] for seed in range(first, first + BATCH)]
        for seed, answers in enumerate(run_all(client, play.__name__, histories), first):
            for number, (step, answer) in enumerate(zip(histories[seed - first], answers, strict=True)):
                yield seed, number, step, answer


@pytest.mark.timeout(600)
def test_a_server_lets_readers_share_and_writers_be_alone_each_in_turn(server_url):
    for seed, number, step, answer in play_on(server_url, play_lock, ON_SERVER):
        assert as_lock(answer) == step.answer, (seed, number, step)


@pytest.mark.timeout(600)
def test_a_server_gives_slots_as_the_pure_queue_does_whatever_happens(server_url):
    for seed, number, step, answer in play_on(server_url, play_fleet, OF_FLEETS):
        assert answer == step.answer, (seed, number, step)
