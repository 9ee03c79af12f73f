"""An ejection is told in metrics and in the store, by every replica as one, and not by a shadow."""

import pytest
from toolgate_bus.state.ejections import read_notes
from toolgate_bus.state.shared import make_shared_state
from toolgate_bus.telemetry import metrics
from toolgate_schedulers.author.scheduler import SchedulerContext
from toolgate_schedulers.shipped.ejection_reporter import SETTLED_S, EjectionReporter
from toolgate_schedulers.shipped.score.outcomes import IN_A_ROW, OUT_S, Outcomes

pytestmark = pytest.mark.pure


class Replica:
    def __init__(self, shared, name, replica="r-1", shadow=False):
        self.now, self.outcomes = 1000.0, Outcomes([["a", "b"]])
        context = SchedulerContext(shared, None, "n", replica, name, shadow)
        self.reporter = EjectionReporter(context, lambda: self.now)

    def end(self, well, now=0.0):
        event = "tool:post" if well else "tool:error"
        self.outcomes.hear({"event": event, "tool": "a", "success": well, "seconds": 1.0}, now)
        self.reporter.take([self.outcomes])


def shown(name):
    return metrics.value("toolgate_ejected", scheduler=name, alternative="a")


def counted(name, reason):
    return metrics.value("toolgate_ejections_total", scheduler=name, alternative="a", reason=reason)


async def test_it_is_shown_from_the_ejection_to_the_try_that_succeeds_and_noted_once_for_all_replicas():
    shared = make_shared_state()
    replicas = [Replica(shared, "told-once", f"r-{number}") for number in range(2)]
    for late, one in enumerate(replicas):
        one.now += 0.4 * late  # it hears a little later
        for _ in range(IN_A_ROW):
            one.end(False)
        await one.reporter.write()
    assert shown("told-once") == 1
    assert counted("told-once", "failures") == 2  # each process counts its own
    (note,) = await read_notes(shared.store)
    assert (note.scheduler, note.of, note.words, note.seconds) == (
        "told-once",
        "a",
        "5 failures running",
        OUT_S,
    )
    for one in replicas:
        one.end(True, OUT_S)
        one.now += SETTLED_S
        await one.reporter.write()
    assert shown("told-once") == 0
    assert [one.why for one in await read_notes(shared.store)] == ["failures", "back"]


async def test_a_note_is_looked_for_until_it_has_stood_there_for_a_while():
    shared = make_shared_state()
    one = Replica(shared, "looks")
    for _ in range(IN_A_ROW):
        one.end(False)
    await one.reporter.write()
    await one.reporter.write()  # it is found
    await shared.store.delete("ejections")  # as by a replica that had read before
    await one.reporter.write()
    assert len(await read_notes(shared.store)) == 1
    one.now += SETTLED_S + 1
    await one.reporter.write()
    await shared.store.delete("ejections")
    await one.reporter.write()
    assert await read_notes(shared.store) == []


async def test_a_shadow_tells_nothing_and_who_stops_or_begins_anew_shows_nothing_any_longer():
    shared = make_shared_state()
    shadow, one = Replica(shared, "shadow", shadow=True), Replica(shared, "stops")
    for _ in range(IN_A_ROW):
        shadow.end(False)
        one.end(False)
    await shadow.reporter.write()
    assert (shown("shadow"), await read_notes(shared.store)) == (0, [])
    assert shown("stops") == 1
    await one.reporter.stop()
    assert shown("stops") == 0


def test_calls_that_try_an_alternative_are_counted_once_and_not_those_of_a_shadow():
    shared = make_shared_state()
    for name, shadow in (("tries", False), ("tries-in-shadow", True)):
        one = Replica(shared, name, shadow=shadow)
        for decision in ("d1", "d1", "d2"):  # asked twice about the first
            one.outcomes.expect(decision, "a", 0.0, explored=True)
            one.end(True)
        counted_calls = metrics.value("toolgate_explored_total", scheduler=name, alternative="a")
        assert counted_calls == (0 if shadow else 2)
