"""What the access rules of a role do not allow is refused, on two kinds of server."""

import hashlib

import pytest
import redis
from guarded_server import SCHEDULERS, guarded

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

IN, OUT, FACTS = "tg:{default:0}:in:", "tg:{default:0}:out:", "tg:{default:0}:facts:"
ROSTER, STORE = "tg:{default}:roster", "tg:{default:ledger}:"
ADD = ("*", "event", "verdict", "frame", "x")
EVERYONE = (
    "agent",
    *(f"scheduler-{name}" for name in SCHEDULERS),
    *("reader", "exporter", "notify", "console", "operator", "doctor", "health"),
)
SCHEDULER_USERS = tuple(role for role in EVERYONE if role.startswith("scheduler-"))
READERS = ("reader", "exporter", "notify", "console", "operator", "doctor")
SOFTWARE = tuple(role for role in EVERYONE if role not in ("operator", "doctor"))

FORBIDDEN = [
    # the server itself
    (EVERYONE, "FLUSHALL"),
    (EVERYONE, "FLUSHDB"),
    (EVERYONE, "CONFIG", "SET", "maxmemory", "1"),
    (SOFTWARE, "CONFIG", "GET", "*"),
    (EVERYONE, "KEYS", "*"),
    (EVERYONE, "ACL", "LIST"),
    (EVERYONE, "ACL", "SETUSER", "agent", "on", "nopass", "~*", "+@all"),
    (EVERYONE, "ACL", "LOAD"),
    (EVERYONE, "SHUTDOWN", "NOSAVE"),
    (EVERYONE, "REPLICAOF", "127.0.0.1", "1"),
    (EVERYONE, "MODULE", "LIST"),
    (EVERYONE, "MONITOR"),
    (EVERYONE, "SLOWLOG", "GET"),
    (EVERYONE, "CLIENT", "KILL", "TYPE", "normal"),
    (EVERYONE, "CLIENT", "LIST"),
    (EVERYONE, "CLIENT", "PAUSE", "1"),
    (EVERYONE, "BGREWRITEAOF"),
    (EVERYONE, "SCRIPT", "FLUSH"),
    (EVERYONE, "FUNCTION", "FLUSH"),
    (EVERYONE, "SUBSCRIBE", "news"),
    (EVERYONE, "PUBLISH", "news", "x"),
    (EVERYONE, "SELECT", "1"),
    # other namespaces, and what is nobody's
    (EVERYONE, "GET", "house"),
    (EVERYONE, "SET", "house", "x"),
    (EVERYONE, "XADD", "tg:{other:0}:in:policy", *ADD),
    (EVERYONE, "XREAD", "STREAMS", "tg:{other:0}:facts:o1", "0"),
    (EVERYONE, "GET", "tg:{other:ledger}:approval:asked:1"),
    # an agent asks and hears; it does not rule, read the record, or touch money and approvals
    (("agent",), "XADD", f"{OUT}o1:policy", *ADD),
    (("agent",), "XREAD", "STREAMS", f"{IN}policy", "0"),
    (("agent",), "XREADGROUP", "GROUP", "policy", "me", "STREAMS", f"{IN}policy", ">"),
    (("agent",), "XGROUP", "DESTROY", f"{IN}policy", "policy"),
    (("agent",), "DEL", f"{IN}policy"),
    (("agent",), "XREAD", "STREAMS", f"{FACTS}o2", "0"),
    (("agent",), "XRANGE", f"{FACTS}o2", "-", "+"),
    (("agent",), "DEL", f"{FACTS}o2"),
    (("agent",), "HGETALL", f"{STORE}budget:a:daily:0"),
    (("agent",), "HSET", f"{STORE}budget:a:daily:0", "spent", "0"),
    (("agent",), "HSET", f"{STORE}budget-hooks:a:daily:0", "spent", "0"),
    (("agent",), "SET", f"{STORE}budget:limits", "x"),
    (("agent",), "GET", f"{STORE}approval:asked:1"),
    (("agent",), "SET", f"{STORE}approval:answer:1", "x"),
    (("agent",), "SET", f"{STORE}approval:always:1", "x"),
    (("agent",), "GET", f"{STORE}hold:approval:1:0"),
    (("agent",), "SET", f"{ROSTER}:s:policy:r1", "x"),
    (("agent",), "DEL", f"{ROSTER}:s:policy:r1"),
    (("agent",), "DEL", ROSTER),
    (("agent", "reader"), "XADD", "tg:{default:0}:ctl:o1", *ADD),
    (("agent",), "GET", "tg:{default}:agents:o2"),
    (("agent", *SCHEDULER_USERS, "reader", "exporter", "notify", "doctor"), "GET", "tg:{default}:tools:1"),
    ((*SCHEDULER_USERS, *READERS), "SET", "tg:{default}:tools:1", "x"),
    (("agent", *SCHEDULER_USERS, *READERS), "DEL", "tg:{default}:tools:1"),
    (("agent", "reader", "exporter", "notify", "doctor"), "HSET", f"{STORE}pauses", "mark", "1"),
    (("agent", *READERS), "DEL", f"{STORE}pauses"),
    (("agent", *SCHEDULER_USERS, *READERS), "DEL", f"{STORE}session-labels:s"),
    (("agent", *SCHEDULER_USERS, *READERS), "HSET", f"{STORE}session-labels:s", "a=b 1", "1"),
    (("agent", *SCHEDULER_USERS, *READERS), "HDEL", f"{STORE}session-labels:s", "a=b 1"),
    ((*SCHEDULER_USERS, "reader", "exporter", "notify"), "HSETNX", f"{STORE}session-labels:s", "a=b 1", "1"),
    (("reader", "notify"), "HGETALL", f"{STORE}pauses"),
    (("agent", "reader", "notify", "doctor"), "HGETALL", f"{STORE}slots:slots:p:files"),
    (("agent", "reader", "exporter", "notify"), "HSET", f"{STORE}slots:slots:p:files", "ruled", "0"),
    (("agent",), "EVAL", "return 1", "0"),
    (("agent",), "SCAN", "0"),
    # a scheduler speaks for itself
    (SCHEDULER_USERS, "XADD", f"{OUT}o1:somebody", *ADD),
    (("scheduler-policy",), "XADD", f"{OUT}o1:approval", *ADD),
    (("scheduler-approval",), "XADD", f"{OUT}o1:policy", *ADD),
    (SCHEDULER_USERS, "XREAD", "STREAMS", f"{OUT}o1:somebody", "0"),
    (SCHEDULER_USERS, "DEL", f"{OUT}o1:somebody"),
    (SCHEDULER_USERS, "XREADGROUP", "GROUP", "somebody", "me", "STREAMS", f"{IN}somebody", ">"),
    (SCHEDULER_USERS, "XREAD", "STREAMS", f"{IN}somebody", "0"),
    (SCHEDULER_USERS, "XACK", f"{IN}somebody", "somebody", "1-0"),
    (SCHEDULER_USERS, "XGROUP", "CREATE", f"{IN}somebody", "mine", "0", "MKSTREAM"),
    (SCHEDULER_USERS, "XTRIM", f"{IN}somebody", "MAXLEN", "0"),
    (SCHEDULER_USERS, "SET", f"{ROSTER}:s:somebody:r1", "x"),
    (SCHEDULER_USERS, "SET", f"{ROSTER}:o:o1", "x"),
    (SCHEDULER_USERS, "XADD", f"{FACTS}o1", *ADD),
    (SCHEDULER_USERS, "GET", f"{STORE}hold:somebody:1:0"),
    (SCHEDULER_USERS, "GETDEL", f"{STORE}hold:somebody:1:0"),
    *(((f"scheduler-{name}",), "XADD", f"{IN}{name}", *ADD) for name in SCHEDULERS),
    (("scheduler-rate-limit", "scheduler-archivist"), "XREAD", "STREAMS", f"{FACTS}o1", "0"),
    (
        tuple(role for role in SCHEDULER_USERS if role != "scheduler-approval"),
        "GET",
        f"{STORE}approval:asked:1",
    ),
    (
        tuple(role for role in SCHEDULER_USERS if role != "scheduler-cost-aware"),
        "HGETALL",
        f"{STORE}budget:r:1",
    ),
    (tuple(role for role in SCHEDULER_USERS if role != "scheduler-archivist"), "GET", f"{STORE}archivist:1"),
    # each kind names itself on the roster, nobody takes another off, and nobody writes another's heartbeat
    (SCHEDULER_USERS, "SADD", f"{ROSTER}:readers:1", "r:x"),
    (SCHEDULER_USERS, "SADD", f"{ROSTER}:orchestrators:1", "o:x"),
    (("agent", *READERS), "SADD", f"{ROSTER}:schedulers:1", "s:policy:x"),
    (("agent",), "SADD", f"{ROSTER}:readers:1", "r:x"),
    (READERS, "SADD", f"{ROSTER}:orchestrators:1", "o:x"),
    (("agent", *READERS), "PEXPIRE", f"{ROSTER}:schedulers:1", "1"),
    (EVERYONE, "SREM", f"{ROSTER}:schedulers:1", "s:policy:x"),
    (EVERYONE, "SREM", f"{ROSTER}:readers:1", "r:x"),
    (EVERYONE, "SREM", f"{ROSTER}:orchestrators:1", "o:x"),
    (EVERYONE, "DEL", f"{ROSTER}:schedulers:1"),
    (READERS, "DEL", f"{ROSTER}:s:policy:r1"),
    # who reads does not write
    (READERS, "XADD", f"{IN}policy", *ADD),
    (READERS, "XADD", f"{OUT}o1:policy", *ADD),
    (READERS, "XADD", f"{FACTS}o1", *ADD),
    (READERS, "XTRIM", f"{FACTS}o1", "MAXLEN", "0"),
    (READERS, "DEL", f"{FACTS}o1"),
    (READERS, "XREADGROUP", "GROUP", "policy", "me", "STREAMS", f"{IN}policy", ">"),
    (READERS, "SET", f"{ROSTER}:s:policy:r1", "x"),
    (READERS, "SET", f"{ROSTER}:o:o1", "x"),
    (READERS, "GETDEL", f"{STORE}hold:approval:1:0"),
    (("reader", "exporter", "doctor"), "SET", f"{STORE}approval:answer:1", "x"),
    (("reader", "exporter", "doctor"), "GET", f"{STORE}approval:asked:1"),
    (("reader", "exporter", "doctor"), "GET", f"{STORE}hold:approval:1:0"),
    (("notify",), "XREAD", "STREAMS", f"{FACTS}o1", "0"),
    (("notify",), "SET", f"{ROSTER}:r:me", "x"),
    (("notify",), "SET", f"{STORE}approval:answer:1", "x"),
    (("notify",), "SET", f"{STORE}hold:approval:1:0", "x"),
    (("notify", "console"), "XADD", f"{STORE}notices:changes", *ADD),
    (("console",), "SET", f"{STORE}config:policy:record", "x"),
    (("console",), "HSET", f"{STORE}config:policy:run:seen", "r1", "x"),
    (("reader", "exporter", "notify"), "GET", f"{STORE}config:policy:text:1"),
    (("reader", "exporter", "doctor", "console"), "GET", f"{STORE}notify:notify:memory"),
    (("reader", "exporter", "notify", "console", "doctor"), "SET", f"{STORE}budget:limits", "x"),
    (("reader", "exporter", "notify", "console", "doctor"), "HSET", f"{STORE}budget:a:daily:0", "spent", "0"),
    (("reader",), "HMGET", f"{STORE}budget:a:daily:0", "spent"),
    (("operator", "console"), "SET", f"{STORE}hold:approval:1:0", "x"),
    (("doctor",), "SREM", ROSTER, "s:policy:r1"),
    (("doctor",), "SET", f"{ROSTER}:r:me", "x"),
    (("doctor",), "ACL", "GETUSER", "agent"),
    # the probe looks whether the server answers, no more
    (("health",), "SMEMBERS", ROSTER),
    (("health",), "INFO"),
]


@pytest.mark.parametrize("kind", ["redis", "valkey"])
def test_whatever_is_not_a_roles_work_is_refused(kind, tmp_path):
    with guarded(tmp_path, kind, SCHEDULERS) as server:
        clients = {role: server.client(role, retry=None) for role in EVERYONE}
        let_through = []
        for roles, *command in FORBIDDEN:
            for role in roles:
                try:
                    said = clients[role].execute_command(*command)
                except redis.exceptions.NoPermissionError:
                    continue
                except redis.exceptions.RedisError as error:
                    said = error
                let_through.append((role, command, said))
        assert let_through == []
        for client in clients.values():
            client.close()


@pytest.mark.parametrize("kind", ["redis", "valkey"])
def test_what_was_written_in_one_step_is_there_again_after_a_crash(kind, tmp_path):
    # The append-only file is read as the user `default`: what that one may not write would be lost.
    script = "redis.call('SET', KEYS[1] .. ':a', 1) redis.call('SET', KEYS[1] .. ':b', 2)"
    with guarded(tmp_path, kind, SCHEDULERS) as server:
        with server.client("scheduler-cost-aware") as client:
            client.script_load(script)
            client.evalsha(hashlib.sha1(script.encode()).hexdigest(), 1, f"{STORE}budget")
        server.kill()
        server.start()
        with server.client("admin") as client:
            assert [client.get(f"{STORE}budget:{one}") for one in "ab"] == [b"1", b"2"]
        assert server.denied() == []


def test_not_even_the_administrator_debugs_the_server_or_loads_code_into_it(tmp_path):
    with guarded(tmp_path, "redis", ["policy"]) as server, server.client("admin") as client:
        for command in (("DEBUG", "SLEEP", "0"), ("MODULE", "LOAD", "/nothing.so")):
            with pytest.raises(redis.exceptions.ResponseError, match="not allowed"):
                client.execute_command(*command)


def test_nobody_is_let_in_without_a_user_and_its_password(tmp_path):
    with guarded(tmp_path, "redis", ["policy"]) as server:
        for url in (
            f"redis://localhost:{server.port}/0",
            f"redis://:guess@localhost:{server.port}/0",
            f"redis://agent:guess@localhost:{server.port}/0",
            f"redis://default:@localhost:{server.port}/0",
        ):
            with redis.Redis.from_url(url) as client, pytest.raises(redis.exceptions.AuthenticationError):
                client.ping()
