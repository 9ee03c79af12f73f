"""Decodes the entries of facts streams, and counts the malformed ones."""

from collections.abc import Callable, Sequence
from typing import Any

from toolgate_bus.errors import CodecError, TransportError
from toolgate_bus.facts import record
from toolgate_bus.protocol import packing
from toolgate_bus.telemetry import metrics
from toolgate_bus.transport.redis.storage.reads import is_other_type

Fact = dict[str, Any]


def read_page(reply: Any) -> Any:
    """Return the entries of a page; none if the key is no stream. Raises TransportError."""
    if is_other_type(reply):
        metrics.count(metrics.BAD_MESSAGES, "orchestrator", "malformed")
        return []
    if isinstance(reply, Exception):
        raise TransportError(str(reply))
    return reply


def read_entry(
    fields: Sequence[bytes], has_all: Callable[[int, int], bool] = lambda first, last: False
) -> list[Fact]:
    """Return the facts of one entry, without those that the reader already has (`record.read_facts`)."""
    pairs = dict(zip(fields[::2], fields[1::2], strict=False))
    facts: list[Fact] = []
    try:
        items = packing.items(pairs.get(b"frame", b""))
    except CodecError as error:
        items = [error]
    for item in items:
        try:
            if isinstance(item, CodecError):
                raise item
            found = record.read_facts(item, has_all)
            if len(facts) + len(found) > packing.MAX_ITEMS:
                raise CodecError("oversize", f"a frame holds at most {packing.MAX_ITEMS} facts")
            facts += found
        except CodecError as error:
            metrics.count(metrics.BAD_MESSAGES, "orchestrator", error.reason)
    return facts
