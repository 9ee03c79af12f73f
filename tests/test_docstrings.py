"""What docstrings and comments give in backquotes exists: a module, a name, a key, a word of the file."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.source

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(
    file
    for folder in ("bus", "orchestrator", "schedulers")
    for file in (ROOT / folder).glob("toolgate_*/**/*.py")
)
NAME = re.compile(r"(?<!`)`([A-Za-z_]\w*(?:\.\w+)*)(?:\(\))?`(?!`)")
FOREIGN = frozenset(
    {
        *("amplifier.modules", "grep", "importlib.metadata", "jsonschema", "nohup", "ps", "su", "sys.exit"),
        *("daily", "github_token", "model_extra", "my", "my.py", "my_guard", "MyGuard", "openaiApiKey"),
        *("items.0.price", "SESSION.1.jsonl", "Tool", "toolgate_decisions_total", "user.address.zip"),
        "with",
    }
)
"""Programs, libraries, samples."""


class Source(NamedTuple):
    """What one file offers to those who write about it."""

    names: frozenset[str]
    """Known everywhere: what is defined, fields, whole texts."""
    words: frozenset[str]
    """Known in the file itself."""
    prose: tuple[tuple[int, str], ...]
    """Docstrings and comments, with their lines."""


@cache
def source(file: Path) -> Source:
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text)
    docstrings = {id(node): (node.lineno, node.value) for node in _docstrings(tree)}
    comments = [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    ]
    names, words = {file.stem, file.parent.name}, set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                names.add(name)
            case (
                ast.Attribute(attr=name) | ast.Name(id=name) | ast.arg(arg=name) | ast.keyword(arg=str(name))
            ):
                words.add(name)
            case ast.alias(name=name):
                words.update(name.split("."))
            case ast.Constant(value=str(value)) if id(node) not in docstrings:
                names.add(value)
                words.update(re.findall(r"\w+", value))
    for scope in (tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))):
        names |= {
            target.id
            for one in scope.body
            if isinstance(one, ast.Assign | ast.AnnAssign)
            for target in (one.targets if isinstance(one, ast.Assign) else [one.target])
            if isinstance(target, ast.Name)
        }
    return Source(frozenset(names), frozenset(words), (*docstrings.values(), *comments))


def _docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Texts that stand alone: of modules, classes, functions, and those below fields."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield node.value


@cache
def everywhere() -> frozenset[str]:
    return frozenset().union(*(source(file).names for file in FILES))


def unknown_in(text: str, words: frozenset[str]) -> list[str]:
    """The names in backquotes that mean nothing."""

    def is_known(name: str) -> bool:
        return name in words or name in FOREIGN or name in everywhere()

    return [
        name
        for name in NAME.findall(text)
        if not is_known(name) and not all(map(is_known, name.split("."))) and not (ROOT / name).is_file()
    ]


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("as `definitions.FLEET`, when `deadline` says so", []),
        ("as `catalogue.FLEET`", ["catalogue.FLEET"]),
        ("`no_such_thing()` does it", ["no_such_thing"]),
        ("what `when:` means, ``quoted``, `a b`", []),
    ],
)
def test_a_name_that_means_nothing_is_found(text: str, unknown: list[str]) -> None:
    assert unknown_in(text, frozenset()) == unknown


@pytest.mark.parametrize("file", FILES, ids=lambda one: str(one.relative_to(ROOT)))
def test_every_name_that_docstrings_and_comments_give_exists(file: Path) -> None:
    _, words, prose = source(file)
    found = [(line, name) for line, text in prose for name in unknown_in(text, words)]
    assert found == []
