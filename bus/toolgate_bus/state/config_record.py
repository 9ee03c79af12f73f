"""The configurations of one scheduler on the bus, and the one in force: values and transitions.

    push ─▶ in force          undo ─▶ the one before, at last the replicas' own files
    push (staged) ─▶ begin a rollout ─▶ stages ─▶ done: in force  |  undone: the one before stays

An operator's command writes the record. Replicas only write the rollout's progress (`Progress`). `settle`
puts both together. A digest names a text for ever; a label is used once. Times are seconds since the epoch
by the server's clock. Others write the store, so everything read from it is bounded.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from toolgate_bus.errors import CodecError, ConfigError
from toolgate_bus.protocol.packing import pack, unpack
from toolgate_bus.protocol.revision import DIGEST, Revision, check_label

MAX_CONFIG: Final = 256 * 1024
"""Maximum size of one configuration, in bytes."""
MAX_REVISIONS: Final = 50
"""Maximum number of kept configurations of one scheduler. The oldest unused one goes first."""
MAX_PAST: Final = 20
MAX_RECORD: Final = 64 * 1024
MAX_WORD: Final = 128
MAX_STAGES: Final = 12
FILE: Final = "file"
"""Name of the replicas' own files for people; the record has the empty digest for them."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")

Ending = Literal["", "done", "undone", "cancelled"]


class RolloutStage(NamedTuple):
    """One step of a rollout."""

    share: int
    """Percent of the sessions that the new revision rules on. 0 means that it is asked as a shadow only."""
    seconds: float
    """Minimum duration in seconds; 0 means until somebody advances it."""

    @property
    def text(self) -> str:
        """Stage as people read it."""
        return f"share {self.share} %" if self.share else "shadow"


class Rollout(NamedTuple):
    """One revision on its way to all sessions."""

    id: str
    to: str
    """Digest of the new configuration."""
    stages: tuple[RolloutStage, ...]
    undo_if: str = ""
    min_sample: int = 0
    """Minimum number of calls asked of the new revision before its condition is judged or a stage ends."""
    author: str = ""
    at: float = 0.0


class Progress(NamedTuple):
    """Progress of a rollout, as its replicas or an operator wrote it."""

    rollout: str
    stage: int = 0
    since: float = 0.0
    ending: Ending = ""
    why: str = ""


class StoredConfig(NamedTuple):
    """A configuration that was pushed. Its text stands beside the record."""

    digest: str
    """SHA-256 of its bytes, in hexadecimal digits."""
    label: str = ""
    author: str = ""
    at: float = 0.0
    size: int = 0
    spec: str = ""
    """Scheduler that it was checked for: `policy`, `my_rules:Rule`."""

    @property
    def revision(self) -> Revision:
        """Revision, as verdicts and lists name it."""
        return Revision(self.label, self.digest[:DIGEST])


class ConfigRecord(NamedTuple):
    """All configurations of one scheduler."""

    number: int = 0
    """Number that grows with every change, so that a replica does not accept an older record again."""
    configs: tuple[StoredConfig, ...] = ()
    """Configurations, oldest first."""
    active: str = ""
    """Digest of the configuration in force; empty for each replica's own file."""
    past: tuple[str, ...] = ()
    """Digests of the configurations in force before, oldest first."""
    rollout: Rollout | None = None

    def config(self, digest: str) -> StoredConfig | None:
        """Return the configuration with this digest; None if it is not kept."""
        return next((one for one in self.configs if one.digest == digest), None)

    def name(self, digest: str) -> str:
        """Return the configuration's name for people: `label@digest`, or `file`."""
        found = self.config(digest)
        return found.revision.text if found else digest[:DIGEST] or FILE

    def find(self, word: str) -> str:
        """Return the digest for a label, the beginning of a digest, or `file`. Raises ConfigError."""
        if word == FILE:
            return ""
        for one in self.configs:
            if word in (one.label, one.revision.text, one.digest):
                return one.digest
        begun = [one.digest for one in self.configs if len(word) >= 4 and one.digest.startswith(word)]
        if len(begun) != 1:
            there = ", ".join(one.revision.text for one in self.configs[-8:]) or "none: push one"
            raise ConfigError(f"{word}: names no configuration of this scheduler; there are {there}")
        return begun[0]


NO_RECORD: Final = ConfigRecord()


def digest_of(text: bytes) -> str:
    """Return the digest that names a configuration. Raises ConfigError if it is too long."""
    if len(text) > MAX_CONFIG:
        raise ConfigError(f"a configuration has at most {MAX_CONFIG // 1024} KiB, this one {len(text)} bytes")
    return hashlib.sha256(text).hexdigest()


# ---------------------------------------------------------------------- transitions


def push(record: ConfigRecord, new: StoredConfig, *, stage: bool = False) -> ConfigRecord:
    """Keep a configuration, and put it in force unless it is only staged. Raises ConfigError."""
    check_label(new.label or None)
    if not stage:
        _check_free(record)
    same = record.config(new.digest)
    taken = next((one for one in record.configs if one.label and one.label == new.label), None)
    if taken is not None and taken.digest != new.digest:
        raise ConfigError(f"label {new.label}: names {taken.revision.text} already; take another")
    if same is not None:
        new = same._replace(label=new.label or same.label)
    others = tuple(one for one in record.configs if one.digest != new.digest)
    changed = _next(record)._replace(configs=_bounded((*others, new), record))
    return changed if stage else _activate(changed, new.digest)


def undo(record: ConfigRecord, to: str | None = None) -> ConfigRecord:
    """Put the previous configuration in force, or this digest's (empty: files). Raises ConfigError."""
    if record.rollout is not None:
        raise ConfigError("a rollout is under way: `toolgate scheduler rollout NAME --cancel` undoes it")
    if to is not None:
        return _activate(_next(record), to)
    if not record.active and not record.past:
        raise ConfigError("nothing was pushed: each replica rules by its own file")
    *rest, before = record.past or ("",)
    return _next(record)._replace(active=before, past=tuple(rest))


def begin(record: ConfigRecord, rollout: Rollout) -> ConfigRecord:
    """Start a rollout. Raises ConfigError."""
    _check_free(record)
    if record.config(rollout.to) is None:
        raise ConfigError("a rollout needs a pushed configuration: push it first, with --stage")
    if rollout.to == record.active:
        raise ConfigError(f"{record.name(rollout.to)} is in force already")
    if not 1 <= len(rollout.stages) <= MAX_STAGES:
        raise ConfigError(f"a rollout has from 1 to {MAX_STAGES} stages")
    shares = [one.share for one in rollout.stages]
    if shares != sorted(set(shares)) or not all(0 <= share < 100 for share in shares):
        raise ConfigError("share: from 1 to 99 percent, each larger than the one before")
    return _next(record)._replace(rollout=rollout)


def settle(record: ConfigRecord, progress: Progress | None) -> ConfigRecord:
    """Return the record with the result of its rollout applied."""
    own = record.rollout
    if own is None or progress is None or progress.rollout != own.id or not progress.ending:
        return record
    ended = record._replace(rollout=None)
    return _activate(ended, own.to) if progress.ending == "done" else ended


def stage_of(record: ConfigRecord, progress: Progress | None) -> tuple[int, RolloutStage] | None:
    """Return the number and stage of the rollout under way; None if there is none."""
    own = record.rollout
    if own is None or (progress is not None and progress.rollout == own.id and progress.ending):
        return None
    at = progress.stage if progress is not None and progress.rollout == own.id else 0
    at = min(max(at, 0), len(own.stages) - 1)
    return at, own.stages[at]


def advance(record: ConfigRecord, progress: Progress | None, now: float) -> Progress:
    """Return the next stage of the rollout, or its good end. Raises ConfigError if none is under way."""
    found = stage_of(record, progress)
    if record.rollout is None or found is None:
        raise ConfigError("no rollout is under way")
    at = found[0] + 1
    if at >= len(record.rollout.stages):
        return Progress(record.rollout.id, found[0], now, "done", "all stages were passed")
    return Progress(record.rollout.id, at, now)


def _check_free(record: ConfigRecord) -> None:
    if record.rollout is not None:
        to = record.name(record.rollout.to)
        raise ConfigError(
            f"a rollout of {to} is under way: let it end, or `toolgate scheduler rollout NAME --cancel`"
        )


def _next(record: ConfigRecord) -> ConfigRecord:
    return record._replace(number=record.number + 1)


def _activate(record: ConfigRecord, digest: str) -> ConfigRecord:
    if digest == record.active:
        return record
    return record._replace(active=digest, past=(*record.past, record.active)[-MAX_PAST:])


def _bounded(configs: tuple[StoredConfig, ...], record: ConfigRecord) -> tuple[StoredConfig, ...]:
    kept = {record.active, *record.past[-1:], configs[-1].digest}
    spare = [one.digest for one in configs if one.digest not in kept]
    gone = set(spare[: max(0, len(configs) - MAX_REVISIONS)])
    return tuple(one for one in configs if one.digest not in gone)


# ---------------------------------------------------------------------- as bytes


def encode_record(record: ConfigRecord) -> bytes:
    """Return the record as bytes, to store and sign."""
    rollout = record.rollout
    told = {
        "number": record.number,
        "configs": [one._asdict() for one in record.configs],
        "active": record.active,
        "past": list(record.past),
        "rollout": rollout._asdict() | {"stages": [list(one) for one in rollout.stages]} if rollout else None,
    }
    return pack(told)


def decode_record(raw: bytes) -> ConfigRecord:
    """Read a record from bytes. Raises ConfigError if it is malformed."""
    told = _map(raw, MAX_RECORD)
    try:
        rollout = None if told["rollout"] is None else _rollout(told["rollout"])
        configs = tuple(_config(one) for one in _list(told["configs"], MAX_REVISIONS))
        past = tuple(_digest(one, may_be_file=True) for one in _list(told["past"], MAX_PAST))
        active = _digest(told["active"], may_be_file=True)
        return ConfigRecord(_whole(told["number"]), configs, active, past, rollout)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"{_BROKEN}: {error}") from None


def encode_progress(progress: Progress) -> bytes:
    """Return the progress of a rollout as bytes."""
    return pack(progress._asdict() | {"why": progress.why[:MAX_WORD]})


def decode_progress(raw: bytes | None) -> Progress | None:
    """Read the progress of a rollout from bytes; None if it is malformed."""
    if raw is None:
        return None
    try:
        told = _map(raw, 4096)
        ending = _word(told["ending"])
        if ending not in ("", "done", "undone", "cancelled"):
            return None
        since = _time(told["since"])
        return Progress(_word(told["rollout"]), _whole(told["stage"]), since, ending, _word(told["why"]))  # type: ignore[arg-type]  # checked above
    except (ConfigError, KeyError, TypeError, ValueError):
        return None


_BROKEN: Final = "the record of configurations on the bus cannot be read"


def _map(raw: bytes, most: int) -> Mapping[str, Any]:
    try:
        told = unpack(raw, most)
    except CodecError as error:
        raise ConfigError(f"{_BROKEN}: {error}") from None
    if not isinstance(told, dict):
        raise ConfigError(_BROKEN)
    return told


def _config(told: Any) -> StoredConfig:
    words = (_word(told[name]) for name in ("label", "author"))
    label, author = words
    check_label(label or None)
    return StoredConfig(
        _digest(told["digest"]), label, author, _time(told["at"]), _whole(told["size"]), _word(told["spec"])
    )


def _rollout(told: Any) -> Rollout:
    stages = tuple(
        RolloutStage(_whole(share), _time(seconds)) for share, seconds in _list(told["stages"], MAX_STAGES)
    )
    if not stages or not all(0 <= one.share < 100 for one in stages):
        raise ValueError("stages")
    return Rollout(
        _word(told["id"]), _digest(told["to"]), stages, _word(told["undo_if"]), _whole(told["min_sample"]),
        _word(told["author"]), _time(told["at"]),
    )  # fmt: skip


def _list(told: Any, most: int) -> list[Any]:
    if not isinstance(told, list) or len(told) > most:
        raise ValueError("a list is malformed")
    return told


def _word(told: Any) -> str:
    if not isinstance(told, str) or len(told) > MAX_WORD:
        raise ValueError("a word is malformed")
    return told


def _digest(told: Any, *, may_be_file: bool = False) -> str:
    if (may_be_file and told == "") or (isinstance(told, str) and _DIGEST.fullmatch(told)):
        return str(told)
    raise ValueError("a digest is malformed")


def _whole(told: Any) -> int:
    if type(told) is not int or not 0 <= told < 2**53:
        raise ValueError("a number is malformed")
    return told


def _time(told: Any) -> float:
    if type(told) not in (int, float) or not 0 <= told < 1e11:
        raise ValueError("a time is malformed")
    return float(told)
