"""Agents and schedulers that live for a second or so, each a process, each ended by kill -9.

    python short_lives.py URL NAMESPACE AGENTS SCHEDULERS

Forks them, a dozen at a time. The first live until they are at work: the books know several. Each is killed
after a while that chance gives it: some before they have connected, some before their first heartbeat, some
at work. Chance has a seed.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
import time

import redis
from toolgate_bus.ledger.money.ledger import Account, Offer
from toolgate_bus.protocol.events import Continue, Hold
from toolgate_bus.state.shared import connect_shared_state
from toolgate_bus.transport.redis.answering.scheduler import RedisSchedulerBus
from toolgate_orchestrator import Call, Caller
from toolgate_orchestrator.decision.gate import Gate
from toolgate_schedulers.author.scheduler import Scheduler
from toolgate_schedulers.worker.worker import Worker

AT_ONCE = 12
LONGEST_S = 1.6


async def be_an_agent(url, namespace):
    """Ask about calls for as long as one lives."""
    async with Gate.open(redis=url, namespace=namespace, patience_ms=200) as gate:
        while True:
            await gate.decide(Call("bash", {"command": "ls"}, ["bash"], Caller(f"s-{os.getpid()}")))
            await asyncio.sleep(0.005)


async def be_a_scheduler(url, namespace):
    """Rule, and reserve a little money of a window."""
    bus = RedisSchedulerBus(url, namespace)
    shared = connect_shared_state(url, bus.commands, namespace)
    account = Account(f"each/session/{os.getpid()}", 1000, 3600, 3600)

    async def decide(call):
        await shared.ledger.reserve(call.id, 0, [Offer("bash", 1)], [account], "dead")
        return Hold(seconds=30) if call.id[0] == "0" else Continue()

    await Worker(Scheduler(name="police", decide=decide), bus, shared=shared).run()


def live(be, url, namespace):
    """In a process of one's own, until killed."""
    with contextlib.suppress(BaseException):
        asyncio.run(be(url, namespace))
    os._exit(0)


def look_until_known(url, namespace):
    """Until the books know more than one of them."""
    with redis.Redis.from_url(url) as server:
        while server.scard(f"tg:{{{namespace}:ledger}}:budget:accounts") < 2:  # bounded by who runs this
            time.sleep(0.01)


def main(url, namespace, agents, schedulers):
    """All of them, one dozen after the other."""
    chance = random.Random(7)
    lives = [be_an_agent] * int(agents) + [be_a_scheduler] * int(schedulers)
    chance.shuffle(lives)
    lives.append(be_an_agent)  # the first to live
    living = {}
    at_work = False
    while lives or living:
        while lives and len(living) < AT_ONCE:
            be = lives.pop()
            if (pid := os.fork()) == 0:
                live(be, url, namespace)
            living[pid] = time.monotonic() + chance.uniform(0.01, LONGEST_S)
        if not at_work:
            look_until_known(url, namespace)
            at_work = True
        for pid, until in list(living.items()):
            if time.monotonic() >= until:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                del living[pid]
                if len(lives) % 100 == 0:
                    print(f"{len(lives)} processes are still to live", flush=True)
        time.sleep(0.002)


if __name__ == "__main__":
    main(*sys.argv[1:])
