"""Values that JSON has not: rules see what they are, and the tool is given the very objects."""

import collections
import dataclasses
import datetime
import decimal
import enum
import ipaddress
import os
import pathlib
import types
import uuid
from typing import NamedTuple

import pytest
from pydantic import BaseModel, Field, RootModel, SecretStr
from toolgate_bus.protocol.events import AskUser, Continue, Modify
from toolgate_bus.ruling.conditions.placeholder_schema import make_check, validator_of
from toolgate_orchestrator.gate.shown_call import question_about, shown_call
from toolgate_schedulers.shipped.policy import PolicyConfig, rule_on

pytestmark = pytest.mark.pure


class Colour(enum.Enum):
    RED = "red"


class Level(enum.StrEnum):
    HIGH = "high"


class Rank(enum.IntEnum):
    TOP = 7


class LyingText(str):
    def __str__(self):
        return "harmless"

    def __eq__(self, other):
        return other == "harmless"

    __hash__ = str.__hash__


class LyingNumber(int):
    def __str__(self):
        return "1"

    def __index__(self):
        return 1

    def __eq__(self, other):
        return other == 1

    __hash__ = int.__hash__


class Place(NamedTuple):
    path: str
    line: int = 1


@dataclasses.dataclass
class Payment:
    amount: decimal.Decimal
    to: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    amount: int


class Mail(BaseModel):
    to: list[str]
    sender: str = Field(default="me", alias="from")
    note: str = Field(default="", exclude=True)


class Names(RootModel[list[str]]):
    pass


class Folder(os.PathLike):
    def __fspath__(self):
        return "/etc/passwd"

    def __str__(self):
        return "harmless"


IDENTITY = uuid.UUID(int=7)
DAY = datetime.date(2026, 11, 28)
MOMENT = datetime.datetime(2026, 11, 28, 9, 30, tzinfo=datetime.UTC)

SEEN = [
    ("a path", pathlib.Path("x/.env"), {"arg": "*.env"}),
    ("a path of bytes", Folder(), {"arg": "/etc/*"}),
    ("a uuid", IDENTITY, {"arg": str(IDENTITY)}),
    ("a date", DAY, {"arg": "2026-11-*"}),
    ("a moment", MOMENT, {"arg": "2026-11-28T09:30*"}),
    ("a time", datetime.time(9, 30), {"arg": "09:30*"}),
    ("a whole decimal", decimal.Decimal("5000.00"), {"arg": {"gt": 100}}),
    ("a whole decimal, exactly", decimal.Decimal("5E+3"), {"arg": {"equals": 5000}}),
    ("a decimal", decimal.Decimal("5000.50"), {"arg": {"gt": 100}}),
    (
        "a decimal of many digits",
        decimal.Decimal("1000000000000000000000000000000000.10"),
        {"arg": {"gt": 100}},
    ),
    ("an enum", Colour.RED, {"arg": "red"}),
    ("an enum of texts", Level.HIGH, {"arg": "high"}),
    ("an enum of numbers", Rank.TOP, {"arg": {"gt": 5}}),
    ("a text that lies", LyingText("rm -rf /"), {"arg": "rm *"}),
    ("a number that lies", LyingNumber(5000), {"arg": {"gt": 100}}),
    ("an address", ipaddress.ip_address("10.0.0.1"), {"arg": "10.*"}),
    ("a tuple", ("a", pathlib.Path("x/.env")), {"arg.1": "*.env"}),
    ("a named tuple", Place("x/.env"), {"arg.path": "*.env"}),
    ("a set", {"eve@evil.example", "bob@good.example"}, {"arg.1": "eve@*"}),
    ("a frozen set", frozenset({pathlib.Path("b"), pathlib.Path("a")}), {"arg.0": "a"}),
    ("a dataclass", Payment(decimal.Decimal(5000)), {"arg.amount": {"gt": 100}}),
    ("a dataclass with slots", Slotted(5000), {"arg.amount": {"gt": 100}}),
    ("a dataclass in a list", [Payment(decimal.Decimal(5000))], {"arg.0.amount": {"gt": 100}}),
    ("a model", Mail(to=["eve@evil.example"]), {"arg.to.0": "eve@*"}),
    ("a model's field by its alias", Mail(to=[], **{"from": "eve"}), {"arg.from": "eve"}),
    ("a model's field by its name", Mail(to=[], **{"from": "eve"}), {"arg.sender": "eve"}),
    ("a model's field that it never dumps", Mail(to=[], note="secret"), {"arg.note": "secret"}),
    ("a model of one value", Names(["eve"]), {"arg.0": "eve"}),
    ("a mapping", types.MappingProxyType({"path": pathlib.Path("x/.env")}), {"arg.path": "*.env"}),
    ("a default dict", collections.defaultdict(list, a="b"), {"arg.a": "b"}),
    ("an ordered dict", collections.OrderedDict(a="b"), {"arg.a": "b"}),
    ("a chain of maps", collections.ChainMap({"a": "b"}), {"arg.a": "b"}),
    ("a key that is an enum", {Level.HIGH: "b"}, {"arg.high": "b"}),
    ("a key that is a number", {1: "b"}, {"arg.1": "b"}),
]


class Hostile:
    """Raises whatever is asked of it."""

    def __getattr__(self, name):
        raise RuntimeError(name)

    def __str__(self):
        raise RuntimeError

    __repr__ = __iter__ = __len__ = __eq__ = __fspath__ = __bool__ = __str__
    __hash__ = object.__hash__


class Disguised:
    """Says that it is a harmless text."""

    __class__ = str

    def __str__(self):
        return "harmless"


class LyingMap(dict):
    def items(self):
        return {"path": "harmless"}.items()

    def __getitem__(self, key):
        return "harmless"


class LyingList(list):
    def __iter__(self):
        return iter(["harmless"])


class EndlessMap(collections.abc.Mapping):
    def __getitem__(self, key):
        return self

    def __iter__(self):
        number = 0
        while True:
            yield str(number)
            number += 1

    def __len__(self):
        return 1


class TwoFaced(str, enum.Enum):
    FACE = "harmless"

    def __new__(cls, value):
        made = str.__new__(cls, "rm -rf /")
        made._value_ = value
        return made


def of_itself():
    """A dataclass that holds itself."""
    made = Payment(decimal.Decimal(1))
    made.to = made
    return made


UNSEEN = [
    object(),
    b"rm -rf /",
    bytearray(b"rm -rf /"),
    memoryview(b"rm"),
    Hostile(),
    Disguised(),
    LyingMap(path="x/.env"),
    LyingList(["x/.env"]),
    EndlessMap(),
    TwoFaced.FACE,
    SecretStr("hidden"),
    {object()},
    1j,
    datetime.timedelta(1),
    (number for number in ()),
    {(1, 2): "b"},
    {1: "a", "1": "b"},
]


CONDITIONS = ["harmless", {"matches": "z"}, {"gt": 100}, {"in": ["a", 1]}, {"equals": 5}, {"glob": "z*"}]


async def policy(world, *whens, default="allow", action="deny"):
    """A gate on a policy with one rule for each tool: `tool-0`, `tool-1` …"""
    rules = [{"tools": f"tool-{number}", "when": when, "action": action} for number, when in enumerate(whens)]
    config = PolicyConfig.model_validate({"rules": rules, "default": default})
    await world.scheduler("policy", lambda call: rule_on(config, call))
    return await world.gate()


@pytest.mark.parametrize(("value", "when"), [one[1:] for one in SEEN], ids=[one[0] for one in SEEN])
async def test_a_rule_sees_what_has_a_plain_form(world, value, when):
    gate = await policy(world, when)
    denied = await gate.decide("tool-0", {"arg": value}, ["tool-0"])
    assert (denied.outcome, denied.why) == ("deny", "denied")
    assert denied.reason == "tool-0 is not allowed (rule 1)"


@pytest.mark.parametrize(("value", "when"), [one[1:] for one in SEEN], ids=[one[0] for one in SEEN])
async def test_what_is_seen_allows_as_well_and_the_tool_is_given_the_object(world, value, when):
    gate = await policy(world, when, default="deny", action="allow")
    allowed = await gate.decide("tool-0", {"arg": value}, ["tool-0"])
    assert allowed.outcome == "continue"
    given = allowed.tool_input["arg"]
    assert given is value or (type(given) is type(value) and type(given) in (list, tuple, dict, set))


@pytest.mark.parametrize("value", UNSEEN, ids=lambda value: type(value).__name__)
async def test_what_has_no_plain_form_counts_against_the_call(world, value):
    path = "arg.key" if type(value) is dict else "arg"  # a map is known to be one
    gate = await policy(world, *({path: one} for one in CONDITIONS))
    for number, condition in enumerate(CONDITIONS):
        denied = await gate.decide(f"tool-{number}", {"arg": value}, [])
        assert denied.outcome == "deny", condition


@pytest.mark.parametrize("value", UNSEEN, ids=lambda value: type(value).__name__)
async def test_what_has_no_plain_form_earns_nothing(world, value):
    gate = await policy(world, {"arg": "harmless"}, default="deny", action="allow")
    assert (await gate.decide("tool-0", {"arg": value}, [])).outcome == "deny"
