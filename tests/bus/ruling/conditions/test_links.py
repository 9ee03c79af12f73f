"""Hosts, mail addresses and links are read as browsers and mail libraries read them, or not at all."""

import random
from email.utils import getaddresses, parseaddr

import pytest
from toolgate_bus.ruling.conditions.addresses import canonical_address, find_addresses
from toolgate_bus.ruling.conditions.hosts import canonical_host
from toolgate_bus.ruling.conditions.links import TOP_LEVEL, find_places, is_link, read_link
from toolgate_bus.ruling.conditions.places import find_host, find_place

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("Example.ORG.", "example.org"),
        ("localhost", "localhost"),
        ("_dmarc.my_host.example", "_dmarc.my_host.example"),
        ("MÜLLER.de", "xn--mller-kva.de"),
        ("mu\u0308ller.de", "xn--mller-kva.de"),
        ("xn--mller-kva.de", "xn--mller-kva.de"),
        ("straße.de", "xn--strae-oqa.de"),
        ("strasse.de", "strasse.de"),
        ("пример.рф", "xn--e1afmkfd.xn--p1ai"),
        ("ｇｏｏｄ．example", "good.example"),
        ("good。example", "good.example"),
        ("go\u00adod.example", "good.example"),
        ("%67ood.example", "good.example"),
        ("0x7f.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("1.2.3.4.", "1.2.3.4"),
        ("[0:0:0:0:0:0:0:1]", "[::1]"),
        ("[::ffff:127.0.0.1]", "127.0.0.1"),
    ],
)
def test_a_host_has_one_spelling(written, host):
    assert canonical_host(written) == host


@pytest.mark.parametrize(
    "written",
    [
        "",
        ".",
        "a..b",
        "a.b..",
        "STRAẞE.de",
        "127.0.0.01",
        "256.1.1.1",
        "1.2.3.4.5",
        "0x",
        "a%2fb",
        "a%00b",
        "a%25b",
        "x／y.example",
        "x℀.example",
        "xn--a",
        "xn--mller-KVA-",
        "-a.b",
        "a b",
        "a\nb",
        "good.exam\u200dple",
        "☕.example",
        "[fe80::1%25eth0]",
        "[::1",
        "[good.example]",
        "a" * 64,
        "a." * 200,
        "\ud800.example",
        "%ff.example",
        "a:b",
        "a@b",
    ],
    ids=repr,
)
def test_a_host_that_readers_disagree_about_is_none(written):
    assert canonical_host(written) is None


@pytest.mark.parametrize(
    ("written", "parts"),
    [
        ("HTTPS://Good.Example:443/a/../b?q#f", ("https", "", "good.example", None, "/b", "?q#f")),
        ("https://u:p@good.example:8443", ("https", "u:p", "good.example", 8443, "", "")),
        ("https://good.example/%7ea/%2E/ä", ("https", "", "good.example", None, "/~a/%C3%A4", "")),
        ("https://good.example#@evil.example/", ("https", "", "good.example", None, "", "#@evil.example/")),
        ("https://good.example?x@evil.example", ("https", "", "good.example", None, "", "?x@evil.example")),
        ("//good.example/a", ("", "", "good.example", None, "/a", "")),
        ("good.example:80/a", ("", "", "good.example", 80, "/a", "")),
        ("http://[::1]:80/", ("http", "", "[::1]", None, "/", "")),
        ("file:///srv/a", ("file", "", "", None, "/srv/a", "")),
    ],
)
def test_a_link_is_read_as_a_browser_reads_it(written, parts):
    assert read_link(written) == parts


@pytest.mark.parametrize(
    "written",
    [
        "https:good.example",
        "https:/good.example",
        "https:///good.example",
        "https:\\\\good.example",
        "https://good.example\\@evil.example",
        "https://a@b@good.example",
        "https://good.example:99999/",
        "https://:80/",
        "https://good.example:8a/",
        "https://good.example/a b",
        "https://good\t.example/",
        "https://",
        "https://good..example/",
        "https://good.example/a%2f..%2fb",
        "https://good.example/%252e%252e/b",
        "https://good.example/..;/b",
        "mailto:a@b.example",
        "javascript:alert(1)",
    ],
    ids=repr,
)
def test_a_link_that_readers_disagree_about_is_none(written):
    assert read_link(written) is None


def test_what_has_the_form_of_a_link_is_told_from_names():
    assert all(map(is_link, ("https://a", "//a/b", "a.example", "a.example/b", "a:80", "10.0.0.1", "xy://z")))
    assert not any(
        map(is_link, ("general", "C:\\a", "3.5", "v1.2", "a@b.example", "mailto:a@b.example", "a b.c"))
    )


PIECES = [
    "ann@good.example",
    "eve@evil.example",
    "<",
    ">",
    '"',
    " ",
    "(",
    ")",
    ",",
    ";",
    ":",
    ".",
    "@",
    "\\",
    "[",
    "]",
    "\n",
    "\r",
    "\t",
    "Ann",
    "good.example",
    ".evil.example",
    "%",
    "!",
    "=?utf-8?q?eve?=",
    '"Ann"',
    "(x)",
    "<ann@good.example>",
]


def test_no_mail_library_sends_to_more_than_is_found():
    rng, read = random.Random(5), 0
    for _ in range(3000):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 7)))
        found = find_addresses(text) if "@" in text else None
        if found is not None:
            read += 1
            sent = {one for _, one in (*getaddresses([text]), parseaddr(text)) if "@" in one}
            assert {canonical_address(one) or one for one in sent} <= set(found), text
    assert read > 100


def test_no_text_breaks_a_reader():
    rng = random.Random(6)
    letters = "ab.@:/\\?#%2eF[]<>\"'`&;=(),|- \t\n\0ßẞäｅ／。℀\u00ad\u200d\ud800\udfff⟦0127x~$*{}"
    for _ in range(400):
        text = "".join(rng.choice(letters) for _ in range(rng.randint(0, 40)))
        for variant in (text, f"https://{text}", f"mailto:{text}", f"a.example/{text}", f"a@{text}"):
            canonical_host(variant)
            find_addresses(variant)
            is_link(variant)
            read_link(variant)
            list(find_places(variant))
            find_place(variant)
            find_host(variant)


@pytest.mark.parametrize(
    "text",
    [
        '<div style="background: url(&quot;/\t/evil.example/x.png&quot;)">',
        "<meta http-equiv=refresh content='0;url=/&Tab;/evil.example/x.png'>",
        '<link imagesrcset="/\n\\evil.example/x.png 1x">',
        r"\href{//evil.example/x.png}{here}",
        "({//evil.example/x.png})",
        r'url("https\3a//evil.example/x.png")',
        r"https\u{3a}//evil\u{2e}example/x.png",
        r"https\072//evil\56example/x.png",
        "evil\u200b.example/x.png",
        "evil.exam\u200cple/x.png",
        "ev\u034fil.example/x.png",
    ],
)
def test_a_link_is_found_in_every_markup_that_hides_its_signs(text):
    assert any("evil.example" in place for place in find_places(text)), text


@pytest.mark.parametrize(
    "text", ["/\n/home/ann\nC:\\temp\\2f\\dev", "//\n// a comment\n", r"\3a \frac{a}{b}", "نمی‌خواهم. 👩‍🚀"]
)
def test_an_honest_text_with_such_signs_leads_nowhere(text):
    assert list(find_places(text)) == []


def test_a_long_hostile_text_is_searched_in_linear_time():
    for text in (
        "a.",
        "a@",
        "https://",
        "](",
        "%41",
        "a:",
        "\\",
        "href='",
        "[x]:",
        "a.com,",
        "w-",
        "https://a,",
        '="',
        "&#",
    ):
        list(find_places(text * (16_000 // len(text))))


def test_every_top_level_domain_is_a_label():
    assert [label for label in TOP_LEVEL if canonical_host(f"a.{label}") != f"a.{label}"] == []


@pytest.mark.parametrize("written", ["зло.бг", "evil.xn--90ae", "evil.みんな", "evil.xn--fiqz9s"])
def test_a_host_under_a_domain_of_another_script_is_found_in_a_text(written):
    assert [find_host(place) for place in find_places(f"look at {written} today")] == [
        canonical_host(written)
    ]
