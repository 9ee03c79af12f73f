"""Hook modules that share budgets on a server: over sessions, and over the death of one."""

import pytest
from toolgate_bus.errors import TransportError
from toolgate_bus.ledger.money.redis import RedisLedger
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_schedulers.hooks import cost_aware
from toolgate_schedulers.hooks.cost_aware import BOOK

CONFIG = {"tools": {"dear": {"cost": 40}}, "budgets": [{"name": "b", "level": "fleet", "limit": 100}]}
DIES = """
import asyncio, sys
from toolgate_schedulers.hooks import cost_aware as hook_cost_aware
class Session:
    session_id = "dying"
    def __init__(self): self.hooks, self.handlers = self, {}
    def register(self, event, handler, **_): self.handlers[event] = handler
async def main():
    session = Session()
    await hook_cost_aware.mount(session, eval(sys.argv[1]))
    data = {"tool_name": "dear", "tool_input": {}, "available_tools": ["dear"], "tool_call_id": "c"}
    print((await session.handlers["tool:selecting"]("tool:selecting", data)).action, flush=True)
    await asyncio.sleep(3600)
asyncio.run(main())
"""


class Session:
    """What the module needs of a coordinator."""

    def __init__(self, name):
        self.hooks, self.session_id, self._handlers = self, name, {}

    def register(self, event, handler, **_):
        self._handlers[event] = handler

    async def emit(self, event, call, **data):
        return await self._handlers[event](event, {"tool_name": "dear", "tool_call_id": call, **data})

    async def select(self, call):
        answer = await self.emit("tool:selecting", call, tool_input={}, available_tools=["dear"])
        return answer.action


@pytest.fixture
async def sessions(server_url, namespace):
    """`await sessions(name)`: a session with the module; all are closed at the end."""
    cleanups = []

    async def make(name):
        made = Session(name)
        where = {"redis": server_url, "namespace": namespace}
        made.close = await cost_aware.mount(made, CONFIG | where)
        cleanups.append(made.close)
        return made

    yield make
    for cleanup in cleanups:
        await cleanup()


@pytest.fixture
async def money(server_url, namespace):
    """`await money()`: spent, reserved and orphans of the budget."""
    commands = RedisCommands(server_url, "test")

    async def read():
        (account,) = await RedisLedger(commands, namespace, BOOK).balances()
        return account.spent // 1_000_000, account.reserved // 1_000_000, account.orphans

    yield read
    await commands.aclose()


async def test_sessions_share_the_budget_and_settle_what_they_reserved(sessions, money):
    one, other = await sessions("s-1"), await sessions("s-2")
    assert [await one.select("c1"), await other.select("c1"), await one.select("c2")] == ["continue"] * 2 + [
        "deny"
    ]
    assert await money() == (0, 80, 0)
    await one.emit("tool:pre", "c1")
    await one.emit("tool:post", "c1", result={"output": {"cost_usd": 10}})
    await other.emit("policy:violation", "c1")
    assert await money() == (10, 0, 0)
    assert await other.select("c3") == "continue"
    await other.emit("tool:pre", "c3")
    await other.close()  # it ends in the middle of the call
    assert await money() == (50, 0, 0)


@pytest.mark.system
@pytest.mark.timeout(90)
async def test_what_a_session_held_that_died_is_paid_at_its_estimate(
    sessions, money, process, server_url, namespace, wait_until
):
    await sessions("s-1")
    where = {"redis": server_url, "namespace": namespace}
    dying = process("python", "-c", DIES, repr(CONFIG | where))
    await wait_until(lambda: dying.stdout.strip() == "continue", timeout=30)
    assert await money() == (0, 40, 0)
    dying.popen.kill()

    async def paid():
        return await money() == (40, 0, 1)

    await wait_until(paid, timeout=30)


async def test_a_ledger_that_is_away_denies_and_is_told_when_it_is_back(own_durable_server, wait_until):
    session = Session("s-1")
    close = await cost_aware.mount(session, CONFIG | {"redis": own_durable_server.url})
    assert await session.select("c1") == "continue"
    own_durable_server.kill()
    assert await session.select("c2") == "deny"
    await session.emit("tool:post", "c1", result={})
    hook = session._handlers["tool:post"].__self__
    assert len(hook.owed) == 1
    own_durable_server.start()
    await wait_until(lambda: not hook.owed)
    assert await session.select("c3") == "continue"
    await close()


async def test_a_server_that_is_away_when_the_session_starts_is_told(short_directory):
    with pytest.raises(TransportError):
        await cost_aware.mount(Session("s"), CONFIG | {"redis": f"unix://{short_directory}/none.sock"})
