"""Shipped schedulers without their local tables: they are asked about every call, as your own are."""

from typing import Any

from toolgate_schedulers.shipped.policy.scheduler import Policy as ShippedPolicy
from toolgate_schedulers.shipped.router.router import Router as ShippedRouter


class Policy(ShippedPolicy):
    """A policy that gates know nothing of."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.local_table = b""


class Router(ShippedRouter):
    """A router that gates know nothing of."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.local_table = b""
