"""Parts of results that verdicts hide: no hidden text is left, whoever hid it and wherever else it stands."""

import json
import re

import pytest
from bus_strategies import json_values
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject
from toolgate_bus.protocol.events import Continue, Mask, MaskedPart, ReceivedVerdict, Replace
from toolgate_bus.ruling.results import (
    UnknownPart,
    check_parts,
    find_part,
    find_replacement,
    hide_texts,
    list_masks,
    mask_parts,
    path_to,
)

pytestmark = pytest.mark.pure

KEY = "sk-1234567890"


def part(path="", start=None, end=None, name=""):
    return MaskedPart(path, start, end, name)


def masked(value, *parts):
    return mask_parts(value, parts).value


def every_path(value, path=""):
    """All places in a value of JSON."""
    yield path
    if type(value) is dict:
        for name, one in value.items():
            yield from every_path(one, path_to(path, name))
    elif type(value) is list:
        for at, one in enumerate(value):
            yield from every_path(one, path_to(path, at))


def every_text(value):
    """All texts of a value of JSON, keys and written numbers too."""
    if type(value) is dict:
        for name, one in value.items():
            yield name
            yield from every_text(one)
    elif type(value) is list:
        for one in value:
            yield from every_text(one)
    elif type(value) is str:
        yield value
    elif type(value) in (int, float):
        yield str(value)


# ------------------------------------------------------------------ parts


@pytest.mark.parametrize(
    ("value", "parts", "given"),
    [
        ("key sk-12345.", [part("", 4, 12, "api key")], "key [withheld: api key]."),
        ("key sk-12345.", [part("", 4, 12)], "key [withheld]."),
        ("abcdef", [part("", None, 3)], "[withheld]def"),
        ("abcdef", [part("", 3)], "abc[withheld]"),
        ("abcdef", [part()], "[withheld]"),
        ({"a": {"b": "secret"}, "c": 1}, [part("/a", name="card")], {"a": "[withheld: card]", "c": 1}),
        ([["x", "long text"]], [part("/0/1", 0, 4)], [["x", "[withheld] text"]]),
        ({"a/b": {"~": "value"}}, [part("/a~1b/~0")], {"a/b": {"~": "[withheld]"}}),
        ({"": {"0": "value"}}, [part("//0")], {"": {"0": "[withheld]"}}),
        ({"n": None, "t": True}, [part("/n"), part("/t")], {"n": "[withheld]", "t": "[withheld]"}),
        ("🔑ab🔑", [part("", 0, 1)], "[withheld]ab🔑"),
    ],
)
def test_a_part_is_replaced_by_a_mark_with_its_name(value, parts, given):
    assert masked(value, *parts) == given


def test_spans_that_overlap_have_one_mark_with_the_first_name_and_those_that_touch_have_two():
    text = "0123456789"
    assert masked(text, part("", 1, 5, "a"), part("", 3, 7, "b")) == "0[withheld: a]789"
    assert masked(text, part("", 1, 5), part("", 2, 4, "b")) == "0[withheld: b]56789"
    assert masked(text, part("", 1, 3, "a"), part("", 3, 5, "b")) == "0[withheld: a][withheld: b]56789"


def test_of_spans_that_overlap_each_is_hidden_wherever_else_it_stands():
    value = [f"the key is {KEY}.", KEY, f"is {KEY}"]
    assert masked(value, part("/0", 11, 24), part("/0", 0, 25)) == [
        "[withheld]",
        "[withheld]",
        "is [withheld]",
    ]


@pytest.mark.parametrize("name", [f"of {KEY}\n", f"{'x' * 50}{KEY}", KEY])
def test_no_mark_quotes_what_is_hidden_in_its_name(name):
    assert KEY[:8] not in masked(KEY, part(name=name))


@pytest.mark.parametrize("count", [1, 100])
def test_a_text_that_is_one_hidden_text_after_another_is_hidden_from_where_that_takes_too_long(count):
    hidden = ["a" * (2_000 - one) for one in range(count)]
    text = f"before {'a' * 20_000} behind"
    assert hide_texts([text, "other"], hidden) == ["before [withheld]", "other"]
    assert hide_texts("before aaaa behind", ["aaaa"]) == "before [withheld] behind"


@pytest.mark.parametrize("dots", ["…", "..."])
def test_words_that_end_in_dots_end_in_no_beginning_of_a_hidden_text(dots):
    assert hide_texts(f"it has {KEY[:9]}{dots}", [KEY], may_be_cut=True) == "it has [withheld]"
    assert hide_texts(f"it has {KEY[:9]}{dots}", [KEY]) == f"it has {KEY[:9]}{dots}"
    assert hide_texts(f"it has {KEY[:9]}", [KEY], may_be_cut=True) == f"it has {KEY[:9]}"


def test_texts_with_the_same_beginning_hide_no_other_text_that_begins_so():
    links = [f"https://a.example/{'x' * number}" for number in range(60)]
    rows = [{"url": link, "text": "see https://b.example/page"} for link in links]
    shown = masked({"rows": rows}, *(part(f"/rows/{number}/url") for number in range(60)))
    assert {row["text"] for row in shown["rows"]} == {"see https://b.example/page"}
    assert {row["url"] for row in shown["rows"]} == {"[withheld]"}


def test_a_part_within_a_hidden_one_is_hidden_with_it():
    value = {"a": {"b": "inner text"}}
    assert masked(value, part("/a", name="outer"), part("/a/b", 0, 5)) == {"a": "[withheld: outer]"}


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ("text", part("/a")),
        ("text", part("a")),
        ("text", part("", 0, 5)),
        ("text", part("", 2, 2)),
        ("text", part("", 3, 2)),
        ("text", part("", 4)),
        ("text", part("", None, 0)),
        ({"a": 1}, part("/b")),
        ({"a": 1}, part("/a", 0, 1)),
        ({"a": []}, part("/a", 0, 1)),
        ([1], part("/1")),
        ([1], part("/-1")),
        ([1, 2], part("/01")),
        ([1], part("/-")),
        ({"~a": 1}, part("/~a")),
        ({"a~": 1}, part("/a~")),
        ([1], part("/²")),
        ([1], part("/" + "9" * 1000)),
        ({"a": "x"}, part("/a/0")),
        ({}, part("", None, 1)),
    ],
)
def test_a_part_that_the_result_does_not_have_is_unknown(value, wrong):
    with pytest.raises(UnknownPart):
        mask_parts(value, [wrong])
    with pytest.raises(UnknownPart):
        check_parts(value, [wrong])


def test_the_result_given_is_not_changed():
    value = {"a": [KEY, {KEY: KEY}]}
    mask_parts(value, [part("/a/0")])
    assert value == {"a": [KEY, {KEY: KEY}]}


# ------------------------------------------------------------------ copies


@pytest.mark.parametrize(
    "copy",
    [
        KEY,
        f"the key is {KEY}, remember",
        {"content": [{"type": "text", "text": KEY}], "structuredContent": {"key": KEY}},
        {KEY: "as a key"},
        json.dumps({"inner": KEY}),
        json.dumps({"inner": json.dumps([KEY])}),
        [[[[KEY * 2]]]],
    ],
)
def test_a_hidden_text_is_hidden_wherever_else_it_stands(copy):
    made = masked({"here": KEY, "there": copy}, part("/here", name="api key"))
    assert KEY not in json.dumps(made)
    assert made["here"] == "[withheld: api key]"


def test_a_hidden_text_is_found_as_it_is_written_in_json_within_a_text():
    secret = 'pass"word\\ä\n1'
    for levels in (1, 2):
        copy = secret
        for plain in (True, False)[:levels]:
            copy = json.dumps({"k": copy}, ensure_ascii=plain)
        made = masked([secret, copy], part("/0"))
        assert secret not in made[1]
        assert "word" not in made[1]


@pytest.mark.parametrize(
    "written",
    [
        r'{"url": "https:\/\/h\/?a=1&b=\u00e4\ud83d\udd11"}',
        r'{"url": "https://h/?a=1\u0026b=\u00E4\uD83D\uDD11"}',
        r'"{\"url\": \"https:\\\/\\/h/?a=1\\u0026b=ä🔑\"}"',
        r"\u0068ttps://h/?a\u003d1&b=ä🔑",
    ],
)
@pytest.mark.parametrize("crowd", [0, 99])
def test_a_hidden_text_is_found_however_json_escapes_it(written, crowd):
    secret, others = "https://h/?a=1&b=ä🔑", [f"other {at}" for at in range(crowd)]
    made = masked({"others": others, "url": secret, "text": written}, part("/url"), part("/others"))
    assert "h" not in made["text"].replace("[withheld]", "")
    back = masked({"url": secret, "text": written}, part("/text"))
    assert back["url"] == "[withheld]"


def test_what_a_hidden_text_of_json_holds_is_hidden_as_well():
    value = {"ssn": "123-45-6789", "ids": [10_000_001]}
    made = masked(
        {"content": [{"text": json.dumps(value)}], "structuredContent": value}, part("/content/0/text")
    )
    assert made["structuredContent"] == {"ssn": "[withheld]", "ids": ["[withheld]"]}


def test_a_hidden_number_is_hidden_as_a_number_and_in_a_text_and_a_hidden_text_as_a_number():
    assert masked({"a": 4111111, "b": 4111111, "c": "no. 4111111"}, part("/a")) == {
        "a": "[withheld]",
        "b": "[withheld]",
        "c": "no. [withheld]",
    }
    assert masked(["4111111", 4111111, 4111111.5], part("/0")) == ["[withheld]"] * 3
    assert masked([4111.0, 4111, "4111", "no. 4111.0"], part("/0"))[1:] == [
        *["[withheld]"] * 2,
        "no. [withheld]",
    ]
    assert masked([4111, 4111.0, 1e16, 10**16], part("/0"), part("/2")) == ["[withheld]"] * 4


def test_a_short_text_is_hidden_only_where_it_is_all_of_a_text():
    assert masked({"a": "abc", "b": "abc", "c": "abcd"}, part("/a")) == {
        "a": "[withheld]",
        "b": "[withheld]",
        "c": "abcd",
    }


def test_spaces_around_a_hidden_text_do_not_save_its_copies_and_spaces_alone_hide_nothing():
    assert masked([f"  {KEY}\n", f"x{KEY}x"], part("/0")) == ["[withheld]", "x[withheld]x"]
    assert masked(["      ", "a      b"], part("/0")) == ["[withheld]", "a      b"]


@pytest.mark.parametrize("key", ["ACC-12345", "4111 1111 1111 1111", "ann@ok.example"])
def test_keys_of_a_hidden_map_that_are_data_are_hidden_wherever_they_stand(key):
    value = {"accounts": {key: {}, "name": 1, "line2": 2}, "index": {key: 1}, "log": f"name, line2: {key}"}
    made = masked(value, part("/accounts"))
    assert made == {"accounts": "[withheld]", "index": {"[withheld]": 1}, "log": "name, line2: [withheld]"}


def test_dates_that_are_keys_of_a_hidden_map_stay_elsewhere():
    value = {
        "pay": {"2024-01-15": 1, "q1_2024_05": 2},
        "on": {"2024-01-15": 1},
        "log": "2024-01-15 q1_2024_05",
    }
    assert masked(value, part("/pay")) == {**value, "pay": "[withheld]"}


def test_hidden_texts_that_overlap_elsewhere_leave_no_rest_of_either():
    made = hide_texts("..ABCDEFGHIJKL..", {"ABCDEFGH", "EFGHIJKL"})
    assert made == "..[withheld].."


def test_keys_that_become_equal_are_all_kept():
    made = hide_texts({f"{KEY}": 1, f"x{KEY}": 2, "[withheld]": 3}, {KEY})
    assert sorted(made.values()) == [1, 2, 3]
    assert KEY not in json.dumps(made)


@given(st.lists(st.text("ab", min_size=4, max_size=6), min_size=1, max_size=6), st.text("ab ", max_size=60))
def test_many_hidden_texts_are_found_like_few(few, text):
    many = {*few, *(f"{at:04}-never" for at in range(80))}
    assert hide_texts(text, many) == hide_texts(text, few)


def test_texts_that_all_begin_alike_are_still_hidden():
    hidden = {"aaaa" + "b" * length for length in range(64)}
    made = hide_texts("before aaaabbb behind", hidden)
    assert made.startswith("before ")
    assert "aaaa" not in made


# ------------------------------------------------------------------ properties


@given(json_values, st.data())
def test_no_hidden_text_is_left_in_any_result(value, data: DataObject):
    parts = draw_parts(value, data)
    made = mask_parts(value, parts)
    for text in every_text(made.value):
        bare = re.sub(r"\[withheld(: card)?\]", "\0", text)
        assert not any(one in bare for one in made.hidden if len(one) >= 4 and one.strip())
        assert text not in made.hidden or not text.strip()


@given(json_values, st.data())
def test_the_union_of_masks_is_the_same_in_any_order(value, data: DataObject):
    parts = [one._replace(name="") for one in draw_parts(value, data)]
    shuffled = data.draw(st.permutations(parts))
    assert mask_parts(value, parts) == mask_parts(value, [*shuffled, *parts])


def draw_parts(value, data: DataObject):
    """Some parts that the value has."""
    parts = []
    for path in data.draw(st.lists(st.sampled_from([*every_path(value)]), min_size=1, max_size=4)):
        found = find_part(value, path)
        if type(found) is str and found and data.draw(st.booleans()):
            start = data.draw(st.integers(0, len(found) - 1))
            parts.append(part(path, start, data.draw(st.integers(start + 1, len(found)))))
        else:
            parts.append(part(path, name=data.draw(st.sampled_from(["", "card"]))))
    return parts


# ------------------------------------------------------------------ which verdicts count


def heard(scheduler, verdict, priority=0, **flags):
    return ReceivedVerdict(scheduler, verdict, priority, "result", 0.0, **flags)


def test_every_mask_counts_but_late_and_shadow_ones_and_those_with_a_problem():
    mask = Mask(parts=[("", None, None, "")])
    counted = [heard("a", mask), heard("b", mask), heard("a", mask)]
    others = [
        heard("c", mask, late=True),
        heard("d", mask, shadow=True),
        heard("e", mask, problem="schema"),
        heard("f", Continue()),
    ]
    assert list_masks([*counted, *others]) == counted


def test_the_replacement_of_the_highest_priority_counts_and_a_tie_goes_to_the_first_name():
    low, high = heard("a", Replace(result="low"), 1), heard("z", Replace(result="high"), 2)
    tie = heard("y", Replace(result="tie"), 2)
    assert find_replacement([low, high]) is high
    assert find_replacement([high, tie, low]) is tie
    assert find_replacement([heard("b", Replace(result=1), 9, shadow=True), low]) is low
    assert find_replacement([]) is None
