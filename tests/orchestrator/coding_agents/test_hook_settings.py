"""`install` adds to a settings file, `uninstall` takes away: its owner's text stays, byte for byte."""

import json
import os
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toolgate_bus.commands.main import app as frame
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator.commands.hook.client_settings import ClientSettings, HookPlace
from toolgate_orchestrator.commands.hook.entries import (
    CLIENTS,
    FALLBACK,
    HookSettings,
    find_handlers,
    make_entries,
)
from toolgate_orchestrator.commands.hook.settings_file import SettingsFile
from typer.testing import CliRunner

COMMAND = ("/venv/bin/python", "-I", "-S", "/venv/lib/toolgate_hook.py")
SETTINGS = {client: HookSettings(client, ("policy",), command=COMMAND) for client in CLIENTS}
ALL = pytest.mark.parametrize("client", CLIENTS)


@pytest.fixture
def place(tmp_path: Path) -> HookPlace:
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    project.mkdir()
    return HookPlace("user", home, project, tmp_path / "state", {})


def path_of(client: str, place: HookPlace) -> Path:
    return ClientSettings(client, place).file.path


def write(client: str, place: HookPlace, text: str) -> Path:
    path = path_of(client, place)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def install(client: str, place: HookPlace, settings: HookSettings | None = None):
    return ClientSettings(client, place).install(settings or SETTINGS[client])


def uninstall(client: str, place: HookPlace):
    return ClientSettings(client, place).uninstall()


def tree(place: HookPlace) -> list[str]:
    return sorted(str(path.relative_to(place.home)) for path in place.home.rglob("*"))


@ALL
def test_where_there_was_no_file_there_is_none_again(client, place):
    before = tree(place)
    assert install(client, place).changed == "installed"
    assert len(list(find_handlers(ClientSettings(client, place).read(), client))) == len(
        make_entries(SETTINGS[client])
    )
    assert uninstall(client, place).changed == "restored"
    assert tree(place) == before
    assert list(place.state.rglob("*.json")) == []


OTHERS = [
    "{}",
    "{ }\n",
    "{\n}\n",
    '{"model": "opus"}',
    '{\n  "model": "opus",\n  "hooks": {}\n}\n',
    '{\n\t"hooks": {\n\t\t"EVENT": []\n\t}\n}',
    '\ufeff{\r\n    "permissions": {"allow": ["Bash(ls)"]},\r\n    "hooks": {"Stop": [{"hooks": []}]}}\r\n',
    '{"hooks":{"EVENT":[{"matcher":"Bash","hooks":[{"command":"mine.sh"}]}],"Other":[1]},"z":"é\\u00e9"}',
    '{\n   "hooks" : {\n    "EVENT" : [\n     {"command": "a"} ,\n     {}\n   ]\n   } ,\n   "a" : 1\n}\n',
]


@ALL
@pytest.mark.parametrize("text", OTHERS, ids=range(len(OTHERS)))
def test_what_was_there_is_there_again_byte_for_byte(client, text, place):
    path = write(client, place, text.replace("EVENT", CLIENTS[client].before))
    before = path.read_bytes()
    change = install(client, place)
    assert change.backup is not None
    assert change.backup.read_bytes() == before
    added = json.loads(path.read_text("utf-8-sig"))
    assert [entry[0] for entry in find_handlers(added, client)] == list(make_entries(SETTINGS[client]))
    assert install(client, place).changed == "unchanged"
    assert uninstall(client, place).changed == "restored"
    assert path.read_bytes() == before


EDITS = st.lists(
    st.sampled_from([("MARK", "changed"), ('"a"', '"renamed"'), ("\n", "\n\n"), ("}", "} ")]),
    min_size=1,
    max_size=3,
)
VALUES = st.recursive(
    st.sampled_from(["MARK", 1, True, None, "ü"]),
    lambda child: st.lists(child, max_size=3) | st.dictionaries(st.sampled_from("abc"), child, max_size=3),
    max_leaves=8,
)


@given(
    client=st.sampled_from(list(CLIENTS)),
    others=st.dictionaries(st.sampled_from(["a", "b", "model"]), VALUES, max_size=3),
    hooks=st.none()
    | st.dictionaries(st.sampled_from(["EVENT", "Stop"]), st.lists(VALUES, max_size=2), max_size=2),
    indent=st.sampled_from([None, 1, 2, 4, "\t"]),
    ends=st.sampled_from(["", "\n", "\n\n"]),
    windows=st.booleans(),
    at=st.integers(0, 3),
)
def test_whatever_its_owner_changed_in_between_only_our_entries_go(
    client, others, hooks, indent, ends, windows, at, tmp_path_factory
):
    root = tmp_path_factory.mktemp("home")
    place = HookPlace("user", root / "home", root, root / "state", {})
    told = list(others.items())
    if hooks is not None:
        told.insert(
            at,
            ("hooks", {key.replace("EVENT", CLIENTS[client].before): value for key, value in hooks.items()}),
        )
    text = json.dumps(dict(told), indent=indent, ensure_ascii=False) + ends
    text = text.replace("\n", "\r\n") if windows else text
    path = write(client, place, text)
    install(client, place)
    edited = path.read_bytes().decode().replace("MARK", "changed").replace("model", "modell")
    path.write_bytes(edited.encode() + b"\n")
    assert uninstall(client, place).changed == "removed"
    assert path.read_bytes().decode() == text.replace("MARK", "changed").replace("model", "modell") + "\n"


@ALL
def test_an_entry_of_somebody_elses_beside_ours_stays(client, place):
    path = write(client, place, '{"version": 1}')
    install(client, place)
    found = json.loads(path.read_text())
    found["hooks"][CLIENTS[client].before].append({"command": "theirs"})
    path.write_text(json.dumps(found))
    assert uninstall(client, place).changed == "removed"
    assert json.loads(path.read_text()) == {
        "version": 1,
        "hooks": {CLIENTS[client].before: [{"command": "theirs"}]},
    }


def test_a_hook_that_somebody_put_into_our_group_stays(place):
    path = write("claude", place, "{}")
    install("claude", place)
    found = json.loads(path.read_text())
    found["hooks"]["PreToolUse"][0]["hooks"].insert(0, {"type": "command", "command": "theirs"})
    path.write_text(json.dumps(found))
    uninstall("claude", place)
    assert json.loads(path.read_text()) == {
        "hooks": {"PreToolUse": [{"hooks": [{"type": "command", "command": "theirs"}]}]}
    }


def test_a_hook_written_by_hand_beside_ours_stays_as_it_is_written(place):
    path = write("claude", place, '{"model": "opus"}\n')
    install("claude", place)
    path.write_text(path.read_text().replace('"hooks": {', '"hooks": {\n    "Stop": [ {"hooks":[]} ],', 1))
    uninstall("claude", place)
    assert path.read_text() == '{"model": "opus",\n  "hooks": {\n    "Stop": [ {"hooks":[]} ]\n  }}\n'


def test_without_what_was_kept_our_entries_go_all_the_same(place):
    path = write("claude", place, '{"model": "opus"}\n')
    install("claude", place)
    for kept in place.state.rglob("*"):
        if kept.is_file():
            kept.unlink()
    uninstall("claude", place)
    assert json.loads(path.read_text()) == {"model": "opus"}


def test_installed_again_with_other_options_the_entries_are_replaced_and_the_first_state_is_kept(place):
    path = write("claude", place, '{"model": "opus"}\n')
    install("claude", place)
    again = HookSettings("claude", ("policy", "cost-aware"), 600, "/etc/tg.yaml", "reviewer", COMMAND)
    assert install("claude", place, again).changed == "updated"
    handlers = list(find_handlers(json.loads(path.read_text()), "claude"))
    assert len(handlers) == 5
    assert "--required cost-aware --config /etc/tg.yaml --agent reviewer" in path.read_text()
    uninstall("claude", place)
    assert path.read_text() == '{"model": "opus"}\n'


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_mode_and_link_stay(mode, place):
    real = place.project / "dotfiles.json"
    real.write_text("{}")
    real.chmod(mode)
    link = path_of("claude", place)
    link.parent.mkdir()
    link.symlink_to(real)
    install("claude", place)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == mode
    assert "toolgate_hook" in real.read_text()
    uninstall("claude", place)
    assert (link.is_symlink(), real.read_text(), stat.S_IMODE(real.stat().st_mode)) == (True, "{}", mode)


BAD = {
    '{"hooks": {"EVENT": [1,]}}': "line 1, column ",
    '{\n "a": 1\n "b": 2}': "line 3, column 2: Expecting ',' delimiter",
    '{"a": tru}': "line 1, column 7: Expecting value",
    '{"a": "x}': "line 1, column 7: Unterminated string",
    '{"hooks": [1]}': "its `hooks` is not an object",
    '{"hooks": {"EVENT": {}}}': "its `hooks.EVENT` is not a list",
    "[1]": "it is not a JSON object",
    "{} {}": "line 1, column 4: Extra data",
    '{"a": 1, "a": 2}': "the key 'a' is given twice",
    '{"a":' + "[" * 200 + "]" * 200 + "}": "nested more than 128 levels deep",
    "// mine\n{}": "line 1, column 1",
    '{"a": ' + "1" * 5000 + "}": "a whole number has more than 4000 digits",
}


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_a_file_that_cannot_be_read_is_named_and_left_alone(text, place):
    path = write("claude", place, text.replace("EVENT", "PreToolUse"))
    before = path.read_bytes()
    with pytest.raises(ConfigError) as refusal:
        install("claude", place)
    assert BAD[text].replace("EVENT", "PreToolUse") in str(refusal.value)
    assert str(path) in str(refusal.value)
    assert "Nothing was changed" in str(refusal.value)
    assert path.read_bytes() == before


def test_bytes_that_are_no_text_are_refused(place):
    path = write("claude", place, "{}")
    path.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(ConfigError, match="UTF-8"):
        install("claude", place)


def test_what_is_no_file_or_too_large_a_one_is_left_alone(place):
    path = write("claude", place, "{}")
    with path.open("rb+") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(ConfigError, match="more than 16 MiB"):
        install("claude", place)
    assert path.stat().st_size == (16 << 20) + 1
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="is not a regular file"):
        install("claude", place)


def test_a_file_that_changes_while_we_look_is_left_alone(place):
    path = write("claude", place, "{}")
    settings = ClientSettings("claude", place)
    path.write_text('{"new": 1}')
    with pytest.raises(ConfigError, match="changed just now"):
        settings.install(SETTINGS["claude"])
    assert path.read_text() == '{"new": 1}'


@pytest.mark.parametrize("begins", ["", "\ufeff"], ids=["plain", "marked"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["unix", "windows"])
@pytest.mark.parametrize("indent", ["  ", "\t"], ids=["spaces", "tabs"])
def test_comments_stay_where_the_client_takes_them(begins, newline, indent, place):
    text = '{\n  // mine\n  "ui": {"theme": "x"}, /* all\n of it */\n  "tools": [1, 2,], // end\n}'
    text = begins + text.replace("  ", indent).replace("\n", newline)
    path = write("gemini", place, text)
    install("gemini", place)
    added = path.read_bytes().decode()
    assert "// mine" in added
    assert added.count("\n") == added.count(newline)
    path.write_bytes(added.replace("// mine", "// still mine").encode())
    uninstall("gemini", place)
    assert path.read_bytes().decode() == text.replace("// mine", "// still mine")


def test_a_comment_inside_an_entry_of_ours_is_not_lost(place):
    path = write("gemini", place, "{}")
    install("gemini", place)
    text = path.read_text().replace('"name"', '// mine\n"name"')
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"settings\.json: .* without losing a comment"):
        uninstall("gemini", place)
    assert path.read_text() == text


def test_codex_keeps_its_hooks_where_its_owner_does(place):
    toml = place.home / ".codex" / "config.toml"
    toml.parent.mkdir()
    text = '# mine\nmodel = "gpt"   # the best\n\n[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ncommand = "x"'
    toml.write_text(text)
    assert install("codex", place).path == toml
    found = tomllib.loads(toml.read_text())
    entry = make_entries(SETTINGS["codex"])["PreToolUse"]
    assert found["hooks"]["PreToolUse"] == [entry]
    assert found["hooks"]["Stop"][0]["hooks"][0]["command"] == "x"
    assert install("codex", place).changed == "unchanged"
    toml.write_text('approval = "never"\n' + toml.read_text())
    uninstall("codex", place)
    assert toml.read_text() == 'approval = "never"\n' + text + "\n"
    toml.write_text(text)
    install("codex", place)
    uninstall("codex", place)
    assert toml.read_text() == text


STOP = '[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ncommand = "x" # mine\n'
TOMLS = {
    "alone": STOP,
    "in the middle": f'model = "gpt"\n\n{STOP}\n# trusted\n[projects."/x"]\ntrust_level = "trusted"\n',
    "below a table": f"[hooks]\nstate = {{}}\n\n  # indented\n{STOP}",
    "in two places": f'{STOP}\n[projects]\n\n[hooks.state."x"]\ntrusted_hash = "y"\n',
    "of the same event": STOP.replace("Stop", "PreToolUse") + '\n# next\n[projects."/x"]\n',
    "in a list": '[hooks]\nPreToolUse = [{hooks = [{command = "x"}]}] # mine\n',
    "on windows": STOP.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("text", TOMLS.values(), ids=TOMLS)
def test_hooks_in_toml_leave_all_else_as_it_was(text, place):
    toml = place.home / ".codex" / "config.toml"
    toml.parent.mkdir()
    toml.write_bytes(text.encode())
    assert install("codex", place).path == toml
    added = toml.read_bytes().decode()
    entries = make_entries(SETTINGS["codex"])
    assert {event: tomllib.loads(added)["hooks"][event][-1] for event in entries} == entries
    assert ("\r\n" in text) is (added.count("\n") == added.count("\r\n"))
    first, last = 'approval = "never"\n', "\n# last\n[last]\na = 1\n"
    toml.write_bytes(f"{first}{added}{last}".encode())
    assert uninstall("codex", place).changed == "removed"
    assert toml.read_bytes().decode() == f"{first}{text}{last}"


def test_a_table_in_one_line_is_refused_or_comes_back(place):
    """Some versions of tomlkit leave a blank in it: then nothing is added."""
    toml = place.home / ".codex" / "config.toml"
    toml.parent.mkdir()
    text = 'hooks = {Stop = [{hooks = [{command = "x"}]}]}\nmodel = "gpt"\n'
    toml.write_text(text)
    try:
        install("codex", place)
    except ConfigError:
        assert toml.read_text() == text
    else:
        toml.write_text(toml.read_text() + "last = 1\n")
        text += "last = 1\n"
        uninstall("codex", place)
    assert toml.read_text() == text


def test_a_comment_inside_a_table_of_ours_is_not_lost(place):
    toml = place.home / ".codex" / "config.toml"
    toml.parent.mkdir()
    toml.write_text(STOP)
    install("codex", place)
    toml.write_text(toml.read_text().replace("timeout = 120", "timeout = 120 # mine"))
    before = toml.read_bytes()
    with pytest.raises(ConfigError, match=r"config\.toml: .* without losing a comment"):
        uninstall("codex", place)
    assert toml.read_bytes() == before


def test_what_codex_says_of_trust_is_no_hook(place):
    toml = place.home / ".codex" / "config.toml"
    toml.parent.mkdir()
    toml.write_text('[hooks.state."x"]\ntrusted_hash = "y"\n')
    assert install("codex", place).path.name == "hooks.json"


@ALL
def test_whoever_is_required_the_entry_says_it_and_denies_if_nothing_runs(client):
    entries = make_entries(SETTINGS[client])
    for event, entry in entries.items():
        handler = entry.get("hooks", [entry])[0]
        line = handler.get("command") or handler["bash"]
        assert "--required policy" in line
        assert line.endswith(FALLBACK) is (event == CLIENTS[client].before)
    first = next(iter(entries.values()))
    closed = {"claude": ("onFailure", "block"), "cursor": ("failClosed", True)}.get(client)
    if closed:
        assert first.get("hooks", [first])[0][closed[0]] == closed[1]


@ALL
def test_where_nobody_is_required_a_hook_that_cannot_run_stops_nothing(client):
    told = json.dumps(make_entries(HookSettings(client, command=COMMAND)))
    assert FALLBACK not in told
    assert "onFailure" not in told
    assert "failClosed" not in told


def test_over_http_the_token_is_named_and_not_written():
    settings = HookSettings("claude", ("policy",), url="http://127.0.0.1:8181/", token_env="TG_TOKEN")
    handler = make_entries(settings)["PreToolUse"]["hooks"][0]
    assert handler == {
        "type": "http",
        "url": "http://127.0.0.1:8181/hooks/claude?by=toolgate&timeout=120",
        "timeout": 120,
        "headers": {"Authorization": "Bearer $TG_TOKEN"},
        "allowedEnvVars": ["TG_TOKEN"],
        "onFailure": "block",
    }
    with pytest.raises(ConfigError, match="only by a command"):
        make_entries(settings._replace(client="codex"))


def test_the_project_has_settings_of_its_own(place):
    project = place._replace(scope="project")
    for client, files in CLIENTS.items():
        assert install(client, project).path == place.project / files.project
        uninstall(client, project)
    assert list(place.project.rglob("*")) == []
    assert list(place.home.iterdir()) == []


@pytest.mark.parametrize("words", [("--project",), ()])
def test_an_install_says_how_to_test_the_settings_that_it_wrote(words, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(frame, ["hook", "install", "claude", *words])
    assert said.exit_code == 0, said.output
    assert " ".join(("hook status claude", *words)) + "\n" in said.output


def test_folders_of_ours_are_closed_to_others_so_that_other_commands_use_them_too(tmp_path):
    SettingsFile(tmp_path / "settings.json", tmp_path / "state").keep(b"{}", b"{}")
    made = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert len(made) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}


def test_a_file_is_closed_to_others_before_anything_is_in_it(tmp_path, monkeypatch):
    """Settings hold tokens: what is put in their place is never open to others, not even for a moment."""
    path, state = tmp_path / "settings.json", tmp_path / "state"
    path.write_text("{}")
    path.chmod(0o600)
    modes, sync = [], os.fsync

    def note(descriptor):
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        sync(descriptor)

    def note_mode(descriptor, mode):
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        set_mode(descriptor, mode)

    set_mode = os.fchmod
    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "fchmod", note_mode)
    before = os.umask(0)
    try:
        file = SettingsFile(path, state)
        file.keep(b"secret", b"{}")
        file.write(b'{"token": "secret"}')
    finally:
        os.umask(before)
    assert set(modes) == {0o600}
    assert len(modes) == 6  # each file before and after its mode is set
