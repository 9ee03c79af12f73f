"""What each role must be let do on the server, as commands that change nothing; what came of trying.

A command that would change something is written so that the server refuses it for its words (`0-0x` is no
entry's id), or finds nothing to change (a key that nobody has): whether the user may do it was looked at
before. Where there is no such form (`safe` is False) only a dry run can tell. The roles themselves are those
of deploy/redis/roles, which a test compares.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from toolgate_bus.commands.doctor.finding import Finding, error, fine, how_many, notice
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.redis.roster_sets import KINDS

__all__ = ["ROLES", "Right", "Tried", "rights_findings", "rights_of", "wants_name"]

SUBJECT: Final = "rights"
NO_ID: Final = "0-0x"
NO_NUMBER: Final = "x"
NO_WORD: Final = "NOSUCHWORD"
NO_SCRIPT: Final = "0" * 40
MOST: Final = 6
How = Literal["dry run", "transaction", "trying"]


class Right(NamedTuple):
    """One command that a role uses."""

    to: str
    """What for, in words."""
    command: tuple[str, ...]
    rule: str
    """What gives the right, as ACL SETUSER reads it."""
    safe: bool = True


class Tried(NamedTuple):
    """What came of one."""

    right: Right
    allowed: bool | None
    """None: it could not be tried without changing something."""


class _Names(NamedTuple):
    keys: Keys
    namespace: str
    scheduler: str
    nobody: str
    """A name that nobody has."""


def _right(to: str, key: str, *words: str, pattern: str = "", safe: bool = True) -> Right:
    """A command on a key; `@` among its words is the key, which else comes second."""
    name, *rest = words
    placed = [name, *(key if word == "@" else word for word in rest)] if "@" in rest else [name, key, *rest]
    verb = f"{placed[0]}|{placed[1]}" if placed[0] in ("XGROUP", "XINFO") else placed[0]
    return Right(to, tuple(placed), f"(~{pattern or key} +{verb.lower()})", safe)


def _agent(on: _Names) -> list[Right]:
    keys, nobody = on.keys, on.nobody
    every = keys.inbox("*")
    facts, wake, control = keys.facts(nobody), keys.wake(nobody), keys.control(nobody)
    verdicts = keys.verdicts(nobody, nobody)
    return [
        _right("ask schedulers", keys.inbox(nobody), "XADD", NO_ID, "a", "b", pattern=every),
        _right("ask schedulers", keys.inbox(nobody), "PEXPIRE", "1", pattern=every),
        *(
            _right(to, key, "XREAD", "COUNT", "1", "STREAMS", "@", "0", pattern=pattern)
            for to, key, pattern in (
                ("hear verdicts", verdicts, keys.verdicts("*", "*")),
                ("be woken", wake, keys.wake("*")),
                ("hear orders", control, keys.control("*")),
            )
        ),
        _right("hear verdicts", verdicts, "DEL", pattern=keys.verdicts("*", "*")),
        _right("wake its own reader", wake, "XADD", NO_ID, "a", "b", pattern=keys.wake("*")),
        _right("write facts", facts, "XADD", NO_ID, "a", "b", pattern=keys.facts("*")),
        _right("trim facts", facts, "XTRIM", "MAXLEN", NO_NUMBER, pattern=keys.facts("*")),
        _right("keep facts for an hour", facts, "PEXPIRE", "1", pattern=keys.facts("*")),
        _right("be known as a writer of facts", keys.writers, "ZADD", NO_NUMBER, "a"),
        _right("forget writers of facts", keys.writers, "ZREMRANGEBYSCORE", NO_NUMBER, NO_NUMBER),
        _right("tell its sessions", keys.agents(nobody), "SET", "a", NO_WORD, pattern=keys.agents("*")),
        *_roster(on, "o"),
    ]


def _roster(on: _Names, kind: str, who: str = "*") -> list[Right]:
    keys, mine = on.keys, f"{kind}:{on.nobody}" if who == "*" else f"{kind}:{who}:{on.nobody}"
    own = keys.member(f"{kind}:*" if who == "*" else f"{kind}:{who}:*")
    named, sets = keys.roster_of(KINDS[kind], 0), keys.roster_of(KINDS[kind], 0).removesuffix("0") + "*"
    return [
        *(
            _right("read the roster", key, *words, pattern=pattern)
            for key, pattern in ((named, keys.member("*")), (keys.roster, ""))
            for words in (("SCARD",), ("SRANDMEMBER", "1"))
        ),
        _right("read the roster", keys.member(mine), "MGET", pattern=keys.member("*")),
        _right("stand on the roster", named, "SADD", mine, pattern=sets, safe=False),
        _right("stand on the roster", named, "PEXPIRE", "1", pattern=sets),
        _right("stand on the roster of version 1", keys.roster, "SADD", mine, safe=False),
        _right("leave the roster of version 1", keys.roster, "SREM", mine),
        _right("stand on the roster", keys.member(mine), "SET", "a", NO_WORD, pattern=own),
        _right("leave the roster", keys.member(mine), "DEL", pattern=own),
    ]


def _scheduler(on: _Names) -> list[Right]:
    keys, name, nobody = on.keys, on.scheduler, on.nobody
    inbox = keys.inbox(name)
    verdicts, wake = keys.verdicts(nobody, name), keys.wake(nobody)
    hold, answering = keys.stored(f"hold:{name}:{nobody}"), keys.stored(f"answering:hold:{name}:{nobody}")
    holds, answers = keys.stored(f"hold:{name}:*"), keys.stored(f"answering:hold:{name}:*")
    group = ("GROUP", name, nobody, "STREAMS", "@", NO_ID)
    return [
        _right("read its questions", inbox, "XREADGROUP", *group),
        _right("read its questions", inbox, "XGROUP", "CREATE", "@", nobody, NO_ID),
        _right("leave its inbox", inbox, "XGROUP", "DELCONSUMER", "@", nobody, nobody),
        _right("keep its inbox", inbox, "PERSIST", safe=False),
        _right("acknowledge questions", inbox, "XACK", nobody, NO_ID),
        _right("take over questions", inbox, "XPENDING", name),
        _right("take over questions", inbox, "XCLAIM", name, nobody, "0", NO_ID),
        _right("trim its inbox", inbox, "XTRIM", "MAXLEN", NO_NUMBER),
        _right("look at its inbox", inbox, "XINFO", "GROUPS", "@"),
        _right("look at its inbox", inbox, "XINFO", "CONSUMERS", "@", name),
        _right("answer", verdicts, "XADD", NO_ID, "a", "b", pattern=keys.verdicts("*", name)),
        _right("trim its answers", verdicts, "XTRIM", "MAXLEN", NO_NUMBER, pattern=keys.verdicts("*", name)),
        _right("let its answers expire", verdicts, "PEXPIRE", "1", pattern=keys.verdicts("*", name)),
        _right("wake agents", wake, "XADD", NO_ID, "a", "b", pattern=keys.wake("*")),
        _right("count its start", keys.starts, "INCR", safe=False),
        *(
            _right("hold calls", key, *words, pattern=pattern)
            for key, pattern in ((hold, holds), (answering, answers))
            for words in (("GET",), ("SET", "a", NO_WORD), ("DEL",), ("PTTL",))
        ),
        *_roster(on, "s", name),
    ]


def _reader(on: _Names) -> list[Right]:
    keys, nobody = on.keys, on.nobody
    facts, every = keys.facts(nobody), keys.facts("*")
    return [
        _right("read facts", facts, "XREAD", "COUNT", "1", "STREAMS", "@", "0", pattern=every),
        _right("read facts", facts, "XRANGE", "-", "+", "COUNT", "1", pattern=every),
        _right("read facts", facts, "XREVRANGE", "+", "-", "COUNT", "1", pattern=every),
        _right("find writers of facts", keys.writers, "ZRANGE", "0", "0"),
        _right("wake agents", keys.wake(nobody), "XADD", NO_ID, "a", "b", pattern=keys.wake("*")),
        *_roster(on, "r"),
    ]


def _watcher(on: _Names) -> list[Right]:
    """A reader that looks at inboxes and budgets as well."""
    keys, nobody = on.keys, on.nobody
    inbox, inboxes = keys.inbox(nobody), keys.inbox("*")
    book, books = keys.stored(f"budget:{nobody}"), keys.stored("budget*:*")
    return [
        *_reader(on),
        _right("measure backlogs", inbox, "XINFO", "GROUPS", "@", pattern=inboxes),
        _right("measure backlogs", inbox, "XRANGE", "-", "+", "COUNT", "1", pattern=inboxes),
        _right("read budgets", book, "GET", pattern=books),
        _right("read budgets", book, "SMEMBERS", pattern=books),
        _right("read budgets", book, "HMGET", "a", pattern=books),
        Right("find budgets", ("SCAN", "0", "COUNT", "1"), "+scan"),
    ]


def _exporter(on: _Names) -> list[Right]:
    count, every = on.keys.stored(f"exporter:{on.nobody}"), on.keys.stored("exporter:*")
    return [
        *_watcher(on),
        _right("keep its count", count, "GET", pattern=every),
        _right("keep its count", count, "SET", "a", NO_WORD, pattern=every),
        _right("keep its count", count, "DEL", pattern=every),
        _right("keep its count", on.keys.stored("exporter"), "EVALSHA", NO_SCRIPT, "1", "@"),
        Right("keep its count", ("SCRIPT", "LOAD", "no lua at all"), "+script|load"),
    ]


def _console(on: _Names) -> list[Right]:
    keys, nobody = on.keys, on.nobody
    approval, approvals = keys.stored(f"approval:{nobody}"), keys.stored("approval:*")
    hold, holds = keys.stored(f"hold:{nobody}"), keys.stored("hold:*")
    topic = keys.stored("notices:approvals")
    return [
        *_watcher(on),
        _right("see agents", keys.agents(nobody), "GET", pattern=keys.agents("*")),
        *(
            _right("answer held calls", approval, *words, pattern=approvals)
            for words in (("GET",), ("SET", "a", NO_WORD), ("DEL",), ("PTTL",))
        ),
        _right("see held calls", hold, "GET", pattern=holds),
        _right("see held calls", hold, "PTTL", pattern=holds),
        _right("tell of answers", topic, "XADD", NO_ID, "a", "b"),
        _right("hear of answers", topic, "XREAD", "COUNT", "1", "STREAMS", "@", "0"),
    ]


def _operator(on: _Names) -> list[Right]:
    keys, nobody = on.keys, on.nobody
    book, books = keys.stored(f"budget:{nobody}"), keys.stored("budget*:*")
    control, controls = keys.control(nobody), keys.control("*")
    return [
        *_console(on),
        _right("stop agents", control, "XADD", NO_ID, "a", "b", pattern=controls),
        _right("change budgets", book, "SET", "a", NO_WORD, pattern=books),
        _right("change budgets", book, "DEL", pattern=books),
        _right("see who holds money", book, "ZRANGE", "0", "0", pattern=books),
    ]


ROLES: Final[Mapping[str, Callable[[_Names], list[Right]]]] = {
    "orchestrator": _agent,
    "scheduler": _scheduler,
    "reader": _reader,
    "archiver": _reader,
    "exporter": _exporter,
    "console": _console,
    "operator": _operator,
}


def wants_name(role: str) -> bool:
    """Whether a role's rights are those of one scheduler."""
    return role == "scheduler"


def rights_of(role: str, namespace: str, scheduler: str, nobody: str) -> list[Right]:
    """What a role needs; `nobody` is a name that no process and no key has."""
    return ROLES[role](_Names(Keys(namespace), namespace, scheduler, nobody))


def rights_findings(role: str, user: str, tried: Sequence[Tried], how: How) -> list[Finding]:
    """What the user lacks for the role."""
    denied = [one.right for one in tried if one.allowed is False]
    unknown = [one.right for one in tried if one.allowed is None]
    found = [
        error(
            SUBJECT,
            "right-missing",
            f"the user {user} may not {right.to} ({' '.join(_verb(right.command))}), as a role {role} must",
            f"ACL SETUSER {user} '{right.rule}', and in its users.acl; or make the users by "
            "deploy/redis/make_acl.py",
        )
        for right in denied[:MOST]
    ]
    if len(denied) > MOST:
        what = (
            f"and {how_many(len(denied) - MOST, 'command')} more of the role {role} are forbidden to {user}"
        )
        found.append(error(SUBJECT, "rights-missing", what, "make the users by deploy/redis/make_acl.py"))
    if unknown:
        names = ", ".join(sorted({right.to for right in unknown}))
        what = f"could not be tried without changing something: {names}"
        change = f"ask as the user doctor or an administrator: toolgate doctor --role {role} --user {user}"
        found.append(notice(SUBJECT, "rights-untried", what, change))
    if not denied:
        known = len(tried) - len(unknown)
        found.append(
            fine(SUBJECT, "rights", f"{user} may do what a role {role} must ({known} commands, by {how})")
        )
    return found


def _verb(command: Sequence[str]) -> Sequence[str]:
    return command[:2] if command[0] in ("XGROUP", "XINFO", "SCRIPT") else command[:1]
