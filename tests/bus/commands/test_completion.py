"""The shell completes commands, options and names: of schedulers, outcomes and reasons."""

import pytest

pytestmark = pytest.mark.acceptance


@pytest.fixture
def completed(process, tmp_path):
    """`completed("toolgate sched")`: what the shell is offered for the last word."""

    def ask(line, **env):
        place = str(len(line.split()) - (not line.endswith(" ")))
        told = {"_TOOLGATE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": place}
        runtime = tmp_path / "runtime"
        runtime.mkdir(mode=0o700, exist_ok=True)
        running = process("toolgate", env={"XDG_RUNTIME_DIR": str(runtime), **told, **env})
        running.wait()
        assert running.stderr == ""
        return running.stdout.split()

    return ask


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("toolgate sched", ["scheduler"]),
        (
            "toolgate scheduler ",
            [
                "run",
                "new",
                "try",
                "list",
                "push",
                "history",
                "diff",
                "undo",
                "rollout",
                "status",
                "check",
                "search",
            ],
        ),
        ("toolgate policy ", ["test", "suggest", "enforce", "observe", "status"]),
        ("toolgate scheduler run --conf", ["--config"]),
        ("toolgate scheduler run po", ["policy"]),
        ("toolgate scheduler try r", ["rate-limit", "router"]),
        ("toolgate decisions --outcome de", ["deny"]),
        ("toolgate decisions --why fa", ["failed_open"]),
        ("toolgate decisions --scheduler co", ["cost-aware"]),
    ],
)
def test_names_are_completed(completed, line, offered):
    assert completed(line) == offered


async def test_who_is_alive_is_completed_and_a_wrong_server_offers_nobody(
    completed, process, wait_until, server_url, namespace, tmp_path
):
    (tmp_path / "rules.yaml").write_text("default: allow")
    bus = ("--redis", server_url, "--namespace", namespace)
    rules = ("--config", "rules.yaml", "--name", "treasury")
    running = process("toolgate", "scheduler", "run", "policy", *rules, *bus, cwd=tmp_path)
    await wait_until(lambda: "treasury (replica" in running.stderr)
    where = f"--redis {server_url} --namespace {namespace}"
    assert completed(f"toolgate decisions {where} --scheduler tr") == ["treasury"]
    assert completed("toolgate decisions --redis redis://127.0.0.1:1/0 --scheduler tr") == []
