"""A line of hooks-logging is one valid, bounded line of JSON, whatever an event carries."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from toolgate_orchestrator.modules.hooks_logging.line import HEAD_BYTES, Shape, encode_name, redactor
from toolgate_orchestrator.turn.values.jsonable import jsonable

pytestmark = pytest.mark.pure


class Odd:
    """An object that will not even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")


class Hostile(dict[str, Any]):
    """A mapping that will not be read."""

    def items(self) -> Any:
        raise KeyError("no")


class Part(BaseModel):
    """A model, as code that emits past the kernel's registry may pass it."""

    token: str = "t-1"
    size: float = float("nan")


def circle() -> list[Any]:
    one: list[Any] = []
    one += [one, one]
    return one


ODDITIES: tuple[Callable[[], Any], ...] = (
    lambda: b"\xff",
    lambda: {1, 2},
    Odd,
    lambda: Hostile(a=1),
    Part,
    circle,
    lambda: 10**5000,
    lambda: {Odd(): 1},
    object,
)
ODD = st.sampled_from(ODDITIES).map(lambda make: make())
SECRETS = [
    *(
        "api_key",
        "apiKey",
        "API-KEY",
        "X-Api-Key",
        "OPENAI_API_KEY",
        "openaiApiKey",
        "Authorization",
        "password",
    ),
    *(
        "db_password",
        "client_secret",
        "accessToken",
        "github_token",
        "Set-Cookie",
        "proxy-authorization",
        "own",
    ),
]
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | ODD
PAYLOADS = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner), max_leaves=40
)


def shape(field_chars: int = 1_000, line_bytes: int = 8_192, redact: tuple[str, ...] = ()) -> Shape:
    return Shape(field_chars, line_bytes, redactor(redact))


@given(PAYLOADS, st.integers(16, 400))
def test_any_payload_is_one_valid_ascii_line_within_its_bounds(payload: Any, field_chars: int) -> None:
    text = shape(field_chars, HEAD_BYTES + 512).data(payload)
    assert text.isascii()
    assert text.isprintable()
    assert len(text) <= 512
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@given(
    st.dictionaries(
        st.sampled_from("abcdef"),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers(-(2**63), 2**64 - 1)
            | st.text(st.characters(codec="utf-8"), max_size=20)
            | st.floats(allow_nan=False, allow_infinity=False),
            lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("xyz"), inner),
            max_leaves=10,
        ),
    )
)
def test_json_that_fits_is_kept_as_it_is(payload: dict[str, Any]) -> None:
    assert json.loads(shape(line_bytes=64_000).data(payload)) == payload


@pytest.mark.parametrize(
    ("fill", "kept"),
    [("y", 3_000), ("\x00", 400), ("\U0001f600", 200), ("y" * 1_500 + "\U0001f600" * 9_000, 200)],
)
def test_a_text_that_is_longer_than_the_line_shows_as_much_as_fits(fill: str, kept: int) -> None:
    text = json.loads(shape(10**6, HEAD_BYTES + 3_200).data(fill * 9_000))
    start, _, cut = text.partition("[cut: ")
    assert len(start) >= kept
    assert cut == f"{len(fill) * 9_000 - len(start)} more characters]"


@pytest.mark.parametrize(("size", "shown"), [(100, "y" * 100), (101, "y" * 100 + "[cut: 1 more characters]")])
def test_a_text_is_cut_at_the_fields_bound_though_the_line_has_room(size: int, shown: str) -> None:
    assert json.loads(shape(field_chars=100).data({"text": "y" * size})) == {"text": shown}


def test_where_something_was_cut_is_to_be_seen() -> None:
    payload = {"a": list(range(1_000)), "b": {str(n): n for n in range(1_000)}, "c": 3}
    listed = json.loads(shape(line_bytes=HEAD_BYTES + 600).data(payload))
    assert listed["a"][-1] == f"[cut: {1_000 - len(listed['a']) + 1} more items]"
    assert listed["[cut]"] == "2 more fields"
    keyed = json.loads(shape(line_bytes=HEAD_BYTES + 600).data({"b": payload["b"]}))["b"]
    assert keyed["[cut]"] == f"{1_000 - len(keyed) + 1} more fields"


@pytest.mark.parametrize("small", [{}, [], "", {"a": {}}, [[], {}], {"token": 1}, None, 0.1])
def test_many_small_values_are_within_the_bounds_too(small: Any) -> None:
    text = shape(line_bytes=HEAD_BYTES + 2_000).data([small] * 5_000)
    assert 1_000 < len(text) <= 2_000


@pytest.mark.parametrize(
    "odd", ["\ud800", 2**64, -(2**63) - 1, float("nan"), float("inf"), (1,), {1: 2}, b"x"]
)
def test_what_json_cannot_say_is_said_as_facts_and_hooks_have_it(odd: Any) -> None:
    assert json.loads(shape().data({"odd": odd})) == jsonable({"odd": odd})


def test_what_is_nested_too_deep_is_cut() -> None:
    nested: Any = "end"
    for _ in range(10_000):
        nested = {"n": nested}
    assert "[cut: nested over 40 deep]" in shape().data(nested)


def test_a_huge_payload_is_not_read_to_its_end() -> None:
    class Endless(list[int]):
        read = 0

        def __iter__(self) -> Any:
            for item in range(len(self)):
                self.read += 1
                yield item

    endless = Endless(range(1_000_000))
    shape().data({"items": endless})
    assert endless.read < 5_000


@pytest.mark.parametrize(
    "name",
    SECRETS,
)
def test_a_field_that_names_a_secret_is_redacted(name: str) -> None:
    payload = {"deep": [{name: {"value": "sk-1"}, "n": 1}]}
    shown = json.loads(shape(redact=("own",)).data(payload))
    assert shown == {"deep": [{name: "[REDACTED]", "n": 1}]}


@pytest.mark.parametrize(
    "name", ["input_tokens", "max_tokens", "tokens", "keyboard", "tokenizer", "author", "secretary", "", "⟦⟧"]
)
def test_other_fields_are_not(name: str) -> None:
    assert json.loads(shape().data({name: 7})) == {name: 7}


def test_whether_a_secret_was_given_at_all_can_be_seen() -> None:
    assert json.loads(shape().data({"token": None, "password": False, "secret": ""})) == {
        "token": None,
        "password": False,
        "secret": "[REDACTED]",
    }


def test_a_secrets_name_at_the_end_of_an_endless_one_is_found() -> None:
    assert "sk-1" not in shape().data({"x" * 10_000 + "_token": "sk-1"})


@pytest.mark.parametrize(
    "make", [lambda: "x" * 9_000, lambda: "\U0001f600" * 9_000, lambda: "\ud800", lambda: ""]
)
def test_names_in_the_head_are_bounded_json(make: Callable[[], str]) -> None:
    assert len(encode_name(make())) < HEAD_BYTES / 3
    json.loads(encode_name(make())).encode()
