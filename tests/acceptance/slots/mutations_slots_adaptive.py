"""What would make adaptive limits useless or too strict, and the tests that must notice."""

from mutation import BUS, ORCHESTRATOR, SCHEDULERS, Mutant

ADAPT = f"{SCHEDULERS}/shipped/slots/adapt.py"
PURE = "../schedulers/shipped/test_slots_adapt.py::"
CAPS = "../bus/queues/test_pool_caps.py::"
MUTANTS = (
    Mutant(
        "adaptive",
        "a signal never halves the limit",
        ADAPT,
        "min(most, in_use) // 2",
        "min(most, in_use)",
        f"{PURE}test_a_tool_that_refuses_above_five_is_held_near_five_within_two_seconds",
    ),
    Mutant(
        "adaptive",
        "each error of a burst halves it",
        ADAPT,
        "fence <= cap.cut",
        "fence < 0",
        f"{PURE}test_a_burst_of_errors_halves_once",
    ),
    Mutant(
        "adaptive",
        "two that hear the same errors halve twice",
        f"{BUS}/ledger/slots/lua/queue_caps.lua",
        "if (stands or '') ~= was then",
        "if false then",
        f"{CAPS}test_a_cap_is_set_only_where_it_stands_as_it_was_read",
    ),
    Mutant(
        "adaptive",
        "what the tool said in place of an operator",
        f"{BUS}/ledger/slots/lua/queue_base.lua",
        "one.ruled or one.limit, one.whole or one.limit, one.adapted or one.limit",
        "one.adapted or one.ruled or one.limit, one.whole or one.limit",
        f"{CAPS}test_what_is_given_is_the_least_of_the_limit_an_operators_and_the_cap",
    ),
    Mutant(
        "adaptive",
        "an idle pool forgets what its tool said",
        f"{BUS}/ledger/slots/lua/queue.lua",
        "(pool(name).ruled or pool(name).adapted) == nil",
        "pool(name).ruled == nil",
        f"{CAPS}test_a_cap_outlives_an_idle_pool",
    ),
    Mutant(
        "adaptive",
        "a failure says nothing of its status",
        f"{ORCHESTRATOR}/turn/calls/tool_call.py",
        "_Failure(name_of(error), words_of(error), signals_of(error))",
        "_Failure(name_of(error), words_of(error))",
        "../orchestrator/turn/test_turn_facts.py::test_what_a_failed_tool_says_of_itself_stands_in_its_fact",
    ),
)
