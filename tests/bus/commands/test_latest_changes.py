"""When rules last changed: by scheduler and kind of change, at the server's times, in a bounded number."""

import pytest
from toolgate_bus.commands.exporter.latest_changes import MAX_CHANGES, LatestChanges, add_changes
from toolgate_bus.state.changes import ConfigChange, PlacedChange, tell_change
from toolgate_bus.state.notifications import KEPT_S, MemoryNotices

pytestmark = pytest.mark.pure


def placed(ms, scheduler, event="config:pushed", at=0.0):
    return PlacedChange(f"{ms}-0", ConfigChange(event, scheduler, at=at))


def test_the_last_of_each_kind_counts_at_the_time_that_the_server_gave_it():
    found = add_changes(
        {("policy", "rollout:undone"): 1.0},
        [placed(5000, "policy", at=9e9), placed(7500, "policy"), placed(8000, "router")],
    )
    assert found == {
        ("policy", "rollout:undone"): 1.0,
        ("policy", "config:pushed"): 7.5,
        ("router", "config:pushed"): 8.0,
    }


def test_of_too_many_those_are_shown_that_changed_last():
    crowd = [placed(1000 * number, f"s{number}") for number in range(1, MAX_CHANGES + 1)]
    found = add_changes({("old", "config:pushed"): 0.5, ("again", "config:pushed"): 0.6}, crowd[:-1])
    assert ("old", "config:pushed") not in found
    assert ("again", "config:pushed") in found
    assert len(found) == MAX_CHANGES


async def test_what_was_shown_is_forgotten_with_the_record_and_what_comes_is_read_on():
    notices = MemoryNotices()
    changes = LatestChanges(notices)
    await tell_change(notices, ConfigChange("config:pushed", "policy"))
    assert dict((await changes.read(now=10.0)).series) == {("policy", "config:pushed"): pytest.approx(0.001)}
    await tell_change(notices, ConfigChange("rollout:undone", "policy"))
    assert len((await changes.read(now=10.0)).series) == 2
    assert (await changes.read(now=KEPT_S + 10.0)).series == {}
