"""Two installs of Toolgate on the same load, in turns: this one, and one of another virtual environment.

Each has a gate and scheduler processes of its own, on one server. The other may be of any version: all it
must know is `Gate.open`, `decide` and `toolgate scheduler run`. A ratio is the median of the pairs of blocks.
"""

import asyncio
import json
import os
import statistics
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolgate_bus.errors import ConfigError
from toolgate_bus.server.embedded import Server

from toolgate_orchestrator.commands.bench import gate_worker
from toolgate_orchestrator.commands.bench.cleaner import open_cleaner
from toolgate_orchestrator.commands.bench.comparison import WARM_UP, Loads, count_schedulers
from toolgate_orchestrator.commands.bench.measure import (
    MAX_BLOCK_S,
    Pids,
    Sample,
    WrongVerdictError,
    cpu_by_kind,
)
from toolgate_orchestrator.commands.bench.mix import SIZES, name_schedulers
from toolgate_orchestrator.commands.bench.processes import read_line, start_processes
from toolgate_orchestrator.commands.bench.toolgate_side import lay_out

PAIRS: Final = 20
OLD, NEW = "old", "new"
_NOT_THEIRS: Final = frozenset({"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"})
"""What says of this Python where its modules are."""


@dataclass(frozen=True, slots=True)
class Install:
    """A Toolgate that can be run."""

    name: str
    python: Path
    env: Mapping[str, str]

    @classmethod
    def own(cls) -> "Install":
        """This one."""
        return cls(NEW, Path(sys.executable), _environment(frozenset()))

    @classmethod
    def of(cls, given: Path) -> "Install":
        """That of a virtual environment, or of its Python; raises ConfigError where there is none."""
        python = given / "bin" / "python" if given.is_dir() else given
        if not os.access(python, os.X_OK):
            raise ConfigError(f"--old {given}: name a virtual environment: {python} cannot be run")
        return cls(OLD, python.absolute(), _environment(_NOT_THEIRS))

    @property
    def command(self) -> tuple[str, ...]:
        """How its `toolgate` is started; an early one is no module that can be run."""
        script = self.python.with_name("toolgate")
        if self.name == OLD and script.exists():
            return (str(script),)
        return (str(self.python), "-m", "toolgate_bus")

    async def find_folder(self) -> str:
        """Where its sources are; raises ConfigError where it has none."""
        ask = "import toolgate_orchestrator as t; print(t.__path__[0])"
        process = await asyncio.create_subprocess_exec(
            *(str(self.python), "-P", "-c", ask),
            env=self.env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        said, _ = await process.communicate()
        if process.returncode:
            raise ConfigError(f"--old: {self.python} has no toolgate-bus: install one there")
        return said.decode().strip()


def _environment(without: frozenset[str]) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in without}
    return {name: value for name, value in kept.items() if not name.startswith("TOOLGATE_")}


@dataclass(frozen=True, slots=True)
class _InstallUnderTest:
    """The gate of an install, and the processes whose CPU its decisions take."""

    name: str
    gate: asyncio.subprocess.Process
    pids: Pids

    async def run_block(self, decisions: int, in_flight: int, size: str) -> Sample:
        """Decide so often; raises WrongVerdictError."""
        asked = {"decisions": decisions, "in_flight": in_flight, "size": size}
        before = cpu_by_kind(self.pids)
        if self.gate.stdin is not None:
            self.gate.stdin.write(f"{json.dumps(asked)}\n".encode())
        told = json.loads(await read_line(self.gate, f"the {self.name} gate", MAX_BLOCK_S))
        after = cpu_by_kind(self.pids)
        if told["fault"]:
            raise WrongVerdictError(f"the {self.name} install decided wrongly: {told['fault']}")
        cpu = None if before is None or after is None else {k: after[k] - before[k] for k in before}
        return Sample(told["latencies"], told["wall"], cpu, 1)


@dataclass(frozen=True, slots=True)
class InstallRow:
    """One load, on both installs."""

    size: str
    schedulers: int
    in_flight: int
    blocks: Mapping[str, Sequence[Sample]]

    def ratios(self, of: Callable[[Sample], float]) -> list[float]:
        """New ÷ old, of each pair of blocks."""
        pairs = zip(self.blocks[NEW], self.blocks[OLD], strict=True)
        return [of(new) / of(old) for new, old in pairs]

    def figures(self) -> dict[str, Any]:
        """Everything, for scripts; microseconds."""
        told: dict[str, Any] = {
            "question_bytes": SIZES[self.size],
            "schedulers": self.schedulers,
            "in_flight": self.in_flight,
            "pairs": len(self.blocks[NEW]),
        }
        for name, blocks in self.blocks.items():
            told[name] = Sample.of(blocks).figures()
        ratios = {
            "median": self.ratios(lambda one: one.median),
            "rate": self.ratios(lambda one: one.rate),
        }
        if all(one.cpu for blocks in self.blocks.values() for one in blocks):
            ratios["cpu"] = self.ratios(lambda one: one.cpu_each)
        told["ratio"] = {name: round(statistics.median(found), 3) for name, found in ratios.items()}
        told["ratio_range"] = {name: [round(min(f), 3), round(max(f), 3)] for name, f in ratios.items()}
        return told


async def compare_installs(
    server: Server, loads: Loads, old: Install, tell: Callable[[str], None]
) -> AsyncIterator[InstallRow]:
    """Measure every load on both; gives one row after another. Raises WrongVerdictError."""
    for count in loads.schedulers:
        tell(f"{count_schedulers(count)}: starting the processes of both …")
        async with (
            open_cleaner(server) as clean,
            _start(server, old, count) as then,
            _start(server, Install.own(), count) as now,
        ):
            for size in loads.sizes:
                for in_flight in loads.in_flight:
                    where = f"{size}, {count_schedulers(count)}, {in_flight} in flight"
                    blocks: dict[str, list[Sample]] = {OLD: [], NEW: []}
                    for side in (then, now):
                        await side.run_block(max(WARM_UP, in_flight), in_flight, size)
                    for pair in range(PAIRS):
                        tell(f"{where}: pair {pair + 1} of {PAIRS}")
                        for side in (then, now) if pair % 2 else (now, then):
                            blocks[side.name].append(
                                await side.run_block(loads.block(in_flight), in_flight, size)
                            )
                        await clean()
                    yield InstallRow(size, count, in_flight, blocks)


@asynccontextmanager
async def _start(server: Server, install: Install, count: int) -> AsyncIterator[_InstallUnderTest]:
    names = name_schedulers(count)
    namespace = f"bench-{install.name}-{count}"
    env = {**install.env, "TOOLGATE_REDIS_URL": server.url, "TOOLGATE_NAMESPACE": namespace}
    run = (*install.command, "scheduler", "run", "--json")
    commands = [(*run, "--name", one.name or "", one.spec) for one in lay_out(server.directory, names)]
    what = f"a scheduler of the {install.name} install"
    gate = (str(install.python), "-P", str(gate_worker.__file__), server.url, namespace, str(count))
    async with (
        start_processes(commands, what, env=env, cwd=server.directory) as schedulers,
        start_processes([gate], f"the {install.name} gate", env=install.env) as (gate_process,),
    ):
        answering = [one.pid for one in schedulers]
        pids = {"gate": [gate_process.pid], "server": [server.pid], "schedulers": answering}
        yield _InstallUnderTest(install.name, gate_process, pids)
