"""The shipped `policy` without its local table: it is asked about every call, as your own scheduler is.

For attacks on questions, on the roster and on the wire: with a table, the gate would know the answer itself.
"""

from toolgate_schedulers.shipped.policy.scheduler import Policy as Shipped


class Policy(Shipped):
    """A policy that gates know nothing of."""

    def __init__(self, config):
        super().__init__(config)
        self.local_table = b""
