"""Find the rights that a user lacks for a role."""

import secrets
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from toolgate_bus.fleet.finding import Finding, error, fine, how_many, notice
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.ports import Commands
from toolgate_bus.transport.redis.client.rights import How, RightResult, rights_of, try_all, who_am_i
from toolgate_bus.transport.redis.roster.shards import find_count

SUBJECT: Final = "rights"
DEFAULT: Final = "default"
MAX_COUNT: Final = 6


async def try_rights(
    commands: Commands, url: str, namespace: str, role: str, scheduler: str, user: str | None
) -> list[Finding]:
    """Return findings about the rights that a user (None: our own) lacks for a role. Raise TransportError."""
    me = await who_am_i(commands) or urlsplit(url).username or DEFAULT
    asked = user or me
    name = scheduler or asked.removeprefix("scheduler-")
    last = await find_count(commands, Keys(namespace)) - 1  # older access rules allow the first shard only
    rights = rights_of(role, namespace, name, f"doctor-{secrets.token_hex(6)}", sorted({0, last}))
    tried = await try_all(commands, asked, rights, is_me=asked == me)
    if isinstance(tried, str):
        return [_cannot(me, asked, tried)]
    return rights_findings(f"scheduler:{name}" if role == "scheduler" else role, asked, *tried)


def rights_findings(role: str, user: str, tried: Sequence[RightResult], how: How) -> list[Finding]:
    """Return findings about the rights that the user lacks for the role."""
    denied = [one.right for one in tried if one.allowed is False]
    unknown = [one.right for one in tried if one.allowed is None]
    found = [
        error(
            SUBJECT,
            "right-missing",
            f"the user {user} may not {right.to} ({right.verb}), which the role {role} needs",
            f"ACL SETUSER {user} '{right.rule}', and the same in its users.acl; or make the users with "
            "deploy/redis/make_acl.py",
        )
        for right in denied[:MAX_COUNT]
    ]
    if len(denied) > MAX_COUNT:
        more = how_many(len(denied) - MAX_COUNT, "command")
        what = f"and {more} more that the role {role} needs are forbidden to {user}"
        found.append(error(SUBJECT, "rights-missing", what, "make the users with deploy/redis/make_acl.py"))
    if unknown:
        names = ", ".join(sorted({right.to for right in unknown}))
        what = f"could not be tried without changing something: {names}"
        change = f"run as the user doctor or an administrator: toolgate doctor --role {role} --user {user}"
        found.append(notice(SUBJECT, "rights-untried", what, change))
    if not denied:
        known = len(tried) - len(unknown)
        found.append(
            fine(SUBJECT, "rights", f"{user} may do all that role {role} needs ({known} commands, by {how})")
        )
    return found


def _cannot(me: str, asked: str, why: str) -> Finding:
    if "not found" in why:
        change = "make it with deploy/redis/make_acl.py, or name another user: --user NAME"
        return error(SUBJECT, "user-unknown", f"there is no user {asked} on the server", change)
    what = f"the rights of {asked} cannot be seen: {me} may not ask about other users (ACL DRYRUN): {why}"
    return error(
        SUBJECT, "rights-not-shown", what, "run as the user doctor or an administrator, or leave out --user"
    )
