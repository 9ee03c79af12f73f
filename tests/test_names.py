"""Functions are verbs, classes are nouns, and one class name means one thing: counted over all packages."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("bus/toolgate_bus", "orchestrator/toolgate_orchestrator", "schedulers/toolgate_schedulers")
IRREGULAR = re.compile(
    "told|shown|heard|kept|made|held|said|given|taken|drawn|written|gone|known|left|laid|lent|lost|met|paid|sent|"
    "sold|spent|stood|struck|taught|thought|understood|won|worn|found|felt|fed|begun|bound|bought|brought|built|"
    "caught|chosen|done|driven|forgotten|got|had|hung|hidden|led|seen|spoken|stolen|stuck|thrown|torn|woken"
)
OTHERS = re.compile(
    "string|thing|setting|ping|ring|keyring|mapping|missing|everything|nothing|warning|"
    "need|feed|embed|proceed|exceed|succeed|speed|shed|seed"
)
"""Nouns and verbs that only look so."""
PUBLIC = frozenset({"LoopStreaming", "ProviderScripted", "Ruling", "ToolSelecting", "NotAsked"})
"""Names of the contract and of plug-ins: others look for them."""
MAX_SHARE = 0.01
"""Of functions: properties that read as adjectives (`allowed`, `cancelled`), and the kernel's own words."""


@cache
def trees() -> list[tuple[str, ast.Module]]:
    """Each file of the product, read."""
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    return [(str(file.relative_to(ROOT)), ast.parse(file.read_text(encoding="utf-8"))) for file in files]


def definitions(kind: type[ast.AST] | tuple[type[ast.AST], ...]) -> list[tuple[str, str]]:
    """Name and file of each definition of a kind in the product."""
    return [(node.name, file) for file, tree in trees() for node in ast.walk(tree) if isinstance(node, kind)]


def words(name: str) -> list[str]:
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).strip("_").lower().split("_")


def is_participle(word: str) -> bool:
    ends = len(word) > 4 and word.endswith(("ed", "ing"))
    return bool(IRREGULAR.fullmatch(word)) or (ends and not OTHERS.fullmatch(word))


@pytest.mark.parametrize(
    ("word", "is_one"),
    [("told", True), ("asked", True), ("reading", True), ("feed", False), ("string", False)],
)
def test_a_participle_is_told_from_a_noun_that_looks_like_one(word, is_one):
    assert is_participle(word) is is_one


def test_no_class_is_named_by_a_participle():
    found = [(name, file) for name, file in definitions(ast.ClassDef) if is_participle(words(name)[-1])]
    assert [(name, file) for name, file in found if name not in PUBLIC] == []


def test_no_class_name_means_two_things():
    count = Counter(name for name, _ in definitions(ast.ClassDef))
    assert [name for name, times in count.items() if times > 1] == []


def test_functions_are_named_by_verbs():
    every = definitions((ast.FunctionDef, ast.AsyncFunctionDef))
    found = [(name, file) for name, file in every if is_participle(words(name)[0])]
    assert len(found) < MAX_SHARE * len(every), found


def test_bounds_are_named_max_and_min():
    odd = re.compile(r"_?(MOST|LONGEST|LARGEST|DEEPEST|FEWEST|SHORTEST|SMALLEST)(_\w+)?")
    found = [
        (node.id, file)
        for file, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and odd.fullmatch(node.id)
    ]
    assert found == []
