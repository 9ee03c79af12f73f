"""Sentinels: the primary by the word of most of them, and a move of it in the moment they tell.

There is one watch for each URL and event loop, for as long as there are connections. It closes connections to
a server that is no longer primary, so that no write is lost there and nobody waits for it. It promotes no
server. A single sentinel is believed only in that a primary leaves. If that primary itself has handed over to
the chosen server (`handover`), nothing waits for the sentinels' majority.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Coroutine, Mapping
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from toolgate_bus.errors import BusDown, ConfigError, ToolgateError
from toolgate_bus.protocol.host_list import Address, reach, read_address
from toolgate_bus.protocol.sentinel_url import SentinelUrl
from toolgate_bus.telemetry.loggers import get_logger
from toolgate_bus.transport.redis.client.driver import (
    ConnectionPool,
    RedisConnectionError,
    RedisError,
    TcpConnection,
    TlsConnection,
    make_pool,
    read_role,
)
from toolgate_bus.transport.redis.client.handover import Move, PrimaryHandover

ASK_SECONDS: Final = 3.0
"""Longest time that a sentinel may take to name the primary, in seconds; with TLS a busy machine takes more
than one. Once most of them agree, nobody waits for the others."""
AWAY_SECONDS: Final = 3.0
"""Seconds for which a server is avoided after a sentinel took its service away, whatever others say."""
MOVE_SECONDS: Final = 1.5
"""Seconds that a connection waits for the sentinels to agree on the successor."""
WORD_SECONDS: Final = 0.25
"""Seconds after which they are asked again, besides each time that one of them says something."""
HEARD_SECONDS: Final = 1.0
"""The same while all of them are listened to: each question connects every process of a fleet to each of
them, while the primary moves and the successor needs the machine."""
SILENCE_SECONDS: Final = 5.0
"""Seconds of silence after which a sentinel is asked whether it is there."""
CANCEL_SECONDS: Final = 0.1
AGAIN_SECONDS: Final = 0.5
"""Seconds until a sentinel that is away is listened to again."""
PRIMARY_MOVED: Final = b"+switch-master"
REPLICA_CHOSEN: Final = (b"+failover-state-send-slaveof-noone", b"+promoted-slave")
CHANNELS: Final = (PRIMARY_MOVED, *REPLICA_CHOSEN)
_log = get_logger("toolgate.bus")

Answer = Address | str | None
"""A sentinel's answer: the primary's address, None if it does not know the service, or an error text."""


def agree(answers: Mapping[Address, Answer], sentinels: int) -> Address | None:
    """Return the address that more than half of all sentinels name, if there is one. Pure."""
    named = Counter(answer for answer in answers.values() if isinstance(answer, tuple))
    for address, votes in named.most_common(1):
        if votes > sentinels // 2:
            return address
    return None


def explain_disagreement(service: str, answers: Mapping[Address, Answer]) -> ToolgateError:
    """Return an error that says why there is no primary."""
    if answers and all(answer is None for answer in answers.values()):
        return ConfigError(
            f"no sentinel knows the service {service}: look at the URL, and at their names (SENTINEL MASTERS)"
        )
    if any(isinstance(answer, str) and _wants_credentials(answer) for answer in answers.values()):
        wrong = next(
            answer for answer in answers.values() if isinstance(answer, str) and _wants_credentials(answer)
        )
        return ConfigError(
            f"the sentinels want other credentials ({wrong}): ?sentinel_username= and "
            "TOOLGATE_SENTINEL_PASSWORD_FILE=FILE"
        )
    said = "; ".join(f"{_name(at)} {_tell(answer)}" for at, answer in sorted(answers.items()))
    return BusDown(f"the sentinels do not agree who is the primary of {service}: {said}")


def _wants_credentials(said: str) -> bool:
    return any(
        sign in said.casefold() for sign in ("noauth", "wrongpass", "authentication required", "noperm")
    )


def _name(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


def _tell(answer: Answer) -> str:
    if isinstance(answer, tuple):
        return f"says {_name(answer)}"
    return "does not know it" if answer is None else f"does not answer ({answer})"


def read_move(channel: bytes, text: bytes, service: str) -> Move | None:
    """Return the leaving primary and its successor, if a sentinel's message names them. Pure."""
    words = text.decode("utf-8", "replace").split()
    if channel == PRIMARY_MOVED and len(words) == 5 and words[0] == service:
        return _pair(words[1:3], words[3:5])
    # slave NAME IP PORT @ SERVICE IP PORT
    if channel in REPLICA_CHOSEN and len(words) == 8 and words[4:6] == ["@", service]:
        return _pair(words[6:8], words[2:4])
    return None


def _pair(old: list[str], new: list[str]) -> Move | None:
    both = [read_address(*one) for one in (old, new)]
    return Move(both[0], both[1]) if both[0] is not None and both[1] is not None else None


class SentinelWatch:
    """Finds and follows the primary, for all connections of one event loop."""

    def __init__(self, at: SentinelUrl) -> None:
        self._at = at
        self._pools = {one: self._make_pool(one) for one in at.sentinels}
        self._search: asyncio.Task[Address] | None = None
        self._open: dict[asyncio.Transport, Address] = {}
        self._away: dict[Address, float] = {}
        self._heard: set[Address] = set()
        """Sentinels that are listened to."""
        self._task: asyncio.Task[None] | None = None
        self._word = asyncio.Event()
        """Set, and replaced by another event, when a message may change the primary."""
        self._primary: Address | None = None
        """The primary that was found last."""
        self._handover = PrimaryHandover(self._make_role_pool, self._wake)

    def _make_pool(self, address: Address) -> ConnectionPool:
        at = self._at
        credentials: dict[str, Any] = {
            "username": at.sentinel_username or None,
            "password": at.sentinel_password or None,
        }
        url = at.sentinel_url(address)
        return make_pool(url, "toolgate-sentinel", socket_connect_timeout=ASK_SECONDS, **credentials)

    # ------------------------------------------------------------------ connecting

    async def find(self) -> Address:
        """Return the primary that most sentinels name; while it moves, its successor, once they agree on that
        or both servers confirm it. Raises BusDown, or ConfigError if waiting mends nothing.
        """
        until = time.monotonic() + MOVE_SECONDS
        while True:
            word = self._word
            try:
                found = self._handover.find_successor() or await self._search_once()
                self.check(found)
            except BusDown:
                if time.monotonic() > until or not self._is_moving():
                    raise
            else:
                self._primary = found
                return found
            with contextlib.suppress(TimeoutError):
                are_heard = len(self._heard) == len(self._at.sentinels)
                await asyncio.wait_for(word.wait(), HEARD_SECONDS if are_heard else WORD_SECONDS)

    async def _search_once(self) -> Address:
        if self._search is None or self._search.done():
            self._search = asyncio.create_task(self._ask_all())
            self._search.add_done_callback(_forget)
        return await asyncio.shield(self._search)

    def _is_moving(self) -> bool:
        return any(until > time.monotonic() for until in self._away.values())

    def check(self, address: Address) -> None:
        """Raise BusDown if the sentinels have just taken the service from this server."""
        if self._away.get(address, 0.0) > time.monotonic():
            raise BusDown(f"the sentinels are moving {self._at.service} away from {_name(address)}")

    async def wait_while_primary(self, address: Address, connecting: Coroutine[Any, Any, None]) -> None:
        """Wait for a connection to this server. Raises BusDown once the sentinels take the service from it.

        A server whose machine is gone says nothing; without this, the wait would end seconds too late.
        """
        task = asyncio.ensure_future(connecting)
        try:
            while not task.done():
                word = asyncio.ensure_future(self._word.wait())
                try:
                    await asyncio.wait((task, word), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    word.cancel()
                if not task.done():
                    self.check(address)
            task.result()
        finally:
            task.cancel()

    def keep(self, transport: asyncio.Transport, address: Address) -> None:
        """Keep a connection, and close it when the primary moves.

        All lead to the primary that was found last: what one has confirmed, another must not have forgotten.
        Raises BusDown if this one leads elsewhere by now.
        """
        self._prune()
        self._open[transport] = address
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="toolgate-sentinels")
        self._close_all_but(self._primary or address)
        if transport not in self._open:
            raise BusDown(f"{_name(address)} was the primary of {self._at.service} until a moment ago")
        self.check(address)  # it may have moved meanwhile

    # ------------------------------------------------------------------ asking

    async def _ask_all(self) -> Address:
        answers: dict[Address, Answer] = {}
        asks = [asyncio.create_task(self._ask(one, answers)) for one in self._at.sentinels]
        try:
            for done in asyncio.as_completed(asks):
                await done
                found = agree(answers, len(self._at.sentinels))
                if found is not None:
                    return found
        finally:
            for ask in asks:
                ask.cancel()
        raise explain_disagreement(self._at.service, answers)

    async def ask_each(self) -> dict[Address, Answer]:
        """Return the answer of each sentinel, whether they agree or not."""
        answers: dict[Address, Answer] = {}
        await asyncio.gather(*(self._ask(one, answers) for one in self._at.sentinels))
        return answers

    async def _ask(self, sentinel: Address, answers: dict[Address, Answer]) -> None:
        connection: Any = cast("Any", self._pools[sentinel]).make_connection()
        try:
            async with asyncio.timeout(ASK_SECONDS):
                await connection.connect()
                await connection.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._at.service)
                answers[sentinel] = _read_answer(await connection.read_response())
        except (RedisError, OSError, TimeoutError) as error:
            answers[sentinel] = str(error) or "timed out"
        finally:
            await _close(connection)

    # ------------------------------------------------------------------ listening

    async def _watch(self) -> None:
        """Listen to all sentinels while there are connections."""
        listening = [asyncio.create_task(self._listen(one)) for one in self._at.sentinels]
        try:
            while self._open:
                await asyncio.sleep(SILENCE_SECONDS)
                self._prune()
        finally:
            self._task = None  # the next connection starts a new watch
            while listening:  # a client that connects may lose a cancellation
                for one in listening:
                    one.cancel()
                listening = list((await asyncio.wait(listening, timeout=CANCEL_SECONDS))[1])

    async def _listen(self, sentinel: Address) -> None:
        while True:
            connection: Any = cast("Any", self._pools[sentinel]).make_connection()
            try:
                await connection.connect()
                await connection.send_command("SUBSCRIBE", *CHANNELS)
                await self._look()  # the primary may have moved before
                self._heard.add(sentinel)
                await self._hear(connection)
            except (RedisError, OSError, TimeoutError):
                pass  # the other sentinels are there; and connections report it
            finally:
                self._heard.discard(sentinel)
                await _close(connection)
            await asyncio.sleep(AGAIN_SECONDS)

    async def _hear(self, connection: Any) -> None:
        """Hand on a sentinel's messages until it is away."""
        asked = False
        while True:
            said = await connection.read_response(timeout=SILENCE_SECONDS)
            if said is None and asked:
                return
            asked = said is None
            if asked:
                await connection.send_command("PING")
            elif isinstance(said, list) and len(said) == 3 and said[0] == b"message":
                move = read_move(said[1], said[2], self._at.service)
                if move is not None:
                    self._follow(move)

    async def _look(self) -> None:
        with contextlib.suppress(ToolgateError):
            primary = await self.find()
            self._close_all_but(primary)

    def _follow(self, move: Move) -> None:
        old, new = move
        now = time.monotonic()
        self._away = {
            address: until for address, until in self._away.items() if until > now and address != new
        }
        self._wake()
        if old == new:
            return
        is_news = old not in self._away
        self._away[old] = now + AWAY_SECONDS
        self._search = None  # answers under way may be outdated
        self._close_all_but(new)
        if is_news:
            _log.warning("the primary moves", service=self._at.service, old=_name(old), new=_name(new))
            self._handover.begin(move, self._primary, AWAY_SECONDS)

    def _make_role_pool(self, address: Address) -> ConnectionPool:
        url = self._at.server_url(reach(address, self._at.address_map))
        return make_pool(url, "toolgate-role", socket_connect_timeout=ASK_SECONDS)

    def _wake(self) -> None:
        word, self._word = self._word, asyncio.Event()
        word.set()

    def _close_all_but(self, primary: Address) -> None:
        for transport, address in self._open.items():
            if address != primary:
                transport.abort()
        self._prune()

    def _prune(self) -> None:
        self._open = {one: address for one, address in self._open.items() if not one.is_closing()}


def _read_answer(said: Any) -> Answer:
    if said is None:
        return None
    if isinstance(said, list) and len(said) == 2 and all(isinstance(word, bytes) for word in said):
        host, port = (word.decode("utf-8", "replace") for word in said)
        return read_address(host, port) or "it is not a sentinel"
    return "it is not a sentinel"


async def _close(connection: Any) -> None:
    with contextlib.suppress(RedisError, OSError, TimeoutError):
        await connection.disconnect(nowait=True)


def _forget(task: "asyncio.Task[Address]") -> None:
    if not task.cancelled():
        task.exception()


_watches: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[SentinelUrl, SentinelWatch]]" = (
    WeakKeyDictionary()
)


def watch_of(at: SentinelUrl) -> SentinelWatch:
    """Return the watch of the running loop."""
    watches = _watches.setdefault(asyncio.get_running_loop(), {})
    if at not in watches:
        watches[at] = SentinelWatch(at)
    return watches[at]


# ---------------------------------------------------------------------- connections that follow the primary


class _PrimaryMixin:
    """A connection that asks the sentinels for its server, and stays only with one that is primary."""

    toolgate_at: SentinelUrl
    host: str
    port: int
    _writer: Any

    async def _connect(self) -> None:
        watch = watch_of(self.toolgate_at)
        address = await watch.find()
        self.host, self.port = reach(address, self.toolgate_at.address_map)
        connecting = super()._connect()  # type: ignore[misc]  # redis-py's own, of the class that is mixed in
        await watch.wait_while_primary(address, connecting)
        try:
            watch.keep(self._writer.transport, address)
        except BusDown:
            self._writer.transport.abort()
            raise

    async def on_connect_check_health(self, check_health: bool = True) -> None:
        """Authenticate as always. Raises a RedisConnectionError caused by BusDown if it is a replica."""
        await super().on_connect_check_health(check_health=check_health)  # type: ignore[misc]  # as above
        if await read_role(self) == b"replica":
            moved = BusDown(f"READONLY {self.host}:{self.port} is a replica, and the sentinels say it is not")
            raise RedisConnectionError(str(moved)) from moved


class _PrimaryConnection(_PrimaryMixin, TcpConnection):
    """Connection by TCP."""


class _PrimaryTlsConnection(_PrimaryMixin, TlsConnection):
    """Connection by TLS."""


def make_primary_pool(
    at: SentinelUrl, name: str, kind: type[ConnectionPool], **options: Any
) -> ConnectionPool:
    """Make a pool whose connections go to the primary. Raises ConfigError."""
    pool = make_pool(at.server_url(at.sentinels[0]), name, kind, **options)
    base = _PrimaryTlsConnection if at.scheme == "rediss" else _PrimaryConnection
    pool.connection_class = type(base.__name__, (base,), {"toolgate_at": at})
    return pool
