"""What the tests of trees of agents use: `toolgate run` processes, what is shown, what was recorded."""

import contextlib
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from nursery import NURSERY
from toolgate_bus.facts.reader import FactsReader
from toolgate_bus.protocol.agents import LiveAgent
from toolgate_bus.transport.redis.client.connection import RedisCommands
from toolgate_bus.transport.redis.storage.agent_directory import AgentDirectory

__all__ = ["MODULES", "Commands", "World", "delegate", "says", "wait_for"]

MODULES = str(Path(__file__).parents[1] / "agents_for_tests")
PATIENCE_MS = 20_000
ENDED = ("tool:post", "tool:error", "tool:unused")


def says(*turns: Any) -> list[dict[str, Any]]:
    """A scripted LLM: texts, and lists of calls."""
    script = [{"text": turn} if isinstance(turn, str) else {"tool_calls": turn} for turn in turns]
    return [{"module": "provider-scripted", "config": {"turns": script}}]


def delegate(agent: str, **more: Any) -> dict[str, Any]:
    """A call."""
    return {"name": "delegate", "arguments": {"agent": agent, "instruction": "do it", **more}}


def wait_for(name: str) -> dict[str, Any]:
    """A call of a tool that runs until the test lets it end."""
    return {"name": "wait", "arguments": {"name": name}}


class Commands:
    """`await commands("agents", "--json")`: a command on the bus of the test; gives code, stdout, stderr."""

    def __init__(self, url: str, namespace: str) -> None:
        self.where = ("--redis", url, "--namespace", namespace)

    async def __call__(self, *words: object) -> tuple[int, str, str]:
        return await NURSERY.run(*words, *self.where, env={"COLUMNS": "200", "NO_COLOR": "1"})

    async def json(self, *words: object) -> list[dict[str, Any]]:
        """The lines of a command that succeeded."""
        code, out, err = await self(*words, "--json")
        assert code == 0, err
        return [json.loads(line) for line in out.splitlines()]


class World:
    """Agents as processes on one bus, with a folder for what they write."""

    def __init__(self, schedulers: Any, process: Any, folder: Path) -> None:
        self.schedulers, self._process, self.folder = schedulers, process, folder
        self.url, self.namespace = schedulers.url, schedulers.namespace
        self.toolgate = Commands(self.url, self.namespace)
        self.commands = RedisCommands(self.url, "test-trees")
        self.fleet = AgentDirectory(self.commands, self.namespace)
        self._plans = 0

    def plan(
        self,
        providers: Sequence[Any],
        agents: Mapping[str, Any] | None = None,
        *,
        loop: str = "loop-basic",
        tools: Sequence[Any] = (),
        **toolgate: Any,
    ) -> dict[str, Any]:
        """A mount plan; what its sessions store and emit is in the folder."""
        asking = {"agent": "boss", "patience_ms": PATIENCE_MS, **toolgate}
        waiting = {"module": "tool-wait", "config": {"folder": str(self.folder)}}
        files = {"module": "tool-workspace", "config": {"root": str(self.folder)}}
        return {
            "session": {"orchestrator": loop, "context": "context-written"},
            "orchestrator": {"config": {"max_iterations": -1, "toolgate": asking}},
            "context": {"config": {"folder": str(self.folder)}},
            "tools": [files, waiting, *(["tool-delegate"] if agents else []), *tools],
            "hooks": [{"module": "hooks-logging", "config": {"directory": str(self.folder / "log")}}],
            "providers": list(providers),
            "agents": dict(agents or {}),
        }

    def run(self, plan: Mapping[str, Any], command: str = "run", **popen: Any) -> Any:
        """`toolgate run` of a plan."""
        self._plans += 1
        file = self.folder / f"plan-{self._plans}.yaml"
        file.write_text(yaml.safe_dump(dict(plan)))
        words = ["go"] if command == "run" else []
        path = os.pathsep.join([MODULES, *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {"PYTHONPATH": path, **popen.pop("env", {})}
        where = self.toolgate.where
        return self._process("toolgate", command, *words, "--plan", file, *where, env=env, **popen)

    async def policy(self, rules: Mapping[str, Any], spec: str = "policy", *options: object) -> list[int]:
        """A shipped scheduler with this configuration, as a process."""
        file = self.folder / f"{spec}.yaml"
        file.write_text(yaml.safe_dump(dict(rules)))
        return await self.schedulers.start(spec, "--config", file, *options)

    def has(self, *names: str) -> bool:
        """Whether all these files are there."""
        return all((self.folder / name).exists() for name in names)

    def go(self, name: str = "go") -> None:
        """Let `wait` end."""
        (self.folder / name).touch()

    # ------------------------------------------------------------------ what is seen

    async def living(self) -> dict[str, LiveAgent]:
        """The live agents by name."""
        return {one.agent: one for one in await self.fleet.agents()}

    async def facts(self) -> list[dict[str, Any]]:
        """All that was recorded."""
        return await FactsReader(self.commands, self.namespace).read_all()

    def processes(self) -> list[str]:
        """The command lines of our processes on this bus, other than schedulers."""
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it is gone
                words = file.read_bytes().decode(errors="replace").split("\0")
                if self.namespace in words and "scheduler" not in words:
                    found.append(" ".join(words))
        return found

    async def reserved(self) -> float:
        """What all budgets hold."""
        return sum(float(one["reserved"]) for one in await self.toolgate.json("budget", "list"))

    async def aclose(self) -> None:
        """End the connection."""
        await self.commands.aclose()

    # ------------------------------------------------------------------ what was written

    def events(self, name: str) -> list[dict[str, Any]]:
        """What the sessions emitted, of one event; `session_id` says who."""
        files = sorted((self.folder / "log").glob("*.jsonl"))
        lines = [(file.stem, json.loads(line)) for file in files for line in file.read_text().splitlines()]
        return [{"session_id": session, **line} for session, line in lines if line["event"] == name]

    def conversations(self) -> dict[str, list[dict[str, Any]]]:
        """The stored messages by session."""
        return {
            file.stem: [json.loads(line) for line in file.read_text().splitlines()]
            for file in self.folder.glob("*.context")
        }

    def unanswered(self) -> list[Any]:
        """Calls of stored conversations that have not exactly one result, before anything else is said."""
        wrong: list[Any] = []
        for session, messages in self.conversations().items():
            called: Counter[str] = Counter()
            answered: Counter[str] = Counter()
            for message in messages:
                called.update(call["id"] for call in message.get("tool_calls") or ())
                if message["role"] == "tool":
                    answered[message["tool_call_id"]] += 1
                elif called - answered and not message.get("tool_calls"):
                    wrong.append((session, "said before the results", message))
            wrong += [(session, id_, answered[id_]) for id_ in called if answered[id_] != 1]
            wrong += [(session, id_, "never called") for id_ in answered if id_ not in called]
        return wrong

    async def unsettled(self) -> list[Any]:
        """Decisions that let a call run, and are not followed by exactly one fact of how it ended."""
        facts = await self.facts()
        let = {one["decision_id"] for one in facts if one["event"] == "tool:selected"}
        ended = Counter(one["decision_id"] for one in facts if one["event"] in ENDED)
        return [(id_, ended[id_]) for id_ in let if ended[id_] != 1]
