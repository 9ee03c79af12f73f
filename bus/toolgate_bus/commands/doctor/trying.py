"""Tries what a user may do, without doing it.

By a dry run, else in a transaction that is thrown away, else by commands that are refused for their words.
The only file of the doctor that sends others than those that read; which these are is `rights`' affair.
"""

import secrets
from collections.abc import Sequence
from urllib.parse import urlsplit

from toolgate_bus.commands.doctor.finding import Finding, error
from toolgate_bus.commands.doctor.rights import SUBJECT, How, Right, Tried, rights_findings, rights_of
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.readonly import refused

__all__ = ["try_rights"]

DEFAULT = "default"


async def try_rights(
    commands: Commands, url: str, namespace: str, role: str, scheduler: str, user: str | None
) -> list[Finding]:
    """What a user (None: the one that we are) lacks for a role; raises TransportError."""
    me = await _who(commands, url)
    asked = user or me
    name = scheduler or asked.removeprefix("scheduler-")
    rights = rights_of(role, namespace, name, f"doctor-{secrets.token_hex(6)}")
    shown = f"scheduler:{name}" if role == "scheduler" else role
    dry = await _dry(commands, asked, rights)
    if isinstance(dry, list):
        return rights_findings(shown, asked, dry, "dry run")
    if asked != me:
        return [_cannot(me, asked, dry)]
    how: How = "transaction" if await _transacts(commands) else "trying"
    tried = await (_in_transaction if how == "transaction" else _harmlessly)(commands, rights)
    return rights_findings(shown, me, tried, how)


async def _who(commands: Commands, url: str) -> str:
    (reply,) = await commands.pipeline([("ACL", "WHOAMI")])
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else urlsplit(url).username or DEFAULT


async def _dry(commands: Commands, user: str, rights: Sequence[Right]) -> list[Tried] | str:
    """What a dry run says; why there was none."""
    replies = await commands.pipeline([("ACL", "DRYRUN", user, *right.command) for right in rights])
    failed = next((reply for reply in replies if isinstance(reply, Exception)), None)
    if failed is not None:
        return str(failed)
    return [Tried(right, reply == b"OK") for right, reply in zip(rights, replies, strict=True)]


async def _transacts(commands: Commands) -> bool:
    """Whether this user may begin a transaction, and throw it away: if not, it would run what follows."""
    replies = await commands.pipeline([("MULTI",), ("DISCARD",)])
    return not any(isinstance(reply, Exception) for reply in replies)


async def _in_transaction(commands: Commands, rights: Sequence[Right]) -> list[Tried]:
    replies = await commands.pipeline([("MULTI",), *(right.command for right in rights), ("DISCARD",)])
    return [Tried(right, not refused(reply)) for right, reply in zip(rights, replies[1:-1], strict=True)]


async def _harmlessly(commands: Commands, rights: Sequence[Right]) -> list[Tried]:
    safe = [right for right in rights if right.safe]
    replies = dict(zip(safe, await commands.pipeline([right.command for right in safe]), strict=True))
    return [Tried(right, not refused(replies[right]) if right.safe else None) for right in rights]


def _cannot(me: str, asked: str, why: str) -> Finding:
    if "not found" in why:
        change = "make it by deploy/redis/make_acl.py, or name another: --user NAME"
        return error(SUBJECT, "user-unknown", f"there is no user {asked} on the server", change)
    what = f"what {asked} may do cannot be seen: {me} may not ask for another user (ACL DRYRUN): {why}"
    return error(
        SUBJECT, "rights-not-shown", what, "ask as the user doctor or an administrator, or leave --user out"
    )
