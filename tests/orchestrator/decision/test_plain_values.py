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
from toolgate_bus.protocol.events import AskUser, Continue
from toolgate_bus.ruling.conditions.placeholder_schema import SchemaCheck, validator_of
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.question.canonical import canonicalize
from toolgate_orchestrator.decision.question.plain_values import copy_arguments, to_plain
from toolgate_orchestrator.decision.question.shown_call import question_about, shown_call
from toolgate_schedulers.shipped.loop_guard import fingerprint_call
from toolgate_schedulers.shipped.policy.scheduler import PolicyConfig, rule_on

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


class MapWithOtherItems(dict):
    def items(self):
        return {"path": "harmless"}.items()


class MapWithOtherValues(dict):
    def values(self):
        return ["harmless"]


class MapThatGetsOther(dict):
    def get(self, key, default=None):
        return "harmless"


class ListWithOtherMembers(list):
    def __getitem__(self, place):
        return "harmless"


class PlaceOnly(NamedTuple):
    path: str


class TupleWithOtherFields(PlaceOnly):
    path = property(lambda self: "harmless")


@dataclasses.dataclass
class RecordThatReadsOther:
    path: str

    def __getattribute__(self, name):
        return "harmless" if name == "path" else object.__getattribute__(self, name)


class ModelThatReadsOther(BaseModel):
    path: str

    def __getattribute__(self, name):
        return "harmless" if name == "path" else BaseModel.__getattribute__(self, name)


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


class TwoFaced(str, enum.Enum):  # noqa: UP042 - a StrEnum cannot be one thing and say another
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


TWO_WAYS = [
    MapWithOtherItems(path="x/.env"),
    MapWithOtherValues(path="x/.env"),
    MapThatGetsOther(path="x/.env"),
    ListWithOtherMembers(["x/.env"]),
    TupleWithOtherFields("x/.env"),
    RecordThatReadsOther("x/.env"),
    ModelThatReadsOther(path="x/.env"),
]


UNSEEN = [
    *TWO_WAYS,
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
    denied = await gate.decide(Call("tool-0", {"arg": value}, ["tool-0"]))
    assert (denied.outcome, denied.why) == ("deny", "denied")
    assert denied.reason == "tool-0 is not allowed (rule 1)"


@pytest.mark.parametrize(("value", "when"), [one[1:] for one in SEEN], ids=[one[0] for one in SEEN])
async def test_what_is_seen_allows_as_well_and_the_tool_is_given_the_object(world, value, when):
    gate = await policy(world, when, default="deny", action="allow")
    allowed = await gate.decide(Call("tool-0", {"arg": value}, ["tool-0"]))
    assert allowed.outcome == "continue"
    given = allowed.tool_input["arg"]
    assert given is value or (type(given) is type(value) and type(given) in (list, tuple, dict, set))


@pytest.mark.parametrize("value", UNSEEN, ids=lambda value: type(value).__name__)
async def test_what_has_no_plain_form_counts_against_the_call(world, value):
    path = "arg.key" if type(value) is dict else "arg"  # a map is known to be one
    gate = await policy(world, *({path: one} for one in CONDITIONS))
    for number, condition in enumerate(CONDITIONS):
        denied = await gate.decide(Call(f"tool-{number}", {"arg": value}, []))
        assert denied.outcome == "deny", condition


@pytest.mark.parametrize("kind", ["string", "number", "array", "object"])
async def test_what_has_no_plain_form_may_be_of_any_type(world, kind):
    rule = {"tools": "*", "schema": {"properties": {"arg": {"type": kind}}}, "action": "deny"}
    config = PolicyConfig.model_validate({"rules": [rule]})
    await world.scheduler("policy", lambda call: rule_on(config, call))
    denied = await (await world.gate()).decide(Call("tool", {"arg": object()}, []))
    assert denied.outcome == "deny"


@pytest.mark.parametrize("value", UNSEEN, ids=lambda value: type(value).__name__)
async def test_what_has_no_plain_form_earns_nothing(world, value):
    gate = await policy(world, {"arg": "harmless"}, default="deny", action="allow")
    assert (await gate.decide(Call("tool-0", {"arg": value}, []))).outcome == "deny"


@pytest.mark.parametrize(
    "arguments",
    [["amount", 5000], [("amount", 5000)], "amount", Hostile(), Slotted(5000)],
    ids=["list", "pairs", "text", "hostile", "dataclass"],
)
async def test_arguments_that_are_no_map_count_against_the_call_whatever_a_rule_looks_at(world, arguments):
    gate = await policy(world, {"amount": {"gt": 100}})
    assert (await gate.decide(Call("tool-0", arguments, []))).outcome == "deny"
    assert (await gate.decide(Call("tool-0", None, []))).tool_input == {}


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"arg": 2**70}, "a number that no wire carries"),
        ({"arg": -(2**70)}, "the same below"),
        ({"arg": 10**6000}, "a number of more digits than Python writes"),
        ({"arg": ["x" * 70_000]}, "a text that is too long, in a list"),
    ],
)
async def test_what_the_wire_cannot_carry_is_unknown_to_a_rule_and_runs_exactly(world, arguments, why):
    tests = [{"gt": 100}, {"lt": -100}, {"equals": arguments["arg"]}]
    gate = await policy(world, *({"arg": test} for test in tests))
    if isinstance(arguments["arg"], int):
        assert [(await gate.decide(Call(f"tool-{n}", arguments, []))).outcome for n in range(3)] == [
            "deny"
        ] * 3
    assert (await gate.decide(Call("tool", arguments, []))).tool_input == arguments


@pytest.mark.parametrize("secret", [{}, {"fields": ["password"]}])
@pytest.mark.parametrize("number", [2**63, 2**64 - 1, -(2**63)])
async def test_a_number_of_64_bits_travels_whether_anything_is_secret_or_not(world, number, secret):
    seen = []
    await world.scheduler("sees", lambda call: seen.append(call.tool_input) or Continue())
    await (await world.gate(redact=secret)).decide(Call("tool", {"n": number}, []))
    assert seen == [{"n": number}]


def test_a_placeholder_of_no_type_is_unknown_to_a_schema_as_well():
    hidden = f"⟦toolgate:truncated:7{'0' * 31}⟧"
    check = SchemaCheck(validator_of({}), {"properties": {"arg": {"type": "string"}}})
    assert check({"arg": hidden}) is None


async def fingerprints(world, *values):
    """What loop-guard tells calls with these arguments apart by."""
    seen = []
    await world.scheduler("sees", lambda call: seen.append(fingerprint_call(call).call) or Continue())
    gate = await world.gate()
    for value in values:
        await gate.decide(Call("tool", {"arg": value}, []))
    return seen


@pytest.mark.parametrize(
    "make",
    [
        lambda: pathlib.Path("a"),
        lambda: decimal.Decimal("1.10"),
        lambda: {"b", "a", "c"},
        lambda: [Payment(decimal.Decimal(1), ("x",))],
        lambda: Mail(to=["a"]),
        lambda: b"raw",
        lambda: bytearray(b"raw"),
        lambda: {"b": 2**70, "a": 1},
    ],
)
async def test_equal_values_are_the_same_call_to_who_counts_repeats(world, make):
    assert len(set(await fingerprints(world, make(), make()))) == 1


async def test_an_object_is_the_same_as_itself_alone_even_where_another_takes_its_place(world):
    one = Hostile()
    assert len(set(await fingerprints(world, one, one))) == 1
    marks = set()
    for _ in range(50):  # each likely stands where the one before it stood
        marks.add(canonicalize(Hostile()))
        marks.add(canonicalize(object()))
    assert len(marks) == 100


def test_bytes_are_equal_for_equal_values_alone_however_large_these_are():
    wide = [0] * 5_000
    other = [*wide[:2_500], 1, *wide[2_501:]]
    assert canonicalize(wide) == canonicalize(list(wide)) != canonicalize(other)
    long = "x" * 3_000_000
    assert canonicalize(long) != canonicalize(f"{long[:1_500_000]}y{long[1_500_001:]}")
    many = [[0] for _ in range(5_000)]
    assert canonicalize([many]) != canonicalize([[*many[:-1], [1]]])
    assert canonicalize({"a": 1, "b": 2.0}) == canonicalize({"b": 2, "a": 1.0})
    assert canonicalize({"a": True}) != canonicalize({"a": 1})


def test_a_person_is_shown_the_plain_form_and_no_words_of_an_object():
    told = shown_call("pay", {"to": LyingText("eve"), "by": Folder(), "what": Disguised(), "raw": b"x"})
    assert told == 'pay {"to": "eve", "by": "/etc/passwd", "what": "⟦Disguised⟧", "raw": "⟦bytes⟧"}'
    assert "eve" in shown_call("pay", {"to": "eve", "odd": {(1, 2): 3}, "digits": 10**6000})
    assert "⟦Hostile⟧" in question_about(AskUser(prompt="?"), "pay", {"odd": Hostile(), "cause": of_itself()})


def test_a_plain_value_is_given_back_as_it_is():
    value = {"a": [1, 2.5, None, True, "x", {"b": []}], "c": {}}
    assert to_plain(value) is value


def test_reading_ends_however_much_a_value_holds():
    value = [EndlessMap() for _ in range(1_000)]
    assert to_plain(value) is value
    branch = ()
    for _ in range(60):
        branch = types.MappingProxyType({"a": branch, "b": branch})
    assert to_plain({"branch": branch})


def nest(value, levels):
    """A value below so many maps."""
    for _ in range(levels):
        value = {"k": value}
    return value


def dig(value, levels):
    """The value that such a map holds."""
    for _ in range(levels):
        value = value["k"]
    return value


def test_what_is_too_deep_or_too_large_to_travel_is_copied_as_well():
    leaf, own, pad = {"path": "ok"}, [], [[0]] * 200_100
    own.append(own)
    tuples = leaf
    for _ in range(100):
        tuples = (tuples,)
    given = {
        "deep": nest(leaf, 70),
        "pad": pad,
        "wide": nest(leaf, 5),
        "self": nest(own, 70),
        "tuples": tuples,
    }
    copied = copy_arguments(given)
    leaf["path"] = "x/.env"
    assert dig(copied["deep"], 70) == dig(copied["wide"], 5) == {"path": "ok"}
    own_copied = dig(copied["self"], 70)
    assert own_copied is not own
    assert own_copied[0] is own_copied
    within = copied["tuples"]
    for _ in range(100):
        (within,) = within
    assert within == {"path": "ok"}


@pytest.mark.parametrize("value", TWO_WAYS, ids=lambda value: type(value).__name__)
def test_a_container_that_reads_in_two_ways_has_no_plain_form(value):
    assert to_plain(value) is value
