"""Agents and schedulers of the wire's two versions, each replaced by the other one by one, under load.

No call runs against a denial, and none is denied for the version. The peers of version 1 are in
`rolling/version_one.py`; with TOOLGATE_VERSION_ONE=DIR they are those of a checkout of the code that spoke
only that; no keys then, since releases before the namespace was signed are not believed. TOOLGATE_ROLLS=N
goes there and back N times.
"""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from other_version import command_of, path_of
from toolgate_orchestrator import Call
from toolgate_orchestrator.decision.gate import Gate
from toolgate_orchestrator.decision.link import scheduler_info

pytestmark = pytest.mark.acceptance

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent / "rolling"
KEY = "ab" * 32
ROLLS = int(os.environ.get("TOOLGATE_ROLLS", "1"))
REAL = os.environ.get("TOOLGATE_VERSION_ONE")
READY_S = 60.0


class Rolled:
    """Starts and ends agents and schedulers of either version on one bus."""

    def __init__(self, process, wait_until, url, namespace, keys):
        self._process, self._wait_until = process, wait_until
        self._where, self._keys = (url, namespace), keys
        self.told = []
        self._agents = set()

    async def scheduler(self, version):
        url, namespace = self._where
        if version == 1 and not REAL:
            return await self._started(HERE / "version_one.py", "scheduler", "rules", *self._where, KEY)
        signed = () if REAL else ("--keys", self._keys)
        options = ("--redis", url, "--namespace", namespace, *signed, "--json")
        words = ("scheduler", "run", "rules:rules", *options)
        return await self._started(*words, env=self._env(version), program=command_of(tree(version)))

    async def agent(self, version):
        if version == 1 and not REAL:
            one = await self._started(HERE / "version_one.py", "agent", "rules", *self._where, KEY)
        else:
            one = await self._started(
                HERE / "agent.py", *self._where, *(() if REAL else (self._keys,)), env=self._env(version)
            )
        self._agents.add(one)
        return one

    async def end(self, one):
        one.signal(signal.SIGTERM)
        await self._wait_until(lambda: not one.alive, timeout=READY_S)
        assert one.popen.returncode == 0, one.stderr
        if one in self._agents:
            self.told.append(json.loads(one.stdout.splitlines()[-1]))

    async def replaced(self, one, start, version):
        """Its successor is there before it goes."""
        successor = await start(version)
        await self.end(one)
        return successor

    async def _started(self, *words, env=None, program=("python",)):
        one = self._process(*program, *words, env=env, cwd=HERE)
        await self._wait_until(lambda: "ready" in one.stdout or not one.alive, timeout=READY_S)
        assert one.alive, one.stderr
        return one

    def _env(self, version):
        return None if version == 2 else {"PYTHONPATH": path_of(tree(version), self._keys.parent / "old")}


def tree(version):
    """Where a version stands."""
    return ROOT if version == 2 else Path(REAL)


@pytest.mark.system
@pytest.mark.timeout(600)
async def test_replacing_agents_and_schedulers_one_by_one_denies_and_allows_nothing_wrong(
    process, wait_until, server_url, namespace, tmp_path, monkeypatch
):
    if not REAL:
        # those of version 1 are gone after a third of a second
        monkeypatch.setattr(scheduler_info, "LEAVING_S", 1.5)
    keys = tmp_path / "keys.yaml"
    keys.write_text(f"rules: {KEY}\n")
    keys.chmod(0o600)
    roll = Rolled(process, wait_until, server_url, namespace, keys)
    spoken_in, wrong, decided = set(), [], 0
    stop = asyncio.Event()
    config = {"required": ["rules"], "patience_ms": 5000, **({} if REAL else {"keys": str(keys)})}
    async with Gate.open(redis=server_url, namespace=namespace, **config) as gate:

        def version():
            announced = gate._client.directory.announced.get("rules")
            return announced.version if announced else None

        async def load():
            nonlocal decided
            while not stop.is_set():
                for tool, right in (("rm", ("deny", "denied")), ("ls", ("continue", "agreed"))):
                    decision = await gate.decide(Call(tool, {}, ["rm", "ls"]))
                    decided += 1
                    spoken_in.add(version())
                    if (decision.outcome, decision.why) != right:
                        wrong.append((tool, decision.outcome, decision.why, decision.reason))
                await asyncio.sleep(0.03)

        running = await asyncio.gather(roll.scheduler(1), roll.scheduler(1))
        await wait_until(lambda: version() == 1)
        loading = [asyncio.create_task(load()) for _ in range(2)]
        agents = [await roll.agent(1)]
        for new in (2, 1) * ROLLS:
            # Successors take their time to start, and join one by one whenever they have.
            running = await asyncio.gather(*[roll.replaced(one, roll.scheduler, new) for one in running])
            if ROLLS > 1 or new == 1:  # the gate of this test is an agent of version 2 all the while
                agents.append(await roll.agent(new))
            await wait_until(lambda new=new: version() == new, timeout=READY_S)
            if len(agents) > 1:
                await roll.end(agents.pop(0))
        await asyncio.gather(*[roll.end(one) for one in agents])
        stop.set()
        await asyncio.gather(*loading)
    print(json.dumps({"decided": decided, "agents": roll.told}))
    assert wrong == []
    assert {1, 2} <= spoken_in
    assert decided > 50
    for told in roll.told:
        assert (told["ran_against_a_denial"], told["heard_nothing"]) == (0, 0), told
    # On a busy machine an agent may be replaced before its second call.
    assert min(sum(told[what] for told in roll.told) for what in ("denied", "ran")) > 0, roll.told
