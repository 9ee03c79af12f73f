"""Mutations of what holds money to what it says."""

from mutation import BUS, ORCHESTRATOR, SCHEDULERS, Mutant

MUTANTS = (
    Mutant(
        "law 4",
        "an amount of a million digits is multiplied out",
        f"{BUS}/money.py",
        "return value if 0 <= value <= MOST_DOLLARS else None",
        "return value",
        "../bus/test_money.py::test_what_is_no_amount_is_none",
    ),
    Mutant(
        "law 4",
        "a pattern redacts the id of a decision in its facts",
        f"{ORCHESTRATOR}/gate/conclusion.py",
        "own = own_fields(data)",
        "own = dict[str, Any]()",
        "../orchestrator/test_facts_secrets.py::test_what_the_engine_itself_wrote_is_kept_whatever_is_secret",
    ),
    Mutant(
        "law 6",
        "over budget the LLM is offered whatever is free",
        f"{SCHEDULERS}/cost_aware_texts.py",
        "for tool in (group.tools if group else None) or () if tool",
        "for tool in call.available_tools if tool",
        "../schedulers/test_cost_aware_parts.py",
    ),
)
