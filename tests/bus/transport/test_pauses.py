"""Pauses on a server: one script changes them, orchestrators look, and what was forgotten resumes nobody."""

import pytest
from toolgate_bus.errors import ConfigError, TransportError
from toolgate_bus.protocol.agents import LiveAgent, Stop
from toolgate_bus.protocol.keys import Keys
from toolgate_bus.protocol.pauses import MAX_PAUSES, Pause, StandingPauses, encode_notice
from toolgate_bus.transport.memory import MemoryHub
from toolgate_bus.transport.redis.asking.orchestrator import RedisOrchestratorBus
from toolgate_bus.transport.redis.asking.pause_watch import EVERY_PAUSED_S, EVERY_S, PauseWatch
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.pauses import REMEMBERED_MS, PauseBoard, read_pauses
from toolgate_bus.transport.redis.storage.reads import read_time


@pytest.fixture
async def commands(server_url):
    made = RedisCommands(server_url, "test-pauses")
    yield made
    await made.aclose()


@pytest.fixture
def board(commands, namespace):
    return PauseBoard(commands, namespace)


def key(namespace):
    return Keys(namespace).pauses


async def lasts_ms(commands, namespace):
    """How long the key is kept; -1: until somebody deletes it."""
    return int(await commands.execute("PTTL", key(namespace)))


async def test_a_pause_stands_by_the_servers_clock_until_it_is_ended_or_over(board, commands, namespace):
    assert (await board.read())._replace(now_ms=0) == StandingPauses()
    now = int(await read_time(commands) * 1000)
    one, first = await board.add(Pause("one", everyone=True, by="ops"), None)
    other, second = await board.add(Pause("other", labels=(("team", "x"),)), 60)
    assert 0 <= one.since_ms - now < 10_000
    assert other.until_ms == other.since_ms + 60_000
    found = await board.read()
    assert (found.pauses, found.mark) == ((one, other), second)
    assert await lasts_ms(commands, namespace) == -1  # one stands until it is resumed
    third = await board.remove(["one"])
    assert first < second < third == (await board.read()).mark
    assert (await board.read()).pauses == (other,)
    assert 60_000 < await lasts_ms(commands, namespace) <= 60_000 + REMEMBERED_MS


async def test_what_is_over_is_not_read_and_goes_with_the_next_change(board, commands, namespace):
    await board.add(Pause("old"), 0.001)
    stays, _ = await board.add(Pause("new"), None)
    while (await board.read()).pauses != (stays,):
        pass
    await board.remove(["nothing"])
    assert sorted(await commands.execute("HKEYS", key(namespace))) == [b"mark", b"new"]


async def test_marks_rise_whatever_the_servers_clock_does(board, commands, namespace):
    ahead = 2**52
    await commands.execute("HSET", key(namespace), "mark", ahead)
    _, mark = await board.add(Pause("p"), None)
    assert mark == ahead + 1
    assert await board.remove(["p"]) == ahead + 2


async def test_only_so_many_stand_and_one_that_is_given_again_counts_once(board):
    for number in range(MAX_PAUSES):
        await board.add(Pause(f"{number}"), None)
    await board.add(Pause("0", everyone=True), None)
    with pytest.raises(ConfigError, match="64 pauses stand"):
        await board.add(Pause("one more"), None)
    assert len((await board.read()).pauses) == MAX_PAUSES
    await board.remove(["1"])
    await board.add(Pause("one more"), None)


# ---------------------------------------------------------------------- what an orchestrator knows


class Knowing:
    """A watch, and what it was told."""

    def __init__(self, namespace="n"):
        self.adopted = []
        self.watch = PauseWatch(Keys(namespace), self._adopt)

    def _adopt(self, found):
        self.adopted.append([one.id for one in found.pauses])
        return ["a"]

    def learn(self, mark, *ids):
        """What a look found; gives the orders that it carried out."""
        return self.watch.learn(StandingPauses(mark, 0, tuple(map(Pause, ids))))


def test_a_server_that_has_forgotten_or_is_an_older_one_resumes_nobody():
    one = Knowing()
    one.learn(5, "p")
    one.learn(0)
    one.learn(4)
    assert one.adopted == [["p"]]
    one.learn(5, "p")
    one.learn(6)
    assert one.adopted == [["p"], ["p"], []]


def test_an_order_is_carried_out_once_its_change_was_seen():
    one = Knowing()
    assert one.watch.take(encode_notice("late", 9))
    assert one.watch.take(encode_notice("early", 3))
    assert not one.watch.take(b"\x81\xa3now\xc3")
    assert one.learn(5, "p") == [("early", ["a"])]
    assert one.learn(9) == [("late", ["a"])]
    assert one.learn(9) == []


class Server(RedisCommands):
    """Commands that count, and fail where they are told to."""

    def __init__(self):
        self.asked, self.failure = 0, None

    async def execute(self, *command):
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return [5, 0] if command[0] == "TIME" else []


async def test_it_looks_at_once_when_told_or_cut_off_and_else_seldom(monkeypatch):
    one, server, now = Knowing(), Server(), 1000.0
    monkeypatch.setattr("toolgate_bus.transport.redis.asking.pause_watch.time.monotonic", lambda: now)

    async def looked():
        before = server.asked
        await one.watch.look(server)
        return server.asked > before

    assert await looked()
    assert not await looked()
    one.watch.take(encode_notice("order", 9))
    assert await looked()
    assert await looked()  # what it was told of is not there yet
    one.learn(9, "p")
    one.watch.hurry()
    assert await looked()
    now += EVERY_PAUSED_S + 0.1
    one.learn(10, "p")
    now += EVERY_PAUSED_S + 0.1
    assert await looked()
    one.learn(11)
    now += EVERY_S - 0.2
    server.failure = TransportError("it stumbled")
    now += 0.3
    assert await looked()
    assert await looked()  # again with the next heartbeat


async def test_who_may_not_look_goes_on_as_before_and_says_so_once(caplog):
    one, server = Knowing(), Server()
    one.learn(5, "p")
    server.failure = ConfigError("NOPERM")
    assert await one.watch.look(server) == []
    assert one.adopted == [["p"]]


# ---------------------------------------------------------------------- from the one to the other


async def test_an_orchestrator_adopts_what_is_paused_at_its_start_and_when_it_is_told(
    server_url, namespace, board, ears, wait_until, monkeypatch
):
    monkeypatch.setattr("toolgate_bus.transport.redis.asking.pause_watch.EVERY_S", 600.0)  # told, not found
    await board.add(Pause("first", everyone=True), None)
    bus = RedisOrchestratorBus(server_url, namespace)
    ears.living = [LiveAgent("a")]
    bus.listen(ears)
    await bus.start()
    try:
        assert [one.id for one in ears.pauses[0].pauses] == ["first"]
        mark = await board.remove(["first"])
        assert await board.tell("order", mark) == {bus.orchestrator}
        await wait_until(lambda: ears.pauses[-1].pauses == ())
        assert ears.orders == []
    finally:
        await bus.aclose()


async def test_a_key_of_another_type_costs_nobody_the_bus(
    server_url, namespace, commands, ears, wait_until, monkeypatch
):
    monkeypatch.setattr("toolgate_bus.transport.redis.asking.pause_watch.EVERY_S", 0.1)
    await commands.execute("SET", key(namespace), "what is this")
    bus = RedisOrchestratorBus(server_url, namespace)
    bus.listen(ears)
    await bus.start()
    try:
        assert bus.is_connected
        assert ears.pauses == []
        await commands.execute("DEL", key(namespace))
        await wait_until(lambda: ears.pauses)
    finally:
        await bus.aclose()
    await commands.execute("SET", key(namespace), "again")
    with pytest.raises(TransportError):
        await read_pauses(commands, Keys(namespace))


# ---------------------------------------------------------------------- stops


def order(*sessions, **fields):
    return Stop(sessions, by="ops", **fields)


async def test_a_stop_stands_until_it_is_lifted_and_is_renewed_by_one_that_means_the_same(
    board, commands, namespace
):
    first, mark = await board.stop(order("a"))
    await board.add(Pause("p", everyone=True), 0.001)
    again, later = await board.stop(order("a", now=True))
    assert (again.id, again.now, mark < later) == (first.id, True, True)
    assert [one for one in (await board.read()).pauses if one.stop] == [again]
    assert await lasts_ms(commands, namespace) == -1
    await board.remove([again.id])
    assert (await board.read()).pauses == ()


async def test_pauses_keep_nobody_from_stopping_and_stops_have_a_bound_of_their_own(board, monkeypatch):
    monkeypatch.setattr("toolgate_bus.transport.redis.storage.pauses.MAX_STOPS", 3)
    for number in range(MAX_PAUSES):
        await board.add(Pause(f"{number}"), None)
    for name in ("a", "b", "c", "a"):
        await board.stop(order(name))
    with pytest.raises(ConfigError, match="3 stops stand already: lift some"):
        await board.stop(order("d"))
    with pytest.raises(ConfigError, match="64 pauses stand already: resume some"):
        await board.add(Pause("one more"), None)
    assert len((await board.read()).pauses) == MAX_PAUSES + 3


def test_while_only_stops_stand_it_looks_as_seldom_as_else(monkeypatch):
    one, now = Knowing(), 1000.0
    monkeypatch.setattr("toolgate_bus.transport.redis.asking.pause_watch.time.monotonic", lambda: now)
    one.watch._due = now + EVERY_S
    one.watch.learn(StandingPauses(5, 0, (Pause("s", ("a",), stop=True),)))
    assert one.watch._due == now + EVERY_S
    one.learn(6, "p")
    assert one.watch._due == now + EVERY_PAUSED_S


async def test_the_twin_in_memory_tells_what_stands_at_once_and_to_who_starts_later(ears):
    hub = MemoryHub()
    first, second = hub.orchestrator(), hub.orchestrator()
    first.listen(ears)
    await first.start()
    assert ears.pauses == []
    hub.stand(Pause("s", ("a",), stop=True))
    second.listen(ears)
    await second.start()
    assert [[one.id for one in found.pauses] for found in ears.pauses] == [["s"], ["s"]]
    hub.stand()
    assert [found.pauses for found in ears.pauses[2:]] == [(), ()]
    assert ears.pauses[-1].mark > ears.pauses[0].mark
    await first.aclose()
    await second.aclose()
