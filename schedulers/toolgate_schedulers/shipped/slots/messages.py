"""Write the reasons of `slots`: a call waits, waited in vain, or was taken out of the queue. Pure."""

from collections.abc import Sequence

from toolgate_bus.ledger.slots.queue import MAX_NEEDS, Ticket
from toolgate_bus.protocol.events import Deny
from toolgate_bus.protocol.names import MAX_REASON, MAX_RULE

from toolgate_schedulers.shipped.slots.config import PoolConfig


def tell_waiting(pools: Sequence[PoolConfig], ticket: Ticket) -> str:
    """Say which pools a call waits for, and its place in the queue."""
    return f"waits for {_names(pools)}: place {ticket.place}"


def tell_dropped(pools: Sequence[PoolConfig], why: str) -> str:
    """Say that an operator took the call out of the queue, and that operator's reason."""
    return f"This call waited for a slot of {_names(pools)}; an operator took it out of the queue: {why}"


def deny_too_many(pools: Sequence[PoolConfig], needs: int) -> Deny | None:
    """Deny a call that needs more slots than one call may have; return None for other calls."""
    if needs <= MAX_NEEDS:
        return None
    return Deny(
        reason=f"This call needs {needs} slots, and a call can have {MAX_NEEDS}. Name fewer places in one "
        f"call, or ask the operator of Toolgate for fewer pools for this tool: {_names(pools)}."[:MAX_REASON],
        rule_name=pools[0].name[:MAX_RULE],
    )


def deny_in_vain(pools: Sequence[PoolConfig], ticket: Ticket, wait_s: float) -> Deny:
    """Return the denial of a call that got no slot in time."""
    waited = f"It waited {wait_s:g} s in vain." if wait_s else "It does not wait for one."
    at = f" (place {ticket.place})" if ticket.place else ""
    return Deny(
        reason=f"This call needs a slot of {_names(pools)}, and all are in use{at}. {waited} Try again "
        "later, or do something else meanwhile.",
        rule_name=pools[0].name[:MAX_RULE] if pools else "",
    )


def _names(pools: Sequence[PoolConfig]) -> str:
    return " and ".join(pool.name for pool in pools) or "a pool that no longer exists"
