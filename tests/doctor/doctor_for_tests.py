"""What the tests of the doctor use: the command as a process, and what it found."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import yaml
from nursery import NURSERY

BOUND_S = 50.0
READY_S = 30.0


class Diagnosis(NamedTuple):
    """What the command ended with and found."""

    code: int
    findings: list[dict[str, str]]
    err: str

    def one(self, name: str, level: str | None = None) -> dict[str, str]:
        """The finding of this name; fails where there is none, or of another level."""
        found = [one for one in self.findings if one["name"] == name and level in (None, one["level"])]
        assert found, f"no {level or ''} {name} among {self.findings}\n{self.err}"
        return found[0]

    def of(self, *levels: str) -> list[str]:
        """Names of the findings of these levels."""
        return [one["name"] for one in self.findings if one["level"] in levels]


async def run_doctor(*words: object, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """`toolgate doctor …` to its end: exit code, stdout, stderr."""
    return await NURSERY.run("doctor", *words, env=env, timeout=BOUND_S)


async def diagnosed(url: str | None, *words: object, env: dict[str, str] | None = None) -> Diagnosis:
    """What the doctor says of a server, what is fine included."""
    where = ("--redis", url) if url else ()
    code, out, err = await run_doctor("--json", "--verbose", *where, *words, env=env)
    return Diagnosis(code, [json.loads(line) for line in out.splitlines()], err)


def plan_of(toolgate: dict[str, Any] | None, **parts: Any) -> str:
    """A mount plan as YAML."""
    loop = {"module": "loop-events", "config": {"toolgate": toolgate} if toolgate is not None else {}}
    words = {
        "session": {"orchestrator": loop, "context": "context-simple"},
        "providers": [{"module": "provider-scripted", "config": {"turns": [{"text": "Done."}]}}],
    }
    return yaml.safe_dump({**words, **parts})


async def started(
    process: Callable[..., Any], wait_until: Callable[..., Any], url: str, spec: str, *options: object
) -> Any:
    """`toolgate scheduler run SPEC …`, ready; with --replicas N all of them."""
    words = [*map(str, options)]
    wanted = int(words[words.index("--replicas") + 1]) if "--replicas" in words else 1
    running = process("toolgate", "scheduler", "run", spec, *words, "--json", "--redis", url)

    def ready() -> bool:
        if not running.alive:
            pytest.fail(f"{spec} ended: {running.stderr}")
        return running.stdout.count('"ready"') >= wanted

    await wait_until(ready, timeout=READY_S)
    return running
