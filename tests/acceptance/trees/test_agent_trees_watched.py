"""`toolgate agents --watch` goes on showing who is alive until it is told to end."""

import asyncio
import signal

import pytest
from agent_trees import World, says, wait_for

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]


async def test_watching_shows_who_comes_and_goes_until_ctrl_c(schedulers, process, tmp_path, wait_until):
    world = World(schedulers, process, tmp_path)
    try:
        wide = {"COLUMNS": "120", "TERM": "xterm", "FORCE_COLOR": "1", "PYTHONUNBUFFERED": "1"}
        watch = process("toolgate", "agents", "--watch", *world.toolgate.where, env=wide)
        await wait_until(lambda: "No agent is alive" in watch.stdout, timeout=30)
        run = world.run(world.plan(says([wait_for("boss")], "done")))
        await wait_until(lambda: "tool wait" in watch.stdout, timeout=30)
        world.go()
        assert await asyncio.to_thread(run.wait) == 0
        before = watch.stdout.count("No agent is alive")
        await wait_until(lambda: watch.stdout.count("No agent is alive") > before, timeout=30)
        watch.signal(signal.SIGINT)
        assert await asyncio.to_thread(watch.wait) == 130
        assert "Traceback" not in watch.stderr
    finally:
        await world.aclose()
