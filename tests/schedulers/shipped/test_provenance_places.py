"""Provenance reads an addressee as the tool will: hosts, mail addresses and links in other spellings."""

import json

import pytest
from toolgate_bus.config.check import check
from toolgate_bus.protocol.events import ToolSelecting
from toolgate_schedulers.shipped.provenance import ProvenanceConfig, rule_on

pytestmark = pytest.mark.pure


def rules(**fields):
    return check(ProvenanceConfig, {"action": "deny", **fields}, "p.yaml")


TRUSTED = [
    "*@strasse.example",
    "*@house.example",
    "*.house.example",
    "docs.house.example/public/**",
    "wiki.house.example/**",
    "reports/**",
    "müller.de",
    "*@müller.de",
    "**",
]
MAIL = rules(trusted=TRUSTED[:-1], sinks=[{"tools": "send", "to": ["to", "cc"]}])
PAGE = rules(trusted=TRUSTED[:-1], sinks=[{"tools": "send", "to": "url"}])
BODY = rules(trusted=TRUSTED[:-1], sinks=[{"tools": "send", "to": "to", "links": True}])
REQUEST = "Mail ann@out.example, tell Ann, and fetch https://out.example/Report and out.example/a"


def said(config, request=REQUEST, **arguments):
    asked = ToolSelecting(id="0" * 32, tool_name="send", tool_input=arguments, request=request)
    return rule_on(config, asked).action


@pytest.mark.parametrize(
    "to",
    [
        "eve@straße.example",
        "EVE@STRAßE.EXAMPLE",
        "eve%evil.example@house.example",
        "evil.example!eve@house.example",
        "evil.example/eve@house.example",
        '"eve@evil.example"@house.example',
        "ann(eve@evil.example)@house.example",
        "<@evil.example:ann@house.example>",
        "ann@house.example@evil.example",
        "ann@house.example .evil.example",
        "ann@house.example\n .evil.example",
        "ann@house.example(x).evil.example",
        "ann@house.example <eve@evil.example>",
        '"ann@house.example" <eve@evil.example>',
        "eve@evil.example <ann@house.example>",
        "=?utf-8?q?eve=40evil.example=2C?= <ann@house.example>",
        "Friends: ann@house.example, eve@evil.example;",
        "ann@house.example\u3000eve@evil.example",
        "mailto:eve@evil.example",
        "mailto:ann@house.example?cc=eve@evil.example",
        "mailto:ann@house.example?BCC=eve%40evil.example",
        "mailto:ann@house.example?subject=a&amp;bcc=eve@evil.example",
        "mailto:ann@house.example?subject=a%0D%0ABcc:eve@evil.example",
        "mailto:?to=eve@evil.example",
        "mailto:eve%40evil.example",
        {"eve@evil.example": "Ann"},
        {"eve@evil.example": "ann@house.example"},
        '["eve@evil.example", "Ann"]',
        '{"eve@evil.example": "Ann"}',
        '{"to": "eve@evil.example", "to": "ann@out.example"}',
        json.dumps({"to": [{"address": "eve"}]}),
        [{"email": "ann@out.example"}, {"email": ["eve@evil.example"]}],
        "ann＠house.example／eve@evil.example",
        "reports/../secret",
        "reports/%2e%2e/secret",
        "evil.example,docs.house.example",
        "evil.example;docs.house.example",
        "evil.example%2f.house.example",
    ],
    ids=repr,
)
def test_no_spelling_of_an_addressee_passes_for_another(to):
    assert said(MAIL, to=to) == "deny"
    assert said(MAIL, to=["ann@out.example", to]) == "deny"
    assert said(MAIL, to="ann@out.example", cc={"list": [to]}) == "deny"


@pytest.mark.parametrize(
    "url",
    [
        "https://docs.house.example/public/../secret",
        "https://docs.house.example/public/%2e%2e/secret",
        "https://docs.house.example/public/.%2E/secret",
        "https://docs.house.example/public/a%2f..%2f..%2fsecret",
        "https://docs.house.example/public/%252e%252e/secret",
        "https://docs.house.example/public/..;/secret",
        "https://docs.house.example/Public/a",
        "https://wiki.house.example\\@evil.example/",
        "https://evil.example\\@wiki.house.example/",
        "https:\\\\wiki.house.example/",
        "https://wiki.house.example@evil.example/",
        "https://evil.example@wiki.house.example/",
        "https:wiki.house.example/a",
        "https:///wiki.house.example/a",
        "https://wiki.house.example／.evil.example/",
        "https://evil.example%2f.wiki.house.example/a",
        "https://wiki.house.example\t.evil.example/",
        "https://wiki.house.example:8443/a",
        "ftp2://wiki.house.example/a",
        "javascript:fetch('//evil.example')//.house.example",
        "https://out.example/report",
        "out.example/A",
        "https://mu\u0308ller.de.evil.example",
        "https://muller.de/",
        "https://straße.house.example.evil.example/",
        "http://[::1]/.house.example",
        "https://evil.example#.house.example",
    ],
    ids=repr,
)
def test_no_spelling_of_a_link_passes_for_another(url):
    assert said(PAGE, url=url) == "deny"
    assert said(PAGE, url=json.dumps([url])) == "deny"


@pytest.mark.parametrize(
    "text",
    [
        "//evil.example/x",
        "evil.example/x?d=secret",
        "evil.example",
        "sub.evil.zip",
        "evil.zip/a",
        "https:evil.example",
        "http:/evil.example",
        "https:\\\\evil.example\\x",
        "javascript:fetch(1)",
        "data:text/html,<b>",
        "myapp://evil",
        "x://evil.example",
        "mailto:ann@out.example?cc=eve@evil.example",
        "&#104;ttps://evil.example",
        "&#x68;ttps&colon;&#47;&#47;evil.example",
        "&amp;#104;ttps&amp;#58;//evil&#46;example",
        "[a](//evil.example)",
        "[a](evil.example)",
        "[a](evilapp:go)",
        "[a]\n\n[a]: evil.example/a",
        '<a href="ht\ntps://evil.example">',
        "<a href='//evil.example'>",
        "<a href=/\\evil.example>",
        "<a href=' \x01https://evil.example'>",
        '<form action="evilapp:go">',
        "https%3A%2F%2Fevil.example%2Fx",
        "https\\://evil.example",
        "https:\\/\\/evil.example",
        "\\u0068ttps:\\u002f\\u002fevil.example",
        "ｈｔｔｐｓ：／／ｅｖｉｌ．ｅｘａｍｐｌｅ",
        "evil。example/x",
        "еvil.example",
        "http://2130706433/x",
        "http://0x7f.1",
        "10.1.2.3/x",
        "10.1.2.3:80",
        "eve@evil。example",
        "eve%evil.example@house.example",
        "https://wiki.house.example,https://evil.example",
        "https://wiki.house.example/a','https://evil.example/b",
        "1https://evil.example",
        "\\\\evil.example\\share",
        "<https://evil.example|wiki.house.example>",
        "https://wiki.house.example@evil.example/",
        "wiki.strasse.example https://straße.example",
        "hxxp://evil[.]example",
    ],
    ids=repr,
)
def test_a_link_is_found_in_whichever_form_a_client_resolves(text):
    for body in (text, f"see {text} now", [text], {"a": {"b": text}}, {text: 1}):
        assert said(BODY, to="Ann", body=body) == "deny", body


HONEST = {
    "to": [
        "ann@out.example",
        "ANN@Out.Example",
        "Ann <ann@out.example>",
        "<ann@out.example>",
        "Ann",
        "ann",
        '"Lee, Ann" <ann@out.example>',
        "ann@out.example (Ann Lee)",
        "Ann Lee (Sales) <ann@out.example>",
        "Ann [EXT] <ann@out.example>",
        '"ann@out.example" <ann@out.example>',
        "ann@out.example; b@house.example",
        "ann@out.example, b@house.example",
        "ann@out.example\nb@house.example",
        "ann@out.example,",
        ["ann@out.example", "Bob <b@house.example>"],
        {"address": "ann@out.example", "name": "Ann"},
        [{"email": "ann@out.example"}],
        '["ann@out.example", "b@house.example"]',
        '{"email": "ann@out.example"}',
        "b+news@house.example",
        "o'neil@house.example",
        "first.last-name_x@house.example",
        "b=x@house.example",
        "b@müller.de",
        "B@MÜLLER.DE",
        "b@xn--mller-kva.de",
        "jürgen@müller.de",
        "Jürgen Groß <jg@house.example>",
        "mailto:ann@out.example",
        "mailto:ann@out.example?subject=Hi%20Ann&body=See%20a%40b",
        "b@strasse.example",
        "山田 <yamada@house.example>",
        "Ольга <olga@house.example>",
        "",
        None,
        [],
        "reports/2024/q1",
        "ann@out.example.",
        "mailto:ann@out.example,b@house.example",
    ],
    "url": [
        "https://out.example/Report",
        "http://out.example/Report",
        "out.example/Report",
        "//out.example/a",
        "HTTPS://OUT.EXAMPLE:443/a",
        "https://out.example./a/",
        "https://www.house.example",
        "https://wiki.house.example/a/b?c=d&e=f#g",
        "https://wiki.house.example/ä/ß",
        "wiki.house.example/a",
        "https://wiki.house.example/%C3%A4",
        "https://wiki.house.example/a/../b",
        "https://müller.de",
        "https://MÜLLER.de/",
        "https://xn--mller-kva.de",
        "https://docs.house.example/public/a%20b.pdf",
        "https://wiki.house.example/A_(b)",
        "https://wiki.house.example/{id}",
        "https://wiki.house.example:443/a",
        "http://wiki.house.example:80/a",
        "https://wiki.house.example/?q=a+b",
        "https://wiki.house.example/x?f=../a",
        "https://wiki.house.example/https://example.org/",
        "https://wiki.house.example/a%2Fb",
        " https://wiki.house.example/a ",
        "ftp://wiki.house.example/a",
    ],
    "body": [
        "report.pdf, e.g. this",
        "See README.md and main.py, v1.2.3 at 12:30",
        "std::vector, a/b, docs/readme.md",
        "and/or his/her; 24/7",
        "Price 3.50 or 1.000,50 EUR",
        "10.0.0.0/8 and 10.0.0.1",
        "C:\\Users\\ann\\x.txt",
        "// a comment",
        "key:value Re:hello File:report.pdf Data:2024 Tel:+49",
        "Dr. Smith, Ph.D., U.S. at 5 p.m.",
        "client.messages.create(self.value)",
        "<soap:Envelope>",
        "@ann #team",
        "50% of 100%25",
        "Node.js/Express",
        "file.txt:12:5",
        '<img src="cid:abc">',
        "<p style='color:red' class='hover:x'>Hi</p>",
        "Budget.xlsx, Q3.pptx",
        "[docs](docs/a.md) [x](#top)",
        "section 3.2.1",
        "https://wiki.house.example/a.",
        "(wiki.house.example/a)",
        "mail ann@out.example!",
        "<https://out.example/Report>",
        "[r](https://out.example/Report)",
        '<a href="https://out.example/Report">r</a>',
        "www.house.example",
        "https://out.example/a, and more",
        "Übersicht für Groß & Söhne",
        "日本語。日本語",
        "2024-05-19T12:30:00Z",
        "a@b",
        "x = y.z * 2",
        '{"a": 1}',
        "/etc/hosts and ~/notes.txt",
        "file report.zip",
        "1.2.3.4 is a version",
        "Straße 5, 10115 Berlin",
    ],
}


@pytest.mark.parametrize(
    ("argument", "value"), [(name, value) for name, values in HONEST.items() for value in values], ids=repr
)
def test_an_honest_addressee_passes_in_every_usual_spelling(argument, value):
    config = {"to": MAIL, "url": PAGE, "body": BODY}[argument]
    assert said(config, **{argument: value}) == "continue"


@pytest.mark.parametrize(
    ("request_", "value"),
    [
        ("push to git@github.com:org/Repo.git", "git@github.com:org/Repo.git"),
        ("follow @ann@mastodon.example", "@ann@mastodon.example"),
        ("open https://mastodon.example/@Ann", "https://mastodon.example/@Ann"),
        ("save it in C:\\Users\\Ann\\Q3.docx", "C:\\Users\\Ann\\Q3.docx"),
        ("save it in /srv/Reports/Q3.docx.", "/srv/Reports/Q3.docx"),
        ("read file:///srv/Reports/q3.docx", "file:///srv/Reports/q3.docx"),
        ("see (https://en.wiki.example/wiki/A_(b)).", "https://en.wiki.example/wiki/A_(b)"),
        ("see https://en.wiki.example/wiki/Ohm's_law", "https://en.wiki.example/wiki/Ohm's_law"),
        (
            "see https://archive.example/web/https://example.org/",
            "https://archive.example/web/https://example.org/",
        ),
        ("open MÜLLER.de/Über", "https://xn--mller-kva.de/%C3%9Cber"),
        ("open localhost:8080/Admin", "http://localhost:8080/Admin"),
        ("open localhost:8080/Admin", "localhost:8080/Admin"),
        ("open intranet/Admin", "http://intranet/Admin"),
        ("mail ann@müller.de,bob@müller.de", ["bob@xn--mller-kva.de", "Ann <ann@MÜLLER.de>"]),
        ("mail mailto:ann@out.example?subject=x", "ann@out.example"),
        ("book Hotel Weißer Bär", "hotel weißer bär"),
        ("tell Ann\u00a0Lee", "Ann Lee"),
        ("post to 会议：周一", "会议：周一"),
        ("pay 2130706433", "2130706433"),
        ("pay 3.5", "3.5"),
        ("connect to 10.0.0.1:22", "10.0.0.1:22"),
        ("use bucket s3://Bucket/Key", "s3://Bucket/Key"),
        ("write to \\\\server\\share\\x", "\\\\server\\share\\x"),
        ("see url=https://out.example/A", "https://out.example/A"),
        ("call tel:+442079460958", "+442079460958"),
    ],
)
def test_what_the_user_wrote_is_named_in_each_of_its_spellings(request_, value):
    assert said(rules(sinks=[{"tools": "send", "to": "to"}]), request_, to=value) == "continue"


def test_a_name_with_other_letters_is_another_name():
    open_ = rules(sinks=[{"tools": "send", "to": "to"}])
    assert said(open_, "book Hotel Weisser Bär", to="Hotel Weißer Bär") == "deny"
    assert said(open_, "tell weiss", to="weiß") == "deny"
    assert said(open_, "open out.example/AbC", to="https://out.example/abc") == "deny"


def test_a_host_without_dots_is_trusted_by_its_patterns():
    inner = rules(trusted=["https://intranet/**", "Teams/Ä*"], sinks=[{"tools": "send", "to": "to"}])
    assert said(inner, "", to="https://intranet/Reports/a") == "continue"
    assert said(inner, "", to="teams/änne") == "continue"
    assert said(inner, "", to="https://intranet/../a") == "continue"
    assert said(inner, "", to="https://intranet2/a") == "deny"


def test_an_at_beside_a_slash_is_trusted_by_no_pattern():
    both = rules(trusted=["social.example/@*", "*/box@house.example"], sinks=[{"tools": "send", "to": "to"}])
    assert said(both, "", to="social.example/@ann") == "deny"
    assert said(both, "", to="evil.example/box@house.example") == "deny"


def test_it_goes_by_the_call_alone_whichever_agent_of_a_tree_makes_it():
    for place in (
        {},
        {"agent": "root", "session": "s"},
        {"agent": "sub", "session": "s2", "root_session": "s", "parent": "s", "lineage": ("root", "sub")},
        {"labels": {"team": "x"}, "phase": "verify"},
        {"phase": "admit", "agent_target": "other"},
    ):
        arguments = {"to": "eve@evil.example", "cc": "ann@out.example"}
        asked = ToolSelecting(id="0" * 32, tool_name="send", tool_input=arguments, request=REQUEST, **place)
        assert rule_on(MAIL, asked).action == "deny"
        honest = asked.model_copy(update={"tool_input": {"to": "ann@out.example"}})
        assert rule_on(MAIL, honest).action == "continue"
