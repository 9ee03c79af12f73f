"""Mutations of what requests to the LLM promise: ruled on before they are sent, paid for once and whole."""

from mutation import BUS, ORCHESTRATOR, SCHEDULERS, Mutant

_GATE = "../orchestrator/turn/test_llm_gate.py"
_COSTS = "../schedulers/shipped/test_cost_aware_llm.py"
_PRICES = f"{SCHEDULERS}/shipped/cost_aware/llm_prices.py"

MUTANTS = (
    Mutant(
        "requests",
        "a denied request is sent all the same",
        f"{ORCHESTRATOR}/turn/llm/gate.py",
        "            await self._tell(decision, call_id)\n            raise LlmDenial(decision)",
        "            await self._tell(decision, call_id)",
        f"{_GATE}::test_a_denied_request_is_not_sent_and_the_turn_says_why",
    ),
    Mutant(
        "requests",
        "who rules on every tool is asked about requests",
        f"{BUS}/protocol/llm.py",
        "return tuple(glob for glob in globs if glob.startswith(prefix))",
        "return globs",
        f"{_GATE}::test_who_does_not_name_requests_is_not_asked_about_them",
    ),
    Mutant(
        "requests",
        "a replacement says how long the request is",
        f"{BUS}/protocol/llm.py",
        'for fixed in ("input_tokens", "purpose"):',
        'for fixed in ("purpose",):',
        f"{_GATE}::test_a_replacement_is_judged_by_the_others_with_its_length_and_purpose",
    ),
    Mutant(
        "requests",
        "what a request used settles nothing",
        f"{BUS}/ledger/money/settlement.py",
        "if event in (USAGE, PROVIDER_ERROR) and cost_of is not None:",
        "if False:",
        f"{_COSTS}::test_what_was_used_is_settled_and_leaves_room_for_the_next",
    ),
    Mutant(
        "requests",
        "nothing is held for the answer",
        f"{SCHEDULERS}/shipped/cost_aware/estimates.py",
        "sent * dearest + most * price.output",
        "sent * dearest",
        f"{_COSTS}::test_the_estimate_is_the_request_and_the_longest_answer_rounded_up",
    ),
    Mutant(
        "requests",
        "what was not reserved is charged twice",
        f"{SCHEDULERS}/shipped/cost_aware/scheduler.py",
        "self.cost_of if self.config.llm is not None else None",
        "self.cost_of",
        f"{_COSTS}::test_a_request_that_it_did_not_reserve_for_is_charged_once_at_most",
    ),
)
