"""The roster as people and scripts read it."""

import json

import pytest
from toolgate_bus.commands.terminal import Terminal
from toolgate_bus.facts.shadow_report import ShadowTotals
from toolgate_bus.protocol.revision import Revision
from toolgate_bus.transport.ports import Member
from toolgate_schedulers.commands.scheduler_list import as_json, lines_of, readers_line, table_of

pytestmark = pytest.mark.pure

MEMBERS = [
    Member("policy", "a", started=1, answered=3, late=1, age=0.4, pid=10, host="h"),
    Member("router", "b", priority=10, tools=("web_*", "x"), started=3, age=0.1, shadow=True),
    Member("policy", "c", priority=2, started=2, answered=4, age=0.2, pid=11, host="h"),
]


def test_replicas_of_a_name_are_one_line_and_the_newest_start_counts():
    router, policy = lines_of(MEMBERS)
    assert (router.name, policy.name) == ("router", "policy")
    assert [member.replica for member in policy.members] == ["a", "c"]
    assert (policy.newest.priority, policy.answer_count, policy.late, policy.age) == (2, 7, 1, 0.2)
    assert policy.disagree
    assert not router.disagree


def test_a_script_reads_an_object_for_each_scheduler():
    line = as_json(lines_of(MEMBERS)[1])
    assert json.loads(json.dumps(line)) == {
        "name": "policy",
        "replicas": 2,
        "priority": 2,
        "tools": ["*"],
        "shadow": False,
        "shadow_totals": None,
        "answered": 7,
        "late": 1,
        "last_seen_s": 0.2,
        "disagree": True,
        "incompatible": None,
        "revisions": {"unnamed": 2},
        "members": [
            {
                "replica": replica,
                "revision": "",
                "build": "",
                "wire": [1],
                "pid": pid,
                "host": "h",
                "answered": answered,
                "late": late,
                "last_seen_s": seen,
            }
            for replica, pid, answered, late, seen in (("a", 10, 3, 1, 0.4), ("c", 11, 4, 0, 0.2))
        ],
    }


def test_a_person_reads_a_table():
    console = Terminal(width=120)
    with console.capture() as capture:
        console.print(table_of(lines_of(MEMBERS)))
    head, router, policy = capture.get().splitlines()
    assert head.split() == [
        "scheduler",
        "replicas",
        "priority",
        "tools",
        "answered",
        "late",
        "last",
        "seen",
        "notes",
    ]
    assert router.split() == ["router", "1", "10", "web_*", "x", "0", "0", "0.1", "s", "ago", "shadow"]
    assert policy.split()[:6] == ["policy", "2", "2", "*", "7", "1"]
    assert "replicas disagree" in policy


def test_revisions_that_are_alive_and_agents_that_cannot_ask_are_told():
    members = [
        Member("policy", "a", started=2, wire=(1, 2), revision=Revision("v8", "ab")),
        Member("policy", "b", started=1, wire=(1, 2), revision=Revision("v7", "cd")),
        Member("policy", "c", started=3),
        Member("later", "d", wire=(3, 4), revision=Revision("", "ef")),
    ]
    later, policy = lines_of(members, wires={"o1": (1, 2), "o2": (1,), "o3": (3,)})
    console = Terminal(width=300)
    with console.capture() as capture:
        console.print(table_of([later, policy]))
    _, first, second = capture.get().splitlines()
    assert "incompatible: 2 agents speak no version of its wire (3 and 4)" in first
    assert "3 revisions alive: v7@cd, v8@ab, unnamed" in second
    assert "incompatible: 1 agent speaks no version of its wire (1 and 2)" in second
    assert as_json(policy)["revisions"] == {"v7@cd": 1, "v8@ab": 1, "unnamed": 1}


def test_beside_a_shadow_stands_what_it_would_have_changed():
    lines = lines_of(
        MEMBERS, {"router": ShadowTotals(heard=120, same=117, veto=2, reroute=1), "gone": ShadowTotals()}
    )
    console = Terminal(width=120)
    with console.capture() as capture:
        console.print(table_of(lines))
    assert "shadow, would have changed 3 of 120" in capture.get()
    assert as_json(lines[0])["shadow_totals"]["disagreed"] == 3


def test_a_tool_glob_is_not_read_as_markup():
    console = Terminal(width=120)
    with console.capture() as capture:
        console.print(table_of(lines_of([Member("s", "a", tools=("[bold]x",))])))
    assert "[bold]x" in capture.get()


def test_an_empty_roster_has_no_lines():
    assert lines_of([]) == []


def test_who_reads_the_facts_stands_on_one_line():
    roles = {"follower": 2, "exporter": 1, "console": 0}
    assert readers_line(roles) == "Facts are read by 2 followers, 1 exporter."
    assert readers_line({"follower": 0}) is None
