"""Heartbeats of an orchestrator: they read the roster, announce it there, and renew its streams' expiry.

Each is one pipeline, and a second one to resolve the names that the first found. `orchestrator` decides when
one is due, and acts on what it found.
"""

import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final

from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol import packing
from toolgate_bus.protocol.keys import Keys, shard_of
from toolgate_bus.transport import lease
from toolgate_bus.transport.ports import Arg
from toolgate_bus.transport.redis.asking.agent_report import AgentReport
from toolgate_bus.transport.redis.asking.publisher import Publisher
from toolgate_bus.transport.redis.asking.verdicts import VerdictReader
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.client.refusals import refusal_of
from toolgate_bus.transport.redis.roster.roster import Roster, RosterView, encode_reading, tells_loss
from toolgate_bus.transport.redis.roster.roster_sets import TIME
from toolgate_bus.transport.redis.roster.shards import use_commands

IDLE_INBOX_MS: Final = 60_000
FACTS_EVERY_S: Final = 10.0
"""Seconds between two renewals of the facts' expiry, each with a trim."""
QUIET_FACTS_EVERY_S: Final = 30.0
"""The same if no fact was written since the last one."""
OWN_EVERY: Final = 40
"""Number of heartbeats between two renewals of this orchestrator's streams, besides every urgent one."""
QUIET_S: Final = 20.0
"""Seconds without a question after which an orchestrator counts as quiet."""
REWIND_EVERY: Final = 10
"""Number of heartbeats between two looks for verdict streams that were created anew."""
REWIND_IDLE: Final = 12 * REWIND_EVERY
"""The same if no question was asked meanwhile."""


class OrchestratorHeart:
    """The heartbeats of one orchestrator; owned by `RedisOrchestratorBus`."""

    def __init__(
        self,
        commands: RedisCommands,
        keys: Keys,
        orchestrator: str,
        roster: Roster,
        reader: VerdictReader,
        outbox: Publisher,
        agents: AgentReport,
        required: Set[str],
    ) -> None:
        """`required` are the schedulers that sessions require, by now; each heartbeat reads it."""
        self._commands, self._keys, self._orchestrator = commands, keys, orchestrator
        self._roster, self._reader, self._outbox, self._agents = roster, reader, outbox, agents
        self._required = required
        self.view = RosterView()
        """The roster at the last look."""
        self.seen_at = float("-inf")
        """Time (`lease.now`) before which neither that was asked for, nor the own heartbeat of it written."""
        self.tables: Mapping[str, str] = {}
        """Beginning of the digest that was last seen of each scheduler's local table."""
        self._hurry = True
        """True if the next look at the roster is at everything: a member joined or left."""
        self._beats = 0
        self._asked = False
        """True if a question was asked since the last look for streams created anew."""
        self._asked_at = time.monotonic()
        self._facts_at = float("-inf")
        self._known_writer = False
        """True if readers can find this orchestrator's facts even after it is gone."""

    def move(self, keys: Keys, orchestrator: str) -> None:
        """Beat for another orchestrator, in the shard of these keys; call it before the first heartbeat."""
        self._keys, self._orchestrator = keys, orchestrator

    def listen(self, adopt: Callable[[RosterView], None]) -> None:
        """Set the callback for each look at the roster; once."""
        self._adopt = adopt

    def hurry(self) -> None:
        """Look at everything with the next heartbeat."""
        self._hurry = True

    def recover(self) -> None:
        """Ask and report everything again: a heartbeat failed, and its effect is unknown."""
        self._hurry = True
        self._facts_at = float("-inf")
        self._agents.tell_again()

    def expect_facts(self) -> bool:
        """Note that a fact was written. Return whether a heartbeat must tell readers at once where it is."""
        if not self._known_writer:
            self._facts_at = float("-inf")
        return not self._known_writer

    @property
    def is_quiet(self) -> bool:
        """True if no question was asked for long."""
        return time.monotonic() - self._asked_at >= QUIET_S

    def count_beat(self) -> bool:
        """Count a successful heartbeat. Return whether to look for verdict streams created anew."""
        self._beats += 1
        if self._beats % (REWIND_EVERY if self._asked else REWIND_IDLE):
            return False
        self._asked = False
        return True

    async def beat(self) -> None:
        """Send one heartbeat. Raises TransportError, or ConfigError after it reported what it could read."""
        hurry, self._hurry = self._hurry, False
        await self._roster.learn_minute()
        look = self._roster.asks(everything=hurry)
        reads = encode_reading(self._reader.reading, packing.VERSIONS, self._required, self.tables)
        told = self._roster.beat(f"o:{self._orchestrator}", reads)
        if hurry and TIME not in told:
            told.append(TIME)
        every = FACTS_EVERY_S if self._outbox.retention.has_added else QUIET_FACTS_EVERY_S
        keeps_facts = hurry or time.monotonic() - self._facts_at >= every
        commands: list[Sequence[Arg]] = [
            *look.commands,
            *told,
            *(
                [("PEXPIRE", self._keys.facts(self._orchestrator), self._outbox.retention.expiry_ms)]
                if keeps_facts
                else []
            ),
            *self._agents.commands(),
            *self._upkeep(everything=hurry),
        ]
        if keeps_facts:  # set before: a first fact that is written meanwhile sets it anew
            self._facts_at = time.monotonic()
        # Before its own heartbeat: an observer that misses this process may be sure that its lease is over.
        began = lease.now()
        replies = await self._commands.pipeline(commands)
        at = len(look.commands) + len(told)
        wrong = None
        for command, reply in zip(commands[:at], replies, strict=False):
            if isinstance(reply, Exception):
                error = refusal_of(command, reply)
                if isinstance(error, ConfigError):
                    wrong = wrong or error
                elif look.commands and command is commands[0]:
                    raise error  # otherwise the roster was read, and the next heartbeat announces us
            elif command == TIME:
                self._roster.set_time(reply)
        if tells_loss(told[0], replies[len(look.commands)]):
            self.recover()
            self._roster.name_again()
            await self.beat()
            return
        if keeps_facts:
            self._known_writer = replies[at] == 1
            if self._known_writer:
                await self.keep_facts(self._roster.seconds * 1000)
        names = self._roster.take_names(look, replies[: len(look.commands)])
        self.view = await self._roster.resolve(names)
        self.seen_at = began
        self._adopt(self.view)
        if wrong is not None:
            raise wrong  # what could be read was

    def _upkeep(self, *, everything: bool) -> list[Sequence[Arg]]:
        """Return commands that let unread inboxes expire, and now and then renew our own streams' expiry."""
        asked = self._outbox.take_recipients()
        if asked:
            self._asked, self._asked_at = True, time.monotonic()
        shard = shard_of(self._orchestrator)
        idle = sorted(asked - {member.name for member in self.view.members if shard in member.shards})
        commands: list[Sequence[Arg]] = [("PEXPIRE", self._keys.inbox(name), IDLE_INBOX_MS) for name in idle]
        if everything or self._beats % OWN_EVERY == 0:
            own = (self._keys.wake(self._orchestrator), self._keys.control(self._orchestrator))
            commands += [("PEXPIRE", key, IDLE_INBOX_MS) for key in own]
            commands += use_commands(self._keys, shard, self._roster.seconds)
        return commands

    async def keep_facts(self, server_ms: int) -> None:
        """Keep our facts findable, by the server's time, and drop those that are too old."""
        await self._outbox.retention.keep(
            self._commands, self._keys, self._orchestrator, server_ms, self.view.read_ms
        )
