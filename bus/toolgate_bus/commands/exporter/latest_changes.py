"""Read when each scheduler's rules last changed, by event, from the record of changes on the server.

They are times, not counts: a change while no exporter ran is shown afterwards, and nothing needs to be kept.
The record is read on from the last position. Its times are the server's, whatever a notice says of itself.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from toolgate_bus.errors import BusDown, OutcomeUnknown, TransportError
from toolgate_bus.state.changes import PlacedChange, read_changes
from toolgate_bus.state.notifications import FIRST, KEPT_S, Notices
from toolgate_bus.telemetry import definitions
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.telemetry.metrics import Gauges
from toolgate_bus.transport.redis.clock import entry_order

MAX_CHANGES: Final = 1000
"""Maximum number of pairs of scheduler and event that are shown: those that changed last."""
MAX_PAGES: Final = 40
"""Maximum number of pages that are read at once."""
Times = Mapping[tuple[str, str], float]
"""Time of the last change in seconds since the epoch, by scheduler and event."""
_log = get_logger("toolgate.exporter")


class LatestChanges:
    """Follower of the record of changes of one namespace."""

    def __init__(self, notices: Notices) -> None:
        self._notices, self._place, self._warned = notices, FIRST, ""
        self._times: Times = {}

    async def read(self, now: float) -> Gauges:
        """Return the gauge at the server's time `now`. Warn once if it may not be read. Raise BusDown."""
        try:
            for _ in range(MAX_PAGES):
                if not (page := await read_changes(self._notices, self._place, 0.0)):
                    break
                self._place, self._times = page[-1].id, add_changes(self._times, page)
        except (BusDown, OutcomeUnknown):
            raise
        except TransportError as error:  # the server's access rules may be older than the record
            if self._warned != str(error):
                self._warned = str(error)
                _log.warning("changes of configurations cannot be read", error=str(error))
        self._times = {what: at for what, at in self._times.items() if now - at < KEPT_S}
        return Gauges(definitions.CONFIG_CHANGED, self._times)


def add_changes(times: Times, changes: Iterable[PlacedChange]) -> Times:
    """Return the times with these changes, each of which is newer than all before."""
    found = dict(times)
    for place, change in changes:
        found.pop((change.scheduler, change.event), None)
        found[change.scheduler, change.event] = entry_order(place)[0] / 1000
    return dict(list(found.items())[-MAX_CHANGES:])
