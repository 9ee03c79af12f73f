"""One change for the worse, as `mutants.py` makes it, and the names of the folders that it is made in."""

from dataclasses import dataclass

BUS = "bus/toolgate_bus"
ORCHESTRATOR = "orchestrator/toolgate_orchestrator"
SCHEDULERS = "schedulers/toolgate_schedulers"
ACCEPTANCE = "tests/acceptance"


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
    """As pytest names them, seen from tests/acceptance."""
