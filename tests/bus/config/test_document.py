"""A configuration file is read safely, within bounds, and its faults are named."""

import json
import re
import threading
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from toolgate_bus.config.check import StrictModel, check
from toolgate_bus.config.document import parse_document, read_document
from toolgate_bus.errors import ConfigError

pytestmark = pytest.mark.pure


class Inner(StrictModel):
    limit: int = 1
    kind: str = "x"


class Outer(StrictModel):
    parts: tuple[Inner, ...] = ()
    named: dict[str, Inner] = Field(default_factory=dict)
    one: Inner | None = None


class Loose(BaseModel):
    limit: int = 1


class Node(StrictModel):
    nodes: dict[str, "Node"] = Field(default_factory=dict)
    size: Annotated[int, Field(ge=1, le=9)] | Literal["any"] = 1


class Opaque(BaseModel):
    model_config = {"arbitrary_types_allowed": True}
    kind: Literal["a", "b"] = "a"
    anything: object = Ellipsis
    pattern: re.Pattern[str] | threading.Thread | None = None


def test_a_mapping_is_read(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("a: 1\nb: [x, {c: null}]\n")
    assert read_document(file).mapping() == {"a": 1, "b": ["x", {"c": None}]}


@pytest.mark.parametrize("raw", [b"", b"# only a comment\n"])
def test_an_empty_file_is_an_empty_mapping(raw):
    assert parse_document(raw, "f").mapping() == {}


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"gone\.yaml: cannot be read: No such file"):
        read_document(tmp_path / "gone.yaml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        read_document(tmp_path)


def test_a_file_too_long_is_refused(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_bytes(b"# " + b"x" * (1 << 20))
    with pytest.raises(ConfigError, match="longer than 1024 KiB"):
        read_document(file).mapping()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"a: 1\nb: 2\na: 3\n", "f:3: the key 'a' is given twice"),
        (b"x: {a: {b: 1, b: 2}}", "the key 'b' is given twice"),
        (b"- a\n- b\n", "must be a mapping"),
        (b"just text", "must be a mapping"),
        (b"a: [1\nb: 2", r"f:2: is not YAML: .* \(column 2\)"),
        (b"a: !!python/object/apply:os.system [ls]", "f:1: a tag .* is not supported"),
        (b"\xff\xfe\xff", "is not YAML"),
        (b"a: 1\n---\nb: 2\n", "is not YAML"),
        (b"? {a: 1}\n: 2", "is not YAML: found unhashable key"),
        (b"a: " + b"[" * 100 + b"]" * 100, "nested more than 64 levels deep"),
        (b"a: " + b"[" * 50_000, "nested more than 64 levels deep"),
        (b"a: &a [*a]", "an alias contains itself"),
        (b"a: 1" + b"0" * 5000, "is not YAML"),
    ],
)
def test_what_is_wrong_with_the_text_is_said(raw, said):
    with pytest.raises(ConfigError, match=said):
        parse_document(raw, "f").mapping()


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("a",), 1),
        (("rules",), 2),
        (("rules", 0, "tools"), 4),
        (("rules", 1), 5),
        (("rules", 1, "to"), 6),
        (("rules", 1, "Route", "to"), 6),  # which of several forms was tried is no step of the file
        (("rules", 1, "missing"), 5),
        (("rules", 9), 2),
        (("7", "x"), 7),
        (("nowhere",), None),
        ((), None),
    ],
)
def test_a_place_has_a_line(place, line):
    text = "a: 1\nrules:\n  - name: x\n    tools: y\n  - name: z\n    to: q\n7: {x: 1}\n"
    assert parse_document(text.encode(), "f").where(place) == (f"f:{line}" if line else "f")


def test_of_several_places_the_one_that_is_there_is_nearest():
    document = parse_document(b"near: {a: 1}\nfar:\n  b: 2\n", "f")
    assert document.nearest([("near", "b"), ("far", "b")]) == ("far", "b")
    assert document.nearest([("near", "a"), ("far", "a")]) == ("near", "a")
    assert document.nearest([("near", "c"), ("far", "c")]) == ("near", "c")


def test_json_is_read_with_tabs():
    text = b'{\n\t"a": "x\\ty",\n\t"a2": [1, null, true]\n}'
    assert parse_document(text, "f.json").value == json.loads(text)


def test_aliases_that_grow_without_bound_are_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(ConfigError, match="aliases are counted in full"):
        parse_document("\n".join(lines).encode(), "f")


@pytest.mark.parametrize("merge", ["<<: *b", "<<: [*b, {c: 3}]", "? <<\n  : *b"])
def test_a_merge_key_is_refused_by_its_line_with_what_to_write_instead(merge):
    """Releases of PyYAML read a merge into a mapping that itself has one differently."""
    raw = f"base: &b {{a: 1}}\nrules:\n- a: 2\n  {merge}\n"
    with pytest.raises(
        ConfigError, match=r"^f:4: the merge key `<<` is not supported.*write its keys out here"
    ):
        parse_document(raw.encode(), "f")


def test_an_alias_for_a_whole_value_and_a_quoted_key_of_that_name_are_read():
    raw = b"base: &b {a: 1}\nx: *b\n'<<': {a: 2}\n"
    assert parse_document(raw, "f").value == {"base": {"a": 1}, "x": {"a": 1}, "<<": {"a": 2}}


def test_a_date_stays_text_as_in_json():
    assert parse_document(b"day: 2024-05-01", "f").value == {"day": "2024-05-01"}


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ({"part": 1}, "f: part: unknown key; allowed: named, one, parts; did you mean parts?"),
        (
            {"parts": [{"limits": 1}]},
            "f: parts.0.limits: unknown key; allowed: kind, limit; did you mean limit?",
        ),
        ({"named": {"k": {"zzz": 1}}}, "f: named.k.zzz: unknown key; allowed: kind, limit"),
        ({"one": {"zzz": 1}}, "f: one.zzz: unknown key; allowed: kind, limit"),
        ({"parts": [{"limit": "many"}]}, "f: parts.0.limit: Input should be a valid integer"),
        ({"parts": 3}, "f: parts: Input should be a list; allowed: a list"),
    ],
)
def test_a_wrong_field_is_named_by_its_path_with_what_is_allowed(mapping, said):
    with pytest.raises(ConfigError) as error:
        check(Outer, mapping, "f")
    assert said in str(error.value)


def test_every_wrong_field_has_a_line_and_no_line_shows_a_value():
    with pytest.raises(ConfigError) as error:
        check(Outer, {"parts": [{"limit": "s3cret"}, {"kind": 3}]}, "f")
    assert len(str(error.value).splitlines()) == 2
    assert "s3cret" not in str(error.value)


class Needy(StrictModel):
    parts: Annotated[tuple[Inner, ...], Field(min_length=1)]
    names: Annotated[tuple[Annotated[str, Field(min_length=2)], ...], Field(min_length=1)] = ("ab",)


@pytest.mark.parametrize(
    ("mapping", "lines"),
    [
        ({"parts": [{"limit": "many"}]}, ["f: parts.0.limit: Input should be a valid integer"]),
        ({"parts": []}, ["f: parts: List should have at least 1 item"]),
        (
            {"parts": [{"zzz": 1}], "names": []},
            ["f: parts.0.zzz: unknown key", "f: names: List should have at least 1 item"],
        ),
        ({"parts": [{}], "names": ["a"]}, ["f: names.0: String should have at least 2 characters"]),
    ],
)
def test_a_list_with_a_faulty_item_is_not_called_too_short_besides(mapping, lines):
    with pytest.raises(ConfigError) as error:
        check(Needy, mapping, "f")
    said = str(error.value).splitlines()
    assert [line.startswith(told) for line, told in zip(said, lines, strict=True)] == [True] * len(lines)


@pytest.mark.parametrize(
    ("model", "mapping", "said"),
    [
        (
            Node,
            {"nodes": {"a": {"nodes": {"b": {"siz": 1}}}}},
            "nodes.a.nodes.b.siz: unknown key; allowed: nodes, size",
        ),
        (
            Node,
            {"nodes": {"a": {"size": 10}}},
            "nodes.a.size.constrained-int: Input should be less than or equal to 9; allowed: a whole number",
        ),
        (
            Node,
            {"nodes": {"a": []}},
            "nodes.a: Input should be a mapping; allowed: a mapping of nodes, size",
        ),
        (Opaque, {"kin": 1}, "kin: unknown key; allowed: anything, kind, pattern; did you mean kind?"),
        (Opaque, {"pattern": 3}, "pattern.is-instance[Thread]: Input should be an instance of Thread"),
    ],
)
def test_models_of_any_shape_are_explained(model: Any, mapping: Any, said: str):
    with pytest.raises(ConfigError) as error:
        check(model, mapping, "f")
    assert f"f: {said}" in str(error.value)


def test_unknown_keys_are_refused_even_where_the_model_forgot_to():
    with pytest.raises(ConfigError, match=r"f: limt: unknown key; allowed: limit; did you mean limit\?"):
        check(Loose, {"limt": 3}, "f")
    assert check(Loose, {"limit": 3}, "f").limit == 3
