"""What a pool may say, and what is refused by the name of its field; whatever a call brings, it has a key."""

import pytest
from toolgate_bus.config.check import check
from toolgate_bus.errors import ConfigError
from toolgate_bus.ledger.slots.redis import MemoryQueues, RedisQueues
from toolgate_bus.ledger.slots.view import read_queue
from toolgate_bus.protocol.placeholders import MARK
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_schedulers.shipped.slots.config import SlotsConfig, find_pools, request_of
from toolgate_schedulers.shipped.slots.scheduler import Slots
from toolgate_schedulers.testing import question, trial

NAN = float("nan")
HIDDEN = f"{MARK}redacted:4{'0' * 31}⟧"


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
    assert "needs 9 slots, and a call can have 8" in denied.reason
    async with trial(Slots, config={"pools": pools[1:]}) as here:
        assert (await here.ask("read", phase="admit")).action == "continue"


@pytest.mark.pure
async def test_a_call_that_names_several_places_needs_a_slot_of_each():
    async with trial(
        Slots, config={"pools": [{"name": "file", "tools": "read", "key": "$.path", "wait_s": 0}]}
    ) as here:

        async def action(path):
            return (await here.ask("read", {"path": path}, phase="admit")).action

        assert await action(["/a", "/b/../a", "/c"]) == "continue"
        assert [await action(path) for path in ("/a", ["/d", "/c"], "/./c", "/b")] == [
            "deny",
            "deny",
            "deny",
            "continue",
        ]
        assert await action([f"/{number}" for number in range(9)]) == "deny"


KEYS = [
    "é/日本", "a\tb\nc", "{x}:*?[", "/", "", "k" * 3_000, 7, 7.5, NAN, True, None, 10**40, "1e3",
    [{"b": 1}], {"deep": {"er": ["x" * 3000]}}, "Müller GmbH & Co. KG", "https://example.org/a?b=c",
]  # fmt: skip
"""Values of which each is a place of its own."""


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


def keys(written, value):
    (pool,) = read(key=written).pools
    return [need.pool for need in request_of([pool], question("read", {"path": value}), "owner").needs]


@pytest.mark.pure
@pytest.mark.parametrize(
    ("one", "others"),
    [
        (
            "a.txt",
            [
                "./a.txt",
                "a/../a.txt",
                "a.txt/",
                ".//a.txt",
                "x\\..\\a.txt",
                "a.txt.",
                "a.txt ",
                "%61.txt",
                "a%2etxt",
                "ａ.txt",
                ["a.txt"],
                "b/%2e%2e/a.txt",
                "b/.. /a.txt",
            ],
        ),
        ("/srv/a", ["//srv//a", "/srv/./a", "/srv/b/../a", "/../srv/a", "file:///srv/a", "FILE:/srv/x/../a"]),
        ("C:\\Work\\a", ["c:/work/a", "C:/work/./A", "file:///C:/work/a"]),
        (
            "https://example.org/a",
            [
                "HTTPS://EXAMPLE.org:443/a",
                "https://example.org./a",
                "https://example.org/b/../a",
                "http://example.org/%61",
                "https://u:p@example.org/a#1",
                "example.org/a",
                "https://example.org/a/",
            ],
        ),
        ("https://müller.de/ä", ["https://xn--mller-kva.de/%C3%A4", "https://MÜLLER.DE/ä"]),
        ({"a": 1, "b": [2]}, [{"b": [2], "a": 1}, {"a": 1.0, "b": 2}]),
        (["x", "y"], [["y", "x"], ["x", "y", "./x"]]),
        (7, ["7", 7.0, [7]]),
        ("x", [{"path": "x"}, [{"path": "./x"}]]),
    ],
)
def test_one_place_in_several_spellings_has_one_slot(one, others):
    assert [other for other in others if keys("$.path", other) != keys("$.path", one)] == []


@pytest.mark.pure
@pytest.mark.parametrize(
    "url",
    [
        "HTTP://EXAMPLE.ORG/",
        "https://example.org.",
        "https://u@example.org:8443/b?c",
        "https://ex%61mple.org/",
        "https://ｅｘａｍｐｌｅ。org",
        "//example.org/a",
        "example.org/a",
        ["https://example.org"],
        "https:example.org",
        "https:\\\\example.org\\a",
        " http:///example.org",
        [{"email": "https://example.org"}],
    ],
)
def test_one_host_in_several_spellings_has_one_slot(url):
    assert keys("$.path#host", url) == ["file/example.org"]


@pytest.mark.pure
def test_a_text_of_json_needs_a_slot_for_itself_and_for_what_is_in_it():
    assert keys("$.path", '"x"') == ['file/"x"', "file/x"]
    assert keys("$.path#host", '["https://a.b"]') == ["file/?", "file/a.b"]
    assert keys("$.path", '[["x"], {"path": "y"}]')[-2:] == ["file/x", "file/y"]


@pytest.mark.pure
def test_numeric_hosts_and_idn_are_one_host_each_and_other_letters_another():
    for one in ("127.0.0.1", "0x7f.1", "2130706433", "[::ffff:7f00:1]"):
        assert keys("$.path#host", f"http://{one}/") == ["file/127.0.0.1"]
    assert keys("$.path#host", "https://straße.example") != keys("$.path#host", "https://strasse.example")


@pytest.mark.pure
@pytest.mark.parametrize(
    ("written", "values"),
    [
        (
            "$.path",
            [
                "~/a",
                "~eve/a",
                "$HOME/a",
                "a\0b",
                "",
                " ",
                "file://host/a",
                "https:\\\\example.org",
                "https:example.org",
                "https:\\\\example.org\\a",
                "https://a@b@c.example",
                "a/.../b",
                "k" * 5000,
                HIDDEN,
                {"path": HIDDEN},
                ["a", HIDDEN],
            ],
        ),
        (
            "$.path#host",
            [
                "https://example.org\\@evil.example",
                "https://a..b/",
                "",
                7,
                None,
                {},
                HIDDEN,
                "https://127.0.0.01/",
                "mailto:a@example.org",
                "https://a b/",
            ],
        ),
    ],
)
def test_what_has_no_one_reading_shares_one_slot(written, values):
    assert all("file/?" in keys(written, value) for value in values)
