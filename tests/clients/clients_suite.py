"""Coding agents' own programs ask by the hooks that we install: what they do, not what we take them to do.

`programs.py` runs it. Their LLM follows a script; what ran is seen by the files that calls leave.
"""

import json
import os
import re
import tempfile
import time
from pathlib import Path

import pytest
from by_word import KEPT, OTHER, PROMPT, REASON
from client_world import CLIENTS, HERE, WAIT, ClientWorld
from frameworks import NoPackages, environment_of
from hook_world import hook_world
from scripted_llm import LAST, Script, Use, scripted_llm

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(600)]

PATHS = os.pathsep.join(str(HERE.parents[1] / name) for name in ("bus", "orchestrator", "schedulers"))
"""The code of this checkout, in whose environment ever."""
NAMES = [name for name in os.environ.get("TOOLGATE_CLIENTS", "").split(",") if name]
ASK_THEIR_USER = ("claude", "copilot")
every_client = pytest.mark.parametrize("client", [CLIENTS[name] for name in NAMES], ids=NAMES)
only_claude = pytest.mark.skipif("claude" not in NAMES, reason="Claude Code is not asked for")


@pytest.fixture
def world(own_server):
    """A user, with a server of their own."""
    with (
        tempfile.TemporaryDirectory(prefix="tg-") as base,
        tempfile.TemporaryDirectory(prefix="tg-") as runtime,
        hook_world(Path(runtime), own_server.url, "clients") as hooks,
    ):
        yield ClientWorld(hooks, Path(base))


@pytest.fixture
def scheduler(process, world):
    """Starts a scheduler process, and waits until it rules."""

    def start(*words):
        env = {**world.env, "PYTHONPATH": f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        running = process("toolgate", "scheduler", "run", *words, "--json", env=env)
        wait(lambda: '"ready"' in running.stdout or not running.alive)
        assert running.alive, running.stderr
        return running

    return start


@pytest.fixture
def by_word(scheduler):
    """It is required by whoever asks."""
    return scheduler("by_word:by_word")


def wait(look, seconds=60):
    """Until it is so; gives it."""
    ends = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < ends:
        time.sleep(0.02)
    assert found
    return found


def install(world, client, *words):
    done = world.toolgate("hook", "install", client.name, *words)
    assert done.returncode == 0, done.stderr


def touches(client, *names):
    """Responses with a call each, which leaves a file of that name."""
    return [[client.use(f"touch {name}")] for name in names]


def files(world):
    """What the calls that ran have left."""
    return {path.name for path in world.folder.iterdir() if not path.name.startswith(".")}


def converse(world, client, *scripts, more=(), env=None, ready=lambda: None):
    """A conversation that follows the first script, to its end. `ready` is called before it begins."""
    with scripted_llm(*scripts) as url:
        needed = client.prepare(world.home, url)
        ready()
        done = world.run(client, url, scripts[0].prompt, *more, env={**needed, **(env or {})})
    assert done.returncode == 0, done.stdout + done.stderr
    assert LAST in done.stdout, done.stdout + done.stderr
    return done


def gated(world, client, *required):
    return lambda: install(world, client, *(word for name in required for word in ("--required", name)))


@every_client
def test_each_ruling_is_what_the_program_does_and_its_llm_is_told(client, world, by_word):
    at_once = [client.use(f"touch {name}") for name in ("one", "two-forbidden", "three")]
    names = ("ran", "forbidden", "instead", "elsewhere", "question")
    script = Script("rulings", [*touches(client, *names), at_once])
    converse(world, client, script, ready=gated(world, client, "by_word"))
    assert files(world) == {"ran", "replaced", "one", "three"}
    assert len(script.results) == 8
    assert [number for number, result in enumerate(script.results) if REASON in result] == [1, 6]
    assert "another_tool" in script.results[3]
    if client.name not in ASK_THEIR_USER:
        assert PROMPT in script.results[4]


@every_client
def test_the_ends_of_calls_are_told_and_what_they_cost_is_settled(client, world, scheduler, tmp_path):
    config = tmp_path / "cost.yaml"
    tool = client.seen_as or client.tool
    budget = "{name: all, level: fleet, limit: 1.0}"
    config.write_text(f"tools: {{{tool}: {{cost: 0.5}}}}\nbudgets: [{budget}]\n")
    scheduler("cost-aware", "--config", config)
    script = Script("costs", touches(client, "one", "two", "three"))
    converse(world, client, script, ready=gated(world, client, "cost-aware"))
    assert files(world) == {"one", "two"}

    def settled():
        (row,) = world.rows("budget", "list")
        return row if row["reserved"] == 0 else None

    assert wait(settled)["spent"] == 1_000_000


@every_client
def test_what_nobody_can_rule_on_does_not_run(client, world, by_word, own_server):
    script = Script("silence", touches(client, "forever"))
    converse(world, client, script, ready=gated(world, client, "by_word"))
    assert "by_word gave no valid answer" in script.results[0]
    by_word.end()
    script = Script("nobody", touches(client, "nobody"))
    converse(world, client, script, ready=gated(world, client, "by_word"))
    assert "by_word is not alive" in script.results[0]
    own_server.kill()
    script = Script("away", touches(client, "away"))
    converse(world, client, script, ready=gated(world, client, "by_word"))
    assert files(world) == set()


@every_client
def test_where_nobody_rules_and_nobody_is_required_calls_run_and_the_llm_is_told_nothing_of_it(client, world):
    """The hook's answer holds a word for the user (`systemMessage`) where the program can show one."""
    script = Script("unruled", touches(client, "one", "two"))
    converse(world, client, script, ready=gated(world, client))
    assert files(world) == {"one", "two"}
    assert not any("without rulings" in result for result in script.results)


@every_client
def test_a_hook_that_cannot_run_denies_where_anybody_is_required(client, world, by_word):
    script = Script("unable", touches(client, "unable"))

    def ready():
        install(world, client, "--required", "by_word", "--portable")
        paths = world.env["PATH"].split(os.pathsep)
        world.env["PATH"] = os.pathsep.join(
            one for one in paths if not (Path(one) / "toolgate-hook").exists()
        )

    converse(world, client, script, ready=ready)
    assert files(world) == set()


@every_client
def test_what_was_installed_is_taken_out_and_the_program_asks_nobody(client, world, by_word):
    before = None
    path = world.home / client.settings

    def ready():
        nonlocal before
        before = path.read_bytes() if path.exists() else None
        install(world, client, "--required", "by_word")
        done = world.toolgate("hook", "uninstall", client.name)
        assert done.returncode == 0, done.stderr
        assert (path.read_bytes() if path.exists() else None) == before

    converse(world, client, Script("free", touches(client, "forbidden")), ready=ready)
    assert files(world) == {"forbidden"}
    assert world.rows("decisions") == []


def secrets(world):
    """Files of which the program's LLM may not have all."""
    for name, words in (
        ("keys", "a key-123 b"),
        ("kept", "kept-word key-123"),
        ("other", "other-word key-123"),
    ):
        (world.folder / f".{name}").write_text(words)


@every_client
def test_of_a_result_the_programs_llm_gets_what_may_be_seen(client, world, scheduler):
    scheduler("by_word:by_result")
    secrets(world)
    script = Script(
        "results", [[client.use(f"cat .{name}")] for name in ("keys", "kept", "other", "none || true")]
    )
    converse(world, client, script, ready=gated(world, client, "by_result"))
    assert "key-123" not in "".join(script.results)
    assert "a [withheld: a key] b" in script.results[0]
    assert KEPT in script.results[1]
    assert OTHER in script.results[2]
    assert "No such file" in script.results[3]  # nothing in it is hidden


@every_client
def test_what_a_failed_call_gave_reaches_no_llm_where_any_of_it_is_hidden(client, world, scheduler):
    """Codex and Copilot CLI tell nothing of it that could be withheld: there it is as their documents say."""
    if client.name in ("codex", "copilot"):
        pytest.skip("its hooks cannot withhold what a failed tool gave")
    scheduler("by_word:by_result")
    secrets(world)
    script = Script("failed", [[client.use("cat .keys; false")], *touches(client, "after")])
    with scripted_llm(script) as url:
        needed = client.prepare(world.home, url)
        install(world, client, "--required", "by_result")
        done = world.run(client, url, script.prompt, env=needed)
    assert "key-123" not in "".join(script.results)
    if client.name == "claude":  # the turn has ended
        assert files(world) == set()
        assert LAST not in done.stdout


@only_claude
def test_files_and_mcp_tools_of_claude_code_are_ruled_on_too(world, scheduler):
    scheduler("by_word:by_result")
    client = CLIENTS["claude"]
    secrets(world)
    servers = {"mcpServers": {"here": {"command": "python", "args": [str(HERE / "mcp_tool.py")]}}}
    path = world.home / "mcp.json"
    path.write_text(json.dumps(servers))
    uses = [
        [Use("Read", {"file_path": str(world.folder / ".keys")})],
        [Use("Read", {"file_path": str(world.folder / ".kept")})],
        [Use("mcp__here__read", {"name": ".keys"})],
        [Use("mcp__here__read", {"name": ".kept"})],
    ]
    script = Script("forms", uses)
    more = ("--mcp-config", str(path))
    converse(world, client, script, more=more, ready=gated(world, client, "by_result"))
    assert "key-123" not in "".join(script.results)
    masked, kept, read, unread = script.results
    assert "a [withheld: a key] b" in masked
    assert "a [withheld: a key] b" in read
    assert KEPT in kept
    assert KEPT in unread


@every_client
def test_a_prompt_that_a_scheduler_refuses_reaches_no_llm(client, world, scheduler):
    if client.name == "copilot":
        pytest.skip("its hooks cannot refuse a prompt")
    scheduler("by_word:by_prompt")
    script = Script("unsaid", touches(client, "one"))
    with scripted_llm(script) as url:
        needed = client.prepare(world.home, url)
        install(world, client, "--required", "by_prompt")
        world.run(client, url, script.prompt, env=needed)
    assert files(world) == set()
    converse(world, client, Script("said", touches(client, "two")))
    assert files(world) == {"two"}


@every_client
def test_a_person_answers_while_the_program_waits(client, world, scheduler, process, tmp_path):
    config = tmp_path / "approval.yaml"
    config.write_text("rules: [{tools: '*'}]\n")
    scheduler("approval", "--config", config)
    person = process("python", HERE / "person.py", env=world.env)
    script = Script("person", touches(client, "one", "two"))
    converse(world, client, script, ready=gated(world, client, "approval"))
    person.end()
    assert files(world) == {"one"}
    assert "not today" in script.results[1]


@every_client
def test_a_sub_agent_asks_too(client, world, by_word):
    below = Script("below", touches(client, "below", "forbidden"))
    above = Script("above", client.delegate(below.prompt))
    converse(world, client, above, below, ready=gated(world, client, "by_word"))
    assert files(world) == {"below"}
    assert REASON in below.results[1]
    first, *others = world.rows("decisions")
    assert first["parent"] is None
    if client.name != "gemini":  # it tells of the conversation alone
        lower = [row for row in others if row["tool_input"].get("command") != WAIT]
        assert {row["parent"] for row in lower} == {first["session"]}
        assert {(row["lineage"][0], row["lineage"][-1]) for row in lower} == {
            (client.name, lower[0]["agent"])
        }


@only_claude
def test_claude_code_asks_over_http_and_has_its_token_from_its_environment(world, by_word, process):
    client = CLIENTS["claude"]
    token = world.home / "token"
    token.write_text("t" * 40)
    token.chmod(0o600)
    serving = process(
        "toolgate",
        "serve",
        "--http",
        "127.0.0.1:0",
        "--token-file",
        token,
        "--required",
        "by_word",
        env=world.env,
    )
    wait(lambda: "http://" in serving.stdout + serving.stderr)
    address = re.search(r"http://[0-9.:]+", serving.stdout + serving.stderr)[0]
    script = Script("http", touches(client, "ran", "forbidden"))
    converse(
        world,
        client,
        script,
        env={"SIDECAR_TOKEN": "t" * 40},
        ready=lambda: install(
            world, client, "--http", address, "--token-env", "SIDECAR_TOKEN", "--required", "by_word"
        ),
    )
    assert files(world) == {"ran"}
    assert REASON in script.results[1]
    serving.end()
    script = Script("gone", touches(client, "gone"))
    converse(world, client, script, env={"SIDECAR_TOKEN": "t" * 40})
    assert files(world) == {"ran"}


@only_claude
def test_tools_of_an_mcp_server_of_claude_code_are_ruled_on_by_their_long_names(world, by_word):
    client = CLIENTS["claude"]
    servers = {"mcpServers": {"here": {"command": "python", "args": [str(HERE / "mcp_tool.py")]}}}
    path = world.home / "mcp.json"
    path.write_text(json.dumps(servers))
    uses = [[Use("mcp__here__touch", {"name": name})] for name in ("ran", "forbidden")]
    script = Script("mcp", uses)
    converse(world, client, script, more=("--mcp-config", str(path)), ready=gated(world, client, "by_word"))
    assert files(world) == {"ran"}
    assert REASON in script.results[1]


@pytest.fixture(scope="module")
def sdk_python():
    """The Python of an environment with the Claude Agent SDK, which brings a CLI of its own."""
    try:
        return environment_of("claude_agent")
    except NoPackages as error:
        pytest.skip(f"the Claude Agent SDK cannot be had here: {error}")


@only_claude
def test_a_program_on_the_claude_agent_sdk_is_gated_with_its_own_cli(world, by_word, sdk_python):
    client = CLIENTS["claude"]
    below = Script("below", touches(client, "below", "forbidden-below"))
    names = ("ran", "forbidden", "instead", "elsewhere", "question-maybe", "question-no")
    at_once = [client.use(f"touch {name}") for name in ("one", "two-forbidden", "three")]
    above = Script("above", [*touches(client, *names), at_once, *client.delegate(below.prompt)])
    with scripted_llm(above, below) as url:
        env = {**world.env, **client.prepare(world.home, url), "PYTHONPATH": PATHS}
        done = world.wait_for([str(sdk_python), str(HERE / "claude_sdk_program.py"), above.prompt], env)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["answer"] == LAST
    assert files(world) == {"ran", "replaced", "question-maybe", "one", "three", "below"}
    assert [number for number, result in enumerate(above.results) if REASON in result] == [1, 7]
    assert "another_tool" in above.results[3]
    assert [one["command"] for one in said["asked"]] == ["touch question-maybe", "touch question-no"]
    assert "The person says no." in above.results[5]
    assert REASON in below.results[1]
    lower = [row for row in world.rows("decisions") if row["parent"]]
    assert {(*row["lineage"], row["tool_name"]) for row in lower} == {("clerk", "general-purpose", "Bash")}
