"""A replacement's arguments and its agent agree, whichever of them a scheduler changed."""

import pytest
from toolgate_bus.ruling.delegation import reroute, target_of, two_agents

pytestmark = pytest.mark.pure

ASKED = {"agent": "anna", "instruction": "count"}


def test_a_call_names_an_agent_that_there_is():
    assert target_of(ASKED, ["anna", "ben"]) == "anna"
    assert target_of({"agent_name": "ben"}, ["anna", "ben"]) == "ben"
    assert target_of(ASKED, ["ben"]) is None
    assert target_of(ASKED, None) is None
    assert target_of({"agent": ["anna"]}, ["anna"]) is None


def test_a_second_name_beside_an_agents_is_a_decoy():
    for names in ({"agent": "anna", "agent_name": "ben"}, {"agent": 5, "agent_name": "anna"}):
        assert two_agents(names, ["anna", "ben"])
    assert two_agents({"agent": "anna", "agent_name": "anna"}, ["anna"])  # a reroute would change only one
    assert not two_agents(ASKED, ["anna"])
    assert not two_agents({"agent": "x", "agent_name": "y"}, ["anna"])
    assert not two_agents({"agent": "anna", "agent_name": "anna"}, None)


def test_another_target_stands_in_the_arguments_too():
    assert reroute(ASKED, "anna", ASKED, "ben") == ({**ASKED, "agent": "ben"}, "ben")
    told = {"agent_name": "anna", "agent": "a thing"}
    assert reroute(told, "anna", told, "ben") == ({**told, "agent_name": "ben"}, "ben")


def test_another_argument_is_another_target():
    changed = {**ASKED, "agent": "ben"}
    assert reroute(ASKED, "anna", changed, None) == (changed, "ben")


def test_what_is_no_delegation_any_more_has_no_target():
    assert reroute(ASKED, "anna", {"words": "count"}, None) == ({"words": "count"}, None)
    assert reroute({"words": "x"}, None, {"agent": "ben"}, None) == ({"agent": "ben"}, None)
    assert reroute({"words": "x"}, None, {"words": "x"}, "ben") == ({"words": "x"}, "ben")
