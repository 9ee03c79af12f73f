"""`toolgate init --from …`: what is there becomes rules that observe, and cases that hold."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from toolgate_bus.commands.main import app as frame
from toolgate_bus.config.check import check
from toolgate_bus.config.document import parse_document
from toolgate_bus.errors import ConfigError, ToolgateError
from toolgate_orchestrator.commands.init.claude_permissions import Places, UnsayableEntry, translate
from toolgate_orchestrator.commands.init.draft import MAX_PARTS, Draft, DraftRule
from toolgate_orchestrator.commands.init.langgraph import draft_from_tools
from toolgate_orchestrator.commands.init.tool_names import find_word
from toolgate_orchestrator.contrib.gap import FoundTool
from toolgate_schedulers.shipped.policy.scheduler import PolicyConfig, explain_ruling
from toolgate_schedulers.testing import question
from typer.testing import CliRunner

pytestmark = pytest.mark.pure

PLACES = Places("/p", "/home/ann", "/p")


def run(*words: object, code: int = 0) -> str:
    """What the command says, or the error that ended it."""
    result = CliRunner().invoke(frame, ["init", *map(str, words)])
    if isinstance(result.exception, ToolgateError):
        return str(result.exception)
    assert result.exit_code == code, result.output
    return result.stdout


def policy_in(folder: Path) -> PolicyConfig:
    document = parse_document((folder / "rules.yaml").read_bytes(), "rules.yaml")
    return check(PolicyConfig, document.mapping(), document)


def hold_to_cases(folder: Path) -> int:
    """Rule on each case as `policy test` does; return the number of cases."""
    policy = policy_in(folder)
    document = parse_document((folder / "cases.yaml").read_bytes(), "cases.yaml")
    cases = document.mapping()["cases"]
    words = {"continue": "allow", "ask_user": "ask", "deny": "deny"}
    for case in cases:
        call = question(case["tool"], case.get("arguments", {}), labels=case.get("labels", {}))
        verdict, fired = explain_ruling(policy, call)
        by = policy.rules[fired[-1]].name if fired else "default"
        assert (words[verdict.action], by) == (case["expect"], case["rule"]), case
    return len(cases)


def ruled(action: str, entry: str, tool: str, **arguments: Any) -> str:
    """What the rules of one entry do to a call, alone."""
    draft = Draft(())
    for rule in translate(action, entry, PLACES):  # type: ignore[arg-type]
        draft.add(rule)
    assert draft.rules, draft.parts
    policy = parse_document(draft.rules_text().replace("default: allow", "default: ask").encode(), "p")
    verdict, _ = explain_ruling(check(PolicyConfig, policy.mapping(), policy), question(tool, arguments))
    return verdict.action


@pytest.mark.parametrize(
    ("entry", "tool", "arguments", "fits"),
    [
        ("Bash", "Bash", {"command": "ls"}, True),
        ("Bash(rm -rf /)", "Bash", {"command": "rm -rf /"}, True),
        ("Bash(rm -rf /)", "Bash", {"command": "rm -rf /tmp"}, False),
        ("Bash(rm:*)", "Bash", {"command": "ls && rm -r x"}, True),
        ("Bash(rm:*)", "Bash", {"command": "echo $(rm x)"}, True),
        ("Bash(rm:*)", "Bash", {"command": "rmdir x"}, False),
        ("Bash(git push *)", "Bash", {"command": "git push --force"}, True),
        ("Bash(git * main)", "Bash", {"command": "git push origin main"}, True),
        ("Read(./.env)", "Read", {"file_path": "/p/.env"}, True),
        ("Read(./.env)", "Read", {"file_path": "/p/src/../.env"}, True),
        ("Read(./.env)", "Read", {"file_path": "/p/.env.example"}, False),
        ("Read(.env)", "Read", {"file_path": "/p/a/b/.env"}, True),
        ("Read(./secrets/**)", "Read", {"file_path": "/p/secrets/a/b"}, True),
        ("Read(./secrets/**)", "Read", {"file_path": "/p/open"}, False),
        ("Read(~/.ssh/**)", "Read", {"file_path": "/home/ann/.ssh/id"}, True),
        ("Read(//etc/**)", "Read", {"file_path": "/etc/passwd"}, True),
        ("Read(**/*.pem)", "Read", {"file_path": "/p/deep/down/key.pem"}, True),
        ("Read(src/*.key)", "Read", {"file_path": "/p/src/a.key"}, True),
        ("Edit(/docs/**)", "Write", {"file_path": "/p/docs/a.md"}, True),
        ("Edit(/docs/**)", "NotebookEdit", {"notebook_path": "/p/docs/a.ipynb"}, True),
        ("WebFetch(domain:evil.example)", "WebFetch", {"url": "https://EVIL.example/x"}, True),
        ("WebFetch(domain:evil.example)", "WebFetch", {"url": "http://u@evil.example:80"}, True),
        ("WebFetch(domain:evil.example)", "WebFetch", {"url": "https://ok.example/evil.example"}, False),
        ("WebFetch(domain:*.evil.example)", "WebFetch", {"url": "https://a.b.evil.example/"}, True),
        ("mcp__files__delete", "mcp__files__delete", {}, True),
        ("mcp__files", "mcp__files__delete", {}, True),
        ("mcp__files", "mcp__other__delete", {}, False),
        ("Task(Explore)", "Agent", {"subagent_type": "Explore"}, True),
        ("WebSearch", "WebSearch", {"query": "x"}, True),
    ],
)
def test_an_entry_that_denies_becomes_a_rule_about_the_same_calls(
    entry: str, tool: str, arguments: dict[str, Any], fits: bool
) -> None:
    assert ruled("deny", entry, tool, **arguments) == ("deny" if fits else "ask_user")


@pytest.mark.parametrize(
    ("entry", "tool", "arguments", "fits"),
    [
        ("Bash(npm run test:*)", "Bash", {"command": "npm run test"}, True),
        ("Bash(npm run test:*)", "Bash", {"command": "npm run test -- --watch"}, True),
        ("Bash(npm run test:*)", "Bash", {"command": "npm run test && rm -rf /"}, False),
        ("Bash(npm run test:*)", "Bash", {"command": "npm run test\nrm -rf /"}, False),
        ("Bash(npm run test:*)", "Bash", {"command": "npm run test $(rm x)"}, False),
        ("Bash(npm run test:*)", "Bash", {"command": "npm run tests"}, False),
        ("Bash(npm run build)", "Bash", {"command": "npm run build --x"}, False),
        ("Read(./src/**)", "Read", {"file_path": "/p/src/a.py"}, True),
        ("Read(./src/**)", "Read", {"file_path": "/p/src/../.env"}, False),
        ("Read(**/*.md)", "Read", {"file_path": "/p/a/README.md"}, True),
        ("Read(**/*.md)", "Read", {"file_path": "/etc/README.md"}, False),
        ("WebFetch(domain:ok.example)", "WebFetch", {"url": "https://ok.example/a"}, True),
        ("WebFetch(domain:ok.example)", "WebFetch", {"url": "https://ok.example.evil.example/"}, False),
        ("WebFetch(domain:ok.example)", "WebFetch", {"url": "https://ok.example@evil.example/"}, False),
    ],
)
def test_an_entry_that_allows_becomes_a_rule_that_is_never_wider(
    entry: str, tool: str, arguments: dict[str, Any], fits: bool
) -> None:
    assert ruled("allow", entry, tool, **arguments) == ("continue" if fits else "ask_user")


@pytest.mark.parametrize(
    "entry",
    [
        "Skill(x)", "mcp__a__b(x)", "Read(src/*/x.py)", "Read([ab].py)", "WebFetch(https://a)", "Bash(", "",
        "*", "WebFetch(domain:a/b)", "Bash(" + "x" * 900 + ")", "Bash(a\x1b[2Jb)",
    ],
)  # fmt: skip
def test_an_entry_that_no_rule_says_is_refused_with_the_reason(entry: str) -> None:
    with pytest.raises(UnsayableEntry, match=r"\w+ \w+"):
        translate("deny", entry, PLACES)


def test_an_allow_that_would_be_wider_and_a_path_of_unknown_beginning_are_refused() -> None:
    with pytest.raises(UnsayableEntry, match="further down"):
        translate("allow", "Read(./src/*.py)", PLACES)
    with pytest.raises(UnsayableEntry, match="not certain where"):
        translate("deny", "Read(/x)", PLACES._replace(root=""))


SETTINGS = {
    "model": "opus",
    "permissions": {
        "allow": ["Bash(npm run test:*)", "Bash(ls)", "Read(./src/**)", "Skill(deploy)"],
        "ask": ["Bash(git push:*)"],
        "deny": ["Read(./.env)", "Bash(curl:*)", "Edit(./locked/**)", "Read(src/*/x)"],
        "defaultMode": "acceptEdits",
    },
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with Claude Code's settings, and a home of its own."""
    home, project = tmp_path / "home", tmp_path / "project"
    for folder in (home, project):
        (folder / ".claude").mkdir(parents=True)
    (project / ".claude" / "settings.json").write_text(json.dumps(SETTINGS, indent="\t"))
    (project / ".claude" / "settings.local.json").write_text(
        '{"permissions": {"allow": ["Bash(ls)", "Bash"]}}'
    )
    (home / ".claude" / "settings.json").write_text(
        '{"permissions": {"deny": ["WebFetch(domain:a.example)"]}}'
    )
    (project / ".mcp.json").write_text('{"mcpServers": {"my files": {"command": "x"}}}')
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.chdir(project)
    return project


def test_claude_codes_permissions_become_rules_that_observe_and_cases_that_hold(project: Path) -> None:
    said = run("--from", "claude", "gate")
    written = (project / "gate" / "rules.yaml").read_text()
    policy = policy_in(project / "gate")
    assert policy.mode == "observe"
    assert [rule.name for rule in policy.rules] == [
        "deny Read(./.env)", "deny Bash(curl:*)", "deny Edit(./locked/**)",
        "deny Edit(./locked/**) by NotebookEdit", "deny WebFetch(domain:a.example)", "ask Bash(git push:*)",
        "allow Bash(npm run test:*)", "allow Bash(ls)", "allow Read(./src/**)", "allow Bash",
        "ask about the server my_files",
    ]  # fmt: skip
    assert "  # not written: deny Read(src/*/x) (.claude/settings.json): a rule knows no *" in written
    assert "  # not written: allow Skill(deploy) (.claude/settings.json): " in written
    assert hold_to_cases(project / "gate") == len(policy.rules) + 1
    assert "Rules in rules.yaml: 11; entries that no rule can say: 2, with the reason" in said
    assert "cd gate && " in said
    assert "hook install claude\n" in said
    assert said.index("policy enforce") < said.index("hook install claude --required policy")
    assert "policy enforce --config rules.yaml" in said
    assert "exists already: nothing was written" in run("--from", "claude", "gate")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "settings.json:1"),
        ("[]", "must be a mapping"),
        ('{"permissions": []}', "permissions: must be a mapping"),
        ('{"permissions": {"deny": "Bash"}}', "permissions.deny: must be a list of texts"),
        ('{"permissions": {"deny": [1]}}', "permissions.deny: must be a list of texts"),
        (json.dumps({"permissions": {"deny": [f"Bash(x{n})" for n in range(MAX_PARTS)]}}), "more than 1000"),
    ],
)
def test_settings_that_cannot_be_read_are_named_and_nothing_is_written(
    project: Path, text: str, told: str
) -> None:
    (project / ".claude" / "settings.json").write_text(text)
    assert told in run("--from", "claude", "gate")
    assert not (project / "gate").exists()


def test_without_settings_it_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert "looked into .claude/settings.json, .claude/settings.local.json" in run("--from", "claude")


SERVERS = {
    "mcpServers": {
        "files": {
            "type": "stdio",
            "command": "npx",
            "args": ["-y", "files", "/work"],
            "env": {"KEY": "secret"},
        },
        "far away": {"type": "http", "url": "https://mcp.example/mcp"},
        "old": {"type": "sse", "url": "https://old.example/sse"},
        "keyed": {"url": "https://k.example", "headers": {"Authorization": "Bearer x"}},
        "gated": {"command": "toolgate", "args": ["mcp", "--", "x"]},
    },
    "other": 1,
}


def test_a_file_of_mcp_servers_becomes_rules_and_the_file_with_the_gate_in_front(tmp_path: Path) -> None:
    (tmp_path / "clients.json").write_text(json.dumps(SERVERS))
    said = run("--from", "mcp", "--file", tmp_path / "clients.json", tmp_path / "gate")
    gated = json.loads((tmp_path / "gate" / "mcp.gated.json").read_text())
    assert gated["other"] == 1
    files, far = gated["mcpServers"]["files"], gated["mcpServers"]["far away"]
    assert files["args"] == ["mcp", "--name", "files", "--", "npx", "-y", "files", "/work"]
    assert (Path(files["command"]).name, files["env"], files["type"]) == (
        "toolgate",
        {"KEY": "secret"},
        "stdio",
    )
    assert far["args"] == ["mcp", "--name", "far-away", "--", "https://mcp.example/mcp"]
    assert "url" not in far
    for name in ("old", "keyed", "gated"):
        assert gated["mcpServers"][name] == SERVERS["mcpServers"][name]  # type: ignore[index]
        assert f"{name} has no gate in mcp.gated.json: " in said
    assert 'Once you enforce the rules, write "--required", "policy" behind "mcp" there' in said
    assert stat.S_IMODE((tmp_path / "gate" / "mcp.gated.json").stat().st_mode) == 0o600
    policy = policy_in(tmp_path / "gate")
    assert (policy.mode, len(policy.rules)) == ("observe", 7)
    assert hold_to_cases(tmp_path / "gate") == 8


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}", "mcpServers: must have a server"),
        ('{"mcpServers": {"a": 1}}', "mcpServers.a: must be a mapping"),
        (
            '{"mcpServers": {"a": {"command": "x", "args": [1]}}}',
            "mcpServers.a.args: must be a list of texts",
        ),
        ("{,}", "clients.json:1"),
    ],
)
def test_a_wrong_file_of_mcp_servers_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "clients.json").write_text(text)
    assert told in run("--from", "mcp", "--file", tmp_path / "clients.json", tmp_path / "gate")


def test_tools_of_an_agent_become_a_rule_each_by_the_words_in_their_names(tmp_path: Path) -> None:
    names = ["delete_file", "sendMail", "search", "information", "odd[name]*", "default"]
    tools = [FoundTool("clerk", name) for name in names] + [FoundTool("clerk", "web_search", is_own=False)]
    start = draft_from_tools([*tools, tools[0]], "agent.py:agent")
    for name, text in start.files.items():
        (tmp_path / name).write_text(text)
    policy = policy_in(tmp_path)
    assert [(rule.tools, rule.action) for rule in policy.rules] == [
        (("delete_file",), "deny"), (("sendMail",), "ask"), (("search",), "allow"),
        (("information",), "allow"), (("odd[[]name][*]",), "allow"), (("default",), "allow"),
    ]  # fmt: skip
    assert hold_to_cases(tmp_path) == 7
    assert 'guard = Guard(agent="clerk")' in start.code
    assert any("runs web_search: no gate sees its calls" in note for note in start.notes)
    assert any("needs a checkpointer" in note for note in start.notes)
    assert not any("checkpointer" in note for note in draft_from_tools(tools[:1], "agent.py:agent").notes)
    with pytest.raises(ConfigError, match="has no tools"):
        draft_from_tools([], "agent.py:agent")


@pytest.mark.parametrize(
    ("name", "action"),
    [
        ("rm", "deny"),
        ("DropTable", "deny"),
        ("HTTPPost", "ask"),
        ("get_order_history", "allow"),
        ("pay", "ask"),
    ],
)
def test_a_word_counts_as_a_whole_word_of_a_name(name: str, action: str) -> None:
    assert find_word(name)[0] == action


def test_a_rule_that_can_be_none_is_a_comment_with_the_reason() -> None:
    draft = Draft(())
    draft.add(DraftRule("a", ("t",), "deny", "t", {"p": "x"}, {"p": {"under": "not whole"}}))
    draft.add(DraftRule("b", ("t",), "deny", "other"))
    assert not draft.rules
    assert "must be the whole path of a folder" in draft.rules_text()
    assert "# not written: b: no condition says this exactly" in draft.rules_text()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--from", "codex"), "choose one of: claude, mcp, langgraph"),
        (("--file", "x"), "only with --from mcp"),
        (("--target", "x"), "only with --from langgraph"),
        (("--from", "langgraph"), "--target agent.py:agent"),
        (("--from", "langgraph", "--target", "none.py:x"), "there is no such file"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_allowed(words: tuple[str, ...], told: str) -> None:
    assert told in run(*words)
