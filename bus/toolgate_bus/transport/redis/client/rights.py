"""The rights that each role needs on the server, and how to test them without using them.

The file `roles` beside this one lists the roles; deploy/redis/make_acl.py makes the users from it. A right is
tested by a dry run, else in a transaction that is discarded, else by commands that are refused for their
words (`0-0x` is no entry's id) or find nothing to change (a key that nobody has): the server checks the right
before that. For a command without such a form (`safe` is False), only the first two can tell.
"""

import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final, Literal, NamedTuple

from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.client.readonly import is_refusal
from toolgate_bus.transport.redis.client.role_file import Rule, read_roles, rules_of

ROLES: Final[Mapping[str, str]] = {
    "orchestrator": "agent",
    "scheduler": "scheduler",
    "reader": "reader",
    "archiver": "reader",
    "exporter": "exporter",
    "notify": "notify",
    "console": "console",
    "operator": "operator",
}
"""By the role's name, its section of the file."""
_FORMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("del", "exists", "get", "getdel", "hgetall", "incr", "hvals", "mget", "persist", "pttl"), "@"
    ),
    **dict.fromkeys(("scard", "smembers", "type", "xinfo|groups", "xinfo|stream", "xlen", "zcard"), "@"),
    **dict.fromkeys(("hexists", "hget", "hmget", "rpush", "sadd", "zscore"), "@ a"),
    **dict.fromkeys(("hdel", "srem", "zrem"), "@ ?"),
    **dict.fromkeys(("xinfo|consumers", "xpending"), "@ ="),
    **dict.fromkeys(("lrange", "zrange"), "@ 0 0"),
    **dict.fromkeys(("ltrim", "zremrangebyscore"), "@ x x"),
    "eval": "no-lua-at-all 1 @",
    "evalsha": f"{'0' * 40} 1 @",
    "hincrby": "@ a x",
    "hset": "@ a b c",
    "hsetnx": "@ a b",
    "pexpire": "@ 1",
    "scan": "0 COUNT 1",
    "time": "",
    "wait": "1 1",
    "script|load": "no-lua-at-all",
    "set": "@ a NOSUCHWORD",
    "srandmember": "@ 1",
    "xack": "@ ? 0-0x",
    "xadd": "@ 0-0x a b",
    "xclaim": "@ = ? 0 0-0x",
    "xgroup|create": "@ ? 0-0x",
    "xgroup|delconsumer": "@ ? ?",
    "xrange": "@ - + COUNT 1",
    "xread": "COUNT 1 STREAMS @ 0",
    "xreadgroup": "GROUP = ? STREAMS @ 0-0x",
    "xrevrange": "@ + - COUNT 1",
    "xtrim": "@ MAXLEN x",
    "zadd": "@ x a",
}
"""Each command in words that change nothing: `@` the key, `?` an unused name, `=` the scheduler."""
_CREATES: Final = frozenset({"hsetnx", "incr", "rpush", "sadd"})
"""Commands without such words."""
_CHANGES: Final = frozenset({"del", "getdel", "persist", "pexpire"})
"""Commands without such words for a key that may exist."""
_ANY_SHARD: Final = "[0-9a-f]"
_RULE: Final = re.compile(r"\((?P<keys>[^+]+)(?P<some>.+)\)|(?P<all>\+.+)")

How = Literal["dry run", "transaction", "trying"]


class Right(NamedTuple):
    """One command that a role uses."""

    to: str
    """Purpose, in words."""
    command: tuple[str, ...]
    rule: str
    """Rule that grants the right, as ACL SETUSER reads it."""
    safe: bool = True

    @property
    def verb(self) -> str:
        """Name of the command, without its arguments."""
        return self.rule.rpartition("+")[2].rstrip(")").replace("|", " ").upper()


class RightResult(NamedTuple):
    """The result of testing one right."""

    right: Right
    allowed: bool | None
    """True if the user has the right; None if that could not be tested without changing something."""


def rights_of(
    role: str, namespace: str, scheduler: str, nobody: str, shards: Sequence[int] = (0,)
) -> list[Right]:
    """Return the rights of a role in each of these shards; `nobody` is a name that is not in use."""
    sections, names = _sections(), [ROLES[role]]
    if names == ["scheduler"] and f"scheduler {scheduler}" in sections:
        names.append(f"scheduler {scheduler}")
    rules = [rule for name in names for rule in rules_of(sections, name)]
    found = [
        one
        for to, rule in rules
        for shard in shards
        for one in _rights(
            to, rule.replace("@NS@", namespace).replace("@NAME@", scheduler), scheduler, nobody, shard
        )
    ]
    return list(dict.fromkeys(found))


def _rights(to: str, rule: str, scheduler: str, nobody: str, shard: int) -> Iterator[Right]:
    parts = _RULE.fullmatch(rule)
    if parts is None:
        raise ValueError(f"roles: {rule!r} is no rule")
    for pattern in (parts["keys"] or "").split() or [""]:
        key = pattern.partition("~")[2].replace("*", nobody).replace(_ANY_SHARD, f"{shard:x}")
        for verb in (parts["some"] or parts["all"]).replace("+", " ").split():
            words = {"@": key, "?": nobody, "=": scheduler}
            form = [words.get(word, word) for word in _FORMS[verb].split()]
            given = f"({pattern} +{verb})" if pattern else f"+{verb}"
            safe = verb not in _CREATES and (verb not in _CHANGES or "*" in pattern)
            yield Right(to, (*verb.upper().split("|"), *form), given, safe)


@cache
def _sections() -> dict[str, list[Rule]]:
    return read_roles((pkgutil.get_data(__package__, "roles") or b"").decode())


async def who_am_i(commands: Commands) -> str | None:
    """Return the name of our own user; None if we may not ask."""
    (reply,) = await commands.pipeline([("ACL", "WHOAMI")])
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else None


async def try_all(
    commands: Commands, user: str, rights: Sequence[Right], *, is_me: bool
) -> tuple[list[RightResult], How] | str:
    """Return which of these rights a user has, and how that was tested.

    Returns the server's error instead if a dry run is not allowed, and the user is not our own.
    """
    replies = await commands.pipeline([("ACL", "DRYRUN", user, *right.command) for right in rights])
    failed = next((reply for reply in replies if isinstance(reply, Exception)), None)
    if failed is None:
        return [
            RightResult(right, reply == b"OK") for right, reply in zip(rights, replies, strict=True)
        ], "dry run"
    if not is_me:
        return str(failed)
    begun = await commands.pipeline([("MULTI",), ("DISCARD",)])
    if not any(isinstance(reply, Exception) for reply in begun):  # otherwise what follows would be run
        queued = await commands.pipeline([("MULTI",), *(right.command for right in rights), ("DISCARD",)])
        return _match_replies(rights, queued[1:-1]), "transaction"
    safe = [right for right in rights if right.safe]
    tried = {
        one.right: one for one in _match_replies(safe, await commands.pipeline([one.command for one in safe]))
    }
    return [tried.get(right, RightResult(right, None)) for right in rights], "trying"


def _match_replies(rights: Sequence[Right], replies: Sequence[object]) -> list[RightResult]:
    return [RightResult(right, not is_refusal(reply)) for right, reply in zip(rights, replies, strict=True)]
