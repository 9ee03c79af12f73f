"""hooks-logging in a real session: every event once, in order, and nothing else is disturbed."""

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from amplifier_core import AmplifierSession, HookResult
from amplifier_core.events import ALL_EVENTS
from amplifier_core.validation import HookValidator
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator.commands.host.plan import read_plan
from toolgate_orchestrator.modules.hooks_logging import module
from toolgate_orchestrator.modules.hooks_logging.module import NAME, default_directory, mount

pytestmark = pytest.mark.pure

TESTING_AND_DEBUGGING = """
session:
  orchestrator: loop-basic

hooks:
  - module: hooks-logging
    config:
      log_events: true  # Every event captured
"""
MONITOR_EVENTS = """
hooks:
  - module: hooks-logging  # Capture all events
"""

Lines = Callable[..., list[dict[str, Any]]]


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def lines(tmp_path: Path) -> Lines:
    """`lines("s-1")`: what is in a session's file of the default directory."""
    return lambda session="s-1": read(tmp_path / "state" / "toolgate" / "sessions" / f"{session}.jsonl")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def names(lines: list[dict[str, Any]], *without: str) -> list[str]:
    return [line["event"] for line in lines if line["event"] not in without]


def told(lines: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [line["data"] for line in lines if line["event"] == event]


def logging_plan(**config: Any) -> dict[str, Any]:
    return {"hooks": [{"module": NAME, "config": config}]}


@pytest.mark.parametrize("block", [TESTING_AND_DEBUGGING, MONITOR_EVENTS])
@pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming", "loop-events"])
async def test_the_blocks_of_the_seed_log_a_turn_as_they_stand(
    agent: Any, tool: Any, calls: Any, lines: Lines, block: str, loop: str
) -> None:
    plan = {"hooks": yaml.safe_load(block)["hooks"]}
    async with agent([calls("add"), {"text": "4"}], tools=[tool("add")], loop=loop, plan=plan) as a:
        assert await a.ask("2+2?") == "4"
    logged = lines()
    assert names(logged, "tool:selecting") == a.names()
    assert names(logged)[0] == "session:start"
    assert names(logged)[-1] == "session:end"
    assert told(logged, "tool:post")[0]["tool_name"] == "add"


async def test_the_block_of_the_seed_is_a_plan_with_a_provider_added(tmp_path: Path, lines: Lines) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text(TESTING_AND_DEBUGGING + "\nproviders:\n  - module: provider-scripted\n")
    async with AmplifierSession(read_plan(file).mount, session_id="s-1") as session:
        await session.execute("hello")
    assert told(lines(), "orchestrator:complete")[0]["orchestrator"] == "loop-basic"


async def test_each_event_is_there_once_and_in_order_with_a_deny_and_an_error(
    agent: Any, tool: Any, calls: Any, lines: Lines
) -> None:
    def fail(_: dict[str, Any]) -> str:
        raise OSError("no disk")

    tools = [tool("good"), tool("bad", fail), tool("forbidden")]
    turns = [calls("good", "bad", "forbidden"), {"text": "done"}]
    async with agent(turns, tools=tools, plan=logging_plan(log_events=True)) as a:
        a.on("tool:pre", *[forbid] * 3)
        await a.ask()
    logged = lines()
    assert names(logged, "tool:selecting") == a.names()
    assert [data["tool_name"] for data in told(logged, "tool:pre")] == ["good", "bad", "forbidden"]
    assert told(logged, "tool:error")[0]["error"] == {"type": "OSError", "msg": "no disk"}
    assert [line["seq"] for line in logged] == list(range(1, len(logged) + 1))
    assert [line["ts"] for line in logged] == sorted(line["ts"] for line in logged)
    first = {key: value for key, value in logged[0].items() if key not in ("ts", "data")}
    assert first == {"schema": 1, "seq": 1, "session": "s-1", "parent": None, "event": "session:start"}


def forbid(data: dict[str, Any]) -> HookResult:
    denied = data["tool_name"] == "forbidden"
    return HookResult(action="deny", reason="never") if denied else HookResult()


async def test_the_data_are_what_was_emitted(agent: Any, lines: Lines) -> None:
    async with agent([{"text": "hi"}], plan=logging_plan()) as a:
        await a.ask("hello")
        emitted = {event: data for event, data in a.events if event != "session:end"}
    for line in lines():
        if line["event"] in emitted:
            assert line["data"] == emitted[line["event"]]


async def test_what_a_hook_changed_is_told_beside_what_was_emitted(
    agent: Any, tool: Any, calls: Any, lines: Lines
) -> None:
    def double(data: dict[str, Any]) -> HookResult:
        return HookResult(action="modify", data={**data, "tool_input": {"n": 2}})

    async with agent([calls(("add", {"n": 1}))], tools=[tool("add")], plan=logging_plan()) as a:
        a.on("tool:pre", double)
        await a.ask()
    logged = lines()
    (emitted,) = [
        line for line in logged if line["event"] == "tool:pre" and line["data"]["tool_input"] == {"n": 1}
    ]
    (changed,) = told(logged, "hooks-logging:changed")
    assert (changed["event"], changed["of"]) == ("tool:pre", emitted["seq"])
    assert changed["data"]["tool_input"] == {"n": 2}


async def test_hooks_that_change_nothing_leave_no_trace(
    agent: Any, tool: Any, calls: Any, lines: Lines
) -> None:
    async with agent([calls("add")], tools=[tool("add")], plan=logging_plan()) as a:
        a.on("tool:pre", lambda data: HookResult(action="modify", data=data))
        a.on("tool:post", HookResult(action="inject_context", context_injection="note"))
        await a.ask()
    assert told(lines(), "hooks-logging:changed") == []


async def test_a_question_that_hooks_are_asked_twice_is_logged_once(
    agent: Any, tool: Any, calls: Any, lines: Lines
) -> None:
    to_b = HookResult(action="modify", data={"tool": "b", "arguments": {}})
    turns = [calls("a", "a"), {"text": "done"}]
    async with agent(turns, tools=[tool("a"), tool("b")], plan=logging_plan()) as a:
        for hook in ("one", "two"):  # of several, each is asked for its own answer
            a.on(
                "tool:selecting",
                *[lambda data: to_b if data["phase"] == "select" else HookResult()] * 9,
                name=hook,
            )
        await a.ask()
        assert len(a.tools["b"].calls) == 2
    logged = lines()
    questions = told(logged, "tool:selecting")
    assert [data["phase"] for data in questions] == ["select", "verify"] * 2
    assert len({(data["decision_id"], data["phase"]) for data in questions}) == 4
    assert [data["data"]["tool"] for data in told(logged, "hooks-logging:changed")] == ["b", "b"]


async def test_a_call_denied_before_it_ran_is_in_the_file(
    agent: Any, tool: Any, calls: Any, lines: Lines
) -> None:
    async with agent([calls("rm"), {"text": "ok"}], tools=[tool("rm")], plan=logging_plan()) as a:
        a.on("tool:selecting", HookResult(action="deny", reason="too dangerous"))
        await a.ask()
        assert a.tools["rm"].calls == []
    logged = lines()
    assert [data["tool_name"] for data in told(logged, "tool:selecting")] == ["rm"]
    assert told(logged, "policy:violation")[0]["reason"] == "too dangerous"
    assert told(logged, "tool:pre") == []


async def test_logging_changes_no_selection(agent: Any, tool: Any, calls: Any) -> None:
    outcomes = []
    for plan in ({}, logging_plan()):
        turns = [calls(("a", {"n": 1}), "b"), {"text": "done"}]
        async with agent(turns, tools=[tool("a"), tool("b")], plan=plan, deaf=True) as a:
            a.on("tool:selecting", HookResult(action="deny", reason="no"))
            outcomes.append((await a.ask(), await a.results(), a.tools["a"].calls, a.tools["b"].calls))
    assert outcomes[0] == outcomes[1]


# ---------------------------------------------------------------- which events


async def test_contributed_events_are_logged_whenever_they_are_contributed(agent: Any, lines: Lines) -> None:
    async with agent([{"text": "1"}, {"text": "2"}], plan=logging_plan()) as a:
        coordinator = a.session.coordinator
        await a.hooks.emit("late:first", {"n": 0})
        coordinator.register_contributor("observability.events", "late", lambda: ["late:first", "", 7])
        coordinator.register_contributor("observability.events", "word", lambda: "late:word")
        coordinator.register_contributor("observability.events", "broken", lambda: 1 / 0)
        coordinator.register_capability("observability.events", ["late:old"])
        await a.ask()
        for event in ("late:first", "late:word", "late:old", "late:undeclared"):
            await a.hooks.emit(event, {"n": 1})
        await a.ask()
    logged = lines()
    assert [event for event in names(logged) if event.startswith("late:")] == [
        "late:first",
        "late:word",
        "late:old",
    ]
    assert told(logged, "late:first")[0]["n"] == 1


async def test_the_loops_own_events_are_found_when_the_session_is_ready(agent: Any) -> None:
    async with agent(plan=logging_plan(), deaf=True) as a:
        assert NAME in a.hooks.list_handlers("tool:selected")["tool:selected"]
        assert all(NAME in a.hooks.list_handlers(event)[event] for event in ALL_EVENTS)


async def test_log_events_false_registers_and_writes_nothing(agent: Any, tmp_path: Path) -> None:
    async with agent([{"text": "hi"}], plan=logging_plan(log_events=False), deaf=True) as a:
        await a.ask()
        assert all(NAME not in a.hooks.list_handlers(event).get(event, []) for event in ALL_EVENTS)
    assert not (tmp_path / "state").exists()


async def test_excluded_events_cost_no_handler_and_additional_ones_are_logged(
    agent: Any, lines: Lines
) -> None:
    plan = logging_plan(exclude_events=["content_block:*", "session:*"], additional_events=["own:event"])
    async with agent([{"text": "hi"}], plan=plan, deaf=True) as a:
        assert a.hooks.list_handlers("content_block:delta").get("content_block:delta", []) == []
        await a.ask()
        await a.hooks.emit("own:event", {"n": 1})
    logged = names(lines())
    assert logged[0] == "execution:start"
    assert logged[-1] == "own:event"
    assert not [event for event in logged if event.startswith(("content_block", "session"))]


async def test_a_module_that_is_mounted_twice_logs_once(agent: Any, lines: Lines) -> None:
    twice = {"hooks": [{"module": NAME}, {"module": NAME}]}
    async with agent([{"text": "hi"}], plan=twice) as a:
        await a.ask()
    assert names(lines()) == a.names()


# ---------------------------------------------------------------- whose file


async def test_a_child_session_has_a_file_of_its_own_and_names_its_parent(agent: Any, lines: Lines) -> None:
    async with agent([{"text": "p"}], plan=logging_plan(), session_id="parent") as parent:
        async with agent(
            [{"text": "c"}], plan=logging_plan(), session_id="child", parent_id="parent"
        ) as child:
            await child.ask()
        await parent.ask()
    assert {(line["session"], line["parent"]) for line in lines("parent")} == {("parent", None)}
    assert {(line["session"], line["parent"]) for line in lines("child")} == {("child", "parent")}
    assert names(lines("child"))[0] == "session:fork"


async def test_a_resumed_session_goes_on_in_its_file(agent: Any, lines: Lines) -> None:
    for _ in range(2):
        async with agent([{"text": "hi"}], plan=logging_plan()) as a:
            await a.ask()
    logged = lines()
    assert [line["seq"] for line in logged] == list(range(1, len(logged) + 1))
    assert names(logged).count("session:end") == 2


@pytest.mark.parametrize("session", ["../../escaped", "/etc/passwd", "a\\b", "x" * 3000, "..", "Ä:%\n"])
async def test_a_hostile_session_id_stays_in_the_directory(agent: Any, tmp_path: Path, session: str) -> None:
    directory = tmp_path / "logs" / "sessions"
    plan = logging_plan(directory=str(directory))
    async with agent([{"text": "hi"}], plan=plan, session_id=session) as a:
        await a.ask()
    (file,) = directory.iterdir()
    assert names(read(file)) == a.names()
    assert [each.name for each in tmp_path.iterdir()] == ["logs"]
    modes = [each.stat().st_mode & 0o777 for each in (directory.parent, directory, file)]
    assert modes == [0o700, 0o700, 0o600]


async def test_logs_go_to_the_home_directory_where_there_is_no_state_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for unusable in ("", "relative/path"):
        monkeypatch.setenv("XDG_STATE_HOME", unusable)
        assert default_directory() == tmp_path / ".local" / "state" / "toolgate" / "sessions"


async def test_a_tilde_in_the_directory_is_the_users_home(
    agent: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    async with agent([{"text": "hi"}], plan=logging_plan(directory="~/logs")) as a:
        await a.ask()
    assert (tmp_path / "logs" / "s-1.jsonl").is_file()


# ---------------------------------------------------------------- what goes wrong


async def test_a_directory_that_cannot_be_made_is_told_once_and_hurts_no_turn(
    agent: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    plan = logging_plan(directory=str(tmp_path / "file" / "logs"))
    async with agent([{"text": "one"}, {"text": "two"}], plan=plan) as a:
        assert [await a.ask(), await a.ask()] == ["one", "two"]
    warned = [each.getMessage() for each in caplog.records if "cannot be written" in each.getMessage()]
    assert len(warned) == 1
    assert "Not a directory" in warned[0]
    assert (tmp_path / "file").read_text() == "in the way"


async def test_a_cancelled_turn_is_logged_to_its_end(agent: Any, tool: Any, calls: Any, lines: Lines) -> None:
    started = asyncio.Event()

    async def hang(_: dict[str, Any]) -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    async with agent([calls("a")], tools=[tool("a", hang)], plan=logging_plan()) as a:
        task = asyncio.ensure_future(a.session.execute("hello"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    logged = lines()
    # The loop is closed after this module, and ends its turn only then.
    assert names(logged, "tool:selecting") == a.names()
    assert told(logged, "execution:end")[0]["status"] == "cancelled"


async def test_a_secret_and_a_flood_do_not_reach_the_file(
    agent: Any, tool: Any, calls: Any, lines: Lines
) -> None:
    arguments = {"headers": {"X-Api-Key": "sk-1"}, "text": "y" * 100_000, "pin": "1234"}
    plan = logging_plan(redact=["pin"], max_field_chars=100, max_line_bytes=8_192)
    async with agent([calls(("send", arguments))], tools=[tool("send")], plan=plan) as a:
        await a.ask("z" * 100_000)
        assert a.tools["send"].calls == [arguments]
    logged = lines()
    shown = told(logged, "tool:pre")[0]["tool_input"]
    assert shown["headers"] == {"X-Api-Key": "[REDACTED]"}
    assert shown["pin"] == "[REDACTED]"
    assert shown["text"] == "y" * 100 + "[cut: 99900 more characters]"
    assert told(logged, "prompt:submit")[0]["prompt"].endswith("z[cut: 99900 more characters]")
    assert all(len(json.dumps(line)) < 9_000 for line in logged)


@pytest.mark.parametrize(
    ("config", "named"),
    [
        ({"log_event": True}, "log_event: unknown key; .*; did you mean log_events"),
        ({"max_line_bytes": 10}, "max_line_bytes"),
        ({"max_field_chars": -1}, "max_field_chars"),
        ({"directory": "~nobody-has-this-name/x"}, "directory"),
        ({"redact": "token"}, "redact"),
    ],
)
async def test_a_wrong_config_is_refused_by_name(config: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=f"hooks-logging: .*{named}"):
        await mount(None, config)


async def test_a_handler_that_cannot_log_says_so_once_and_lets_the_event_pass(
    agent: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with agent([{"text": "hi"}], plan=logging_plan()) as a:
        recorder = a.session.coordinator.get_capability(NAME).recorder
        recorder.file = None
        with caplog.at_level(logging.ERROR):
            assert await a.ask() == "hi"
    (said,) = [each.getMessage() for each in caplog.records if NAME in each.getMessage()]
    assert said.startswith("hooks-logging: session:start was not logged: AttributeError at ")


async def test_the_kernels_validator_accepts_the_module() -> None:
    result = await HookValidator().validate(module.__file__)
    assert result.passed, [check.message for check in result.errors]
