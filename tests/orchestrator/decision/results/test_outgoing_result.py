"""A result as schedulers see it, and the way back from a part of that to a part of the result."""

import dataclasses
import itertools
import json
import time
from argparse import Namespace
from array import array
from collections import ChainMap, UserDict, UserList, deque
from collections.abc import Iterable
from contextvars import ContextVar
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from functools import cached_property, partialmethod, wraps
from inspect import Parameter
from pathlib import PurePosixPath
from reprlib import recursive_repr
from subprocess import CalledProcessError, TimeoutExpired
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, NamedTuple
from urllib.error import URLError
from weakref import proxy

import pytest
from bus_strategies import json_values
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from pydantic import (
    BaseModel,
    ConfigDict,
    PlainSerializer,
    PrivateAttr,
    RootModel,
    SecretStr,
    computed_field,
    field_serializer,
    model_serializer,
)
from pydantic.dataclasses import dataclass as model_dataclass
from pydantic_core import core_schema
from toolgate_bus.protocol.events import Mask, MaskedPart
from toolgate_bus.protocol.json_values import MAX_DEPTH, read_json, same_json
from toolgate_bus.protocol.packing import MAX_QUESTION
from toolgate_bus.ruling.results import UnknownPart, find_part, mask_parts
from toolgate_orchestrator.decision.config import RedactConfig
from toolgate_orchestrator.decision.question.question import UnreadableQuestion
from toolgate_orchestrator.decision.question.redact import HIDDEN, Redactor
from toolgate_orchestrator.decision.results.outgoing_result import (
    describe_error,
    explain_mask,
    read_result,
    send_result,
    write_plain,
)

pytestmark = pytest.mark.pure

PLAIN = Redactor(RedactConfig())
CAREFUL = Redactor(RedactConfig(fields=("password",), patterns=("sk-[0-9]+",)), clock=lambda: 0.0)
LIMIT = 65_536


def send(result, redactor=PLAIN, secrets=(), limit=LIMIT, **more):
    return send_result(result, redactor, secrets, limit, **more)


def shown(outgoing):
    """What a scheduler reads of it."""
    data = outgoing.sent.data
    return data.decode() if outgoing.sent.form == "text" else read_json(data, limit=MAX_QUESTION)


def part(path="", start=None, end=None, name=""):
    return MaskedPart(path, start, end, name)


# ------------------------------------------------------------------ what is sent


def test_a_text_is_sent_as_it_is_and_any_other_value_as_json():
    assert send("ä text").sent == ("text", "ä text".encode(), True, False)
    assert send({"a": [1, None]}).sent == ("json", b'{"a":[1,null]}', True, False)
    assert send(None, success=False).sent == ("json", b"null", False, False)


@dataclasses.dataclass
class Row:
    name: str
    at: PurePosixPath


class Kind(Enum):
    CARD = "card"


class Mute:
    def __str__(self):
        raise RuntimeError("no")


class Opaque:
    def __str__(self):
        return "an opaque thing"


class Customer(BaseModel):
    first: str
    born: datetime = datetime(2000, 1, 1, tzinfo=UTC)

    @computed_field
    @property
    def mail(self) -> str:
        return f"{self.first}@ok.example"


class Login(BaseModel):
    token: SecretStr
    kept: str = "long"

    @field_serializer("token", when_used="json")
    def tell(self, token):
        return token.get_secret_value()

    @field_serializer("kept")
    def cut(self, kept):
        return kept[:1]


@dataclasses.dataclass
class Spoken:
    key: str

    def __str__(self):
        return f"my key is {self.key}-1"


class SpokenKind(Enum):
    CARD = "card"

    def __str__(self):
        return "a card"


class Written(BaseModel, extra="allow"):
    a: int = 1

    def __repr_args__(self):
        yield "key", "sk-1"


@dataclasses.dataclass
class Silent:
    key: str = dataclasses.field(repr=False)


class Dumped(BaseModel):
    parts: tuple[str, str] = ("sk-", "1")

    @model_serializer
    def join(self) -> str:
        return "".join(self.parts)


class Broken(BaseModel):
    raw: bytes = b"\xff"

    @computed_field
    @property
    def wrong(self) -> str:
        raise RuntimeError

    @computed_field
    @property
    def key(self) -> str:
        return "sk-1"


@dataclasses.dataclass
class Entry(dict):
    a: str


def make_entry():
    entry = Entry("hi")
    entry["key"] = "sk-1"
    return entry


@dataclasses.dataclass
class Listed(list):
    a: str
    rows: list


CUSTOMER = {"first": "ann", "born": "2000-01-01T00:00:00+00:00", "mail": "ann@ok.example"}


@pytest.mark.parametrize(
    ("result", "seen"),
    [
        (Customer(first="ann"), CUSTOMER),
        ({"all": [Customer(first="ann")]}, {"all": [CUSTOMER]}),
        (
            Login(token=SecretStr("ghp_1")),
            {"token": ["**********\nSecretStr('**********')", "ghp_1"], "kept": ["long", "l"]},
        ),
        ([Spoken("sk-1")], [{"key": "sk-1", "its text": "my key is sk-1-1"}]),
        ({"kind": SpokenKind.CARD}, {"kind": ["card", "a card"]}),
        (Broken(), {"raw": "b'\\xff'", "key": "sk-1"}),
        (Dumped(), {"parts": ["sk-", "1"], "its dump": "sk-1"}),
        ({None: Silent("sk-1")}, {"None": {"key": "sk-1"}}),
        (
            Written.model_validate({"its text": "x"}),
            {"a": 1, "its text": "x", "its text 2": "Written(key='sk-1')\nkey='sk-1'"},
        ),
        (Row("n", PurePosixPath("/x")), {"name": "n", "at": "/x"}),
        ((1, Kind.CARD, {2: b"x", None: b"\xff"}), [1, "card", {"2": "x", "None": "b'\\xff'"}]),
        ((1, Kind.CARD), [1, "card"]),
        ({1: "a"}, {"1": "a"}),
        (Opaque(), "an opaque thing"),
        ([Opaque.__name__, Opaque], ["Opaque", f"{Opaque!r}"]),
        ({"in": timedelta(days=3)}, {"in": "3 days, 0:00:00\ndatetime.timedelta(days=3)"}),
        (["a", ValueError("wrong")], ["a", "ValueError: wrong"]),
        ("ä".encode(), "ä"),
        (memoryview("ä".encode()), "ä"),
        ([memoryview(b"\xff")], ["b'\\xff'"]),
        ({"all": array("B", b"sk")}, {"all": "sk\narray('B', [115, 107])"}),
        (array("B", b"\xff"), "array('B', [255])"),
        (
            ChainMap({"a": "b"}, {"a": "sk-1"}),
            {"a": "b", "its text": "ChainMap({'a': 'b'}, {'a': 'sk-1'})"},
        ),
        (make_entry(), [{"a": "hi"}, {"key": "sk-1"}]),
        (Listed("hi", [1]), [{"a": "hi", "rows": [1]}, []]),
        (float("nan"), "nan"),
        ({"a": float("-inf")}, {"a": "-inf"}),
        ("half \ud83d", "half ?"),
        ({"\ud83d": "\ud83d"}, {"?": "?"}),
        ({"\ud83d": 1, "?": 2}, {"?": 1, "? 1": 2}),
        ([0] * 2000, [0] * 2000),
    ],
)
def test_a_value_of_any_kind_is_sent_in_a_form_that_can_be_read(result, seen):
    outgoing = send(result)
    assert shown(outgoing) == seen
    assert outgoing.value == seen


class Card:
    def __init__(self, number):
        self.number = number

    def __repr__(self):
        return "a card"


class SchemedCard(Card):
    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        told = core_schema.plain_serializer_function_ser_schema(lambda card: card.number)
        return core_schema.is_instance_schema(cls, serialization=told)


ToldCard = Annotated[Card, PlainSerializer(lambda card: card.number)]
ANY = ConfigDict(arbitrary_types_allowed=True)


class Optional(BaseModel):
    model_config = ANY
    card: ToldCard | None = None


class Cards(BaseModel):
    model_config = ANY
    card: list[ToldCard]
    kept: str = "a"
    inner: "Cards | None" = None


class Schemed(BaseModel):
    card: SchemedCard


with pytest.warns(DeprecationWarning, match="json_encoders"):

    class Encoded(BaseModel):
        model_config = ConfigDict(**ANY, json_encoders={Card: lambda card: card.number})
        card: Card


class Held(BaseModel):
    held: Optional
    kept: SecretStr


class Rooted(RootModel):
    model_config = ANY
    root: list[ToldCard]


class Overridden(BaseModel):
    a: str = "x"

    def model_dump(self, **_):
        return {"key": "sk-1"}

    def model_dump_json(self):
        return "sk-2"


@model_dataclass(config=ANY)
class Dataclass:
    card: ToldCard


@pytest.mark.parametrize(
    ("result", "seen"),
    [
        (Optional(card=Card("sk-1")), {"card": ["a card", "sk-1"]}),
        (Cards(card=[Card("sk-1")]), {"card": [["a card"], ["sk-1"]], "kept": "a", "inner": None}),
        (Schemed(card=SchemedCard("sk-1")), {"card": ["a card", "sk-1"]}),
        (Encoded(card=Card("sk-1")), {"card": ["a card", "sk-1"]}),
        (
            Held(held=Optional(card=Card("sk-1")), kept="b"),
            {"held": {"card": ["a card", "sk-1"]}, "kept": "**********\nSecretStr('**********')"},
        ),
        (Rooted([Card("sk-1")]), [["a card"], ["sk-1"]]),
        (Overridden(), {"a": "x", "key": "sk-1", "its dump": "sk-2"}),
        ([Dataclass(Card("sk-1"))], [{"card": ["a card", "sk-1"]}]),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_field_that_anything_dumps_as_another_value_is_a_list_of_both(result, seen):
    assert shown(send(result)) == seen


@dataclasses.dataclass
class Signed:
    name: str

    def __post_init__(self):
        self.token = "sk-1"

    def __repr__(self):
        return f"Signed(name={self.name!r}, token={self.token!r})"


@dataclasses.dataclass
class Ringed(Signed):
    @recursive_repr()
    def __repr__(self):
        return "Ringed sk-1"


@dataclasses.dataclass
class Wrapped:
    name: str


Wrapped.__repr__ = wraps(Wrapped.__repr__)(lambda _: "Wrapped sk-1")


class SignedModel(BaseModel):
    name: str = "a"

    @cached_property
    def token(self) -> str:
        return "sk-1"

    def __str__(self) -> str:
        return f"name={self.name!r} token={self.token!r}"


class Tokened:
    token: str

    def __str__(self):
        return f"token={self.token!r}"


class SignedMap(Tokened, dict):
    pass


class SignedText(Tokened, str):
    pass


class SignedDay(Tokened, date):
    pass


class SignedKind(Enum):
    CARD = 1

    def __init__(self, _):
        self.token = "sk-1"

    def __str__(self):
        return f"SignedKind(token={self.token!r})"


class Place(NamedTuple):
    row: int


class SignedPlace(Tokened, Place):
    pass


@dataclasses.dataclass
class SignedNumber(float):
    token: str

    def __new__(cls, _):
        return super().__new__(cls, 1.5)


@dataclasses.dataclass
class SignedPair(tuple):
    token: str

    def __new__(cls, _):
        return super().__new__(cls, (1,))


@dataclasses.dataclass(init=False)
class FieldedPlace(Place):
    token: str = "sk-1"


class Named(BaseModel):
    def __repr_name__(self):
        return "Named sk-1"


def with_token(value):
    value.token = "sk-1"
    return value


@pytest.mark.parametrize(
    ("result", "seen"),
    [
        (Signed("a"), {"name": "a", "its text": "Signed(name='a', token='sk-1')"}),
        (Ringed("a"), {"name": "a", "its text": "Ringed sk-1"}),
        (Wrapped("a"), {"name": "a", "its text": "Wrapped sk-1"}),
        (FieldedPlace(1), {"row": 1, "its text": "FieldedPlace(token='sk-1')"}),
        (SignedModel(), {"name": "a", "its text": "name='a' token='sk-1'"}),
        (with_token(SignedMap(a=1)), {"a": 1, "its text": "token='sk-1'"}),
        (with_token(SignedMap(token=1)), {"token": 1, "its text": "token='sk-1'"}),
        (with_token(SignedText("a")), ["a", "token='sk-1'"]),
        (with_token(SignedDay(2000, 1, 1)), ["2000-01-01", "token='sk-1'"]),
        (SignedKind.CARD, [1, "SignedKind(token='sk-1')"]),
        (with_token(SignedPlace(1)), {"row": 1, "its text": "token='sk-1'"}),
        (SignedNumber("sk-1"), [1.5, "SignedNumber(token='sk-1')"]),
        (SignedPair("sk-1"), [[1], "SignedPair(token='sk-1')"]),
        (Named(), {"its text": "Named sk-1()"}),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_text_of_a_class_of_its_own_is_shown_whatever_it_has_besides_what_the_value_holds(result, seen):
    assert shown(send(result)) == seen


class PrintedModel(BaseModel):
    a: int = 1

    def __str__(self):
        return repr(self)


class Rich(PrintedModel):
    @computed_field
    @property
    def wrong(self) -> str:
        raise RuntimeError

    def __str__(self):
        return "rich"


@dataclasses.dataclass
class Counted:
    total: ClassVar[int] = 1
    a: int = 1


class SaidKind(Enum):
    CARD = "card"

    def __str__(self):
        return self.value


class Page(BaseModel):
    """Writes itself as LangChain's documents do."""

    text: str
    tags: dict[str, date]

    def __str__(self):
        return f"text='{self.text}' tags={self.tags}"


@pytest.mark.parametrize(
    ("result", "seen"),
    [
        (PrintedModel(), {"a": 1}),
        (Counted(), {"a": 1}),
        (model_dataclass(Counted)(), {"a": 1}),
        (Kind.CARD, "card"),
        (SaidKind.CARD, "card"),
        (Place(1), {"row": 1}),
        (Rich(), {"a": 1, "its text": "rich"}),
        (Page(text="it's", tags={"n": date(2020, 1, 1)}), {"text": "it's", "tags": {"n": "2020-01-01"}}),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_text_that_has_only_what_is_shown_is_not_sent_besides(result, seen):
    assert shown(send(result)) == seen


@dataclasses.dataclass(frozen=True)
class Holder:
    name: str
    token: str = "sk-1"

    def __str__(self):
        return self.name


class Opaquely:
    def __str__(self):
        return "opaque"

    def __repr__(self):
        return "the key is sk-1"


class Mumbled(int):
    def __str__(self):
        return "n"


class Starred(str):
    __slots__ = ()

    def __str__(self):
        return f"{self[:4]} **** {self[-4:]}"

    __repr__ = __str__


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (Holder("ann"), "ann\n{'name': 'ann', 'token': 'sk-1', 'its text': 'ann'}"),
        (Mumbled(41), "n\n[41, 'n']"),
        (Starred("4111 1111 1111"), "4111 **** 1111\n['4111 1111 1111', '4111 **** 1111']"),
        (Opaquely(), "opaque\nthe key is sk-1"),
        (SpokenKind.CARD, "a card\n['card', 'a card']"),
        (timedelta(3), "3 days, 0:00:00\ndatetime.timedelta(days=3)"),
        (Place(1), "Place(row=1)"),
        (("a", 1), "('a', 1)"),
        (1, "1"),
        (b"a", "b'a'"),
        (Kind.CARD, "card"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_key_has_all_the_ways_in_which_it_may_be_written(key, name):
    assert shown(send({key: 1})) == {name: 1}


def test_what_a_value_computes_may_differ_each_time_and_nothing_of_it_is_consumed():
    class Clock(BaseModel):
        rows: Iterable[int]

        @computed_field
        @property
        def now(self) -> int:
            return time.monotonic_ns()

    clock = Clock(rows=iter([1, 2]))
    outgoing = send(clock)
    assert "now" in shown(outgoing)
    assert outgoing.is_of(clock)
    assert list(clock.rows) == [1, 2]
    customer = Customer(first="ann")
    outgoing, customer.first = send(customer), "eve"
    assert not outgoing.is_of(customer)


def test_what_is_too_deep_or_holds_itself_is_sent_as_its_text():
    deep: list = []
    for _ in range(200):
        deep = [deep]
    ring: list = []
    ring.append(ring)
    for result in (deep, ring):
        found, left = shown(send({"first": 1, "then": result})), result
        assert found["first"] == 1
        found = found["then"]
        while isinstance(found, list):
            (found,), left = found, left[0]
        assert found == str(left)


def too_deep():
    deep: list = []
    for _ in range(20_000):
        deep = [deep]
    return deep


def many_bits():
    return {"n": [10**4200]}


@pytest.mark.parametrize("make", [Mute, lambda: {"a": [Mute()]}, lambda: {Mute(): 1}, too_deep, many_bits])
def test_what_has_no_text_cannot_be_ruled_on(make):
    with pytest.raises(UnreadableQuestion):
        send(make())


@given(json_values | st.text())
def test_whatever_is_sent_is_read_as_what_the_caller_would_get(value):
    outgoing = send(value)
    assert same_json(shown(outgoing), outgoing.value)
    assert len(outgoing.sent.data) == outgoing.size
    assert outgoing.cut == 0


class Named(NamedTuple):
    a: int


class Text(str):
    __slots__ = ()


ODD = st.sampled_from(
    [
        float("nan"),
        float("inf"),
        "\ud83d",
        10**4100,
        -(10**4100),
        (1, 2),
        Named(1),
        Text("t"),
        Kind.CARD,
        b"b",
        {1},
    ]
)
KEYS = st.text(max_size=2) | st.integers(0, 3) | st.sampled_from(["\ud83d", Text("t"), Kind.CARD])
VALUES = st.recursive(
    json_values | ODD,
    lambda one: st.lists(one, max_size=4) | st.dictionaries(KEYS, one, max_size=4),
    max_leaves=8,
)


@given(VALUES)
def test_what_is_written_in_one_step_is_what_would_be_written_value_by_value(value):
    written = write_plain(value)
    if written is not None:
        assert json.dumps(read_json(written)) == json.dumps(read_result(value))
        assert b": " not in written or ": " in json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        assert same_json(send(value).value, read_result(value))


def test_a_map_of_plain_values_is_written_in_one_step_up_to_the_bounds_of_depth_and_numbers():
    deep: list = [2**64 - 1, -(2**63)]
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]
    assert write_plain(deep) == json.dumps(deep, separators=(",", ":")).encode()
    for odd in ([deep], {"a": [2**64]}, {"a": (1,)}, {1: "a"}, {"a": float("nan")}, ["\ud83d"], "text", 5):
        assert write_plain(odd) is None


class MumbledError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def raised(error, cause=None, context=None):
    """An error as it is caught, with what caused it, or with what it came out of."""
    error.__cause__, error.__context__ = cause, context
    error.__suppress_context__ = cause is not None or context is None
    return error


def test_an_error_is_sent_with_the_errors_that_caused_it():
    error = raised(RuntimeError("no row"), cause=KeyError("sk-1"))
    words = "RuntimeError: no row\ncaused by KeyError: 'sk-1'"
    assert describe_error(error) == words
    assert shown(send(error, success=False)) == words
    assert describe_error(raised(RuntimeError("no row"), context=KeyError("sk-1"))) == words


def test_errors_that_cause_each_other_are_told_once_and_each_of_a_long_chain_is_told():
    ring = raised(RuntimeError("a"))
    ring.__cause__ = ring
    assert describe_error(ring) == "RuntimeError: a"
    long = raised(RuntimeError("0"))
    for number in range(1, 20):
        long = raised(RuntimeError(str(number)), cause=long)
    assert describe_error(long).count("RuntimeError") == 20


def test_notes_and_members_of_an_error_are_sent_with_it():
    inner = raised(KeyError("sk-1"), cause=OSError("sk-2"))
    inner.add_note("note sk-3")
    group = raised(ExceptionGroup("two", [ValueError("one"), inner]), cause=RuntimeError("below"))
    group.add_note("note sk-4")
    assert describe_error(group) == (
        "ExceptionGroup: two (2 sub-exceptions)\nnote: note sk-4\nmember: ValueError: one\nmember: KeyError: "
        "'sk-1'\nnote: note sk-3\ncaused by OSError: sk-2\ncaused by RuntimeError: below"
    )


def test_notes_that_are_no_list_of_texts_are_sent_as_they_would_be_printed():
    odd = raised(ValueError("a"))
    odd.__notes__ = {"sk-1": 2}
    assert describe_error(odd) == "ValueError: a\nnote: {'sk-1': 2}"
    odd.__notes__ = ("b", 3, MumbledError())
    assert describe_error(odd) == "ValueError: a\nnote: b\nnote: 3\nnote: MumbledError"


def test_of_an_error_with_more_words_than_are_ever_sent_the_rest_is_cut_off():
    noisy = raised(ValueError("a"))
    for _ in range(4):
        noisy.add_note("x" * 100_000)
    outgoing = send(noisy, limit=196_608)
    assert outgoing.cut > 0
    deep = raised(RuntimeError("0"))
    for _ in range(30_000):
        deep = raised(RuntimeError(""), cause=deep)
    assert send(deep, limit=196_608).cut > 0


def test_a_silenced_context_is_not_told_and_an_error_without_words_is_told_by_its_name():
    silenced = raised(MumbledError(), context=KeyError("hidden"))
    silenced.__suppress_context__ = True
    assert read_result(silenced) == "MumbledError"


# ------------------------------------------------------------------ redaction, and the way back


def test_what_redact_hides_is_sent_as_a_mark_and_stays_in_the_callers_result():
    result = {"password": "p1", "text": "use sk-12 now", "n": 5}
    outgoing = send(result, CAREFUL)
    assert shown(outgoing) == {"password": HIDDEN, "text": f"use {HIDDEN} now", "n": 5}
    assert outgoing.value == result


def test_a_secret_of_the_arguments_is_hidden_in_the_result_as_a_text_a_number_and_a_key():
    outgoing = send({"a": "is tok-9 ok", "b": 12345, "c": {"tok-9": 1}}, secrets=("tok-9", "12345"))
    assert shown(outgoing) == {"a": f"is {HIDDEN} ok", "b": HIDDEN, "c": HIDDEN}


def test_a_caller_with_more_secrets_than_can_be_searched_for_shows_nothing():
    outgoing = send({"a": 1}, wary=True)
    assert shown(outgoing) == HIDDEN
    assert outgoing.find_own([part("", 0, 3)]) == [part()]


@pytest.mark.parametrize(
    ("path", "start", "end", "own"),
    [
        ("/text", 0, 3, (0, 3)),
        ("/text", 4, 5, (4, 9)),
        ("/text", 2, 7, (2, 9)),
        ("/text", 6, None, (4, 13)),
        ("/text", None, 4, (0, 4)),
        ("/text", 14, 15, (9, 10)),
        ("/password", 1, 2, (None, None)),
        ("/password", None, None, (None, None)),
        ("/key", 0, 1, (None, None)),
    ],
)
def test_a_span_that_touches_a_mark_hides_all_that_the_mark_stands_for(path, start, end, own):
    outgoing = send({"text": "use sk-12 now", "password": "long words", "key": {"sk-1": 1}}, CAREFUL)
    assert shown(outgoing)["text"] == f"use {HIDDEN} now"
    (found,) = outgoing.find_own([part(path, start, end)])
    assert (found.start, found.end) == own


@pytest.mark.parametrize("wrong", [part("/text", 0, 99), part("/text", 3, 3), part("/password", 0, 99)])
def test_a_span_beyond_what_was_sent_is_unknown(wrong):
    outgoing = send({"text": "use sk-12 now", "password": "p"}, CAREFUL)
    with pytest.raises(UnknownPart):
        outgoing.find_own([wrong])
    assert "a part that the result does not have" in explain_mask(outgoing, Mask(parts=[wrong]))


WORDS = st.lists(
    st.sampled_from(["a", "🔑", " ", "sk-1", "sk-22", "sk-333", "tok-9", "ß"]), min_size=1, max_size=12
).map("".join)


@given(WORDS, st.data())
def test_the_hidden_part_covers_every_character_that_the_sent_span_stood_for(text, data: DataObject):
    outgoing = send(text, CAREFUL, ("tok-9",))
    sent = shown(outgoing)
    start = data.draw(st.integers(0, len(sent) - 1))
    end = data.draw(st.integers(start + 1, len(sent)))
    (own,) = outgoing.find_own([part("", start, end)])
    stood_for = [at for at, place in enumerate(places(text)) if place[0] < end and start < place[1]]
    first, last = own.start or 0, len(text) if own.end is None else own.end
    assert {*stood_for} == {*range(first, last)}
    assert explain_mask(outgoing, Mask(parts=[own._replace(start=start, end=end)])) == ""


def places(text):
    """For each character of a text where it stands in what is sent, counted without the product's code."""
    hidden = [False] * len(text)
    for secret in ("tok-9", *(f"sk-{digits}" for digits in ("1", "22", "333"))):
        at = text.find(secret)
        while at >= 0:
            hidden[at : at + len(secret)] = [True] * len(secret)
            at = text.find(secret, at + 1)
    # A pattern takes all digits that follow, and secrets that touch share a mark.
    found, at, sent = [], 0, 0
    while at < len(text):
        length = 1
        if hidden[at]:
            while at + length < len(text) and hidden[at + length]:
                length += 1
        wide = len(HIDDEN) if hidden[at] else 1
        found += [(sent, sent + wide)] * length
        at, sent = at + length, sent + wide
    return found


@given(json_values, st.data())
def test_a_masked_part_of_what_was_sent_is_gone_from_the_result(value, data: DataObject):
    outgoing = send({"v": value, "sk-in": "use sk-12"}, CAREFUL)
    texts = [path for path in paths(outgoing.value) if type(find_part(outgoing.value, path)) is str]
    path = data.draw(st.sampled_from(texts))
    seen = find_part(shown(outgoing), path)
    if not seen:
        return
    start = data.draw(st.integers(0, len(seen) - 1))
    parts = outgoing.find_own([part(path, start, data.draw(st.integers(start + 1, len(seen))))])
    made = mask_parts(outgoing.value, parts)
    own, left = list(paths(outgoing.value)), list(paths(made.value))
    assume(len(left) == len(own))  # a name that held the same text has a mark now, perhaps another one's
    assert find_part(made.value, left[own.index(path)]) != find_part(outgoing.value, path)


def paths(value, path=""):
    yield path
    if type(value) is dict:
        for name, one in value.items():
            yield from paths(one, f"{path}/{name.replace('~', '~0').replace('/', '~1')}")
    elif type(value) is list:
        for at, one in enumerate(value):
            yield from paths(one, f"{path}/{at}")


# ------------------------------------------------------------------ what is too long


def test_a_text_beyond_the_limit_is_cut_for_the_caller_too():
    outgoing = send("ä" * 600, limit=1001)
    assert outgoing.value == "ä" * 500
    assert outgoing.sent == ("text", ("ä" * 500).encode(), True, True)
    assert (outgoing.size, outgoing.cut) == (1200, 200)


@pytest.mark.parametrize("levels", [6, 40])
@pytest.mark.parametrize(
    "make",
    [
        lambda one: [one] * 10,
        lambda one: dict.fromkeys("abcdefghij", one),
        lambda one: (one,) * 10,
        lambda one: [one, timedelta(1), "x" * 1_000, {"x" * 1_000: one}] * 3,
    ],
    ids=["lists", "maps", "tuples", "texts and keys"],
)
def test_a_result_that_holds_one_value_many_times_over_is_cut_as_any_long_one(make, levels):
    value: Any = "lol"
    for _ in range(levels):
        value = make(value)
    outgoing = send(value)
    assert (outgoing.sent.form, len(outgoing.sent.data), outgoing.sent.is_cut) == ("text", LIMIT, True)
    assert LIMIT < outgoing.size < 10_000_000


@pytest.mark.parametrize("one", ["lol", "x" * 10_000], ids=["a text", "a long text"])
def test_a_copy_that_holds_one_value_many_times_over_cannot_be_read(one):
    value = [[one] * 10] * 1_000
    for _ in range(30):
        value = [value] * 10
    with pytest.raises(UnreadableQuestion, match="too many values"):
        read_result(value)


@pytest.mark.parametrize("rows", [[0] * 300_000, [{"a": [None]}] * 300_000, [(0,)] * 150_000])
def test_the_beginning_of_a_huge_result_is_sent_as_that_of_a_large_one(rows):
    value = {"password": "p1", "kept": {"password": "p2"}, "rows": rows}
    outgoing, smaller = (
        send(value, CAREFUL, limit=1024),
        send({**value, "rows": rows[:2000]}, CAREFUL, limit=1024),
    )
    assert outgoing.value == smaller.value
    assert outgoing.value.startswith('{"password":"⟦redacted⟧","kept":{"password":"⟦redacted⟧"},"rows":[')
    assert outgoing.cut > 1000


@dataclasses.dataclass
class Pair:
    first: Any
    second: Any = None


def make_huge():
    one: list = [1]
    for _ in range(40):
        one = [one, one]
    return one


def beyond(levels, value, hold):
    for _ in range(levels):
        value = hold(value)
    return value


def with_notes(notes):
    error = ValueError("a")
    error.__notes__ = notes
    return error


KEPT: dict[str, Any] = {}
"""What is referred to weakly only."""


def set_of(value):
    return frozenset([value, (value,)])


@pytest.mark.parametrize(
    "make",
    [
        deque,
        UserList,
        lambda one: {"a": one}.values(),
        lambda one: SimpleNamespace(x=one),
        lambda one: [SimpleNamespace(x=one)],
        lambda one: {"a": one}.items(),
        lambda one: beyond(130, one, lambda held: [held]),
        lambda one: beyond(130, one, lambda held: (held,)),
        lambda _: beyond(40, set_of(1), set_of),
        lambda _: {beyond(40, set_of(1), set_of): 1},
        lambda one: {ValueError(one): 1},
        lambda _: deque([beyond(40, set_of(1), set_of)]),
        lambda one: deque([ValueError(one)]),
        lambda one: [ValueError(one)],
        ValueError,
        lambda one: ValueError("a", one),
        lambda one: OSError(1, "a", one),
        AttributeError,
        ImportError,
        SyntaxError,
        UnicodeError,
        URLError,
        lambda one: CalledProcessError(1, one),
        lambda one: TimeoutExpired(cmd=one, timeout=1),
        lambda one: UserList(one).append,
        lambda one: {UserList(one).append: 1},
        lambda one: deque([UserList(one).append]),
        lambda one: proxy(KEPT.setdefault("list", UserList(one))),
        lambda one: ContextVar("a", default=one),
        lambda one: UserDict(a=one).values(),
        lambda one: Namespace(a=one),
        lambda one: Parameter("a", Parameter.KEYWORD_ONLY, default=one),
        lambda one: partialmethod(print, one),
        itertools.repeat,
        lambda one: with_notes([one]),
        with_notes,
    ],
)
def test_a_value_whose_text_nobody_writes_cannot_be_ruled_on(make):
    with pytest.raises(UnreadableQuestion, match="too long"):
        send(make(make_huge()))


@pytest.mark.parametrize(
    "value",
    [Pair(make_huge()), [Pair(make_huge())] * 1_000, [Pair("x" * 1_000)] * 10_000],
    ids=["a huge field", "many of them", "many texts"],
)
def test_a_dataclass_that_nobody_writes_is_cut_as_any_long_result(value):
    outgoing = send(value)
    assert (outgoing.sent.form, outgoing.sent.is_cut) == ("text", True)
    assert len(outgoing.value) <= LIMIT


class Remembering(BaseModel):
    a: int = 1

    @cached_property
    def rows(self) -> list[int]:
        return [0] * 200_001

    @field_serializer("a")
    def dump_a(self, _: int) -> str:
        return "another"


def test_a_model_that_has_computed_much_is_no_less_shown():
    model = Remembering()
    assert "another" in send(model).sent.data.decode()
    assert model.rows
    for value in (model, [model, Remembering()], {"first": model}):
        with pytest.raises(UnreadableQuestion, match="Remembering whose text is too long"):
            send(value)


class ToldError(Exception):
    def __str__(self):
        return "told"


@dataclasses.dataclass
class Caching:
    a: int = 1

    def __post_init__(self):
        self.cache = make_huge()


class CachingModel(BaseModel):
    a: int = 1
    _cache: Any = PrivateAttr(default_factory=make_huge)


class Raising(BaseModel, extra="allow"):
    @property
    def a(self):
        raise ValueError

    def __str__(self):
        return "words"


def test_code_of_an_attribute_is_not_called_to_tell_whether_a_text_says_more():
    value = Raising()
    value.__pydantic_extra__["a"] = 1
    assert shown(send(value)) == {"a": 1, "its text": "words"}


def test_what_a_value_neither_shows_nor_writes_is_not_read():
    assert send([Caching(), CachingModel()]).value == [{"a": 1}, {"a": 1}]


def test_the_words_of_an_error_are_told_however_much_it_holds_besides():
    decoding = UnicodeDecodeError("utf-8", b"x" * 5_000_000 + b"\xff", 5_000_000, 5_000_001, "bad")
    command = CalledProcessError(2, ["make"], b"x" * 5_000_000)
    told, syntax = ToldError(make_huge()), SyntaxError("bad", ("a.py", 1, 1, "x" * 5_000_000))
    for error in (decoding, command, told, syntax):
        error.__cause__ = command if error is decoding else decoding
        assert str(error) in send(error).value


def test_the_words_of_an_error_are_told_whose_class_was_made_by_code_without_a_module():
    made: dict[str, Any] = {"__name__": None}
    exec("class Made(Exception):\n    def __str__(self):\n        return 'limit'", made)
    made["Made"].__str__.__module__ = None
    assert send(made["Made"](1)).value == "Made: limit"
    assert "limit" in shown(send([made["Made"](1)]))[0]


def test_what_holds_itself_and_a_long_text_of_an_error_are_told():
    ring: deque = deque()
    ring.append([ring, "a"])
    assert send(ring).value == "deque([[[...], 'a']])"
    assert send(ValueError(ring)).value == "ValueError: deque([[[...], 'a']])"
    assert send(ExceptionGroup("many", [ValueError("b")] * 2)).value.startswith("ExceptionGroup: many")
    assert send(ValueError("x" * 5_000_000)).cut > 4_900_000
    assert send(b"\xff" * 5_000_000).cut > 4_900_000


def test_json_beyond_the_limit_becomes_a_text_without_what_redact_hides():
    outgoing = send({"password": "p1", "rows": ["x" * 100] * 100}, CAREFUL, limit=1024)
    assert outgoing.sent.form == "text"
    assert outgoing.value == outgoing.sent.data.decode()
    assert outgoing.value.startswith('{"password":"⟦redacted⟧","rows":["xxx')
    assert "p1" not in outgoing.value


def test_no_secret_is_cut_in_two():
    text = "x" * 1020 + "sk-1234567" + "y" * 100
    outgoing = send(text, CAREFUL, limit=1024)
    assert outgoing.value == "x" * 1020
    assert shown(outgoing) == "x" * 1020


def test_a_cut_text_keeps_its_way_back():
    text = "use sk-12 now " + "x" * 2000
    outgoing = send(text, CAREFUL, limit=1024)
    assert text.startswith(outgoing.value)
    assert 1000 < len(outgoing.value) <= 1024
    assert shown(outgoing).startswith(f"use {HIDDEN} now xx")
    assert len(outgoing.sent.data) <= 1024
    assert outgoing.find_own([part("", 4, 5)]) == [part("", 4, 9)]


def test_marks_that_do_not_fit_are_given_to_the_caller_as_they_were_sent():
    text = "sk-1 " * 200  # 1,000 bytes; with its marks, more
    outgoing = send(text, CAREFUL, limit=1024)
    assert len(outgoing.sent.data) <= 1024
    assert outgoing.value == shown(outgoing)
    assert outgoing.cut > 0
    assert outgoing.sent.is_cut


@given(st.text(max_size=400), st.integers(16, 300))
def test_no_more_is_sent_than_the_limit_and_the_caller_gets_no_more_than_was_sent(text, limit):
    for redactor in (PLAIN, CAREFUL):
        for result in (text, {"t": text}):
            outgoing = send(result, redactor, limit=limit)
            assert len(outgoing.sent.data) <= limit
            assert outgoing.sent.is_cut == (outgoing.cut > 0)
            if outgoing.cut:
                assert type(outgoing.value) is str
            elif redactor is PLAIN:
                assert json.dumps(outgoing.value) == json.dumps(result)
