"""Token buckets: the values, the port, the rules as a pure pool, and the same on a server.

A bucket holds at most `burst` tokens and gets `calls` of them back in each `period_ms`, evenly. A decision
takes tokens from all the buckets it names, or from none:

    asked ─┬─ every bucket holds enough ─▶ taken from each, once ─▶ allowed
           └─ one is short              ─▶ nothing is taken     ─▶ not allowed, with the wait until it is

Each bucket gives to a decision once. So a question that is delivered twice takes once, and gets the first
answer again. The same decision with other buckets (for the call that would run in its place) takes only from
those that have not given to it yet. Nothing is ever given back.

All numbers are whole: a level counts parts, of which `period_ms` make a token, so that `calls` parts come
back each millisecond. `Pool` has all of this without a server; `lua/take_tokens.lua` is the same as one
script, which may be repeated.
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.transport.ports import Commands, override
from toolgate_bus.transport.redis.client.scripts import Script

TAKE: Final = Script(__package__, "take_tokens.lua")

MAX_PARTS: Final = 2**52
"""Maximum number of parts in a full bucket, and of calls in a period: the server computes in doubles."""
MEMO_MS: Final = 600_000
"""Milliseconds that an answer is remembered: longer than a question may wait anywhere."""


class Bucket(NamedTuple):
    """One bucket as it applies to one call. The same key with another period is another bucket."""

    key: str
    calls: int
    """Number of tokens that come back in a period."""
    period_ms: int
    burst: int
    """Number of tokens in a full bucket; a new bucket is full."""
    take: int = 1
    """Number of tokens that this call takes."""


class TakeResult(NamedTuple):
    """Answer to a request for tokens. The same decision and buckets get the same answer again."""

    allowed: bool
    short: str = ""
    """Key of the bucket that takes longest to hold enough."""
    wait_s: float = 0.0
    """Seconds from the first request until it holds enough, if nobody else takes from it."""


class Buckets(Protocol):
    """Token buckets. Taking is atomic, by the server's clock, and may be repeated."""

    async def take(self, decision: str, buckets: Sequence[Bucket]) -> TakeResult:
        """Take from each of these buckets that has not given to this decision yet, or from none.

        Raises ConfigError for a bucket that can never give what is asked of it.
        """


def check_buckets(buckets: Sequence[Bucket]) -> Sequence[Bucket]:
    """Return the buckets. Raises ConfigError for those that cannot be counted exactly."""
    if len({one.key for one in buckets}) < len(buckets):
        raise ConfigError("buckets: each key may be named once")
    for one in buckets:
        if not 1 <= one.take <= one.burst:
            raise ConfigError(f"bucket {one.key}: take: from 1 to its burst, {one.burst}, not {one.take}")
        if one.calls < 1 or one.period_ms < 1 or max(one.calls, one.burst * one.period_ms) > MAX_PARTS:
            raise ConfigError(
                f"bucket {one.key}: calls and period_ms: at least 1; burst x period_ms: at most {MAX_PARTS}"
            )
    return buckets


@dataclass(slots=True)
class _Level:
    parts: int
    since: int


@dataclass(slots=True)
class _Memo:
    at: int
    given: set[str] = field(default_factory=set)
    answers: dict[frozenset[str], TakeResult] = field(default_factory=dict)


@dataclass(slots=True)
class Pool:
    """The rules in memory. `now_ms` is the server's time in milliseconds."""

    levels: dict[tuple[str, int], _Level] = field(default_factory=dict)
    memos: dict[str, _Memo] = field(default_factory=dict)
    """Memos by decision, the one written longest ago first."""

    def take(self, decision: str, buckets: Sequence[Bucket], now_ms: int) -> TakeResult:
        """Implement `Buckets.take`."""
        for old, past in list(self.memos.items()):
            if now_ms - past.at < MEMO_MS:
                break
            del self.memos[old]
        asked = frozenset(one.key for one in check_buckets(buckets))
        memo = self.memos.get(decision) or _Memo(now_ms)
        if asked in memo.answers:
            return memo.answers[asked]
        open_ = [one for one in buckets if one.key not in memo.given]
        levels = [self._level(one, now_ms) for one in open_]
        answer = _answer(open_, levels)
        if answer.allowed:
            for one, level in zip(open_, levels, strict=True):
                level.parts -= one.take * one.period_ms
                self.levels[one.key, one.period_ms] = level
            memo.given |= asked
        memo.answers[asked], memo.at = answer, now_ms
        self.memos.pop(decision, None)
        self.memos[decision] = memo
        return answer

    def _level(self, bucket: Bucket, now_ms: int) -> _Level:
        """Return the current level of a bucket, as a new value."""
        full = bucket.burst * bucket.period_ms
        last = self.levels.get((bucket.key, bucket.period_ms))
        if last is None:
            return _Level(full, now_ms)
        since = max(now_ms, last.since)  # a clock that was set back gives nothing twice
        return _Level(min(full, last.parts + (since - last.since) * bucket.calls), since)


def _answer(buckets: Sequence[Bucket], levels: Sequence[_Level]) -> TakeResult:
    """Return the answer. Of the buckets with the longest wait, the first one is short."""
    waits = [
        (-(-missing // one.calls), one.key)
        for one, level in zip(buckets, levels, strict=True)
        if (missing := one.take * one.period_ms - level.parts) > 0
    ]
    if not waits:
        return TakeResult(True)
    wait_ms, short = max(waits, key=lambda each: each[0])
    return TakeResult(False, short, wait_ms / 1000)


class RedisBuckets(Buckets):
    """`Buckets` on a server. `name` keeps several sets of buckets apart, such as those of shadows."""

    def __init__(self, commands: Commands, namespace: str, name: str = "buckets") -> None:
        self._commands = commands
        self._prefix = Keys(namespace).store_key(name)

    @override
    async def take(self, decision: str, buckets: Sequence[Bucket]) -> TakeResult:
        each = [word for one in check_buckets(buckets) for word in one]
        # The buckets that were asked, in any order.
        keys = sorted(one.key for one in buckets)
        digests = b"".join(hashlib.sha256(key.encode("utf-8", "replace")).digest() for key in keys)
        words = (decision, hashlib.sha256(digests).hexdigest()[:32], MEMO_MS, *each)
        said = await TAKE.run(self._commands, self._prefix, words=words)
        wait_ms, _, short = said.decode("utf-8", "replace").partition(":")
        return TakeResult(wait_ms == "0", short, int(wait_ms) / 1000)


@dataclass(slots=True)
class MemoryBuckets(Buckets):
    """`Buckets` in this process, for tests of schedulers."""

    pool: Pool = field(default_factory=Pool)

    @override
    async def take(self, decision: str, buckets: Sequence[Bucket]) -> TakeResult:
        return self.pool.take(decision, buckets, time.time_ns() // 1_000_000)
