"""Judge whether every shard is read by all schedulers that are asked there."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from toolgate_bus.fleet.finding import Finding, error, fine, warning
from toolgate_bus.protocol.keys import shard_of
from toolgate_bus.transport.redis.roster.roster import RosterView

SUBJECT: Final = "shards"
CHANGE: Final = (
    "upgrade and restart it (an older version reads only the first shard), and give its server user the "
    "rules of deploy/redis/roles of this version; or `toolgate shards 1`"
)


def shards_findings(count: int, view: RosterView) -> list[Finding]:
    """Return all findings about shards. `count` is the number of shards that new agents spread over."""
    lying = Counter(map(shard_of, view.orchestrators))
    found = []
    for shard, many in sorted(lying.items()):
        if missing := _unread(shard, view):
            what = (
                f"agents of {many} {'process' if many == 1 else 'processes'} ask in shard {shard}, which "
                f"{', '.join(missing)} does not read: those agents get no answer from it"
            )
            found.append(error(SUBJECT, "shard-unread", what, CHANGE))
    behind = sorted({name for shard in range(count) if shard not in lying for name in _unread(shard, view)})
    if behind:
        what = f"{', '.join(behind)} does not read all {count} shards: new agents use only those it reads"
        found.append(warning(SUBJECT, "shards-behind", what, CHANGE))
    if not found and count > 1:
        told = ", ".join(f"{lying[shard]} in {shard}" for shard in sorted({*range(count), *lying}))
        found.append(fine(SUBJECT, "shards", f"all schedulers read all {count} shards; agents: {told}"))
    return found


def _unread(shard: int, view: RosterView) -> Sequence[str]:
    return sorted({member.name for member in view.members if shard not in member.shards})
