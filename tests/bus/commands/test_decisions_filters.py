"""Which decisions are shown: each option alone, all together, and what is refused."""

from datetime import UTC, datetime

import pytest
from toolgate_bus.commands.decisions.filters import MAX_HOLD_S, OUTCOMES, WHYS, moment, parse_filters, time_of
from toolgate_bus.errors import ConfigError

pytestmark = pytest.mark.pure

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC).timestamp()
DECISION = {
    "event": "decision",
    "id": "abcdef" + "0" * 26,
    "entry": f"{int(NOW * 1000) - 60_000}-3",
    "at": 5.0,
    "tool_name": "web_search",
    "final_tool": "index",
    "outcome": "modify",
    "why": "modified",
    "session": "s-123",
    "agent": "anna",
    "labels": {"team": "red", "tier": "1"},
    "verdicts": [{"scheduler": "router", "action": "modify"}],
    "silent": ["slow"],
    "asked": ["router", "slow", "quick"],
}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, True),
        ({"tool": ["web_*"]}, True),
        ({"tool": ["index"]}, True),
        ({"tool": ["WEB_*"]}, False),
        ({"tool": ["bash", "ind*"]}, True),
        ({"scheduler": "router"}, True),
        ({"scheduler": "slow"}, True),
        ({"scheduler": "quick"}, True),
        ({"scheduler": "rout"}, False),
        ({"outcome": ["modify"]}, True),
        ({"outcome": ["deny", "modify"]}, True),
        ({"outcome": ["deny"]}, False),
        ({"why": ["modified"]}, True),
        ({"why": ["agreed", "denied"]}, False),
        ({"session": "s-1"}, True),
        ({"session": "-1"}, False),
        ({"agent": "anna"}, True),
        ({"agent": "an"}, False),
        ({"label": ["team=red"]}, True),
        ({"label": ["team=red", "tier=1"]}, True),
        ({"label": ["team=red", "tier=2"]}, False),
        ({"label": ["none="]}, False),
        ({"since": "1m"}, True),
        ({"since": "59s"}, False),
        ({"since": "2026-11-21T11:59Z"}, True),
        ({"until": "1m"}, True),
        ({"until": "61s"}, False),
        ({"since": "1h30m", "until": "2026-11-21T11:59:30+00:00"}, True),
        ({"id_": "ABC"}, True),
        ({"id_": "bcd"}, False),
        (
            {"tool": ["web_*"], "agent": "anna", "outcome": ["modify"], "since": "2h", "label": ["team=red"]},
            True,
        ),
        ({"tool": ["web_*"], "agent": "berta", "outcome": ["modify"], "since": "2h"}, False),
    ],
)
def test_a_decision_is_wanted_where_all_that_is_given_holds(options, wanted):
    assert parse_filters(now=NOW, **options).match(DECISION) is wanted


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"outcome": ["denied"]}, [r"--outcome: unknown value 'denied'", *OUTCOMES]),
        ({"why": ["deny"]}, ["--why: unknown value 'deny'", *WHYS]),
        ({"label": ["team"]}, ["--label: 'team'", "key=value"]),
        ({"label": ["=red"]}, ["--label", "key=value"]),
        ({"id_": "xyz"}, ["--id: 'xyz'", "0-9 and a-f"]),
        ({"id_": ""}, ["--id"]),
        ({"id_": "a" * 33}, ["--id"]),
        ({"since": "soon"}, ["--since: 'soon' is not a time", "30m", "2026-11-21T10:30Z"]),
        ({"until": "5"}, ["--until: '5' is not a time"]),
        ({"since": "10m", "until": "20m"}, ["--since", "before --until"]),
    ],
)
def test_a_wrong_value_is_refused_with_what_is_allowed(options, words):
    with pytest.raises(ConfigError) as refused:
        parse_filters(now=NOW, **options)
    assert all(word in str(refused.value) for word in words)


@pytest.mark.parametrize(
    ("text", "seconds"), [("45s", 45), ("30m", 1800), ("2h", 7200), ("3d", 259_200), ("1h30m", 5400)]
)
def test_a_length_is_so_long_ago(text, seconds):
    assert moment("--since", text, NOW) == NOW - seconds


def test_a_timestamp_without_a_zone_is_local():
    assert (
        moment("--since", "2026-11-21T10:30", NOW) == datetime(2026, 11, 21, 10, 30).astimezone().timestamp()
    )


def test_time_is_when_the_server_took_it_in():
    assert time_of(DECISION) == NOW - 60
    assert time_of({"at": 7.5}) == 7.5
    assert time_of({"at": 7.5, "entry": "x-y"}) == 7.5
    assert time_of({}) == 0.0


def test_verdicts_are_looked_for_a_while_after_the_last_decision():
    wanted = parse_filters(now=NOW, until="1h")
    end = NOW - 3600 + MAX_HOLD_S
    assert not wanted.over({"entry": f"{int(end * 1000)}-0"})
    assert wanted.over({"entry": f"{int(end * 1000) + 1}-0"})
    assert not parse_filters(now=NOW).over({"entry": "99999999999999-0"})


@pytest.mark.parametrize("junk", [None, 7, [], {}, [None], "x"])
def test_fields_that_are_something_else_match_nothing_and_break_nothing(junk):
    options = {"tool": ["a"], "scheduler": "a", "session": "a", "agent": "a", "label": ["a=b"], "id_": "a"}
    for option, value in options.items():
        decision = dict.fromkeys((*DECISION, "asked"), junk)
        assert not parse_filters(now=NOW, **{option: value}).match(decision)
