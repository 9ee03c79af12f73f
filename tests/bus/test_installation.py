"""A message says how to install what is missing, for the copy of Toolgate that runs."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from toolgate_bus.commands import http_connection
from toolgate_bus.installation import (
    EXTRAS,
    Environment,
    find_requirements,
    find_source,
    how_to_install,
    quote,
)

pytestmark = pytest.mark.pure
WHEEL = "file:///srv/wheels/toolgate_bus-0.1.0-py3-none-any.whl"
METADATA = [
    "anyio>=4.6",
    "uvloop>=0.21; sys_platform != 'win32'",
    "httptools>=0.6.3; extra == 'serve'",
    'mcp<2.4,>=2.3; extra == "mcp"',
    "uvicorn>=0.34; extra == 'mcp'",
    "uvicorn>=0.34; extra == 'serve'",
]


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"url": "file:///srv/my%20clone", "dir_info": {"editable": True}}, ["-e", "/srv/my clone[serve]"]),
        ({"url": "file:///srv/clone", "dir_info": {}}, ["/srv/clone[serve]"]),
        (
            {"url": WHEEL, "archive_info": {"hash": "sha256=0"}},
            ["/srv/wheels/toolgate_bus-0.1.0-py3-none-any.whl[serve]"],
        ),
        (
            {"url": "https://files.example/t.whl", "archive_info": {}},
            ["toolgate-bus[serve] @ https://files.example/t.whl"],
        ),
        (
            {"url": "https://git.example/t", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
            ["toolgate-bus[serve] @ git+https://git.example/t@c0ffee"],
        ),
        (
            {
                "url": "https://git.example/t",
                "vcs_info": {"vcs": "git", "commit_id": "c0ffee"},
                "subdirectory": "p",
            },
            ["toolgate-bus[serve] @ git+https://git.example/t@c0ffee#subdirectory=p"],
        ),
        (None, ["toolgate-bus[serve]"]),
    ],
)
def test_an_extra_comes_from_where_the_copy_came_from(record, words):
    assert find_source(record, ["serve"], METADATA, lambda path: True) == words


@pytest.mark.parametrize("record", [{"url": WHEEL, "archive_info": {}}, {"url": "file:///x", "dir_info": {}}])
def test_where_the_source_is_gone_the_requirements_of_the_extras_are_named(record):
    found = find_source(record, ["serve", "mcp"], METADATA, lambda path: False)
    assert found == ["httptools>=0.6.3", "mcp<2.4,>=2.3", "uvicorn>=0.34"]


def test_without_an_extra_the_copy_itself_is_named():
    assert find_source({"url": WHEEL}, [], METADATA, lambda path: True) == [WHEEL.removeprefix("file://")]
    assert find_source(None, [], METADATA, lambda path: True) == ["toolgate-bus"]
    assert find_requirements([], METADATA) == []


@pytest.mark.parametrize(
    "word", ["a", "/x y[z]", "it's", 'a"b', "$HOME[x]", "a\\b", "!v", "`x`", "x<3,>=2", ""]
)
def test_a_shell_takes_a_quoted_word_as_it_is(word):
    assert shlex.split(quote(word) or "''") == [word]


@pytest.mark.parametrize(
    ("on_path", "has_pip", "has_uv", "command"),
    [
        (True, True, True, "python -m pip install"),
        (False, True, True, "/v/bin/python -m pip install"),
        (True, False, True, "uv pip install --python /v/bin/python"),
        (True, False, False, "/usr/bin/python3 -m pip --python /v/bin/python install"),
    ],
)
def test_what_installs_is_what_this_environment_has(on_path, has_pip, has_uv, command):
    environment = Environment("/v/bin/python", on_path, has_pip, has_uv, "/usr/bin/python3")
    assert " ".join(environment.installer()) == command


def test_each_module_of_the_server_of_http_is_known_to_come_with_an_extra():
    wanted = set(re.findall(r"^import (\w+)", Path(http_connection.__file__).read_text(), re.MULTILINE))
    outside = wanted - sys.stdlib_module_names
    assert "h11" in outside
    assert outside <= EXTRAS.keys()


def test_the_copy_that_runs_names_its_own_clone(pytestconfig):
    python, *install, flag, what = shlex.split(how_to_install("serve", "embedded"))
    assert python in (sys.executable, "python")
    assert (install, flag) == (["-m", "pip", "install"], "-e")
    assert what == f"{pytestconfig.rootpath}[serve,embedded]"
