"""A scheduler and an agent of the wire's first version, by its page alone: plain redis and msgpack.

    python version_one.py scheduler NAME URL NAMESPACE [KEY]     denies the tool `rm`, lets all others run
    python version_one.py agent NAME URL NAMESPACE [KEY]         asks about `rm` and `ls` in turn

They know nothing of a second version, and are strict as the first was: another version, an unknown field
or a wrong signature is dropped without a word. Both end on SIGTERM, after what they have in hand; the agent
then prints how often it was denied what is forbidden, ran it all the same, or heard nothing.
"""

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import signal
import sys
import time

import msgpack
import redis

FIELDS = {
    *("phase", "tool_name", "tool_input", "available_tools", "root_session", "session", "agent"),
    *("tool_call_id", "parallel_group_id", "parent", "lineage", "labels", "trace", "iteration"),
    *("available_agents", "agent_target", "ttl_ms", "truncated"),
}
SAID = {"action", "reason", "priority"}
PATIENCE_S = 5.0
BEAT_S = 0.4
PAUSE_S = 0.03
IDLE_MS = 800


class Peer:
    """What both have in common: keys of the bus, signatures, heartbeats, and when to end."""

    def __init__(self, name, url, namespace, key=""):
        self.name, self.key, self.namespace = name, bytes.fromhex(key), namespace
        self.redis = redis.from_url(url)
        self.bus, self.roster = f"tg:{{{namespace}:0}}", f"tg:{{{namespace}}}:roster"
        self.inbox = f"{self.bus}:in:{name}"
        self.ending, self.beat_at = False, 0.0
        signal.signal(signal.SIGTERM, self.end)

    def end(self, *_):
        self.ending = True

    def mac(self, kind, orchestrator, message):
        if not self.key:
            return None
        names = self.namespace.encode(), kind, self.name.encode(), orchestrator.encode()
        covered = b"".join(len(one).to_bytes(4, "big") + one for one in (*names, b"\1", *message))
        return b"\2" + hmac.digest(self.key, covered, "sha256")

    def beat(self, member, fields):
        if time.monotonic() - self.beat_at > BEAT_S:
            self.beat_at = time.monotonic()
            self.redis.sadd(self.roster, member)
            self.redis.set(f"{self.roster}:{member}", msgpack.packb(fields), px=1500)

    def leave(self, member):
        self.redis.srem(self.roster, member)
        self.redis.delete(f"{self.roster}:{member}")

    def wake(self):
        for key in self.redis.scan_iter(f"{self.roster}:o:*".replace("{", "[{]").replace("}", "[}]")):
            self.redis.xadd(f"{self.bus}:wake:{key.decode().rpartition(':')[2]}", {"event": "roster"})


class Scheduler(Peer):
    """One replica."""

    def run(self):
        self.replica = f"one-{os.getpid()}"
        member = f"s:{self.name}:{self.replica}"
        with contextlib.suppress(redis.ResponseError):  # BUSYGROUP
            self.redis.xgroup_create(self.inbox, self.name, "0", mkstream=True)
        self.redis.persist(self.inbox)
        started = self.redis.incr(f"{self.roster}-starts")
        told = {"priority": 0, "tools": ["*"], "shadow": False, "started": started}
        told |= {"pid": os.getpid(), "host": "h", "answered": 0, "late": 0}
        self.beat(member, told)
        self.wake()
        print("ready", flush=True)
        while not self.ending:
            self.beat(member, told)
            self.read(50)
            self.take_over()
        self.leave(member)
        self.wake()
        until = time.monotonic() + 0.3  # what was asked before the orchestrators knew still comes in
        while time.monotonic() < until:
            self.read(50)

    def read(self, block):
        found = self.redis.xreadgroup(self.name, self.replica, {self.inbox: ">"}, count=16, block=block)
        for entry, fields in found[0][1] if found else ():
            self.answer(entry, fields)

    def take_over(self):
        idle = self.redis.xpending_range(self.inbox, self.name, "-", "+", 16, idle=IDLE_MS)
        if idle:
            ids = [one["message_id"] for one in idle]
            for entry, fields in self.redis.xclaim(self.inbox, self.name, self.replica, IDLE_MS, ids):
                self.answer(entry, fields)

    def answer(self, entry, fields):
        orchestrator = fields[b"orch"].decode()
        answers = [self.ruled(orchestrator, one) for one in msgpack.unpackb(fields[b"frame"])]
        with self.redis.pipeline(transaction=False) as pipeline:
            for one in filter(None, answers):
                stream = f"{self.bus}:out:{orchestrator}:{self.name}"
                pipeline.xadd(stream, {"event": "verdict", "frame": msgpack.packb([one])})
            pipeline.xack(self.inbox, self.name, entry)
            pipeline.execute()

    def ruled(self, orchestrator, item):
        version, id_, phase, body, mac = item
        signed = id_ + bytes((phase,)) + body
        call = msgpack.unpackb(body)
        if version != 1 or mac != self.mac(b"question", orchestrator, [signed]) or set(call) - FIELDS:
            return None
        said = {"action": "continue"}
        if call["tool_name"] == "rm":
            said = {"action": "deny", "reason": "never"}
        answer = msgpack.packb(said)
        covered = [hashlib.sha256(signed).digest(), answer]
        return [1, id_, phase, answer, self.mac(b"verdict", orchestrator, covered)]


class Agent(Peer):
    """One orchestrator, that requires the scheduler."""

    def run(self):
        self.orchestrator, self.last = secrets.token_hex(8), "0-0"
        member = f"o:{self.orchestrator}"
        self.out = f"{self.bus}:out:{self.orchestrator}:{self.name}"
        told = {"denied": 0, "ran": 0, "ran_against_a_denial": 0, "heard_nothing": 0}
        print("ready", flush=True)
        tools = ["rm", "ls"]
        while not self.ending:
            self.beat(member, {"reading": [self.name]})
            tool = tools[0]
            tools.reverse()
            action = self.decided(tool)
            if action is None:
                told["heard_nothing"] += 1
            elif tool == "rm":
                told["denied" if action == "deny" else "ran_against_a_denial"] += 1
            else:
                told["ran"] += action == "continue"
            time.sleep(PAUSE_S)
        self.leave(member)
        print(json.dumps(told), flush=True)

    def decided(self, tool):
        id_ = secrets.token_bytes(16)
        body = msgpack.packb({"phase": "select", "tool_name": tool, "ttl_ms": int(PATIENCE_S * 1000)})
        signed = id_ + b"\0" + body
        frame = msgpack.packb([[1, id_, 0, body, self.mac(b"question", self.orchestrator, [signed])]])
        self.redis.xadd(self.inbox, {"event": "tool:selecting", "orch": self.orchestrator, "frame": frame})
        until = time.monotonic() + PATIENCE_S
        while (left := until - time.monotonic()) > 0:
            found = self.redis.xread({self.out: self.last}, block=max(1, int(left * 1000)))
            for entry, fields in found[0][1] if found else ():
                self.last = entry
                for item in msgpack.unpackb(fields[b"frame"]):
                    if (action := self.heard(id_, signed, item)) is not None:
                        return action
        return None

    def heard(self, id_, signed, item):
        version, answered, phase, body, mac = item
        covered = [hashlib.sha256(signed).digest(), body]
        said = msgpack.unpackb(body)
        genuine = mac == self.mac(b"verdict", self.orchestrator, covered)
        if version != 1 or answered != id_ or phase != 0 or not genuine or set(said) - SAID:
            return None
        return said["action"]


if __name__ == "__main__":
    {"scheduler": Scheduler, "agent": Agent}[sys.argv[1]](*sys.argv[2:]).run()
