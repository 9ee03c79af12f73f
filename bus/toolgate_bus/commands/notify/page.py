"""The page of metrics of `toolgate notify`."""

from toolgate_bus.commands.notify.sender import POSTS
from toolgate_bus.commands.notify.service import NotifyService
from toolgate_bus.telemetry import definitions, metrics
from toolgate_bus.telemetry.http import Page
from toolgate_bus.telemetry.metrics import Collector, Gauges


def make_page(service: NotifyService) -> Page:
    """Return a function that gives the page."""

    def give(accept: str) -> tuple[str, bytes]:
        own = Gauges(definitions.NOTIFICATIONS_QUEUED, dict(service.queued))
        leads = Gauges(definitions.NOTIFY_LEADS, {(): float(service.leads)})
        shown: list[Collector] = [POSTS, own, leads, metrics.BAD_MESSAGES, metrics.RECONNECTS]
        return metrics.exposition(accept, [*shown, *metrics.ABOUT_PROCESS])

    return give
