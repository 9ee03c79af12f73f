"""One change for the worse, as `mutants.py` makes it, and where its tests are."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

BUS = "bus/toolgate_bus"
ORCHESTRATOR = "orchestrator/toolgate_orchestrator"
SCHEDULERS = "schedulers/toolgate_schedulers"
TESTS = Path(__file__).parent


@dataclass(frozen=True)
class Mutant:
    """One change for the worse, and the tests that must notice."""

    truth: int | str
    """Number of the acceptance truth, or the part of the project."""
    name: str
    file: str
    old: str
    """Changed wherever it stands in the file."""
    new: str
    tests: str
    """As pytest names them: acceptance tests by their file alone, others with the folder."""


@cache
def path_of(file: str) -> str:
    """Return the path of a test file, seen from the repository's root."""
    words = tuple(word for word in Path(file).parts if word != "..")
    folder = TESTS / "acceptance" if len(words) == 1 else TESTS
    found = [path for path in folder.rglob(words[-1]) if path.parts[-len(words) :] == words]
    if len(found) != 1:
        raise LookupError(f"{file}: there are {len(found)} such files")
    return str(found[0].relative_to(TESTS.parent))
