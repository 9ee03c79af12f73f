"""Which version is spoken with whom, by the roster alone."""

from dataclasses import replace

import pytest
from toolgate_bus.transport.ports import Member
from toolgate_orchestrator.decision.link.scheduler_info import LEAVING_S, WireVersions, versions

pytestmark = pytest.mark.pure

NEW = Member("policy", "new", wire=(1, 2))
OLD = Member("policy", "old")
LATER = Member("policy", "later", wire=(3,))


@pytest.mark.parametrize(
    ("members", "spoken"),
    [
        ([NEW], 2),
        ([OLD], 1),
        ([NEW, OLD], 1),
        ([replace(NEW, wire=(1, 2, 3))], 2),
        ([LATER], 0),
        ([NEW, LATER], 0),
        ([replace(NEW, wire=())], 0),
    ],
)
def test_the_highest_version_that_all_replicas_read_is_spoken(members, spoken):
    assert WireVersions().with_each(members, 0.0) == {"policy": spoken}


def test_each_scheduler_is_spoken_to_in_its_own_version():
    other = replace(OLD, name="router")
    assert WireVersions().with_each([NEW, other], 0.0) == {"policy": 2, "router": 1}


@pytest.mark.parametrize("left", [[NEW], [NEW, replace(OLD, gone=True)]], ids=["left", "vanished"])
def test_who_left_counts_until_it_can_be_handed_no_question_any_more(left):
    spoken = WireVersions()
    spoken.with_each([NEW, OLD], 100.0)
    assert spoken.with_each(left, 100.0 + LEAVING_S / 2) == {"policy": 1}
    assert spoken.look_again(left) == 100.0 + LEAVING_S
    assert spoken.with_each(left, 100.0 + LEAVING_S) == {"policy": 2}
    assert spoken.look_again(left) is None


def test_who_vanished_counts_where_nobody_else_is_alive():
    assert WireVersions().with_each([replace(OLD, gone=True)], 0.0) == {"policy": 1}


def test_a_stranger_who_left_does_not_keep_the_others_from_being_asked():
    spoken = WireVersions()
    assert spoken.with_each([NEW, LATER], 0.0) == {"policy": 0}
    assert spoken.with_each([NEW], 1.0) == {"policy": 2}


def test_versions_are_told_as_people_say_them():
    assert versions([2, 1, 2]) == "versions 1 and 2"
    assert versions([3]) == "version 3"
    assert versions([]) == "no version"
