"""hooks-logging with Amplifier's keys: its CLI finds the log of a session where it looks for it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from amplifier_core import HookResult
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator.modules.hooks_logging.module import (
    AMPLIFIER,
    LoggingConfig,
    check_template,
    fill_template,
    mount,
)

pytestmark = pytest.mark.pure


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def where_the_cli_looks(home: Path, session: str = "s-1") -> Path:
    project = str((home / "work").resolve()).replace("/", "-")
    return home / ".amplifier" / "projects" / project / "sessions" / session / "events.jsonl"


def plan(**config: Any) -> dict[str, Any]:
    return {"hooks": [{"module": "hooks-logging", "config": config}]}


@pytest.mark.parametrize(
    "config",
    [
        {"mode": "session-only"},
        {"session_log_template": AMPLIFIER},
        {"mode": "session-only"} | {"redact": []},
    ],
)
async def test_the_log_of_a_session_is_where_the_cli_looks_for_it(
    agent: Any, home: Path, config: dict[str, Any]
) -> None:
    async with agent([{"text": "hi"}], plan=plan(**config)) as a:
        await a.ask()
        await a.hooks.emit("llm:response", {"usage": {"cost_usd": "0.25"}})
    logged = [json.loads(line) for line in where_the_cli_looks(home).read_text().splitlines()]
    assert [line["event"] for line in logged if line["event"] == "execution:end"] == ["execution:end"]
    (cost,) = [line["data"]["usage"]["cost_usd"] for line in logged if line["event"] == "llm:response"]
    assert cost == "0.25"


class Coordinator:
    """Tells its working directory, as hosts of Amplifier's do before modules are mounted."""

    session_id, parent_id = "s-1", None

    def __init__(self, hooks: Any, capabilities: dict[str, Any]) -> None:
        self.hooks, self.capabilities = hooks, capabilities

    def get_capability(self, name: str) -> Any:
        return self.capabilities.get(name)

    def register_capability(self, name: str, value: Any) -> None:
        self.capabilities[name] = value

    async def collect_contributions(self, channel: str) -> list[Any]:
        return [["module:event"]]


class Registry:
    def __init__(self) -> None:
        self.handlers: list[tuple[str, Any]] = []

    def register(self, event: str, handler: Any, **_: Any) -> None:
        self.handlers.append((event, handler))


async def mounted(config: dict[str, Any], **capabilities: Any) -> Coordinator:
    coordinator = Coordinator(Registry(), dict(capabilities))
    await mount(coordinator, config)
    return coordinator


async def test_a_host_that_names_its_working_directory_gets_the_clis_place_by_default(home: Path) -> None:
    told = {"session.working_dir": str(home / "work")}
    coordinator = await mounted({}, **told)
    assert coordinator.get_capability("hooks-logging").recorder.file.path == where_the_cli_looks(home)
    other = await mounted({"directory": str(home / "own")}, **told)
    assert other.get_capability("hooks-logging").recorder.file.path == home / "own" / "s-1.jsonl"
    plain = await mounted({})
    path = plain.get_capability("hooks-logging").recorder.file.path
    assert path == home / "state" / "toolgate" / "sessions" / "s-1.jsonl"


@pytest.mark.parametrize(("config", "found"), [({}, True), ({"auto_discover": False}, False)])
async def test_events_of_modules_are_discovered_unless_that_is_switched_off(
    config: dict[str, Any], found: bool
) -> None:
    coordinator = await mounted(config)
    await coordinator.get_capability("hooks-logging").discover()
    assert ("module:event" in [event for event, _ in coordinator.hooks.handlers]) is found


@pytest.mark.parametrize(("config", "raw"), [({}, True), ({"strip_raw": True}, False)])
async def test_what_is_raw_can_be_left_out(agent: Any, home: Path, config: dict[str, Any], raw: bool) -> None:
    async with agent([{"text": "hi"}], plan=plan(mode="session-only", **config)) as a:
        result = await a.hooks.emit("llm:request", {"raw": {"body": "x"}, "model": "m"})
        assert isinstance(result, HookResult)
    lines = map(json.loads, where_the_cli_looks(home).read_text().splitlines())
    (data,) = [line["data"] for line in lines if line["event"] == "llm:request"]
    assert (data["model"], "raw" in data) == ("m", raw)


@pytest.mark.parametrize(
    "session",
    ["../../etc/passwd", "a/b", "..", ".", "", "a\0b", "{project}", "x" * 300, "\N{OGHAM SPACE MARK}"],
)
def test_a_sessions_id_leads_nowhere_else(home: Path, session: str) -> None:
    path = fill_template(AMPLIFIER, session, str(home / "work"))
    above = where_the_cli_looks(home).parents[1]
    assert path.parents[1] == above
    assert path.name == "events.jsonl"
    assert path.parent.name not in ("", ".", "..")


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("~/x/{session_id.__class__}/e.jsonl", "has an unknown field {session_id.__class__}"),
        ("~/x/{project}/e.jsonl", "has no {session_id}"),
        ("~/x/{session_id}/e.txt", "must end in .jsonl"),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused_with_the_reason(template: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        check_template(template)
    with pytest.raises(ValueError, match="session_log_template"):
        LoggingConfig(session_log_template=template)


def test_a_home_that_is_not_known_is_named() -> None:
    with pytest.raises(ConfigError, match="session_log_template: cannot be found"):
        fill_template("~nobody-of-this-name/{session_id}.jsonl", "s-1", None)
