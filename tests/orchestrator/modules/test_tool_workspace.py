"""The tools the demo works with: they do their job, and stay inside their bounds."""

from pathlib import Path
from typing import Any

import pytest
from amplifier_core import ToolResult
from amplifier_core.testing import MockCoordinator
from toolgate_bus.errors import ConfigError
from toolgate_orchestrator.modules import tool_calculator, tool_folder_search, tool_workspace
from toolgate_orchestrator.modules.tool_base import FunctionTool, ToolRefusal
from toolgate_orchestrator.modules.tool_calculator import calculate
from toolgate_orchestrator.modules.tool_folder_search import search_tools
from toolgate_orchestrator.modules.tool_workspace import workspace_tools

pytestmark = pytest.mark.pure


@pytest.fixture(name="root")
def _root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "notes").mkdir(parents=True)
    (root / "notes" / "a.txt").write_text("first line\nTotal 12 unpaid\n")
    (root / "b.txt").write_text("Grüße, unpaid\n")
    (tmp_path / "secret.txt").write_text("secret unpaid")
    (root / "link").symlink_to(tmp_path / "secret.txt")
    (root / "up").symlink_to(tmp_path)
    return root


async def use(tools: list[FunctionTool], name: str, **arguments: Any) -> ToolResult:
    tool = next(tool for tool in tools if tool.name == name)
    return await tool.execute(arguments)


async def test_a_file_is_written_read_listed_and_deleted(root: Path) -> None:
    tools = workspace_tools(root)
    assert (await use(tools, "write_file", path="new/c.txt", content="hällo")).success
    assert (await use(tools, "read_file", path="new/c.txt")).output == "hällo"
    assert (await use(tools, "list_files", folder="new")).output == ["c.txt"]
    assert (await use(tools, "delete_file", path="new/c.txt")).success
    assert (await use(tools, "list_files", folder="new")).output == []


ESCAPES = [
    "../secret.txt",
    "/etc/passwd",
    "link",
    "up/secret.txt",
    "notes/../../secret.txt",
    "a\0b",
    "up",
    "~root/x",
]


@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.parametrize("tool", ["read_file", "write_file", "delete_file", "list_files"])
async def test_nothing_outside_the_root_is_touched(root: Path, tool: str, path: str) -> None:
    before = sorted(root.parent.rglob("*"))
    arguments = {"folder": path} if tool == "list_files" else {"path": path, "content": "x"}
    if path == "~root/x" and tool == "write_file":
        return  # an ordinary, if odd, name inside the root
    answer = await workspace_tools(root)[_index(tool)].execute(arguments)
    assert not answer.success
    assert "secret unpaid" not in answer.get_serialized_output()
    assert sorted(root.parent.rglob("*")) == before
    assert (root.parent / "secret.txt").read_text() == "secret unpaid"


def _index(tool: str) -> int:
    return ["list_files", "read_file", "write_file", "delete_file"].index(tool)


async def test_a_failure_is_a_result_that_says_why(root: Path) -> None:
    answer = await use(workspace_tools(root), "read_file", path="nowhere.txt")
    assert not answer.success
    assert "nowhere.txt" in answer.get_serialized_output()


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read_file", {}),
        ("read_file", {"path": 3}),
        ("read_file", {"path": "x" * 10_000}),
        ("write_file", {"path": "notes", "content": "x"}),
        ("write_file", {"path": ".", "content": "x"}),
        ("write_file", {"path": "n" * 300, "content": "x"}),
        ("write_file", {"path": "b.txt/c", "content": "x"}),
        ("write_file", {"path": "big", "content": "x" * (tool_workspace.MAX_BYTES + 1)}),
        ("read_file", {"path": "notes"}),
        ("delete_file", {"path": "notes"}),
    ],
)
async def test_wrong_arguments_are_told_to_the_llm(root: Path, tool: str, arguments: dict[str, Any]) -> None:
    assert not (await use(workspace_tools(root), tool, **arguments)).success


async def test_a_file_too_large_or_not_text_is_not_read(root: Path) -> None:
    (root / "big").write_bytes(b"x" * (tool_workspace.MAX_BYTES + 1))
    (root / "binary").write_bytes(b"\xff\xfe")
    for path in ("big", "binary"):
        assert not (await use(workspace_tools(root), "read_file", path=path)).success


async def test_both_searches_find_the_same_lines_under_their_own_argument_names(root: Path) -> None:
    tools = search_tools(root)
    slow = await use(tools, "search_files", pattern="UNPAID", folder="notes")
    quick = await use(tools, "quick_search", words="unpaid", within="notes")
    assert slow.output == quick.output == ["notes/a.txt:2: Total 12 unpaid"]


async def test_a_search_does_not_follow_a_link_out_of_the_root(root: Path) -> None:
    for name, key in (("search_files", "pattern"), ("quick_search", "words")):
        found = await use(search_tools(root), name, **{key: "unpaid"})
        assert [hit.split(":")[0] for hit in found.output] == ["b.txt", "notes/a.txt"]
        folder = {"search_files": "folder", "quick_search": "within"}[name]
        assert not (await use(search_tools(root), name, **{key: "secret", folder: "up"})).success


async def test_search_results_are_bounded_and_alternatives_are_plain_text(root: Path) -> None:
    (root / "many.txt").write_text("(a+)+$ x\n" * 1000)
    found = await use(search_tools(root), "search_files", pattern="nothing|(a+)+$")
    assert len(found.output) == tool_folder_search.MAX_HITS


@pytest.mark.parametrize(
    "arguments", [{}, {"pattern": ""}, {"pattern": "|"}, {"pattern": "x", "folder": "nope"}]
)
async def test_a_search_for_nothing_is_refused(root: Path, arguments: dict[str, Any]) -> None:
    assert not (await use(search_tools(root), "search_files", **arguments)).success


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1 + 2 * 3", "7"),
        ("0.1 + 0.2", "0.3"),
        ("120.50 + 89.90 + 240", "450.4"),
        ("(2 + 3) ** 2 / 10", "2.5"),
        ("-7 // 2", "-4"),
        ("-5 % 3", "1"),
        ("round(2.345, 2)", "2.35"),
        ("sum(1, 2, 3) + max(4, 5) - abs(-1)", "10"),
        ("1_000 * 2", "2000"),
    ],
)
def test_sums_are_exact(expression: str, value: str) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "().__class__",
        "9 ** 9 ** 9",
        "10 ** 1000 * 10 ** 1000 * 10 ** 1000 * 10 ** 1000 * 10 ** 1000 * 10 ** 1000",
        "1 / 0",
        "2 **",
        "",
        "'a' * 10",
        "True",
        "[1][0]",
        "(" * 300 + "1" + ")" * 300,
        "-" * 500 + "1",
        "1+" * 2000 + "1",
        "round(1, 99999999999)",
        "min(*x)",
        "lambda: 1",
        "\x00",
    ],
)
def test_what_is_no_sum_is_refused(expression: str) -> None:
    with pytest.raises(ToolRefusal):
        calculate(expression)


@pytest.mark.parametrize(
    ("module", "config", "complaint"),
    [
        (tool_workspace, {}, "tool-workspace: root"),
        (tool_workspace, {"root": "/no/such/folder"}, "tool-workspace: root"),
        (tool_folder_search, {"folder": "."}, "folder: unknown key"),
        (tool_calculator, {"digits": 3}, "digits: unknown key"),
    ],
)
async def test_a_wrong_config_is_refused_by_name(module: Any, config: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        await module.mount(MockCoordinator(), config)


async def test_the_modules_mount_their_tools_by_name(root: Path) -> None:
    coordinator = MockCoordinator()
    await tool_workspace.mount(coordinator, {"root": str(root)})
    await tool_folder_search.mount(coordinator, {"root": str(root)})
    await tool_calculator.mount(coordinator, {})
    assert set(coordinator.get("tools")) == {
        "list_files",
        "read_file",
        "write_file",
        "delete_file",
        "search_files",
        "quick_search",
        "calculate",
    }
