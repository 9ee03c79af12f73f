"""Describe a replica for the roster, and name it."""

import os
import secrets
import socket
from importlib.metadata import version
from typing import Final

from toolgate_bus.protocol import packing
from toolgate_bus.protocol.names import AGAIN, FACT_KINDS
from toolgate_bus.ruling.local_table import digest_of
from toolgate_bus.transport.ports import Member

from toolgate_schedulers.author.scheduler import Scheduler

KINDS: Final = ("question", "withdrawn", *FACT_KINDS)
"""Kinds of messages that come into its inbox, and the forms of facts that it reads."""
BUILD: Final = f"toolgate {version('toolgate-bus')}"


def name_replica() -> str:
    """Return a name that no other replica has: host, process id, random digits."""
    letters = (letter if letter.isalnum() or letter in "-." else "-" for letter in socket.gethostname())
    return f"{''.join(letters)[:32] or 'host'}-{os.getpid()}-{secrets.token_hex(3)}"


def describe_replica(scheduler: Scheduler, replica: str) -> Member:
    """Return the roster's entry for a replica of this scheduler in this process."""
    return Member(
        name=scheduler.name,
        replica=replica,
        priority=scheduler.priority,
        tools=scheduler.tools,
        shadow=scheduler.shadow,
        phases=(*scheduler.phases, AGAIN),
        pid=os.getpid(),
        host=socket.gethostname(),
        wire=packing.VERSIONS,
        kinds=KINDS,
        reads=scheduler.reads,
        build=BUILD,
        revision=scheduler.revision,
        server_replicas=scheduler.server_replicas,
        table="" if scheduler.shadow else digest_of(scheduler.local_table),
    )
