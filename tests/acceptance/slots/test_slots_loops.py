"""`slots` under every loop: agents in processes of their own, parallel calls too, and never too many."""

import asyncio
import json
from typing import Any

import pytest
from agent_trees import World, says, wait_for

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

LOOPS = ("loop-basic", "loop-streaming", "loop-events", "loop-reactive")
LIMIT, RESPONSES, CALLS = 2, 3, 3
POOLS = {"pools": [{"name": "few", "tools": "wait", "limit": LIMIT, "wait_s": 60}]}
BOUND_S = 60


def responses(agent: str) -> list[list[dict[str, Any]]]:
    """Some calls in each: loops that can run them side by side."""
    work = [[wait_for(f"{agent}-{turn}-{call}") for call in range(CALLS)] for turn in range(RESPONSES)]
    for call in (call for turn in work for call in turn):
        call["arguments"]["seconds"] = 0.05
    return work


def count_most(world: World) -> int:
    """How many calls ran at a time, by when their files were written."""
    edges: list[tuple[int, int]] = []
    for file in world.folder.glob("*.began"):
        edges += [(file.stat().st_mtime_ns, 1), (file.with_suffix(".ended").stat().st_mtime_ns, -1)]
    most = running = 0
    for _, change in sorted(edges):
        running += change
        most = max(most, running)
    return most


def read_fences(world: World) -> list[tuple[int, int, int]]:
    """Of each call: when it was first asked about, when it ended, and the number that its tool was given.

    A response is asked for once all calls of the one before have ended. Its calls may begin much later.
    """
    ended, fences = {}, {}
    for file in world.folder.glob("*.began"):
        agent, turn, call = file.stem.rsplit("-", 2)
        ended[agent, int(turn), call] = file.with_suffix(".ended").stat().st_mtime_ns
        fences[agent, int(turn), call] = json.loads(file.read_text())["slots"]
    return [
        (
            max(
                (at for (whose, which, _), at in ended.items() if (whose, which) == (agent, turn - 1)),
                default=0,
            ),
            ended[agent, turn, call],
            fence,
        )
        for (agent, turn, call), fence in fences.items()
    ]


async def test_calls_of_all_loops_wait_for_their_turn_and_run_each_once(
    schedulers: Any, process: Any, tmp_path: Any
) -> None:
    world = World(schedulers, process, tmp_path)
    await world.policy(POOLS, "slots")
    runs = [
        world.run(world.plan(says(*responses(loop), "done"), loop=loop, agent=loop, required=["slots"]))
        for loop in LOOPS
    ]
    for run in runs:
        assert await asyncio.to_thread(run.wait, BOUND_S) == 0, run.stderr
        assert "done" in run.stdout
    assert len(list(world.folder.glob("*.ended"))) == len(LOOPS) * RESPONSES * CALLS
    assert count_most(world) == LIMIT
    fences = read_fences(world)
    assert len({fence for _, _, fence in fences}) == len(fences)
    pairs = [(before, after) for before in fences for after in fences if before[1] <= after[0]]
    assert pairs
    assert all(before[2] < after[2] for before, after in pairs)
    told = [one for one in await world.facts() if one["event"] in ("tool:selected", "tool:post")]
    assert sorted(one["grants"]["slots"] for one in told) == sorted(2 * [fence for _, _, fence in fences])
    assert any("waits for few: place" in run.stdout + run.stderr for run in runs)
    assert world.unanswered() == []
    assert await world.unsettled() == []
    await world.aclose()
