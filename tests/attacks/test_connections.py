"""Who holds on to what it should let go: half-open connections, and replicas that hang."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(60)

SUPERVISOR = """
import sys, anyio
from toolgate_schedulers import supervise as module
module.SURVIVE_S, module.GRACE = 0.3, 0.3

async def never():
    await anyio.sleep_forever()
    yield

async def main(seconds):
    with anyio.move_on_after(seconds):
        code = "import os,sys,time; open(sys.argv[1],'a').write(f'{os.getpid()}\\\\n'); " + sys.argv[2]
        command = [sys.executable, "-c", code, sys.argv[1], ]
        reloads = module.Reloads(never(), lambda: None, print)
        await module.supervise(command, [{}, {}], print, reloads)

anyio.run(main, float(sys.argv[3]))
"""
HANGS = {
    "it is stopped": "os.kill(os.getpid(), 19); time.sleep(600)",
    "endless C code": "import signal; signal.pthread_sigmask(0, [15]); sum(range(10**18))",
}


def alive(pid):
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.fixture
async def supervised(process, tmp_path, wait_until):
    """Starts a supervisor of two replicas that hang, and ends what is left."""
    pids = []

    async def start(hang, seconds=600):
        file = tmp_path / "pids"
        run = process(sys.executable, "-c", SUPERVISOR, file, HANGS[hang], seconds)
        await wait_until(lambda: file.exists() and len(file.read_text().split()) == 2, timeout=20)
        pids.extend(map(int, file.read_text().split()))
        return run, pids

    yield start
    for pid in pids:
        if alive(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("hang", HANGS)
async def test_a_replica_that_hangs_does_not_outlive_its_supervisor(supervised, wait_until, hang):
    run, pids = await supervised(hang)
    os.kill(run.pid, signal.SIGKILL)
    await wait_until(lambda: not any(map(alive, pids)), timeout=10)


async def test_a_supervisor_that_is_to_end_ends_a_replica_that_hangs(supervised, wait_until):
    run, pids = await supervised("it is stopped", seconds=1)
    assert await asyncio.to_thread(run.wait, 20) == 0, run.stderr
    assert not any(map(alive, pids))
