"""The scripts by which a server keeps a ledger, and the commands that take again what it forgot.

Not here: who runs them (`ledger_redis`), what they are told (`ledger_words`), what they do (`lua/`).
"""

from collections.abc import Iterator
from typing import Final

from toolgate_bus.budgets.ledger_words import Charge, ReservationEnd, Restoration, orphan_words, step_words
from toolgate_bus.transport.ports import Arg
from toolgate_bus.transport.redis.scripts import Script

TAKING: Final = Script(__package__, "ledger.lua", "ledger_taking.lua", header="#!lua\n")
RESTORING: Final = Script(__package__, "ledger.lua", "ledger_taking.lua", header="#!lua flags=allow-oom\n")
"""What was reserved before is reserved again, however full the server is."""
GIVING: Final = Script(__package__, "ledger.lua", "ledger_giving.lua", header="#!lua flags=allow-oom\n")
RESET: Final = Script(__package__, "ledger.lua", "ledger_reset.lua", header="#!lua flags=allow-oom\n")
EPOCH: Final = Script(__package__, "ledger.lua", "ledger_epoch.lua", header="#!lua flags=allow-oom\n")


def check_words(change: Restoration | Charge | ReservationEnd) -> tuple[str | int, ...]:
    """A change, for the script that says which of them a ledger lacks: what, of what, by whom, its phase."""
    if isinstance(change, Restoration):
        return ("restore", change.decision, change.owner, change.phase)
    if isinstance(change, Charge):
        return ("charge", change.event, "", 0)
    step = change.step
    return ("orphan", step, "", 0) if isinstance(step, str) else (step.what, step.decision, step.by, 0)


def commands_again(
    prefix: str, change: Restoration | Charge | ReservationEnd, epoch: str
) -> Iterator[tuple[Arg, ...]]:
    """What takes a change again in the ledger of this epoch: nothing where all of it is there."""
    writer = f"@{epoch}"
    if not isinstance(change, ReservationEnd):
        yield RESTORING.command(prefix, words=(*change.words(), writer))
        return
    if (reserved := change.restoration()) is not None:
        yield RESTORING.command(prefix, words=(*reserved.words(), writer))
    step = change.step
    words = orphan_words(step) if isinstance(step, str) else step_words(step)
    yield GIVING.command(prefix, words=(*words, writer))
