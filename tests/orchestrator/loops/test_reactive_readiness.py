"""When a call may start: the rules one by one, then as properties of any order of events."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_orchestrator.loops.reactive_engine.readiness import BlockedCall, Needs, Readiness
from toolgate_orchestrator.loops.reactive_engine.references import Reference, overlap, parse

pytestmark = pytest.mark.pure


class World:
    """A queue beside a set of paths that have been written."""

    def __init__(self, *there: str) -> None:
        self.there = {self.at(path).path for path in there}
        self.queue = Readiness(self.has)
        self.writes: dict[str, Any] = {}

    @staticmethod
    def at(text: str) -> Reference:
        reference = parse(f"†state.{text}")
        assert reference is not None
        return reference

    def has(self, reference: Reference) -> bool:
        return any(path[: len(reference.path)] == reference.path for path in self.there)

    def arrives(self, call: str, reads: str = "", writes: str = "", *, failed: bool = False) -> None:
        path = self.at(writes).path if writes else None
        self.writes[call] = path
        self.queue.add_call(Needs(call, tuple(map(self.at, reads.split())), path), failed=failed)

    def ends(self, call: str, ok: bool = True) -> None:
        if ok and self.writes[call]:
            self.there.add(self.writes[call])
        self.queue.finish_call(call, ok)


def test_a_call_that_needs_nothing_is_ready_at_once_and_only_once() -> None:
    world = World()
    world.arrives("a")
    assert world.queue.ready() == ["a"]
    assert world.queue.ready() == []
    assert world.queue.has_running


def test_all_calls_that_need_nothing_are_ready_together() -> None:
    world = World()
    for call in "abc":
        world.arrives(call, writes="x")
    assert world.queue.ready() == ["a", "b", "c"]


@pytest.mark.parametrize("consumer_first", [True, False])
def test_a_call_waits_for_the_one_that_writes_what_it_reads(consumer_first: bool) -> None:
    world = World()
    arrivals = [("c", "x.y", ""), ("p", "", "x")]
    for call, reads, writes in arrivals if consumer_first else reversed(arrivals):
        world.arrives(call, reads, writes)
    assert world.queue.ready() == ["p"]
    world.there.add(("x", "y"))
    world.ends("p")
    assert world.queue.ready() == ["c"]


def test_a_value_that_an_earlier_call_makes_anew_is_not_read_stale() -> None:
    world = World("x")
    world.arrives("p", "", "x")
    world.arrives("c", "x")
    assert world.queue.ready() == ["p"]
    world.ends("p")
    assert world.queue.ready() == ["c"]


def test_a_call_that_makes_a_value_out_of_itself_reads_the_old_one() -> None:
    world = World("x")
    world.arrives("c", "x", "x")
    assert world.queue.ready() == ["c"]


def test_what_a_later_call_will_write_is_not_waited_for_where_there_is_a_value() -> None:
    world = World("x")
    world.arrives("slow")
    world.arrives("c", "x y")
    world.arrives("later", "", "x")
    assert world.queue.ready() == ["slow", "later"]
    world.there.add(("y",))
    assert world.queue.ready() == ["c"]


def test_a_call_streamed_first_waits_for_every_part_that_is_being_written() -> None:
    world = World()
    world.arrives("c", "cities")
    world.arrives("oslo", "", "cities.oslo")
    world.arrives("rome", "", "cities.rome")
    assert world.queue.ready() == ["oslo", "rome"]
    world.ends("rome")
    assert world.queue.ready() == []
    world.ends("oslo")
    assert world.queue.ready() == ["c"]


def test_a_failed_producer_blocks_even_where_an_old_value_lies() -> None:
    world = World("x")
    world.arrives("p", "", "x")
    world.arrives("c", "x")
    world.queue.ready()
    world.ends("p", ok=False)
    assert world.queue.ready() == []
    assert world.queue.leftover() == [BlockedCall("c", (World.at("x"),), ("p",))]


def test_one_producer_that_succeeds_is_enough() -> None:
    world = World()
    world.arrives("p", "", "x")
    world.arrives("c", "x")
    world.arrives("q", "", "x")
    assert world.queue.ready() == ["p", "q"]
    world.ends("p", ok=False)
    assert world.queue.ready() == []
    world.ends("q")
    assert world.queue.ready() == ["c"]


def test_a_call_that_failed_on_arrival_blocks_those_that_need_it() -> None:
    world = World()
    world.arrives("p", "", "x", failed=True)
    world.arrives("c", "x")
    assert world.queue.ready() == []
    assert not world.queue.has_running
    assert world.queue.leftover() == [BlockedCall("c", (World.at("x"),), ("p",))]


def test_a_missing_producer_is_named_as_nobody() -> None:
    world = World()
    world.arrives("c", "x y")
    assert world.queue.ready() == []
    assert world.queue.leftover() == [BlockedCall("c", (World.at("x"), World.at("y")), ())]


def test_calls_in_a_circle_block_each_other() -> None:
    world = World()
    world.arrives("a", "y", "x")
    world.arrives("b", "x", "y")
    assert world.queue.ready() == []
    assert [(each.id, each.blocked_by) for each in world.queue.leftover()] == [("a", ("b",)), ("b", ("a",))]


def test_a_call_that_waits_for_its_own_result_is_left_over() -> None:
    world = World()
    world.arrives("a", "x", "x")
    assert world.queue.ready() == []
    assert world.queue.leftover() == [BlockedCall("a", (World.at("x"),), ("a",))]


def test_a_producer_that_wrote_something_else_is_no_blocker() -> None:
    world = World()
    world.arrives("p", "", "order")
    world.arrives("c", "order.nope")
    world.queue.ready()
    world.ends("p")
    assert world.queue.ready() == []
    assert world.queue.leftover() == [BlockedCall("c", (World.at("order.nope"),), ())]


def test_two_calls_of_one_id_and_the_end_of_what_does_not_run_are_refused() -> None:
    world = World()
    world.arrives("a")
    with pytest.raises(ValueError, match="two calls"):
        world.arrives("a")
    with pytest.raises(ValueError, match="not running"):
        world.queue.finish_call("a", True)


def test_the_input_is_written_by_nobody() -> None:
    queue = Readiness(lambda reference: reference.kind == "input")
    queue.add_call(Needs("p", (), ("x",)))
    queue.add_call(Needs("c", (Reference("input", ("x",)),)))
    assert queue.ready() == ["p", "c"]


# ---------------------------------------------------------------- any calls, any order of events

spots = st.sampled_from(["a", "b", "c", "a.x", "b.x", "b.y"])
plans = st.lists(
    st.tuples(st.lists(spots, max_size=2, unique=True), st.none() | spots, st.booleans(), st.booleans()),
    min_size=1,
    max_size=7,
)


def drained(plan: Sequence[Any], draw: Any, there: Sequence[str] = ()) -> tuple[World, list[str], list[str]]:
    """Let calls arrive and end in any order until nothing moves; gives who started and who succeeded."""
    world = World(*there)
    waiting = [(f"c{number}", *each) for number, each in enumerate(plan)]
    outcome: dict[str, bool] = {}
    running: list[str] = []
    started: list[str] = []
    while True:
        for call in world.queue.ready():
            check_start(world, plan, call, outcome, running)
            running.append(call)
            started.append(call)
        moves = (["arrive"] if waiting else []) + running
        if not moves:
            return world, started, [call for call, ok in outcome.items() if ok]
        move = draw(st.sampled_from(moves))
        if move == "arrive":
            call, reads, writes, ok, fails_first = waiting.pop(0)
            failed = fails_first and not ok
            world.arrives(call, " ".join(reads), writes or "", failed=failed)
            if failed:
                outcome[call] = False
        else:
            running.remove(move)
            outcome[move] = plan[int(move[1:])][2]
            world.ends(move, outcome[move])


def check_start(
    world: World, plan: Sequence[Any], call: str, outcome: dict[str, bool], running: Sequence[str]
) -> None:
    """Whatever a starting call reads is there, and no earlier call that writes it is unfinished."""
    number = int(call[1:])
    for read in plan[number][0]:
        assert world.has(World.at(read))
        producers = [
            f"c{each}"
            for each, (_, writes, _, _) in enumerate(plan[:number])
            if writes and overlap(World.at(writes).path, World.at(read).path)
        ]
        assert all(producer in outcome for producer in producers)
    assert call not in running


@given(plans, st.data())
def test_every_call_starts_once_or_is_left_over_and_the_queue_always_drains(plan: Any, data: Any) -> None:
    world, started, succeeded = drained(plan, data.draw)
    left = [blocked.id for blocked in world.queue.leftover()]
    failed_first = [f"c{n}" for n, (_, _, ok, first) in enumerate(plan) if first and not ok]
    assert sorted(started + left + failed_first) == sorted(f"c{n}" for n in range(len(plan)))
    assert not world.queue.has_running
    assert set(succeeded) <= set(started)


@given(plans, st.data())
def test_whoever_is_left_over_misses_something_that_is_named(plan: Any, data: Any) -> None:
    world, _, succeeded = drained(plan, data.draw)
    for blocked in world.queue.leftover():
        assert blocked.missing
        assert set(map(str, blocked.missing)) <= {f"†state.{read}" for read in plan[int(blocked.id[1:])][0]}
        assert not set(blocked.blocked_by) & set(succeeded)


chains = st.permutations(range(6))


@given(chains, st.data())
def test_the_order_of_arrival_does_not_matter_where_each_path_has_one_writer(order: Any, data: Any) -> None:
    # c0 and c1 read nothing; c2 reads both; c3 reads c2; c4 reads c0 and c3; c5 reads c4
    graph = {0: [], 1: [], 2: [0, 1], 3: [2], 4: [0, 3], 5: [4]}
    plan = [([f"p{each}" for each in graph[n]], f"p{n}", True, False) for n in order]
    world, started, succeeded = drained(plan, data.draw)
    assert world.queue.leftover() == []
    assert len(succeeded) == 6
    done = [order[int(call[1:])] for call in started]
    assert all(done.index(need) < done.index(n) for n, needs in graph.items() for need in needs)


@given(plans)
def test_calls_that_read_nothing_are_never_kept_waiting(plan: Any) -> None:
    world = World()
    for number, (_, writes, _, _) in enumerate(plan):
        world.arrives(f"c{number}", "", writes or "")
    assert len(world.queue.ready()) == len(plan)
