"""The samples of the page about MCP work as they are printed, but for the servers behind: these are the
tests'."""

import json
import os
import shlex

import pytest
import yaml
from documents import blocks, page, text_of
from mcp_world import PROXY, SERVER, client, notes, parameters, server_over_http, stdio, words_of

pytestmark = [pytest.mark.acceptance, pytest.mark.system, pytest.mark.timeout(180)]


def block(begins):
    """The text of the first block of the page that begins so."""
    return next(one.text for one in blocks(text_of(page("mcp"))) if one.text.startswith(begins))


@pytest.fixture
def where(server_url, namespace):
    return {"TOOLGATE_REDIS_URL": server_url, "TOOLGATE_NAMESPACE": namespace}


async def test_the_line_of_a_clients_configuration_works_with_the_pages_rules(
    where, schedulers, tmp_path, wait_until
):
    (entry,) = json.loads(block('{"mcpServers"'))["mcpServers"].values()
    assert entry["command"] == "toolgate"
    words = entry["args"][: entry["args"].index("--") + 1]
    command = [*PROXY[:-1], *words, *SERVER, tmp_path]
    env = {**where, "XDG_STATE_HOME": str(tmp_path / "state")}
    async with client(parameters(command, **env), "legacy") as connected:
        assert (await connected.call_tool("search", {"query": "x"})).is_error  # policy is not there
        (tmp_path / "rules.yaml").write_text(block("# toolgate scheduler run policy"))
        start = shlex.split(block("# toolgate scheduler run policy").partition("\n")[0].removeprefix("# "))
        assert start[:4] == ["toolgate", "scheduler", "run", "policy"]
        await schedulers.start("policy", "--config", tmp_path / start[-1])

        async def says(*words):  # a slow machine may take longer than the default patience
            return words_of(await connected.call_tool("search", {"query": "x"})) == [*words]

        await wait_until(lambda: says("search {'query': 'x'}"), timeout=30)
        await wait_until(lambda: _changes(connected), timeout=30)
        changed = "The tool call was denied: this tool is not what it was (changed-tools)"
        await wait_until(lambda: says(changed), timeout=30)


async def test_the_file_of_several_servers_is_taken_as_it_stands_on_the_page(
    where, schedulers, tmp_path, monkeypatch
):
    await schedulers.start("policy", "--config", _allow_all(tmp_path))
    told = yaml.safe_load(block("# servers.yaml"))
    with server_over_http(tmp_path / "far") as url:
        told["toolgate"]["patience_ms"] = 20_000
        told["servers"]["files"]["command"] = [*SERVER, str(tmp_path)]
        told["servers"]["github"]["url"] = url
        (tmp_path / "servers.yaml").write_text(yaml.safe_dump({**told, "pin": str(tmp_path / "pins.json")}))
        command = [*PROXY, "--config", tmp_path / "servers.yaml"]
        for name, value in {**where, "GITHUB_AUTHORIZATION": "Bearer of-the-test"}.items():
            monkeypatch.setenv(name, value)
        async with stdio(command, tmp_path / "err") as connected:
            names = {one.name for one in (await connected.list_tools()).tools}
            assert {"files__search", "github__search"} <= names
            for name in ("files__search", "github__search"):
                assert words_of(await connected.call_tool(name, {"query": "x"})) == ["search {'query': 'x'}"]
    assert "authorization Bearer of-the-test" in notes(tmp_path / "far", "authorization")


async def _changes(connected):
    return not (await connected.call_tool("change", {})).is_error


def _allow_all(directory):
    (directory / "allow.yaml").write_text("default: allow\nrules: []\n")
    return directory / "allow.yaml"


async def test_its_help_teaches_each_way_to_name_a_server(process):
    shown = process("toolgate", "mcp", "--help", env=os.environ | {"COLUMNS": "120"})
    assert shown.wait(60) == 0
    for words in ("toolgate mcp --agent claude -- uvx", "--config servers.yaml", "--http 8900 https://"):
        assert words in shown.stdout
    for words in ("mcp_tool_changed", "TOOLGATE_MCP_TOKEN", "Exit codes", "command:", "url:"):
        assert words in shown.stdout
