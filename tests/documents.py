"""The documents and what stands in them: blocks, sections, tables, samples. For tests."""

import importlib.util
import re
import shlex
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"


@cache
def script(name: str) -> ModuleType:
    """A script of `docs/` as a module."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DOCUMENTS: list[Path] = script("build").documents()


class Block(NamedTuple):
    """One fenced block."""

    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that its first line names, if it names one."""
        named = re.match(r"# (\S+\.(?:py|yaml))\n", self.text)
        return named[1] if named else None


def page(name: str) -> Path:
    """A page of `docs/`, by its name without .md."""
    return ROOT / "docs" / f"{name}.md"


def text_of(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def blocks(text: str) -> list[Block]:
    found = re.findall(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [Block(language, body) for _, language, body in found]


def section(title: str, document: Path = README) -> str:
    """The text under a heading of the second level."""
    found = re.search(
        rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", text_of(document), re.MULTILINE | re.DOTALL
    )
    assert found, f"{document.name} has no section {title!r}"
    return found[1]


def prose(text: str) -> str:
    """The text without its fenced blocks."""
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)


def spans(text: str) -> list[str]:
    """What stands in `backquotes`."""
    return [span.replace("\n", " ") for span in re.findall(r"`([^`]+)`", prose(text))]


def sample(file: str) -> Block:
    """The block that is this file; no two documents have one of the same name."""
    (block,) = (block for document in DOCUMENTS for block in blocks(text_of(document)) if block.file == file)
    return block


def commands_in(title: str, document: Path = README) -> list[list[str]]:
    """The commands of one section, in order."""
    shown = (block.text for block in blocks(section(title, document)) if block.language == "sh")
    return [shlex.split(line, comments=True) for text in shown for line in text.splitlines()]


def outputs_in(title: str, document: Path = README) -> list[str]:
    """What the section says comes out of its commands."""
    return [block.text for block in blocks(section(title, document)) if block.language == "text"]


def output_in(title: str, document: Path = README) -> str:
    """What it says comes out of the one command that prints."""
    (only,) = outputs_in(title, document)
    return only
