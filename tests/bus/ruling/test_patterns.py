"""Patterns in linear time mean what they mean in Python; what they cannot mean is refused by name."""

import re
import warnings

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from toolgate_bus.ruling.conditions.patterns import MAX_PATTERN, Unknown, compile_pattern, glob

pytestmark = pytest.mark.pure

CHARS = [*list("abkKsSiI019_-. \t\n\r"), "é", "É", "ß", "ſ", "K", "İ", "ı", "µ", "μ", "٣", "\xa0"]
CHARS += ["\x1c", "\u2028", "日", "Ǆ", "ǅ", "ǆ", "\U00010400", "\U00010428", "\ud800", "\x00"]
atoms = st.sampled_from(
    [
        *CHARS[:12],
        *(".", r"\w", r"\W", r"\d", r"\D", r"\s", r"\S", r"\b", r"\B", "^", "$", r"\A", r"\Z", r"\u00e9"),
        *(
            r"\U00010400",
            r"\x41",
            r"\n",
            "[a-k]",
            "[^a-k]",
            r"[\w-]",
            r"[^\s_]",
            "[é-μ]",
            r"\.",
            "日",
            "[İ-ſ]",
        ),
        *(r"[\Wk]", "[\U00010400-\U0001044f]"),
    ]
)
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?", "+?", "{0,2}?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        st.tuples(st.sampled_from("ims"), inner).map(lambda pair: f"(?{pair[0]}:{pair[1]})"),
        inner.map(lambda one: f"({one})"),
    ),
    max_leaves=8,
)
flags = st.sampled_from(["", "(?i)", "(?a)", "(?m)", "(?s)", "(?im)", "(?ia)", "(?x)"])
texts = st.text(st.sampled_from(CHARS), max_size=12) | st.text(st.sampled_from("ab_- \n"), max_size=5)
begins, ends = st.sampled_from(["", "", "^", r"\b"]), st.sampled_from(["", "", "$", r"\Z", r"\b"])


@given(st.tuples(flags, begins, patterns, ends).map("".join), st.lists(texts, min_size=1, max_size=6))
def test_a_pattern_finds_what_python_finds(written, some):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = re.compile(written)
    try:
        ours = compile_pattern(written)
    except Unknown:
        assume(False)
    # Without case, Python 3.11 loses a letter beyond 16 bits that is an alternative of a shorter one.
    assume(r"\U0001" not in written or "(?i" not in written)
    for text in [*some, "", *(f"{text}\n" for text in some)]:
        assert ours.search(text) is (theirs.search(text) is not None), (written, text)


def test_a_letter_beyond_16_bits_is_found_without_case_beside_a_shorter_one():
    pattern = compile_pattern(r"(?i)(?:a|\U00010400)")
    assert [pattern.search(text) for text in "A\U00010400\U00010428b"] == [True, True, True, False]


@example("[b-a]*", "b")
@example("[!b-a]*", "b")
@given(
    st.text(st.sampled_from("ab*?[]!-é(?>\n"), min_size=1, max_size=12),
    st.text(st.sampled_from("ab-é(?>\n"), max_size=8),
)
def test_a_glob_fits_what_python_fits(written, text):
    import fnmatch

    assert glob(written).search(text) is fnmatch.fnmatchcase(text, written)


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "a$",
            "a$\n",
            r"a\Z",
            "^a$",
            "(?m)a$",
            "(?m)^$",
            r"\Ba",
            r"\B",
            r"\b",
            r"\bé",
            r"(?a)\bé",
            "$",
            "(?s)a.$",
        ),
        *(
            "a.",
            "[^b]$",
            r"\s$",
            r"(?m)^\Z",
            "(?i)É",
            "(?i)[^É]",
            "",
            "(?:)*",
            "(?:a|)*$",
            "a{2}$",
            r"\n$",
        ),
    ],
)
def test_ends_of_lines_and_words_are_where_python_sees_them(pattern):
    for text in ("", "a", "a\n", "a\n\n", "\na", "aa\nb", "éa", "a é", "\n", "ab\r\n", "\ud800a", "b\na\n"):
        assert compile_pattern(pattern).search(text) is (re.search(pattern, text) is not None), text


def test_every_letter_is_compared_without_regard_to_case_as_in_python():
    letters = "".join(
        chr(point)
        for point in range(0x1E944)
        if chr(point).isalpha() and chr(point).lower() != chr(point).upper()
    )
    for pattern in (
        "(?i)s",
        "(?i)k",
        "(?i)i",
        "(?i)[a-z]",
        "(?i)µ",
        "(?i)[α-ω]",
        "(?i)[^a-z]",
        "(?i)ǆ",
        "(?i)ß",
        r"(?i)\w",
    ):
        ours, theirs = compile_pattern(pattern), re.compile(pattern)
        assert [one for one in letters if ours.search(one)] == [one for one in letters if theirs.search(one)]


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(?=a)b", "a look ahead or behind"),
        ("(?<!a)b", "a look ahead or behind"),
        (r"(a)\1", "a group repeated by its number"),
        ("(?P<x>a)(?P=x)", "a group repeated by its number"),
        ("(a)?(?(1)b|c)", "a choice by a group"),
        ("(?>a)b", "an atomic group"),
        ("a*+b", "a possessive repeat"),
        ("a{1001}", "more than 1000 times"),
        ("(?:a{100}){100}", "too large"),
        (r"(?a:\b)x\b", "with and without"),
        (r"(?m:$)x$", "with and without"),
        ("".join(map(chr, range(0x4E00, 0x4E00 + 300))), "too many characters"),
        ("(", "not a regular expression"),
        ("(" * 600 + ")" * 600, "a pattern may have"),
        ("(" * 500 + ")" * 500, "nested too deeply"),
        ("a" * (MAX_PATTERN + 1), "a pattern may have at most 1024 characters"),
    ],
)
def test_what_cannot_be_linear_is_refused_by_name(pattern, said):
    with pytest.raises(Unknown, match=said):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    "pattern", [r"^(\w+\s?)*$", "(a+)+$", r"\s+$", "(a|aa)+$", "(.*,)*x", "(?i)(é|É)*!x"]
)
@pytest.mark.parametrize(
    "text", ["aaaa " * 100_000 + "!", " " * 500_000 + "x", "a," * 250_000, "é" * 250_000]
)
def test_every_search_ends_in_linear_time(pattern, text):
    compile_pattern(pattern).search(text)  # quadratic time would be longer than a test may take


@pytest.mark.parametrize(
    ("pattern", "text", "told"),
    [
        ("sk-[a-z0-9]+", "a sk-1 b sk-é2", "a ⟦⟧ b sk-é2"),
        (r"\b\d+\b", "é12 12 é", "é12 ⟦⟧ é"),
        ("x*", "axxb", "a⟦⟧b"),
        ("é", "aéa", "a⟦⟧a"),
        ("q", "a", "a"),
        ("q", "", ""),
    ],
)
def test_what_matches_can_be_replaced(pattern, text, told):
    assert compile_pattern(pattern).substitute(text, "⟦⟧") == told


def test_after_very_many_parts_the_rest_of_a_text_is_replaced_as_a_whole():
    told = compile_pattern("a").substitute("a-" * 10_000 + "secret", "#")
    assert "secret" not in told
    assert "a" not in told
