"""How far one decision goes through the code: python tests/trace_decision.py [--modify] [--guard]

Two scheduler processes on a real server answer a plain continue, or the first a modify, which the second
verifies; the gate and both schedulers count each call into the three packages while twenty decisions are
made.
With `--guard` the call is one of a function that a `Guard` has made a tool, to its end. Told are the files
that every decision enters, how many of them are leaves (some decision calls no other file from there), and
the fewest calls and different changes from file to file. It runs on other versions, too, by PYTHONPATH.
"""

import argparse
import asyncio
import json
import os
import runpy
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

PACKAGES = tuple(f"{os.sep}toolgate_{name}{os.sep}" for name in ("bus", "orchestrator", "schedulers"))
DECISIONS = 20
KEEPER = "keep"
"""The function that runs what goes on whether anybody asks or not: heartbeats, renewals."""
SCHEDULER = """
from toolgate_schedulers import Continue, Modify, scheduler

@scheduler
async def NAME(call):
    return ANSWER
"""
ANSWERS = {"continue": "Continue()", "modify": "Modify(tool='find', arguments={'q': 'y'})"}


class Trace:
    """Calls into the packages, in their order, while it is on: by whom (empty: nobody in them), and where."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self._is_on = False
        threading.setprofile(self._note)  # of threads that begin from now on

    def on(self) -> None:
        self.calls, self._is_on = [], True
        sys.setprofile(self._note)

    def off(self) -> list[tuple[str, str]]:
        sys.setprofile(None)
        self._is_on = False
        return self.calls

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not self._is_on or not is_ours(frame.f_code.co_filename):
            return
        if frame.f_code.co_name == KEEPER:
            return
        caller, above = "", frame.f_back
        while above is not None:
            if above.f_code.co_name == KEEPER:
                return
            if not caller and is_ours(above.f_code.co_filename):
                caller = above.f_code.co_filename
            above = above.f_back
        self.calls.append((caller, frame.f_code.co_filename))


def is_ours(file: str) -> bool:
    return any(part in file for part in PACKAGES)


def figures(found: list[list[tuple[str, str]]]) -> dict[str, Any]:
    """Of several decisions of one process."""
    files = set.intersection(*({file for _, file in one} for one in found))
    calling = set.intersection(*({caller for caller, file in one if caller != file} for one in found))
    return {
        "files": sorted(files),
        "leaves": sorted(files - calling),
        "calls": min(map(len, found)),
        "changes": min(map(changes, found)),
    }


def changes(calls: list[tuple[str, str]]) -> int:
    """Count the different changes: two verdicts that are read apart take the same ways twice."""
    return len({(one, other) for (_, one), (_, other) in pairwise(calls) if one != other})


def be_scheduler(name: str, out: str) -> None:
    """Run a scheduler that traces between SIGUSR1 and the next one, and writes what it saw."""
    trace, found = Trace(), []
    on = False

    def flip(*_: object) -> None:
        nonlocal on
        if on:
            found.append(trace.off())
            Path(out).write_text(json.dumps(found), encoding="utf-8")
        on = not on
        if on:
            trace.on()

    signal.signal(signal.SIGUSR1, flip)
    main = "toolgate_bus.commands.main" if _has("toolgate_bus.commands.main") else "toolgate_bus.cli"
    sys.argv = ["toolgate", "scheduler", "run", f"{name}:{name}", "--json"]
    runpy.run_module(main, run_name="__main__")


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


async def trace(
    start: Callable[[str, Path], subprocess.Popen[bytes]], outcome: str, *, guarded: bool
) -> dict[str, Any]:
    """The figures of each process, for decisions that come to this."""
    with tempfile.TemporaryDirectory() as folder:
        running = {name: start(name, Path(folder)) for name in ("first", "second")}
        try:
            for one in running.values():
                await asyncio.to_thread(one.stdout.readline)  # type: ignore[union-attr]
            found, own = [], Trace()
            async with guard_door(tuple(running)) if guarded else gate_door(tuple(running)) as decide:
                for _ in range(20):
                    await decide()
                for _ in range(DECISIONS):
                    await flip(running, folder)
                    own.on()
                    came = await decide()
                    found.append(own.off())
                    if came != outcome:
                        raise SystemExit(f"not ruled on: {came}")
                    await flip(running, folder)
            told = {"gate": figures(found)}
            for name in running:
                told[name] = figures(json.loads(Path(folder, f"{name}.json").read_text(encoding="utf-8")))
            return told
        finally:
            for one in running.values():
                one.terminate()
                one.wait()


@asynccontextmanager
async def gate_door(required: tuple[str, ...]) -> AsyncIterator[Callable[[], Awaitable[str]]]:
    """Ask a gate; gives its outcome."""
    from toolgate_orchestrator import Call, Caller, Gate

    call = Call("search", {"q": "x"}, ["search", "find"], Caller("s"))
    async with Gate.open(patience_ms=5000, required=required) as gate:

        async def decide() -> str:
            return (await gate.decide(call)).outcome

        yield decide


@asynccontextmanager
async def guard_door(required: tuple[str, ...]) -> AsyncIterator[Callable[[], Awaitable[str]]]:
    """Call a function that is a guard's tool; gives what the function that ran stands for."""
    from toolgate_orchestrator import Guard

    guard = Guard(patience_ms=5000, required=required)

    @guard.tool
    def search(q: str) -> str:
        return "continue"

    @guard.tool
    def find(q: str) -> str:
        return "modify"

    async def decide() -> str:
        ran = search(q="x")
        await asyncio.sleep(0)
        return ran

    yield decide
    guard.close()


async def flip(running: dict[str, subprocess.Popen[bytes]], folder: str) -> None:
    for one in running.values():
        one.send_signal(signal.SIGUSR1)
    await asyncio.sleep(0.1)  # a signal has no answer


def main() -> None:
    """Trace, and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="the figures with the names of all files")
    parser.add_argument("--scheduler", nargs=2, metavar=("NAME", "FILE"), help=argparse.SUPPRESS)
    parser.add_argument("--guard", action="store_true", help="a function that a guard has made a tool")
    parser.add_argument("--modify", action="store_true", help="a call that is replaced, and verified")
    asked = parser.parse_args()
    outcome = "modify" if asked.modify else "continue"
    if asked.scheduler:
        be_scheduler(*asked.scheduler)
        return
    embedded = import_module(
        "toolgate_bus.server.embedded" if _has("toolgate_bus.server.embedded") else "toolgate_bus.embedded"
    )
    with embedded.private_server() as server:
        os.environ |= {"TOOLGATE_REDIS_URL": server.url, "TOOLGATE_NAMESPACE": f"trace{secrets.token_hex(4)}"}

        def start(name: str, folder: Path) -> subprocess.Popen[bytes]:
            answer = ANSWERS[outcome if name == "first" else "continue"]
            (folder / f"{name}.py").write_text(
                SCHEDULER.replace("NAME", name).replace("ANSWER", answer), encoding="utf-8"
            )
            words = (sys.executable, __file__, "--scheduler", name, str(folder / f"{name}.json"))
            path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
            env = {**os.environ, "PYTHONPATH": path}
            return subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE)

        told = asyncio.run(trace(start, outcome, guarded=asked.guard))
    if asked.json:
        print(json.dumps(told, indent=1))
        return
    files = set().union(*(one["files"] for one in told.values()))
    calls = sum(one["calls"] for name, one in told.items() if name != "second")
    changes = sum(one["changes"] for name, one in told.items() if name != "second")
    inner = set().union(*({*one["files"]} - {*one["leaves"]} for one in told.values()))
    whole = f"{len(files)} files, {len(inner)} without leaves, {calls} calls, {changes} changes of file"
    print(f"one decision, the gate and one scheduler: {whole}")
    for name, one in told.items():
        without = len(one["files"]) - len(one["leaves"])
        print(f"  {name}: {len(one['files'])} files, {without} without leaves, {one['calls']} calls")


if __name__ == "__main__":
    main()
