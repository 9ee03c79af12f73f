"""Changes of the conformance kit that would let a broken adapter pass; see `mutants.py`."""

from mutation import ORCHESTRATOR, Mutant

_STAGE = f"{ORCHESTRATOR}/testing/stage.py"
_BROKEN = "../adapters/test_conformance_kit.py::test_an_agent_that_breaks_a_promise_is_seen"

MUTANTS = (
    Mutant("adapters", "the kit sees no difference", _STAGE, "if seen != wanted:", "if False:", _BROKEN),
    Mutant("adapters", "any words will do", _STAGE, "if part not in whole:", "if False:", _BROKEN),
)
