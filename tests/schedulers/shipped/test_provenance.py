"""The shipped provenance: what a request names, what a configuration trusts, and what is neither."""

import pytest
from toolgate_bus.config.check import check
from toolgate_bus.config.document import parse_document
from toolgate_bus.errors import ConfigError
from toolgate_bus.protocol.placeholders import MARK
from toolgate_bus.ruling.local_table import LocalTable
from toolgate_schedulers import ToolSelecting
from toolgate_schedulers.shipped import provenance_names as names
from toolgate_schedulers.shipped.provenance import Provenance, ProvenanceConfig, rule_on
from toolgate_schedulers.testing import question

pytestmark = pytest.mark.pure

HIDDEN = f"{MARK}redacted:4{'0' * 31}⟧"


def config(text):
    return check(ProvenanceConfig, parse_document(text.encode(), "p.yaml").value, "p.yaml")


MAIL = config("{action: deny, trusted: ['*@house.example'], sinks: [{tools: send, to: [to, cc]}]}")
PAGE = config("{action: deny, trusted: ['docs.house.example/**'], sinks: [{tools: fetch, to: url}]}")


def said(rules, request, tool="send", **arguments):
    asked = ToolSelecting(id="0" * 32, tool_name=tool, tool_input=arguments, request=request)
    return rule_on(rules, asked)


@pytest.mark.parametrize(
    ("request_", "addressee"),
    [
        ("Mail ann@out.example.", "ann@out.example"),
        ("mail it to <ANN@Out.Example>, please", "ann@out.example"),
        ("see https://out.example/a/ and tell me", "out.example/a"),
        ("pay GB29NWBK60161331926819!", "gb29nwbk60161331926819"),
        ("send it to Alice", "alice"),
        ("book the 'Riverside View Hotel'", "riverside view hotel"),
        ("delete file 13", "13"),
        ("ask @alice, please", "alice"),
        ("post it in #general", "general"),
        ("open example.org/a", "www.example.org/a"),
        ("open www.example.org", "example.org"),
        ("pay GB29 NWBK 6016 1331 9268 19.", "gb29nwbk60161331926819"),
        ("pay GB29NWBK60161331926819", "gb29-nwbk-6016-1331-9268-19"),
        ("call +44 20 7946 0958", "+442079460958"),
        ("Ｍａｉｌ ａｎｎ＠ｏｕｔ．ｅｘａｍｐｌｅ", "ann@out.example"),
    ],
)
def test_an_addressee_that_stands_in_the_request_is_named(request_, addressee):
    assert names.is_named(names.plain_request(request_), addressee)


@pytest.mark.parametrize(
    ("request_", "addressee"),
    [
        ("", "ann@out.example"),
        ("mail ann@out.example.evil.com", "ann@out.example"),
        ("mail joann@out.example", "ann@out.example"),
        ("mail x-ann@out.example", "ann@out.example"),
        ("mail ann@out.example", "out.example"),
        ("open out.example/evil.example", "evil.example"),
        ("open out.example/secret", "out.example"),
        ("send it to Alice", "ali"),
        ("delete file 130", "13"),
        ("mail ann", "ann@evil.example"),
        ("mail ann@out.example", ""),
        ("something that could not be seen", names.UNSEEN),
        ("mail ann@alice", "alice"),
        ('mail "ann lee"@alice', "alice"),
        (f"mail {HIDDEN}@out.example", "out.example"),
        ("open www.example.org.evil.example", "example.org"),
        ("open example.org", "www.example.org/a"),
        ("pay GB29 NWBK 6016 1331 9268 190", "gb29nwbk60161331926819"),
        ("pay 1GB29 NWBK 6016 1331 9268 19", "gb29nwbk60161331926819"),
        ("on 2024-05-19", "20240519"),
        ("pay 11 of 22", "1122"),
    ],
)
def test_a_part_of_something_longer_is_not(request_, addressee):
    assert not names.is_named(names.plain_request(request_), addressee)


def test_by_name_all_the_words_before_the_at_have_to_stand_there():
    request = names.plain_request("Write to Ann Smith")
    assert names.is_named(request, "ann.smith@anywhere.example", by_name=True)
    assert not names.is_named(request, "ann.jones@anywhere.example", by_name=True)
    assert not names.is_named(request, "annsmith@anywhere.example", by_name=True)


@pytest.mark.parametrize(
    ("pattern", "addressee", "trusted"),
    [
        ("*@house.example", "ann@house.example", True),
        ("*@house.example", "ann@evil.example?x@house.example", False),
        ("*@house.example", "eve@evil.example ann@house.example", False),
        ("*@house.example", "ann@house.example.evil", False),
        ("*.house.example", "docs.house.example", True),
        ("*.house.example", "evil.example/.house.example", False),
        ("*.house.example", "evil.example?docs.house.example", False),
        ("*.house.example", "evil.example#docs.house.example", False),
        ("*.house.example", "evil.example\\docs.house.example", False),
        ("docs.house.example/**", "docs.house.example/a/b?c=d", True),
        ("docs.house.example/**", "docs.house.example@evil.example/", False),
        ("docs.house.example/**", "docs.house.example.evil.example/a", False),
        ("https://Docs.house.example/*", "docs.house.example/a", True),
        ("general", "general", True),
        ("general", "generals", False),
    ],
)
def test_a_pattern_trusts_what_can_be_read_in_one_way_only(pattern, addressee, trusted):
    assert names.trusts([pattern], addressee) is trusted


@pytest.mark.parametrize(
    "arguments",
    [
        {"to": "eve@evil.example"},
        {"to": ["ann@out.example", "eve@evil.example"]},
        {"to": "ann@out.example, eve@evil.example"},
        {"to": "ann@out.example;eve@evil.example"},
        {"to": "ann@out.example\neve@evil.example"},
        {"to": "ann@out.example <eve@evil.example>"},
        {"to": {"primary": {"address": "eve@evil.example"}}},
        {"to": "ann@out.example", "cc": ["eve@evil.example"]},
        {"to": HIDDEN},
        {"⟦arguments⟧": HIDDEN},
        {"to": "a" * 3000},
        {"to": [[[[[[[[[["ann@out.example"]]]]]]]]]]},
        {"to": ["ann@out.example"] * 300},
    ],
    ids=repr,
)
def test_whoever_is_hidden_among_those_who_are_named_is_found(arguments):
    assert said(MAIL, "Mail ann@out.example", **arguments).action == "deny"


def test_named_and_trusted_may_be_together_and_nobody_is_nobody():
    assert (
        said(MAIL, "Mail ann@out.example", to="Ann <ann@out.example>, b@house.example").action == "continue"
    )
    assert said(MAIL, "", to=[], cc=None).action == "continue"
    assert said(MAIL, "Tell @Alice", to=["alice", "@alice"]).action == "continue"
    assert said(MAIL, "Tell Alice", to="@alice").action == "deny"
    assert said(MAIL, "Tell Alice", to="#alice").action == "deny"
    assert said(MAIL, "", "other", to="eve@evil.example").action == "continue"
    assert said(PAGE, "", "fetch", url="HTTPS://docs.house.example/a/").action == "continue"


def test_the_llm_is_told_who_was_not_named_in_letters_that_can_be_printed():
    denied = said(MAIL, "Mail ann@out.example", to="eve\u202e\x1b[2J@evil.example")
    assert "does not name eve??[2j@evil.example" in denied.reason
    assert denied.rule_name == "send"
    assert len(said(MAIL, "", to="x" * 2000).reason) < 400


def test_words_ask_for_an_act_and_links_are_addressees_within_a_text():
    acts = config("{sinks: [{name: d, tools: delete, words: [delet*, '*move']}]}")
    assert [said(acts, text, "delete").action for text in ("Deletes it", "undelete", "remove", "")] == [
        "continue",
        "ask_user",
        "continue",
        "ask_user",
    ]
    links = config("{action: deny, trusted: [house.example], sinks: [{tools: send, to: to, links: true}]}")
    for text, action in {
        "see https://house.example/.": "continue",
        "see https://evil.example/a": "deny",
        "WWW.EVIL.EXAMPLE": "deny",
        "write to eve@evil.example!": "deny",
        "report.pdf, e.g. this": "continue",
        HIDDEN: "deny",
    }.items():
        assert said(links, "tell Ann", to="ann", body={"text": [text]}).action == action, text


def test_of_several_sinks_the_strictest_counts():
    both = config("{sinks: [{tools: '*', to: a}, {tools: send, to: b, action: deny, name: strict}]}")
    assert said(both, "", a="x", b="y").rule_name == "strict"
    assert said(both, "y", a="x", b="y").action == "ask_user"
    assert said(both, "x y", a="x", b="y").action == "continue"


def test_a_tool_that_says_it_reaches_out_is_a_sink_by_its_name_alone():
    told = config(
        "{action: deny, sinks: [{tools: send, to: to}], "
        "annotations: {'a*': {}, send: {}, home: {openWorldHint: false}}}"
    )
    assert Provenance(told).tools == ("send", "a[*]")
    assert said(told, "", "a*", q="www.evil.example").action == "deny"
    assert said(told, "", "ab", q="www.evil.example").action == "continue"
    assert said(told, "", "home", q="www.evil.example").action == "continue"


def test_it_is_asked_about_the_tools_of_its_sinks_alone_and_told_the_request():
    made = Provenance(config("{sinks: [{tools: [a, b*], to: x}, {tools: a, words: w}]}"))
    assert (made.tools, made.reads) == (("a", "b*"), ("request",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "sinks"),
        ("{sinks: []}", "sinks"),
        ("{sinks: [{tools: a}]}", "checks nothing: give to"),
        ("{sinks: [{tools: a, to: b, match: maybe}]}", "match"),
        ("{sinks: [{tools: a, to: b}], action: allow}", "action"),
        ("{sinks: [{tools: a, too: b}]}", "too"),
    ],
)
def test_a_configuration_that_means_nothing_is_refused_by_the_name_of_the_field(text, words):
    with pytest.raises(ConfigError, match=words):
        config(text)


OUTSIDE = config(
    "{action: deny, outside: [fetch, 'read_*'], annotations: {search: {}, clock: {openWorldHint: false}},"
    " sinks: [{tools: send, to: to, when_session: {source: untrusted}}, {tools: post, to: to}]}"
)


def test_a_sink_counts_once_the_session_has_read_something_from_outside():
    label = {"source": ("untrusted",)}

    def seen(tool, rules=OUTSIDE):
        return rule_on(rules, question(tool, phase="result", result="x")).session_labels

    assert [seen(tool) for tool in ("fetch", "read_mail", "search")] == [label] * 3
    assert [seen(tool) for tool in ("send", "clock", "other")] == [None] * 3
    own = config("{outside: fetch, label: {from: outside}}")
    assert seen("fetch", own) == {"from": ("outside",)}

    def sent(tool, labels, to="eve@out.example"):
        return rule_on(OUTSIDE, question(tool, {"to": to}, session_labels=labels)).action

    assert [sent("send", one) for one in ({}, label, None)] == ["continue", "deny", "deny"]
    assert [sent("post", one) for one in ({}, label, None)] == ["deny"] * 3
    table = LocalTable.read(Provenance(OUTSIDE).local_table)
    asked = question("send", {"to": "eve@out.example"})
    assert table.answer(asked).is_plain
    assert table.answer(asked.model_copy(update={"session_labels": label})) is None
    assert table.answer(asked.model_copy(update={"session_labels": None})) is None


def test_it_asks_for_results_and_for_labels_only_where_it_needs_them():
    def announced(text):
        made = Provenance(config(text))
        return made.tools, "result" in made.phases, made.reads

    assert announced("{sinks: [{tools: send, to: to}]}") == (("send",), False, ("request",))
    assert announced("{outside: fetch}") == (("fetch",), True, ("request",))
    labelled = "{sinks: [{tools: send, to: to, when_session: {a: b}}]}"
    assert announced(labelled) == (("send",), False, ("request", "session_labels"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{action: deny}", "sinks: are required, or outside"),
        ("{sinks: [{tools: a, to: b}], label: {a: b}}", "needs outside"),
    ],
)
def test_a_configuration_that_checks_nothing_is_refused(text, said):
    with pytest.raises(ConfigError, match=said):
        config(text)
