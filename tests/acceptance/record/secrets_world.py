"""A fleet with everything switched on, whose agents handle secrets; and all that it wrote anywhere."""

import asyncio
import contextlib
import json
import os
import re
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import redis
import yaml
from notify_world import LoopbackReceiver
from secrets_planted import Planted
from toolgate_bus.server.guard import ServerProcess
from trace_collector import Collected

__all__ = ["SCHEDULERS", "World"]

HERE = Path(__file__).parents[1]
TOOLS = [
    *("vault", "vault_b", "vault_fails", "transfer", "route_me", "pricey", "cheap", "limited", "forbidden"),
    *("gossip_denies", "gossip_raises", "hook_denies", "hook_raises", "again"),
]
SCHEDULERS: dict[str, Any] = {
    "policy": {"rules": [{"tools": "forbidden", "action": "deny", "reason": "forbidden"}]},
    "approval": {"rules": [{"tools": "transfer", "prompt": "Really?"}]},
    "cost-aware": {
        "tools": {"pricey": {"cost": 9}, "cheap": {"cost": 0.01}},
        "budgets": [{"name": "daily", "limit": 5}],
        "alternatives": [{"tools": ["pricey", "cheap"]}],
    },
    "rate-limit": {"limits": [{"tools": "limited", "per": "session", "rate": "1/hour"}]},
    "loop-guard": {"same_call": {"times": 2}},
    "router": {
        "routes": [
            {"from": "route_me", "to": "vault_b", "arguments": {"pw": "$.password", "link": "$.text"}},
        ]
    },
    "gossip:gossip": None,
    "gossip:onlooker": None,
}
READY_S = 60.0


class World:
    """The processes of one fleet, started by `start`, and what they left."""

    def __init__(
        self,
        process: Callable[..., Any],
        server: ServerProcess,
        directory: Path,
        collected: Collected,
        planted: Planted,
        *,
        redact: dict[str, Any],
        keys: Path | None,
    ) -> None:
        self.server, self.directory, self.planted = server, directory, planted
        self._process, self._collected, self._redact, self._keys = process, collected, redact, keys
        self.running: dict[str, Any] = {}
        self.kept = directory / "kept.jsonl"
        self.written: dict[str, bytes] = {}
        self.sessions = directory / "sessions"
        self._opener: urllib.request.OpenerDirector | None = None
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.webhook = LoopbackReceiver()

    # ------------------------------------------------------------------ processes

    def toolgate(self, name: str, *words: object) -> Any:
        """Start a command that logs everything."""
        env = {
            **self._collected.soon,
            "TOOLGATE_REDIS_URL": self.server.url,
            "PYTHONPATH": os.pathsep.join([str(HERE / "agents_for_tests"), os.environ.get("PYTHONPATH", "")]),
            "TOOLGATE_LOG_FORMAT": "json",
            "XDG_STATE_HOME": str(self.directory),
            **({"TOOLGATE_KEYS": str(self._keys)} if self._keys else {}),
        }
        where = HERE / "schedulers_for_tests"
        made = self._process("toolgate", "--log-level", "DEBUG", *words, env=env, cwd=where)
        self.running[name] = made
        return made

    async def start(self, wait_until: Any) -> None:
        """All but the agents."""
        for spec, config in SCHEDULERS.items():
            options: tuple[object, ...] = ("--metrics-port", 0, "--json")
            if config is not None:
                file = self.directory / f"{spec}.yaml"
                file.write_text(yaml.safe_dump(config))
                options = (*options, "--config", file)
            self.toolgate(spec, "scheduler", "run", spec, *options)
        self.toolgate("exporter", "exporter", "--port", 0, "--json")
        self.toolgate("console", "console", "--port", 0, "--json")
        (self.directory / "notify.yaml").write_text(f"receivers: {{people: {{url: '{self.webhook.url}'}}}}")
        self.toolgate("notify", "notify", "--config", self.directory / "notify.yaml", "--json")
        self.toolgate("archiver", "decisions", "archive", self.directory / "archive")
        for name in [*SCHEDULERS, "exporter", "console", "notify"]:
            one = self.running[name]
            await wait_until(lambda one=one: one.stdout.endswith("\n") or not one.alive, timeout=READY_S)
            assert one.alive, one.stderr
        await wait_until(lambda: (self.directory / "archive").exists(), timeout=READY_S)

    def said(self, name: str) -> dict[str, Any]:
        """The first line that a command printed."""
        told: dict[str, Any] = json.loads(self.running[name].stdout.splitlines()[0])
        return told

    def logged(self, name: str) -> list[dict[str, Any]]:
        """The lines of its log."""
        return [json.loads(line) for line in self.running[name].stderr.splitlines() if line[:1] == "{"]

    # ------------------------------------------------------------------ the agent

    def plan(self) -> Path:
        """An agent whose LLM puts secrets into everything."""
        plant, vault = self.planted, {"file": str(self.kept), "result": self.planted.word("a result")}
        again = plant.usual("repeated")
        calls = [
            ("vault", plant.everywhere()),
            *(("again", again) for _ in range(3)),
            ("transfer", plant.usual("held")),
            ("route_me", plant.usual("routed")),
            ("pricey", plant.usual("replaced for its price")),
            ("limited", plant.usual("within the limit")),
            ("limited", plant.usual("above the limit")),
            ("forbidden", plant.usual("forbidden")),
            ("vault_fails", plant.usual("in a tool that raises")),
            ("gossip_denies", plant.usual("denied with all its words")),
            ("gossip_raises", plant.usual("in a scheduler that raises")),
            ("hook_denies", plant.usual("denied by a hook")),
            ("hook_raises", plant.usual("in a hook that raises")),
            ("delegate", self._task("writer", "a task")),
            ("delegate", self._task("broken", "a task that fails")),
        ]
        self.calls = calls
        said = {"text": f"I know {plant.key('what the LLM says')}"}
        toolgate = {
            "agent": "clerk",
            "required": ["policy", "gossip", "approval"],
            "patience_ms": 30_000,
            "keys": str(self._keys) if self._keys else None,
            "schedulers": {
                "router": {"can_modify": ["vault_b"], "may_restore": True},
                "cost-aware": {"can_modify": ["cheap"], "may_restore": True},
            },
            "redact": self._redact,
        }
        child = [{"tool_calls": [{"name": "vault", "arguments": plant.usual("of a child")}]}, {"text": "ok"}]
        plan = {
            "session": {"orchestrator": "loop-events"},
            "orchestrator": {"config": {"toolgate": toolgate}},
            "tools": [{"module": "tool-vault", "config": {"tools": TOOLS, **vault}}, "tool-delegate"],
            "hooks": [
                {"module": "hooks-gossip"},
                {"module": "hooks-logging", "config": {"directory": str(self.sessions)}},
            ],
            "providers": [
                _scripted(
                    [
                        *({"tool_calls": [{"name": n, "arguments": a}], **said} for n, a in calls),
                        {"text": "done"},
                    ]
                )
            ],
            "agents": {
                "writer": {"description": "writes", "providers": [_scripted(child)]},
                "broken": {
                    "description": "breaks",
                    "providers": [_scripted([{"error": f"not {plant.key('of a provider')}"}])],
                },
            },
        }
        path = self.directory / "plan.yaml"
        path.write_text(json.dumps(plan, ensure_ascii=False))
        return path

    def arguments(self, tool: str) -> dict[str, Any]:
        """What the LLM gave a tool the first time."""
        return next(arguments for name, arguments in self.calls if name == tool)

    def _task(self, agent: str, name: str) -> dict[str, str]:
        return {"agent": agent, "instruction": f"Write with {self.planted.key(name)}"}

    def read_archive(self) -> bytes:
        """All that the archiver has written so far."""
        archive = sorted((self.directory / "archive").rglob("*"))
        return b"".join(one.read_bytes() for one in archive if one.is_file())

    async def run(self, wait_until: Any) -> None:
        """Run it; its held call is approved on the console."""
        agent = self.toolgate("agent", "run", "Go on", "--plan", self.plan())
        held = await wait_until(lambda: self._held(agent), timeout=READY_S)
        await wait_until(lambda: self.webhook.posts, timeout=READY_S)
        answer = await asyncio.to_thread(
            self._fetch,
            f"api/approvals/{held['id']}/answer",
            {"action": "approve", "digest": held["digest"]},
        )
        self.written["console: answer"] = answer
        assert await asyncio.to_thread(agent.wait, READY_S) == 0, agent.stderr
        assert agent.stdout == "done\n"

    async def _held(self, agent: Any) -> Any:
        assert agent.alive, agent.stderr
        told = await asyncio.to_thread(self._fetch, "api/approvals")
        self.written["console: approvals"] = told
        waiting = json.loads(told)["waiting"]
        return waiting[0] if waiting else None

    # ------------------------------------------------------------------ the console

    def _fetch(self, path: str, body: Any = None) -> bytes:
        opener, address = self._finish_sign_in()
        head = {"x-toolgate-console": "1", "origin": address.rstrip("/"), "content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        with opener.open(urllib.request.Request(address + path, data, head), timeout=30) as answer:
            content: bytes = answer.read()
        return content

    def _finish_sign_in(self) -> tuple[urllib.request.OpenerDirector, str]:
        url = self.said("console")["url"]
        if self._opener is None:  # once: the console keeps so many sessions and no more
            self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
            self._opener.open(url, timeout=30).close()
        return self._opener, url.partition("?")[0]

    @contextlib.contextmanager
    def page(self) -> Iterator[bytearray]:
        """A page that is open: the bytes of its live stream."""
        opener, address = self._finish_sign_in()
        answer = opener.open(address + "api/live", timeout=READY_S)
        heard = bytearray()

        def read() -> None:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                while line := answer.readline():
                    heard.extend(line)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        try:
            yield heard
        finally:
            self.written["console: live"] = bytes(heard)

    # ------------------------------------------------------------------ what is left

    @contextlib.contextmanager
    def monitor(self) -> Iterator[None]:
        """Every command that the server gets meanwhile."""
        path = re.sub(r"^unix://|\?.*$", "", self.server.url)
        heard = bytearray()
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(path)
            link.sendall(b"MONITOR\r\n")

            def read() -> None:
                with contextlib.suppress(OSError):
                    while piece := link.recv(1 << 16):
                        heard.extend(piece)

            thread = threading.Thread(target=read)
            thread.start()
            try:
                yield
            finally:
                link.shutdown(socket.SHUT_RDWR)
                thread.join()
                self.written["MONITOR"] = bytes(heard)

    async def gather(self) -> None:
        """Read everything that anybody wrote."""
        await asyncio.to_thread(self._gather)

    def _gather(self) -> None:
        written = self.written
        for name in ["exporter", *SCHEDULERS]:
            with urllib.request.urlopen(_metrics_url(self.said(name)), timeout=30) as page:
                written[f"metrics of {name}"] = page.read()
        for path in ("roster", "budgets", "rates", "approvals"):
            written[f"console: {path}"] = self._fetch(f"api/{path}")
        for fact in json.loads(self._command("decisions as JSON", "decisions", "--json", lines=True)):
            shown = written.get("console: decisions", b"")
            written["console: decisions"] = shown + self._fetch(f"api/decisions/{fact['id']}")
            if fact["outcome"] != "continue":
                self._command(f"shown: {fact['id']}", "decisions", "show", fact["id"])
        export = self.directory / "export.jsonl"
        self._command("exporting", "decisions", "export", export)
        self._command("decisions", "decisions")
        written["export"] = export.read_bytes()
        written["traces"] = b"".join(self._collected.raw)
        self._read_server()
        self.running["archiver"].end()
        written["archive"] = self.read_archive()
        written["webhooks"] = b"".join(post.body for post in self.webhook.posts)
        self.webhook.stop()
        for name, one in self.running.items():
            one.end()
            written[f"{name}: stdout"], written[f"{name}: stderr"] = (
                one.out.read_bytes(),
                one.err.read_bytes(),
            )

    def _command(self, name: str, *words: object, lines: bool = False) -> str:
        one = self.toolgate(name, *words)
        assert one.wait(60) == 0, one.stderr
        return f"[{','.join(one.stdout.splitlines())}]" if lines else one.stdout

    def _read_server(self) -> None:
        client = redis.from_url(self.server.url)
        values = bytearray()
        for key in client.scan_iter(count=1000):
            values += key + (client.dump(key) or b"")
            if client.type(key) == b"stream":
                values += repr(client.xrange(key)).encode()
                for _, fields in client.xrange(key):
                    values += b"".join(fields.values())
        self.written["keys"] = bytes(values)
        client.config_set("rdbcompression", "no")
        client.save()
        self.written["slow log"] = repr(client.slowlog_get(1000)).encode()
        client.close()
        files = [one for one in self.server.directory.rglob("*") if one.is_file()]
        self.written["RDB"] = b"".join(one.read_bytes() for one in files if one.suffix == ".rdb")
        self.written["AOF"] = b"".join(one.read_bytes() for one in files if ".aof" in one.name)


def _scripted(turns: list[dict[str, Any]]) -> dict[str, Any]:
    return {"module": "provider-scripted", "config": {"turns": turns}}


def _metrics_url(said: dict[str, Any]) -> str:
    return str(said.get("metrics") or said["url"])
