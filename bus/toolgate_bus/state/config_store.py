"""Keeps one scheduler's configurations on a server: record, texts, progress, reports of replicas.

Operators write the record and the texts; replicas write only keys that begin with `run:`. No update is lost:
each writer replaces the value that it has read, or reads again. With a keyring the record and the progress
are signed with the scheduler's key, and unsigned ones are refused. `config_record` says which change is
allowed.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from toolgate_bus.errors import CodecError, ConfigError, TransportError
from toolgate_bus.facts.lease import KeeperLease
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.packing import pack, unpack
from toolgate_bus.protocol.signing import OTHER_SCHEME, Keyring, names_other_scheme
from toolgate_bus.state.config_record import (
    MAX_CONFIG,
    MAX_RECORD,
    NO_RECORD,
    ConfigRecord,
    Progress,
    Rollout,
    decode_progress,
    decode_record,
    encode_progress,
    encode_record,
    settle,
)
from toolgate_bus.state.rollout_rules import TrialCounts
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.ports import Commands, Store
from toolgate_bus.transport.redis.client.scripts import Script
from toolgate_bus.transport.redis.storage.reads import (
    add_counts,
    put_field,
    read_hash,
    read_time,
    read_values,
    remove_fields,
)
from toolgate_bus.transport.redis.storage.store import RedisStore

SWAP: Final = Script(__package__, "swap_value.lua", by_text=True)
ATTEMPTS: Final = 20
LEASE_S: Final = 4.0
SEEN_S: Final = 10.0
"""Seconds that a replica's report counts."""
GONE_S: Final = 60.0
"""Seconds without a report after which the next replica that starts forgets a replica."""
COUNTS_KEPT_MS: Final = 7 * 86_400_000
MAX_SEEN: Final = 4096
_log = get_logger("toolgate.configs")


class OtherReleaseError(ConfigError):
    """Error for a value on the bus that was signed by a release with another scheme."""


class ConfigsRead(NamedTuple):
    """Checked values of a scheduler's configurations on the bus."""

    record: ConfigRecord
    """Record with the result of its rollout applied."""
    progress: Progress | None


class ReplicaReport(NamedTuple):
    """A replica's report of the configurations that it has taken up."""

    revision: str = ""
    """Revision by which it rules; `file` for its own file."""
    trial: str = ""
    """New revision of a rollout, once the replica has it."""
    stage: int = -1
    refused: str = ""
    """Reason why it could not take up the configuration in force, or the rollout's new one."""
    refuses: str = ""
    """Beginning of the digest of the configuration that it could not take up."""
    at: float = 0.0


class ConfigStore:
    """The configurations of one scheduler."""

    def __init__(
        self, commands: Commands, namespace: str, scheduler: str, keyring: Keyring | None = None
    ) -> None:
        self._commands, self._keyring, self._scheduler = commands, keyring, scheduler
        self._keys, self._prefix = Keys(namespace), f"config:{scheduler}:"
        self._store: Store = RedisStore(commands, namespace)

    async def read(self) -> ConfigsRead:
        """Return record and progress. Raises ConfigError for a broken or unsigned record; TransportError."""
        (raw,) = await read_values(self._commands, self._key("record"))
        if raw is None:  # mostly; every replica asks each second
            return ConfigsRead(NO_RECORD, None)
        record, progress, _, _ = await self._read()
        return ConfigsRead(settle(record, progress), progress)

    async def is_signed(self) -> bool:
        """Return whether the record on the bus has a signature, right or wrong."""
        (raw,) = await read_values(self._commands, self._key("record"))
        try:
            told = unpack(raw, MAX_RECORD + 256) if raw is not None else None
        except CodecError:
            return False
        return isinstance(told, Mapping) and "mac" in told

    async def change(
        self, transition: Callable[[ConfigRecord], ConfigRecord], *, anew: bool = False
    ) -> tuple[ConfigRecord, ConfigRecord]:
        """Change the record, and return the old and the new one. Raises the errors of the transition.

        With `anew`, a record that another release signed is replaced, and its history is lost.
        """
        for _ in range(ATTEMPTS):
            record, progress, raw, _ = await self._read(anew=anew)
            was = settle(record, progress)
            now = transition(was)
            if await self._swap("record", raw, self._seal("record", encode_record(now))):
                for gone in {one.digest for one in was.configs} - {one.digest for one in now.configs}:
                    await self._store.delete(f"{self._prefix}text:{gone}")
                return was, now
        raise TransportError("somebody else is changing these configurations; try again")

    async def change_progress(
        self, transition: Callable[[ConfigRecord, Progress | None], Progress | None]
    ) -> ConfigsRead | None:
        """Change the rollout's progress, and return the new values; None if the transition returns None."""
        for _ in range(ATTEMPTS):
            record, progress, _, raw = await self._read()
            new = transition(record, progress)
            if new is None:
                return None
            if await self._swap("run:progress", raw, self._seal("progress", encode_progress(new))):
                return ConfigsRead(record, new)
        raise TransportError("somebody else is changing this rollout; try again")

    async def put_text(self, digest: str, text: bytes) -> None:
        """Keep a text. Do so before the record names it."""
        await self._store.put(f"{self._prefix}text:{digest}", text)

    async def text(self, digest: str) -> bytes:
        """Return the text with this digest. Raises ConfigError if it is missing or another one."""
        raw = await self._store.get(f"{self._prefix}text:{digest}")
        if raw is None or len(raw) > MAX_CONFIG or hashlib.sha256(raw).hexdigest() != digest:
            what = "is missing" if raw is None else "was changed"
            raise ConfigError(f"the text of configuration {digest[:12]} on the bus {what}: push it again")
        return raw

    # ------------------------------------------------------------------ written by replicas

    async def lead(self, replica: str) -> bool:
        """Return whether this replica judges the rollout for now."""
        return await KeeperLease(self._store, f"{self._prefix}run:lease", replica, LEASE_S).renew()

    async def report(self, replica: str, told: ReplicaReport) -> None:
        """Report the configurations that this replica has."""
        fields = told._asdict() | {"refused": told.refused[:500], "at": await self.now()}
        await put_field(self._commands, self._key("run:seen"), replica, pack(fields))

    async def reports(self) -> dict[str, ReplicaReport]:
        """Return the reports of the living replicas."""
        raw = await read_hash(self._commands, self._key("run:seen"))
        now, found = await self.now(), {}
        for replica, value in list(raw.items())[:MAX_SEEN]:
            told = _report(value)
            if told is not None and now - told.at < SEEN_S:
                found[replica] = told
        return found

    async def forget_reports(self) -> None:
        """Drop the reports of replicas that are gone."""
        raw, now = await read_hash(self._commands, self._key("run:seen")), await self.now()
        told = {replica: _report(value) for replica, value in raw.items()}
        gone = [replica for replica, one in told.items() if one is None or now - one.at > GONE_S]
        await remove_fields(self._commands, self._key("run:seen"), gone)

    async def count(self, rollout: str, stage: int, counts: TrialCounts) -> None:
        """Add this replica's counts of a stage. A write with an unknown outcome is not repeated."""
        key = self._key(f"run:counts:{rollout}:{stage}")
        await add_counts(self._commands, key, counts._asdict(), COUNTS_KEPT_MS)

    async def counts(self, rollout: Rollout, stage: int) -> TrialCounts:
        """Return the counts of all replicas in a stage."""
        raw = await read_hash(self._commands, self._key(f"run:counts:{rollout.id}:{stage}"))
        return TrialCounts.read({name: value.decode("ascii", "replace") for name, value in raw.items()})

    async def now(self) -> float:
        """Return the server's time, in seconds since the epoch."""
        return await read_time(self._commands)

    # ------------------------------------------------------------------ bytes

    async def _read(
        self, *, anew: bool = False
    ) -> tuple[ConfigRecord, Progress | None, bytes | None, bytes | None]:
        raw, run = await read_values(self._commands, self._key("record"), self._key("run:progress"))
        try:
            record = NO_RECORD if raw is None else decode_record(self._unseal("record", raw))
        except OtherReleaseError as error:
            if not anew:
                raise
            _log.warning(
                "a new record of configurations replaces one that counts for nothing", why=str(error)
            )
            record = NO_RECORD
        progress = None
        if run is not None and record.rollout is not None:
            try:
                progress = decode_progress(self._unseal("progress", run))
            except ConfigError:
                progress = None
        return record, progress, raw, run

    async def _swap(self, name: str, was: bytes | None, now: bytes) -> bool:
        return bool(await SWAP.run(self._commands, self._key(name), words=(was or b"", now)))

    def _seal(self, what: str, body: bytes) -> bytes:
        fields: dict[str, Any] = {"body": body}
        if self._keyring is not None:
            fields["mac"] = self._keyring.sign("config", (self._scheduler, what), body)
        return pack(fields)

    def _unseal(self, what: str, raw: bytes) -> bytes:
        try:
            told = unpack(raw, MAX_RECORD + 256)
        except CodecError:
            told = None
        body, mac = (told.get("body"), told.get("mac")) if isinstance(told, Mapping) else (None, None)
        if not isinstance(body, bytes):
            raise ConfigError("the record of configurations on the bus cannot be read")
        mac = mac if isinstance(mac, bytes) else None
        ring = self._keyring
        if ring is not None and not ring.is_genuine("config", (self._scheduler, what), mac, body):
            told = f"the {what} of configurations on the bus is"
            if names_other_scheme(mac):
                raise OtherReleaseError(f"{told} {OTHER_SCHEME}: push it again, with --keys")
            raise ConfigError(f"{told} not signed with the key of {self._scheduler}: push with --keys")
        return body

    def _key(self, name: str) -> str:
        return self._keys.store_key(self._prefix + name)


def _report(raw: bytes) -> ReplicaReport | None:
    try:
        told = unpack(raw, 4096)
    except CodecError:
        return None
    if not isinstance(told, dict):
        return None
    words = [told.get(name, "") for name in ("revision", "trial", "refused", "refuses")]
    at, stage = told.get("at"), told.get("stage")
    if not all(isinstance(one, str) for one in words) or type(at) is not float or type(stage) is not int:
        return None
    revision, trial, refused, refuses = map(str, words)
    return ReplicaReport(revision, trial, stage, refused, refuses, at)
