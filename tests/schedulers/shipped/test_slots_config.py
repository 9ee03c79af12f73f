"""What a pool may say, and what is refused by the name of its field; whatever a call brings, it has a key."""

import pytest
from toolgate_bus.config.check import check
from toolgate_bus.errors import ConfigError
from toolgate_bus.queues.queue_redis import MemoryQueues, RedisQueues
from toolgate_bus.queues.queue_view import read_queue
from toolgate_bus.transport.redis.connection import RedisCommands
from toolgate_schedulers.shipped.slots.config import SlotsConfig, find_pools, request_of
from toolgate_schedulers.shipped.slots.scheduler import Slots
from toolgate_schedulers.testing import question, trial

NAN = float("nan")


def read(**fields):
    return check(SlotsConfig, {"pools": [{"name": "file", "tools": "read", **fields}]}, "slots.yaml")


@pytest.mark.pure
@pytest.mark.parametrize(
    ("fields", "where"),
    [
        *(({"limit": wrong}, "limit") for wrong in (-1, 0, NAN, 1.5, True, "3", 10**30)),
        *(({"wait_s": wrong}, "wait_s") for wrong in (-1, NAN, float("inf"), True, "5", None)),
        *(({"key": wrong}, "key") for wrong in ("$.url#port", "$.url#hostname", "$.url#host.a", "url", "$.")),
        *(({"share": {"weights": {"a": wrong}}}, "share.weights.a") for wrong in (0, -1, NAN, True, "3")),
        *(
            ({"priority": {"by": "agent", "classes": {"a": wrong}}}, "classes.a")
            for wrong in (NAN, 1.5, True)
        ),
        *(({"adaptive": {"min": wrong}}, "adaptive") for wrong in (0, True, 2)),
        *(({"adaptive": {"pause_s": wrong}}, "adaptive.pause_s") for wrong in (NAN, -1, True)),
        *(({"name": wrong}, "name") for wrong in ("a/b", "a\n", "é", "")),
        ({"limits": 3}, "limits: unknown key; allowed: adaptive"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(fields, where):
    with pytest.raises(ConfigError) as error:
        read(**fields)
    assert where in str(error.value)
    assert "slots.yaml: pools.0" in str(error.value)


@pytest.mark.pure
async def test_a_call_that_fits_more_pools_than_it_can_have_is_denied_and_told_which():
    pools = [{"name": f"p{number}", "tools": "read", "limit": 9} for number in range(9)]
    async with trial(Slots, config={"pools": pools}) as here:
        denied = await here.ask("read", phase="admit")
    assert denied.action == "deny"
    assert "9 pools, and a call can have 8" in denied.reason
    async with trial(Slots, config={"pools": pools[1:]}) as here:
        assert (await here.ask("read", phase="admit")).action == "continue"


KEYS = [
    "é/日本", "a\tb\nc\0d", "{x}:*?[", "/", "", " ", "k" * 10_000, 7, 7.5, NAN, True, None, 10**40,
    ["a", {"b": 1}], {"deep": {"er": ["x" * 5000]}},
]  # fmt: skip


@pytest.mark.parametrize("kind", ["memory", "redis"])
async def test_whatever_stands_at_the_key_has_a_slot_of_its_own_and_is_shown(kind, request, namespace):
    (pool,) = (config := read(key="$.path", wait_s=0)).pools
    commands = RedisCommands(request.getfixturevalue("server_url"), "test")
    queues = MemoryQueues() if kind == "memory" else RedisQueues(commands, namespace)
    queue, given = queues.find("slots"), []
    for _ in range(2):
        for path in KEYS:
            call = question("read", {"path": path}, agent="é" * 300, session="s" * 300)
            assert find_pools(config, call) == [pool]
            ticket = await queue.ask(request_of([pool], call, "owner"))
            given.append(ticket.status == "given")
    assert given == [True] * len(KEYS) + [False] * len(KEYS)
    if kind == "redis":
        shown = await read_queue(commands, namespace, "slots")
        assert len({one.name for one in shown}) == sum(len(one.held) for one in shown) == len(KEYS)
    await commands.aclose()
