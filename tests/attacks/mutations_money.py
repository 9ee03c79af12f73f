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
        "law 4",
        "a server that is full keeps what was to be given back",
        f"{BUS}/ledger_script.py",
        '"#!lua flags=allow-oom\\n"',
        '"#!lua\\n"',
        "../bus/test_ledger.py::test_a_server_without_memory_takes_back_and_settles_and_reserves_nothing",
    ),
    Mutant(
        "law 4",
        "whoever tells a fact settles any decision",
        f"{BUS}/ledger_script.py",
        "return by ~= '' and (r.owner or '') ~= '' and r.owner ~= by end",
        "return false end",
        "../bus/test_ledger.py::test_only_the_owner_of_a_decision_settles_or_releases_it",
    ),
    Mutant(
        "law 4",
        "an account overflows half way through a settlement",
        f"{BUS}/ledger_script.py",
        "math.min(math.max(number(one[name]) + amount, 0), most)",
        "number(one[name]) + amount",
        "../bus/test_ledger.py::test_an_account_counts_to_its_bound_and_every_settlement_is_whole",
    ),
    Mutant(
        "law 4",
        "whatever a fact holds is handed to its readers",
        f"{BUS}/record.py",
        "    fields = checked_fact(fields)\n",
        "",
        "../attacks/test_hostile_facts.py::test_whatever_a_fact_holds_every_reader_survives_it",
    ),
    Mutant(
        "law 4",
        "a forged number hides the facts below it",
        f"{BUS}/seen_numbers.py",
        "if any(first <= number <= last for first, last in ranges):",
        "if any(number <= last for first, last in ranges):",
        "../bus/test_seen_numbers.py::test_a_forged_number_is_refused_and_hides_nothing",
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
