"""The scripts with which a server keeps a ledger, and the commands that repeat the changes that it forgot.

Not here: running them (`redis`), their arguments (`words`), their code (`lua/`).
"""

from collections.abc import Iterator
from typing import Final

from toolgate_bus.ledger.money.words import Charge, ReservationEnd, Restoration, orphan_words, step_words
from toolgate_bus.transport.ports import Arg
from toolgate_bus.transport.redis.client.scripts import Script

TAKING: Final = Script(__package__, "ledger.lua", "ledger_taking.lua", header="#!lua\n")
RESTORING: Final = Script(__package__, "ledger.lua", "ledger_taking.lua", header="#!lua flags=allow-oom\n")
"""Script that repeats a reservation, however full the server is."""
GIVING: Final = Script(__package__, "ledger.lua", "ledger_giving.lua", header="#!lua flags=allow-oom\n")
RESET: Final = Script(__package__, "ledger.lua", "ledger_reset.lua", header="#!lua flags=allow-oom\n")
EPOCH: Final = Script(__package__, "ledger.lua", "ledger_epoch.lua", header="#!lua flags=allow-oom\n")


def check_words(change: Restoration | Charge | ReservationEnd) -> tuple[str | int, ...]:
    """Return a change for the script that finds lacking changes: kind, decision or event, owner, phase."""
    if isinstance(change, Restoration):
        return ("restore", change.decision, change.owner, change.phase)
    if isinstance(change, Charge):
        return ("charge", change.event, "", 0)
    step = change.step
    return ("orphan", step, "", 0) if isinstance(step, str) else (step.what, step.decision, step.by, 0)


def commands_again(
    prefix: str, change: Restoration | Charge | ReservationEnd, epoch: str
) -> Iterator[tuple[Arg, ...]]:
    """Return the commands that repeat a change in the ledger of this epoch. They skip what is there."""
    writer = f"@{epoch}"
    if not isinstance(change, ReservationEnd):
        yield RESTORING.command(prefix, words=(*change.words(), writer))
        return
    if (reserved := change.restoration()) is not None:
        yield RESTORING.command(prefix, words=(*reserved.words(), writer))
    step = change.step
    words = orphan_words(step) if isinstance(step, str) else step_words(step)
    yield GIVING.command(prefix, words=(*words, writer))
