"""Rules suggested from what ran: few, narrow, no narrower than the evidence, and safe to write in a file."""

import pickle
from typing import Any

import pytest
from toolgate_bus.config.check import check
from toolgate_bus.config.document import parse_document
from toolgate_bus.protocol.placeholders import MARK, WHOLE
from toolgate_schedulers import Continue
from toolgate_schedulers.shipped.policy.scheduler import PolicyConfig, explain_ruling
from toolgate_schedulers.shipped.policy.suggestions.suggested_file import format_policy
from toolgate_schedulers.shipped.policy.suggestions.suggestions import SeenCall, Suggestions
from toolgate_schedulers.testing import question

pytestmark = pytest.mark.pure

SESSIONS = 30
AIRPORTS = ("JFK", "SEA", "ATL", "EWR", "BOS", "MIA", "SFO", "ORD", "LAX", "PHL", "DEN", "DFW", "IAH", "LGA")
HIDDEN = f"{MARK}redacted:4{'0' * 31}⟧"


class Made:
    """The policy that is suggested for some calls."""

    def __init__(self, *calls: SeenCall) -> None:
        self.calls = calls
        self.suggestions = Suggestions()
        for call in calls:
            self.suggestions.add(call)
        self.rules = self.suggestions.rules()
        self.text = format_policy(self.rules, ["of a test"])
        document = parse_document(self.text.encode(), "suggested.yaml")
        self.config = check(PolicyConfig, document.mapping(), document)
        named = {tool for one in self.rules for tool in one.calls}
        for call in (one for one in calls if one.tool in named):
            assert self.allows(call.tool, **call.arguments), self.text

    def allows(self, tool: str, /, **arguments: Any) -> bool:
        """Whether a call would not be asked about; as written, the policy lets each call go on."""
        verdict, fired = explain_ruling(self.config, question(tool, arguments))
        assert isinstance(verdict, Continue)
        return len(self.config.rules) - 1 not in fired

    def rule(self, tool: str) -> dict[str, Any]:
        """The rule of a tool, as it was suggested."""
        (found,) = (one for one in self.rules if tool in one.calls)
        return dict(found.rule)


def of(tool: str, *arguments: dict[str, Any]) -> list[SeenCall]:
    """A call of each, each in a session of its own."""
    return [SeenCall(tool, one, f"session {number}") for number, one in enumerate(arguments)]


def varied(tool: str, name: str, values: Any) -> list[SeenCall]:
    return of(tool, *({name: value} for value in values))


@pytest.mark.parametrize(
    ("values", "condition", "good", "bad"),
    [
        (["economy", "business"] * 15, {"in": ["business", "economy"]}, "economy", "first"),
        (["main"] * 9, {"equals": "main"}, "main", "other"),
        ([True] * 9, {"equals": True}, True, False),
        (range(12, 340, 11), {"gte": 0, "lte": 500}, 499.5, 501),
        (
            [f"/srv/data/{n % 7}/{n}.csv" for n in range(30)],
            {"under": "/srv/data"},
            "/srv/data/x",
            "/srv/data/../y",
        ),
        (
            [f"src/{n}/a{n}.py" for n in range(30)],
            {"under": "/folder/src", "base": "/folder"},
            "src/b.py",
            "src/../../b.py",
        ),
        (
            [f"ann{n}@ok.example" for n in range(30)],
            {"glob": "*@ok.example"},
            "bo@ok.example",
            "bo@evil.example",
        ),
        (
            [f"https://ok.example/{n}" for n in range(30)],
            {"matches": r"^https://ok\.example(?:[/?#]|\Z)"},
            "https://ok.example/?q",
            "https://ok.example.evil.example/",
        ),
        (
            [f"#W{n}" for n in range(1234560, 1234590)],
            {"matches": r"^#W[0-9]{7}\Z"},
            "#W7654321",
            "#W7654321 --all",
        ),
        (
            [f"{kind}_{n}" for n in range(10_000, 10_015) for kind in ("visa", "gift_card")],
            {"matches": r"^(?:gift_card_[0-9]{5}|visa_[0-9]{5})\Z"},
            "visa_54321",
            "cash_54321",
        ),
        (AIRPORTS, {"matches": r"^[A-Z]{3}\Z"}, "CDG", "Paris"),
        (
            [f"2026-11-{n}" for n in range(10, 30)],
            {"matches": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}\Z"},
            "2027-01-01",
            "soon",
        ),
    ],
)
def test_an_argument_gets_the_condition_that_its_values_have_in_common(
    values: Any, condition: Any, good: Any, bad: Any
) -> None:
    made = Made(*varied("tool", "value", values))
    assert made.rule("tool")["when"] == {"value": condition}
    assert made.allows("tool", value=good)
    assert not made.allows("tool", value=bad)
    assert not made.allows("tool")
    assert not made.allows("another")


def test_values_of_which_a_next_one_is_likely_are_no_enumeration() -> None:
    for values in (
        [*"abcdefgh"] * 2,
        ["a", "b"],
        ["Rome"] * 8,
        [*["Rome"] * 15, "Oslo"],
        [f"word {chr(97 + n)}" for n in range(12)],
    ):
        assert "when" not in Made(*varied("tool", "value", values)).rule("tool")
    assert Made(*varied("tool", "value", [*["Rome"] * 18, "Oslo"])).rule("tool")["when"] == {
        "value": {"in": ["Oslo", "Rome"]}
    }


def test_ids_that_come_again_are_no_enumeration() -> None:
    again = [f"gift_card_{n}" for n in range(1000, 1005)] * 10
    assert Made(*varied("pay", "card", again)).rule("pay")["when"] == {
        "card": {"matches": r"^gift_card_[0-9]{4}\Z"}
    }


def test_what_one_session_repeats_is_seen_once() -> None:
    calls = [SeenCall("tool", {"user": f"person {chr(97 + n % 5)}"}, f"session {n % 5}") for n in range(100)]
    assert "when" not in Made(*calls).rule("tool")
    few = [SeenCall("tool", {"user": f"person {chr(97 + n % 3)}"}, f"session {n % 7}") for n in range(100)]
    assert "when" not in Made(*few).rule("tool"), "seven sessions are too few, whatever they repeat"
    alone = [SeenCall("tool", {"user": "ann"}, "the only one") for _ in range(9)]
    assert Made(*alone).rule("tool")["when"] == {"user": {"equals": "ann"}}


def test_a_tool_that_was_seen_seldom_is_allowed_and_said_to_be_thin() -> None:
    made = Made(*varied("pay", "amount", [5, 7]), *varied("mail", "to", ["ann@ok.example"]))
    assert [one.rule["name"] for one in made.rules] == ["seldom seen", "everything else"]
    assert made.rules[0].rule["tools"] == ["pay", "mail"]
    assert "Thin evidence" in made.text
    (bounded,) = (one.rule for one in Made(*varied("pay", "amount", [5, 7, 30])).rules[:-1])
    assert bounded["when"] == {"amount": {"gte": 0, "lte": 100}}, "few sessions: twice as much as was seen"


def test_tools_whose_rules_say_the_same_share_one() -> None:
    made = Made(
        *of("list_a", *[{}] * 9),
        *of("list_b", *[{}] * 9),
        *varied("get", "id", [f"#A{n}" for n in range(10, 25)]),
        *varied("drop", "id", [f"#A{n}" for n in range(10, 25)]),
    )
    assert [one.rule["tools"] for one in made.rules] == [["drop", "get"], ["list_a", "list_b"], "*"]
    assert made.rules[0].calls == {"drop": 15, "get": 15}


def test_a_form_that_is_sure_in_one_tool_counts_in_others_that_fit_it() -> None:
    sure = varied("show", "id", [f"ord_{n}" for n in range(1000, 1020)])
    made = Made(*sure, *varied("pay", "id", ["ord_1234"] * 3), *varied("call", "id", ["room 12"] * 3))
    assert made.rule("pay")["when"] == {"id": {"matches": r"^ord_[0-9]{4}\Z"}}
    assert "when" not in made.rule("call")


def test_arguments_that_no_call_had_are_asked_about_and_those_that_some_had_keep_their_condition() -> None:
    calls = [{"to": ["ann@ok.example", "bob@ok.example"]}, {"to": ["ann@ok.example"], "cc": []}]
    made = Made(*of("mail", *calls * 15, *[{**calls[1], "cc": ["bob@ok.example"]}] * 15))
    assert made.allows("mail", to=["ann@ok.example"])
    assert made.allows("mail", to=["ann@ok.example"], cc=["ann@ok.example", "bob@ok.example"]) is False, (
        "never seen"
    )
    assert not made.allows("mail", to=["ann@ok.example"], cc=["eve@evil.example"])
    assert not made.allows("mail", to=["ann@ok.example"], bcc=["bob@ok.example"])
    assert not made.allows("mail", to=["ann@ok.example", "eve@evil.example"])
    assert not made.allows("mail", to=[])


def test_objects_in_lists_are_looked_into() -> None:
    flights = [
        [{"number": f"HAT{n}", "seat": {"row": n % 30}}, {"number": "HAT100"}] for n in range(110, 140)
    ]
    made = Made(*varied("book", "flights", flights))
    assert made.rule("book")["when"] == {"flights.number": {"matches": r"^HAT[0-9]{3}\Z"}}
    assert not made.allows("book", flights=[{"number": "HAT100"}, {"number": "; drop"}])


def test_what_is_hidden_or_may_be_secret_is_never_written() -> None:
    made = Made(
        *varied("login", "password", ["hunter2"] * 20),
        *of(
            "upload",
            *[{"file": HIDDEN, "deep": {"api_key": "sk-12345"}, "name": f"n{n}"} for n in range(10, 30)],
        ),
        *of("whole", *[{WHOLE: HIDDEN}] * 20),
    )
    for secret in ("hunter2", "sk-12345", MARK, "00000"):
        assert secret not in made.text
    assert made.rule("upload")["when"] == {"name": {"matches": r"^n[0-9]{2}\Z"}}
    assert made.allows("login", password="another")


HOSTILE = (
    "a: b",
    "x # y",
    "- item",
    "it's",
    '"quoted"',
    "*alias",
    "&anchor",
    "!tag",
    "null",
    "No",
    "1.10",
    "2026-11-29",
    "{a: b}",
    "[x",
    "line\nend: {action: deny}",
    "next\u2028line",
    "e\u0301\U0001f600",
    "\x7f\x1b[2J",
    "<<",
    "%YAML 1.1",
    "a*b?",
    "a*b?[c]",
    "⟦arguments⟧",
    " ",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_that_would_break_a_file_or_mean_a_glob_are_taken_literally(text: str) -> None:
    made = Made(
        *varied("tool", "value", [text] * 20), *of("names", *[{text: 1}] * 20), *of(text, *[{"n": 1}] * 20)
    )
    assert made.rules[-1].rule["tools"] == "*"
    assert len(made.config.rules) == len(made.rules)
    if "*b?" in text:
        assert made.allows(text, n=1)
        assert not made.allows("aXbYc"[: len(text)], n=1)
        assert not made.allows("tool", value="aXbYc"[: len(text)])


def test_names_that_no_rule_can_hold_are_counted_and_asked_about() -> None:
    suggestions = Suggestions()
    for tool in ("ｂａｓｈ", "x" * 300, "a\nb"):
        suggestions.add(SeenCall(tool, {}))
    assert len(suggestions.rules()) == 1
    assert suggestions.left_out == {"calls of tools whose name no rule can hold": 3}


def test_a_hundred_thousand_calls_of_every_kind_stay_within_bounds() -> None:
    suggestions = Suggestions()
    for number in range(100_000):
        arguments = {
            f"argument {number}": number,
            "value": f"{number:x}",
            "text": "long " * 20,
            "n": [number] * 3,
        }
        suggestions.add(SeenCall(f"tool {number % 5_000}", arguments, f"session {number}"))
    text = format_policy(suggestions.rules(), [])
    assert len(pickle.dumps(suggestions)) < 32 << 20
    assert len(text) < 1 << 20
    assert suggestions.left_out.total() == 90_000
    document = parse_document(text.encode(), "suggested.yaml")
    assert check(PolicyConfig, document.mapping(), document).rules
