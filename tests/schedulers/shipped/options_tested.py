"""Which test shows what each option of each shipped scheduler does: pure ones, of values in memory.

`test_every_option.py` checks that no option is missing here and that the tests exist.
`python tests/mutants.py options` then drops each option from every file that is read, as if it had never
been written there, and sees its test go red: it is the option that the test shows, and not only its name.

An option is a dot path; `*` is any place of a list, or any key of a mapping.
"""

from typing import Final

__all__ = ["CONFIGS", "TESTED", "options_of", "shown_by"]

ABOUT: Final = (
    "name when when.*.equals when.*.in when.*.glob when.*.matches when.*.gt when.*.gte when.*.lt when.*.lte "
    "when.*.under when.*.base when.*.exists schema agents labels sessions agent_targets"
)
"""What rules of policy and approval have in common with routes."""

BEFORE: Final = (
    "tool when when.*.equals when.*.in when.*.glob when.*.matches when.*.gt when.*.gte when.*.lt when.*.lte "
    "when.*.under when.*.base when.*.exists"
)
"""What a rule on order says of the calls before: which they are."""

COMPARED: Final = "equals in glob matches gt gte lt lte under base exists"
"""What a condition says of a value."""

FITS: Final = "test_options.py::test_a_rule_on_order_is_about_calls_before_that_its_conditions_fit"
WHOSE: Final = (
    "test_options.py::test_a_rule_on_order_says_whose_calls_how_they_ended_when_and_with_which_values"
)
DURABLE: Final = "durability durability.replicas durability.timeout_ms"


def _in(where: str, options: str) -> str:
    return " ".join(f"{where}.{option}" for option in options.split())


TESTED: Final[dict[str, dict[str, str]]] = {
    "approval": {
        "test_rules_about_calls.py::test_an_approval_rule_is_about_the_calls_that_all_its_conditions_fit": (
            f"rules rules.*.tools {_in('rules.*', ABOUT)}"
        ),
        "test_options.py::test_an_approval_rule_lets_pass_or_asks_a_person_in_its_words": (
            "rules.*.action rules.*.prompt rules.*.via rules.*.options rules.*.expires_s"
        ),
        "test_options.py::"
        "test_of_arguments_that_cannot_be_seen_whole_a_rule_says_what_they_count_as": "rules.*.unknown",
        "test_approval.py::test_a_rule_that_wants_a_person_each_time_is_not_passed": "rules.*.always",
        "ha/test_durability.py::test_a_person_is_asked_and_counts_only_where_the_replicas_have_it": DURABLE,
    },
    "cost-aware": {
        "test_cost_aware.py::test_of_three_calls_of_40_a_budget_of_50_lets_one_pass": (
            "tools tools.*.cost budgets budgets.*.name budgets.*.limit"
        ),
        "test_cost_aware.py::test_a_budget_is_not_renewed_at_the_end_of_a_turn": "budgets.*.level",
        "test_cost_aware_parts.py::test_a_budget_of_the_calendar_has_a_window_for_each": (
            "budgets.*.window budgets.*.time_zone"
        ),
        "test_cost_aware_parts.py::test_a_refusal_with_nothing_affordable_says_so": "currency",
        "test_budget_units.py::test_a_budget_of_calls_counts_calls_of_tools_that_cost_nothing": (
            "budgets.*.unit"
        ),
        "test_budget_units.py::test_a_budget_counts_the_calls_of_its_tools_alone": "budgets.*.tools",
        "test_budget_units.py::test_an_argument_says_how_much_for_each_of_those_that_another_names": (
            "budgets.*.amount"
        ),
        "test_budget_units.py::test_beyond_a_limit_a_person_is_asked_but_not_beyond_one_that_denies": (
            "budgets.*.at_limit"
        ),
        "test_options.py::test_an_equivalents_arguments_are_taken_from_the_call_or_are_literal": (
            "alternatives alternatives.*.tools alternatives.*.tools.*.arguments "
            "alternatives.*.tools.*.arguments.*.value alternatives.*.tools.*.arguments.*.*.value"
        ),
        "test_cost_aware_estimates.py::test_what_a_tool_does_not_declare_is_the_defaults": (
            "default default.cost default.latency_s tools.*.latency_s"
        ),
        "test_cost_aware_estimates.py::test_without_learning_only_the_configuration_counts": "learn",
        "test_cost_aware_estimates.py::test_the_weights_choose_between_cheap_and_fast": (
            "cost_weight latency_weight"
        ),
        "test_cost_aware_estimates.py::test_a_failure_is_forgotten_by_the_half_life": "half_life_s",
        "test_sticky.py::test_calls_of_a_session_stay_until_another_is_clearly_better": "sticky",
        "test_success_by.py::test_a_tool_that_fails_for_one_team_is_left_by_that_team_alone": "success_by",
        "test_exploration.py::test_a_share_of_the_calls_tries_the_one_of_which_least_is_known": (
            "explore explore.share"
        ),
        "test_exploration.py::test_what_it_may_cost_in_a_window_bounds_it": "explore.cost explore.window",
        "test_cost_aware_delegations.py::test_the_weights_choose_among_agents": (
            "agents agents.*.cost agents.*.latency_s alternatives.*.agents"
        ),
        "test_cost_aware.py::test_what_an_llm_costs_is_charged_once_to_the_same_budgets": "charge_llm",
        "test_cost_aware_last.py::test_it_looks_in_select_and_verify_and_reserves_in_admit": "admission",
        "test_options.py::test_requests_to_an_llm_cost_what_its_prices_say": (
            "llm llm.prices llm.prices.*.input llm.prices.*.output llm.prices.*.cache_read "
            "llm.prices.*.cache_write llm.prices.*.cache_in_input llm.default llm.default.input "
            "llm.default.output llm.default.cache_read llm.default.cache_write llm.default.cache_in_input "
            "llm.equivalents llm.max_output_tokens"
        ),
        "ha/test_durability.py::"
        "test_a_call_is_denied_in_words_where_replicas_are_missing_or_the_server_takes_no_writes": DURABLE,
        "acceptance/budgets/test_ledger_lost.py::"
        "test_a_scheduler_that_begins_after_the_loss_knows_of_it_and_one_may_go_on_all_the_same": (
            "on_ledger_lost"
        ),
    },
    "heuristic": {
        "test_heuristic.py::test_round_robin_takes_turns_over_all_replicas": "strategy",
        "test_sticky.py::test_calls_of_a_session_stay_until_another_is_clearly_better": "sticky",
        "test_success_by.py::test_a_tool_that_fails_for_one_team_is_left_by_that_team_alone": "success_by",
        "test_exploration.py::test_a_share_of_the_calls_tries_the_one_of_which_least_is_known": (
            "explore explore.share"
        ),
        "test_heuristic.py::test_random_is_fair_and_says_the_same_when_asked_twice": "seed",
        "test_heuristic.py::test_switched_off_it_only_denies_what_is_not_available": "override_enabled",
        "test_heuristic.py::"
        "test_a_delegation_goes_to_the_first_agent_of_the_group_that_is_available": "groups.*.agents",
        "test_options.py::test_an_equivalents_arguments_are_taken_from_the_call_or_are_literal": (
            "groups groups.*.tools groups.*.tools.*.arguments groups.*.tools.*.arguments.*.value "
            "groups.*.tools.*.arguments.*.*.value"
        ),
    },
    "loop-guard": {
        "test_loop_guard.py::test_each_limit_lets_as_many_pass_and_tells_the_llm_the_count": (
            "calls_per_turn calls_per_session calls_per_tree seconds_per_session"
        ),
        "test_loop_guard.py::test_the_same_call_in_a_row_is_denied_until_another_is_made": (
            "same_call same_call.times"
        ),
        "test_loop_guard.py::test_calls_that_take_turns_are_found_within_a_window": "same_call.within",
        "test_loop_guard.py::test_exempt_tools_are_neither_counted_nor_denied_nor_break_a_row": "exempt",
        "test_loop_guard.py::test_agents_may_stand_above_each_other_as_deep_as_it_says": "max_depth",
        "test_loop_guard.py::test_a_session_may_delegate_as_often_as_it_says": "max_width",
        "test_loop_guard.py::test_a_tree_may_have_as_many_agents_as_it_says_and_refused_ones_are_none": (
            "max_agents"
        ),
    },
    "policy": {
        "test_rules_about_calls.py::test_a_policy_rule_is_about_the_calls_that_all_its_conditions_fit": (
            f"rules rules.*.tools {_in('rules.*', ABOUT)} default"
        ),
        "test_policy.py::test_an_ask_carries_prompt_options_and_time": (
            "rules.*.action rules.*.prompt rules.*.options rules.*.timeout_s"
        ),
        "test_policy.py::"
        "test_a_policy_that_observes_lets_every_call_go_on_and_says_what_enforcing_would_have_done": "mode",
        "test_policy.py::test_an_observing_rule_lets_the_call_go_on_to_the_next_and_is_told_of": (
            "rules.*.mode rules.*.reason"
        ),
        "test_options.py::"
        "test_of_arguments_that_cannot_be_seen_whole_a_rule_says_what_they_count_as": "rules.*.unknown",
        FITS: (
            f"rules.*.after rules.*.unless_after {_in('rules.*.after', BEFORE)} "
            f"{_in('rules.*.unless_after', BEFORE)}"
        ),
        WHOSE: (
            f"{_in('rules.*.after', 'success within_s same scope')} "
            f"{_in('rules.*.unless_after', 'success within_s same scope')}"
        ),
        "test_options.py::test_a_rule_counts_calls_by_session_tree_or_label_within_its_time": (
            f"rules.*.at_most {_in('rules.*.at_most', 'n within_s scope')}"
        ),
        "test_policy_results.py::test_every_option_of_a_rule_on_results_holds": (
            "rules.*.on rules.*.success rules.*.mask rules.*.mask.*.kind "
            "rules.*.mask.*.pattern rules.*.mask.*.name rules.*.label rules.*.when_session"
        ),
        "test_policy_fields.py::test_a_rule_hides_the_fields_that_it_names": "rules.*.mask.*.fields",
        "test_policy_results.py::test_a_rule_does_not_fit_a_result_that_all_conditions_of_unless_fit": (
            f"rules.*.unless {_in('rules.*.unless.*', COMPARED)}"
        ),
        "test_policy_order_results.py::test_a_rule_on_order_is_about_what_the_calls_before_gave": (
            f"rules.*.after.result {_in('rules.*.after.result.*', COMPARED)} "
            f"rules.*.unless_after.result {_in('rules.*.unless_after.result.*', COMPARED)}"
        ),
        "test_policy_order_results.py::"
        "test_an_argument_is_added_up_over_all_calls_of_a_session": "rules.*.at_most.sum",
        "test_policy_ordered.py::"
        "test_who_waits_is_told_when_its_producer_ends_fails_or_is_denied": "rules.*.wait_s",
    },
    "provenance": {
        "test_options.py::test_every_option_of_a_sink_holds": (
            "sinks sinks.*.name sinks.*.tools sinks.*.to sinks.*.match sinks.*.words sinks.*.links "
            "sinks.*.trusted sinks.*.action trusted action timeout_s annotations"
        ),
        "test_provenance.py::test_a_sink_counts_once_the_session_has_read_something_from_outside": (
            "outside label sinks.*.when_session"
        ),
    },
    "rate-limit": {
        "test_rules_about_calls.py::test_a_limit_is_about_the_calls_that_all_its_conditions_fit": (
            _in("limits.*", ABOUT)
        ),
        "test_options.py::test_calls_are_limited_by_whose_they_are_which_and_how_many": (
            "limits limits.*.tools limits.*.per limits.*.rate "
            "limits.*.rate.calls limits.*.rate.seconds limits.*.burst"
        ),
        "acceptance/shipped/test_limits.py::"
        "test_with_admission_a_call_that_others_deny_uses_up_nothing": "admission",
    },
    "router": {
        "test_rules_about_calls.py::test_a_route_is_about_the_calls_that_all_its_conditions_fit": (
            f"routes routes.*.from routes.*.to {_in('routes.*', ABOUT)}"
        ),
        "test_router.py::test_arguments_are_mapped_by_path_whole_or_literally": (
            "routes.*.arguments routes.*.arguments.*.value routes.*.reason"
        ),
        "test_router.py::test_a_delegation_may_go_to_another_agent_that_is_there": "routes.*.agent",
        "test_options.py::test_a_target_has_literal_arguments_of_its_own_and_an_agent": (
            "routes.*.targets routes.*.targets.*.to routes.*.targets.*.weight routes.*.targets.*.arguments "
            "routes.*.targets.*.arguments.*.value routes.*.targets.*.agent routes.*.sticky"
        ),
        "test_router.py::test_the_best_target_is_the_one_from_which_a_success_comes_soonest": (
            "routes.*.choose"
        ),
        "test_success_by.py::test_a_tool_that_fails_for_one_team_is_left_by_that_team_alone": (
            "routes.*.success_by"
        ),
        "test_exploration.py::test_a_share_of_the_calls_tries_the_one_of_which_least_is_known": (
            "routes.*.explore routes.*.explore.share"
        ),
        "test_options.py::test_a_target_that_fails_is_left_alone_as_its_fallback_says": (
            "routes.*.fallback routes.*.fallback.after routes.*.fallback.within_s routes.*.fallback.share "
            "routes.*.fallback.for_s routes.*.fallback.to routes.*.fallback.arguments "
            "routes.*.fallback.arguments.*.value routes.*.fallback.agent"
        ),
    },
    "slots": {
        "test_rules_about_calls.py::test_a_pool_is_about_the_calls_that_all_its_conditions_fit": (
            f"pools {_in('pools.*', ABOUT.removeprefix('name '))}"
        ),
        "test_options.py::test_so_many_calls_have_slots_by_key_and_readers_together": (
            "pools.*.name pools.*.tools pools.*.limit pools.*.key pools.*.shared pools.*.shared.tools "
            "pools.*.wait_s"
        ),
        "test_options.py::test_whose_turn_it_is_goes_by_share_class_and_age": (
            "pools.*.share pools.*.share.by pools.*.share.weights pools.*.share.default pools.*.priority "
            "pools.*.priority.by pools.*.priority.classes pools.*.priority.default pools.*.priority.ageing_s"
        ),
        "test_options.py::test_a_limit_follows_what_its_tool_says_as_the_pool_says": (
            "pools.*.adaptive pools.*.adaptive.min pools.*.adaptive.signals pools.*.adaptive.climb_s "
            "pools.*.adaptive.pause_s"
        ),
    },
}
"""By scheduler: test to the options that it shows; files without a folder stand beside this one."""

CONFIGS: Final = {
    "approval": "ApprovalConfig",
    "cost-aware": "CostAwareConfig",
    "heuristic": "HeuristicConfig",
    "loop-guard": "LoopGuardConfig",
    "policy": "PolicyConfig",
    "provenance": "ProvenanceConfig",
    "rate-limit": "RateLimitConfig",
    "router": "RouterConfig",
    "slots": "SlotsConfig",
}
"""The name of each scheduler's configuration model."""


def options_of(scheduler: str) -> list[str]:
    """The options that have a test."""
    return [option for options in TESTED[scheduler].values() for option in options.split()]


def shown_by() -> list[tuple[str, str, str]]:
    """Scheduler, option, test: each once."""
    return [
        (scheduler, option, test if "/" in test else f"schedulers/shipped/{test}")
        for scheduler, tests in TESTED.items()
        for test, options in tests.items()
        for option in options.split()
    ]
