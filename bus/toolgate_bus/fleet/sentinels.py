"""Ask the sentinels of a URL for the primary, and judge whether they agree."""

from collections.abc import Mapping, Sequence
from typing import Final

from toolgate_bus.fleet.finding import Finding, error, fine, notice, warning
from toolgate_bus.protocol.host_list import Address
from toolgate_bus.protocol.sentinel_url import read_sentinel_url
from toolgate_bus.transport.redis.client.sentinels import Answer, agree, explain_disagreement, watch_of

SUBJECT: Final = "sentinels"
MIN_SENTINELS: Final = 3
LOOK: Final = "look at the sentinels that disagree or are silent; run SENTINEL CKQUORUM there"


async def check_sentinels(url: str) -> list[Finding]:
    """Return findings about the primary that each sentinel names."""
    at = read_sentinel_url(url)
    return sentinel_findings(at.service, await watch_of(at).ask_each())


def sentinel_findings(service: str, answers: Mapping[Address, Answer]) -> list[Finding]:
    """Return errors, warnings and notices about the sentinels' answers."""
    primary = agree(answers, len(answers))
    if primary is None:
        return [error(SUBJECT, "sentinels-disagree", str(explain_disagreement(service, answers)), LOOK)]
    named = f"{primary[0]}:{primary[1]}"
    others = [one for one, answer in sorted(answers.items()) if answer != primary]
    found = [_tell_agreement(service, named, len(answers), others)]
    if len(answers) < MIN_SENTINELS:
        what = (
            f"the URL names only {len(answers)} of the sentinels of {service}: if one is away, the rest may "
            "be no majority"
        )
        found.append(notice(SUBJECT, "sentinels-few", what, "name all sentinels, and run at least three"))
    return found


def _tell_agreement(service: str, named: str, asked: int, others: Sequence[Address]) -> Finding:
    if others:
        who = ", ".join(f"{host}:{port}" for host, port in others)
        what = f"{named} is the primary of {service}, but these sentinels do not say so: {who}"
        return warning(SUBJECT, "sentinels-differ", what, LOOK)
    return fine(SUBJECT, "sentinels", f"all {asked} sentinels say that {named} is the primary of {service}")
